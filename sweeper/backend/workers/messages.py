"""The messages between a worker and the driver: reports of several trials at once, and assignments in answer."""

import pickle
import traceback
from dataclasses import dataclass
from typing import Self

import cloudpickle  # type: ignore[import-untyped]

from sweeper.backend.trainable import CliplessTrial, Constants
from sweeper.backend.trial_states import TrialStart
from sweeper.specification.plugins import architecture, declared_builders
from sweeper.trials.stream import TrialRow


class _ForeignError(Exception):
    """Stands for an error of a worker that cannot be pickled."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A trial has failed in its worker. The traceback may quote data and is for the owner alone."""

    error: Exception
    traceback: str

    @classmethod
    def of(cls, error: Exception) -> Self:
        """Return an error as it travels."""
        text = "".join(traceback.format_exception(error))
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = _ForeignError(f"{type(error).__name__}: {error}")
        return cls(error.with_traceback(None), text)


TrialReport = tuple[str, TrialRow | Failure]
"""The id of a trial, and its next row or its failure."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker reports; it then waits for an `Assignment`.

    Attributes:
        rows: in the order in which they came about.
        free: how many more trials it can take.
    """

    rows: tuple[TrialReport, ...] = ()
    free: int = 1


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker trains from now on.

    Attributes:
        kind: the class of the trials and the architectures that the driver's program has declared, pickled by `of`.
        constants: what the configuration of every trial holds, but for the data, which the worker has.
        stack: how many trials it trains as one at most; ``None`` for as many as pay.
    """

    kind: bytes
    constants: Constants
    stack: int | None

    @classmethod
    def of(cls, kind: type[CliplessTrial], constants: Constants, stack: int | None) -> Self:
        """Return a task; classes and functions of a script or a notebook travel as they are."""
        return cls(cloudpickle.dumps((kind, declared_builders())), constants, stack)

    def unpack(self) -> type[CliplessTrial]:
        """Return the class of the trials, in a worker that then knows the declared architectures."""
        kind, builders = pickle.loads(self.kind)
        for builder in builders:
            architecture(builder)
        made: type[CliplessTrial] = kind
        return made


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a worker may do until its next report.

    Attributes:
        stopped: trials that draw no more noise and that it reports no more.
        trials: those that it takes.
        task: another task than before.
        more: how many trials it could be given beyond these, as things stand.
    """

    stopped: frozenset[str] = frozenset()
    trials: tuple[TrialStart, ...] = ()
    task: Task | None = None
    more: int = 0
