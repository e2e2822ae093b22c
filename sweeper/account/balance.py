"""What an account has given away: its entries taken one after another, each checked against those before it.

A row of data is in one block and on one side of the account's split, so every side of every block has the whole budget
(parallel composition, which holds for adaptive choices too: what reads other rows is the same with and without the
row). What a sweep has reserved counts as taken until the sweep is settled; then what it has not drawn is returned.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from clipless.privacy.gaussian import GaussianCost
from sweeper.account.blocks import BoundUnits, is_declared, is_same_split
from sweeper.account.cost import NOTHING, is_covered, is_whole, is_within, larger, left_of, total
from sweeper.account.entries import (
    EVERYBODY,
    Bound,
    Charged,
    Closed,
    Costs,
    Entry,
    Opened,
    Position,
    Raised,
    Reserved,
    Settled,
    Share,
    Shared,
    Side,
)
from sweeper.errors import RecordError
from sweeper.rounding import exactly

Place = tuple[str, Side]  # a block, and a side of it
UNKNOWN = ""  # the digest of sides of a block that an earlier version has charged


@dataclass(slots=True, kw_only=True)
class SweepAccount:
    """What one sweep has of an account.

    Attributes:
        spender: who reserved it first; nobody else reserves more for it.
        split: what says the side of each of its rows, ``None`` where rows are not assigned one by one.
        sides: the digest of what put the rows of each block there; an earlier version noted none.
        federation: the digest of the federation in whose sums its rows are, ``None`` of a sweep.
        held: what it may draw, or has drawn, on each side of each of its blocks.
        reserved: the most that it held at any time, which ends and returns do not lower.
        charged: what it has drawn, by release, and ``drawn`` all of it on each side.
        position: of its ledger at the last charge or settlement, ``None`` before the first.
    """

    title: str
    spender: str
    blocks: tuple[str, ...]
    split: str | None
    sides: Mapping[str, str] | None = None
    federation: str | None = None
    held: dict[Side, GaussianCost] = field(default_factory=dict)
    reserved: dict[Side, GaussianCost] = field(default_factory=dict)
    charged: dict[str, Costs] = field(default_factory=dict)
    drawn: dict[Side, GaussianCost] = field(default_factory=dict)
    position: Position | None = None
    is_open: bool = True
    since: str = ""

    def keeps(self, entry: Reserved) -> bool:
        """Whether its rows are on the sides on which it began, of which an earlier version has noted none."""
        return is_same_split(self.split, entry.split) and self.sides in (entry.sides, None)

    @property
    def undrawn(self) -> dict[Side, GaussianCost]:
        """What it holds and has not drawn, where that is anything."""
        left = {side: left_of(held, self.drawn.get(side, NOTHING)) for side, held in self.held.items()}
        return {side: cost for side, cost in left.items() if cost != NOTHING}


@dataclass(slots=True)
class HeldBack:
    """What sweeps of an account say of the rows that they hold back.

    Attributes:
        are_public: whether they are, in the first sweep and so in all; ``None`` before it.
        sides: where they are, the digest of what put the rows of each block on their sides.
    """

    are_public: bool | None = None
    sides: dict[str, str] = field(default_factory=dict)

    def note(self, entry: Reserved) -> None:
        """Note what a sweep says when it reserves first; one of an earlier version says it by what it does not pay."""
        public = entry.public
        if public is None and entry.split is not None:
            public = Side.VALIDATION not in entry.costs
        if public is not None and self.are_public is None:
            self.are_public = public
        if public:
            for block in entry.blocks:
                self.sides.setdefault(block, (entry.sides or {}).get(block, UNKNOWN))


class Balance:
    """The entries of one account so far, and what they leave.

    Raises:
        RecordError: the first entry does not open an account.
    """

    def __init__(self, opened: Entry) -> None:
        if not isinstance(opened, Opened):
            raise RecordError(f"Expected an account that begins with its opening, got {opened.kind}; restore the store")
        self.opened = opened
        self.epsilon, self.delta = opened.epsilon, opened.delta
        self.budget = GaussianCost(opened.square, opened.slack)
        _check_budget(self.epsilon, self.delta, self.budget)
        self.shares = opened.shares
        self.split: str | None = None
        self.sides: dict[str, str] = {}
        self.held_back = HeldBack()
        self.digests: dict[str, str] = {}
        self.units = BoundUnits()
        self.cut: str | None = None
        self.read: dict[str, tuple[str, ...]] = {}  # the blocks of rows, by digests of them beside `digests`
        self.closed: dict[str | None, str] = {}
        self.sweeps: dict[str, SweepAccount] = {}
        self._taken: dict[Place, GaussianCost] = defaultdict(lambda: NOTHING)
        self._spent: dict[tuple[str, Place], GaussianCost] = defaultdict(lambda: NOTHING)

    @property
    def terms(self) -> tuple[float, float]:
        """The epsilon and delta that every release is priced for, those of the opening, whatever the budget became."""
        return self.opened.epsilon, self.opened.delta

    def taken(self, place: Place) -> GaussianCost:
        """Return what is reserved or drawn on a side of a block."""
        return self._taken.get(place, NOTHING)

    def left(self, place: Place) -> GaussianCost:
        """Return what nobody has reserved on a side of a block."""
        return left_of(self.budget, self.taken(place))

    def shares_of(self, spender: str) -> tuple[Share, ...]:
        """Return the shares that bound a spender: their own and those of their groups, or everybody's."""
        named = tuple(share for share in self.shares if spender == share.name or spender in share.members)
        return named or tuple(share for share in self.shares if share.name == EVERYBODY)

    def left_under(self, share: Share, spender: str, place: Place) -> GaussianCost:
        """Return what a share leaves of a side of a block; a group and its members take from it together."""
        most = GaussianCost(self.budget.square * share.part, self.budget.slack * share.part)
        names = {share.name, *share.members} if share.members else {spender}
        return left_of(most, total(self._spent.get((name, place), NOTHING) for name in names))

    def taken_by(self, spender: str, place: Place) -> GaussianCost:
        """Return what a spender has taken of a side of a block."""
        return self._spent.get((spender, place), NOTHING)

    @property
    def spenders(self) -> tuple[str, ...]:
        """Everybody who has reserved something, in alphabetical order."""
        return tuple(sorted({sweep.spender for sweep in self.sweeps.values()}))

    def places(self) -> Iterable[Place]:
        """Yield every side of every block."""
        return ((block, side) for block in self.digests for side in Side)

    def take(self, entry: Entry) -> None:
        """Take the next entry.

        Raises:
            RecordError: it breaks the rules of an account.

        Guarantees:
            On every side of every block, what is taken never exceeds the budget; what is drawn never exceeds what its
            sweep holds; what has drawn is never returned.
        """
        match entry:
            case Opened():
                raise RecordError("Expected one opening of an account, got a second one; restore the store")
            case Raised():
                self._raise(entry)
            case Shared():
                self.shares = entry.shares
            case Bound():
                self._bind(entry)
            case Reserved():
                self._reserve(entry)
            case Charged():
                self._charge(entry)
            case Settled():
                self._settle(entry)
            case Closed():
                self.closed[entry.block] = entry.because

    def _raise(self, entry: Raised) -> None:
        raised = GaussianCost(entry.square, entry.slack)
        _check_budget(entry.epsilon, entry.delta, raised)
        if not (is_within(self.budget, raised) and entry.delta >= self.delta and entry.epsilon >= self.epsilon):
            raise RecordError(
                f"Expected a budget that is no smaller than epsilon {exactly(self.epsilon)} at delta {self.delta!r}, "
                f"got epsilon {exactly(entry.epsilon)} at delta {entry.delta!r}: what is spent cannot be taken back"
            )
        self.epsilon, self.delta, self.budget = entry.epsilon, entry.delta, raised

    def _bind(self, entry: Bound) -> None:
        is_known = self.digests.get(entry.block) == entry.digest
        is_late = is_known and self.units.missing(entry.block, entry.units or "")
        if not is_late and (entry.block in self.digests or entry.digest in self.digests.values()):
            raise RecordError(f"Expected rows for block {entry.block!r} once and in no other block, got them again")
        self.units.note(entry)
        self.digests[entry.block] = entry.digest

    def _reserve(self, entry: Reserved) -> None:
        known = self.sweeps.get(entry.sweep)
        if known is not None and (known.spender, known.blocks) != (entry.spender, entry.blocks):
            raise RecordError(
                f"Expected sweep {entry.title!r} to spend for {known.spender!r} in blocks {', '.join(known.blocks)} as "
                f"before, got {entry.spender!r} in {', '.join(entry.blocks)}"
            )
        if known is not None and not known.keeps(entry):
            raise RecordError(f"Expected the split of sweep {entry.title!r} as before, got another; restore the store")
        unbound = [block for block in entry.blocks if block not in self.digests]
        if unbound or not entry.blocks:
            raise RecordError(f"Expected blocks that are bound to their rows, got {unbound or 'none'}")
        self._take_cut(entry)
        _check_whole(entry.costs)
        for block in entry.blocks:
            for side, cost in entry.costs.items():
                self._add((block, side), entry.spender, cost)
        if self.split is None and is_declared(self.opened, entry.split):
            self.split = entry.split
        if entry.split is not None and is_same_split(entry.split, self.split):
            for block in entry.blocks:
                self.sides.setdefault(block, (entry.sides or {}).get(block, UNKNOWN))
        if known is None:
            self.held_back.note(entry)
        sweep = known or SweepAccount(
            title=entry.title,
            spender=entry.spender,
            blocks=entry.blocks,
            split=entry.split,
            sides=entry.sides,
            federation=entry.federation,
            since=entry.at,
        )
        for side, cost in entry.costs.items():
            sweep.held[side] = total([sweep.held.get(side, NOTHING), cost])
            sweep.reserved[side] = larger(sweep.reserved.get(side, NOTHING), sweep.held[side])
        sweep.is_open = True
        self.sweeps[entry.sweep] = sweep

    def _take_cut(self, entry: Reserved) -> None:
        if entry.cut is not None and self.cut not in (None, entry.cut):
            raise RecordError(f"Expected blocks by column {self.cut!r}, got some by {entry.cut!r}; restore the store")
        self.cut = self.cut or entry.cut
        self.read |= entry.blocks_by_rows()

    def _add(self, place: Place, spender: str, cost: GaussianCost) -> None:
        after = total([self._taken[place], cost])
        if not is_within(after, self.budget):
            raise RecordError(
                f"Expected reservations within the budget of block {place[0]!r} ({place[1].value} rows), got more; "
                "restore the store"
            )
        self._taken[place] = after
        self._spent[spender, place] = total([self._spent[spender, place], cost])

    def _charge(self, entry: Charged) -> None:
        sweep = self._open_sweep(entry.sweep)
        if entry.what in sweep.charged:
            raise RecordError(f"Expected one charge for {entry.what} of sweep {sweep.title!r}, got a second one")
        _check_whole(entry.costs)
        undrawn = sweep.undrawn
        if not all(is_within(cost, undrawn.get(side, NOTHING)) for side, cost in entry.costs.items()):
            raise RecordError(
                f"Expected no more than what sweep {sweep.title!r} has reserved for {entry.what}, got more; reserve it"
            )
        sweep.charged[entry.what] = entry.costs
        for side, cost in entry.costs.items():
            sweep.drawn[side] = total([sweep.drawn.get(side, NOTHING), cost])
        sweep.position = entry.position

    def _settle(self, entry: Settled) -> None:
        sweep = self._open_sweep(entry.sweep)
        if dict(entry.returned) != sweep.undrawn:
            raise RecordError(
                f"Expected what sweep {sweep.title!r} has not drawn to be returned, no more and no less; restore the "
                "store"
            )
        for side, cost in entry.returned.items():
            sweep.held[side] = left_of(sweep.held[side], cost)
            for block in sweep.blocks:
                self._taken[block, side] = left_of(self._taken[block, side], cost)
                spent = (sweep.spender, (block, side))
                self._spent[spent] = left_of(self._spent[spent], cost)
        sweep.position, sweep.is_open = entry.position, False

    def _open_sweep(self, id_: str) -> SweepAccount:
        sweep = self.sweeps.get(id_)
        if sweep is None or not sweep.is_open:
            raise RecordError(f"Expected a sweep with a reservation, got {id_!r}, which has none; reserve it first")
        return sweep


def _check_whole(costs: Mapping[Side, GaussianCost]) -> None:
    if not all(is_whole(cost) for cost in costs.values()):
        raise RecordError("Expected costs in whole steps, so that sums are exact, got others; restore the store")


def _check_budget(epsilon: float, delta: float, budget: GaussianCost) -> None:
    """Refuse a budget that epsilon and delta do not give."""
    if not is_covered(budget, epsilon, delta):
        raise RecordError(
            f"Expected the budget that epsilon {exactly(epsilon)} at delta {delta!r} gives, got more; restore the store"
        )


def replay(entries: Iterable[Entry]) -> Balance:
    """Return the balance after entries, the first of which opens the account.

    Raises:
        RecordError: one breaks the rules.
    """
    first, *others = entries
    balance = Balance(first)
    for entry in others:
        balance.take(entry)
    return balance
