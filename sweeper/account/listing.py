"""The entries of an account as people read them, newest first: who, what, when, and how much of the budget."""

from collections.abc import Mapping
from dataclasses import dataclass

from clipless.privacy.gaussian import GaussianCost
from sweeper.account.account import Account
from sweeper.account.balance import Balance
from sweeper.account.blocks import ALL_ROWS
from sweeper.account.cost import larger
from sweeper.account.entries import (
    Bound,
    Charged,
    Closed,
    Entry,
    Opened,
    Raised,
    Reserved,
    Settled,
    Share,
    Shared,
    Side,
)
from sweeper.account.summary import part_of
from sweeper.rounding import exactly


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRow:
    """One entry.

    Attributes:
        number: of the entry, from 1.
        at: when it was written, ISO 8601 in UTC.
        kind: what it is: opened, raised, shared, bound, reserved, charged, settled or closed.
        by: who: the owner of the account, or the spender; empty for rows that were bound.
        sweep: the title of the sweep, empty where it is of none.
        detail: the release that was charged, or what the owner said.
        part: how much of a budget it reserves, charges or gives back, from 0 to 1; ``None`` where it does not.
    """

    number: int
    at: str
    kind: str
    by: str
    sweep: str = ""
    detail: str = ""
    part: float | None = None


def list_entries(account: Account, offset: int, limit: int) -> tuple[tuple[EntryRow, ...], int]:
    """Return entries, newest first, behind the first ``offset`` of them and no more than ``limit``; and how many.

    Raises:
        RecordError: the account cannot be read, or an entry is not what was written.
    """
    balance = account.balance()
    total = account.head.number
    until = max(total - offset, 0)
    after = max(until - limit, 0)
    numbered = enumerate(account.entries(after, until), start=after + 1) if until else ()
    rows = [_row(number, entry, balance) for number, entry in numbered]
    return tuple(reversed(rows)), total


def _row(number: int, entry: Entry, balance: Balance) -> EntryRow:
    by, sweep, detail, part = "", "", "", None
    match entry:
        case Opened() | Raised():
            by, detail = entry.by, f"epsilon {exactly(entry.epsilon)} at delta {entry.delta!r}"
            detail += f": {entry.because}" if isinstance(entry, Raised) else ""
        case Shared():
            by, detail = entry.by, ", ".join(map(_share_in_words, entry.shares)) or "no shares: everybody may spend"
        case Bound():
            detail = "all rows" if entry.block == ALL_ROWS else f"block {entry.block}"
        case Reserved():
            by, sweep, part = entry.spender, entry.title, _part(entry.costs, balance)
        case Charged():
            by, sweep = _known(entry.sweep, balance)
            detail, part = entry.what, _part(entry.costs, balance)
        case Settled():
            by, sweep = _known(entry.sweep, balance)
            part = _part(entry.returned, balance)
        case Closed():
            by, detail = entry.by, ": ".join(filter(None, [entry.block, entry.because]))
    return EntryRow(number=number, at=entry.at, kind=entry.kind, by=by, sweep=sweep, detail=detail, part=part)


def _known(sweep: str, balance: Balance) -> tuple[str, str]:
    found = balance.sweeps[sweep]
    return found.spender, found.title


def _part(costs: Mapping[Side, GaussianCost], balance: Balance) -> float:
    most = GaussianCost()
    for cost in costs.values():
        most = larger(most, cost)
    return part_of(most, balance.budget)


def _share_in_words(share: Share) -> str:
    members = f" ({', '.join(share.members)})" if share.members else ""
    return f"{share.name}{members} {100 * share.part:g} %"
