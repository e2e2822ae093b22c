"""The ways in which a sweep may spend, one file each: what its trials get, what is refused, and the price.

A module without an underscore holds a way that a spec asks for by name: ``slots.py`` is ``accounting: slots``. One
more module is one more way. The others follow from what else a spec says: without a budget trainings are composed
(`_composition`), and with ``search.selection: private`` the winner has a price of its own (`_winner`), or candidates
and a final share a budget (`_exploration`).
"""

from collections.abc import Mapping
from typing import Any

from clipless.imports import find_subclass
from sweeper.errors import RecordError
from sweeper.privacy.spending._base import Budget, Request, Resumed, Spending, UnmetRequestError
from sweeper.specification.plugins import built_in_accountings
from sweeper.specification.stages import UNNAMED_SPENDING

__all__ = [
    "Budget",
    "Request",
    "Resumed",
    "Spending",
    "UnmetRequestError",
    "find_spending",
    "read_budget",
]


def find_spending(name: str) -> type[Spending]:
    """Return the way of spending of that name, which its module defines.

    Raises:
        TypeError: a module of this folder that defines none or several.
    """
    module = f"{__name__}.{'_' * (name in UNNAMED_SPENDING)}{name.replace('-', '_')}"
    return find_subclass(module, Spending)  # type: ignore[type-abstract]


def read_budget(content: Mapping[str, Any]) -> Budget:
    """Return the budget that a row of a ledger holds.

    Raises:
        RecordError: it names no way of spending that has a budget, or has a field that this way does not know.
        KeyError, TypeError, clipless.errors.AccountingError: its fields are not those of that way.
    """
    name = content["accounting"]
    if name not in (*built_in_accountings(), *UNNAMED_SPENDING):
        raise RecordError(f"accounting is {name!r}")
    kind = find_spending(name)
    if not issubclass(kind, Budget):
        raise RecordError(f"accounting is {name!r}, which has no budget")
    budget = kind.from_json(content)
    unknown = sorted(content.keys() - budget.to_json().keys() - {"record"})
    if unknown:  # the row of another way would be priced as less than it allows
        raise RecordError(f"accounting is {name!r}, which has no {', '.join(unknown)}")
    return budget
