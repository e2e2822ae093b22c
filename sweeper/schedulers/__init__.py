"""Schedulers: which trials continue after each epoch. Pure decisions, a function of the events in their order.

A module without an underscore holds one scheduler and bears the name by which a spec asks for it: ``asha.py`` is
``scheduler: asha``. One more module is one more scheduler. Other packages add schedulers by entry points of the group
``sweeper.schedulers``.
"""

from collections.abc import Sequence

from clipless.imports import find_subclass
from sweeper.records import Objective
from sweeper.schedulers._base import Decision, Scheduler, TrialProgress
from sweeper.specification.plugins import built_in_schedulers, load_scheduler
from sweeper.specification.search import NO_SCHEDULER, SearchSettings

__all__ = ["Decision", "Scheduler", "TrialProgress", "make_scheduler"]


def make_scheduler(search: SearchSettings, objectives: Sequence[Objective]) -> Scheduler | None:
    """Return what ends the trials of a sweep early, ``None`` for nothing.

    Raises:
        SpecError: no such plug-in, or it is no scheduler.
    """
    if search.scheduler == NO_SCHEDULER:
        return None
    kind = find_scheduler(search.scheduler)
    return kind(objectives, eta=search.eta, grace=search.grace, brackets=search.brackets)


def find_scheduler(name: str) -> type[Scheduler]:
    """Return the scheduler of that name: the one that its module defines, or that of a plug-in.

    Raises:
        SpecError: no such plug-in, or it is no scheduler.
        TypeError: a module of this folder that defines none or several.
    """
    if name not in built_in_schedulers():
        return load_scheduler(name, Scheduler)  # type: ignore[type-abstract]
    return find_subclass(f"{__name__}.{name.replace('-', '_')}", Scheduler)  # type: ignore[type-abstract]
