"""An account as people look at it: what was spent, by whom, on what, when, and what is left per block and spender."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from clipless.privacy.gaussian import GaussianCost
from sweeper.account.balance import Balance, Place, SweepAccount
from sweeper.account.blocks import ALL_ROWS
from sweeper.account.cost import NOTHING, epsilon_within, larger
from sweeper.account.entries import EVERYBODY, Costs, Side
from sweeper.account.rules import Reservation, count_alike, missing_sides
from sweeper.rounding import exactly, round_down, round_up

SMALLEST_SHARE = 1e-5  # that is written as a number
LARGEST_SIDE = "shares are those of the side where each is largest, and need not add up to what a side has taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceSummary:
    """How much of the budget of one side of one block is taken, and how much of that was drawn; from 0 to 1."""

    block: str
    side: str
    taken: float
    drawn: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSummary:
    """What one sweep has of an account, as the largest share of a budget that each is; from 0 to 1.

    Attributes:
        reserved: the most that it held at any time; one like it must reserve as much.
        taken: what it holds now.
        drawn: what it has drawn.
    """

    id: str
    title: str
    spender: str
    blocks: tuple[str, ...]
    since: str
    reserved: float
    taken: float
    drawn: float
    is_settled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SpenderSummary:
    """The largest share of a budget that a spender has taken, and may take; from 0 to 1."""

    name: str
    taken: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a spender may still take.

    Attributes:
        left: the share of a budget, on the side with the least, from 0 to 1.
        epsilon: of a Gaussian signal that takes all of it, at the delta of the account. A sweep of that price takes
            more, how much depends on its plan.
    """

    left: float
    epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSummary:
    """How an account stands.

    Attributes:
        claim: what holds for everything that is ever released from the data, in one sentence.
        closed: the blocks that are closed and why, all rows for the whole account.
    """

    name: str
    unit: str
    relation: str
    epsilon: float
    delta: float
    claim: str
    until: str | None
    closed: Mapping[str, str]
    places: tuple[PlaceSummary, ...]
    spenders: tuple[SpenderSummary, ...]
    sweeps: tuple[SweepSummary, ...]

    @property
    def taken(self) -> float:
        """The largest share of a budget that is reserved or drawn, from 0 to 1."""
        return max((place.taken for place in self.places), default=0.0)

    @property
    def drawn(self) -> float:
        """The largest share of a budget that is drawn, from 0 to 1."""
        return max((place.drawn for place in self.places), default=0.0)


def summarise(balance: Balance) -> AccountSummary:
    """Return how an account stands, its sweeps in the order in which they reserved."""
    opened, budget = balance.opened, balance.budget
    each = "" if set(balance.digests) <= {ALL_ROWS} else " of each block"
    claim = (
        f"Everything that is ever released from the private rows{each} through account {opened.name!r} costs epsilon "
        f"{exactly(balance.epsilon)} at delta {balance.delta!r} together, whatever earlier sweeps showed (unit "
        f"{opened.unit}, {opened.relation.value})."
    )
    drawn = _drawn(balance)
    shared = (share.name for share in balance.shares if share.name != EVERYBODY and not share.members)
    return AccountSummary(
        name=opened.name,
        unit=opened.unit,
        relation=opened.relation.value,
        epsilon=balance.epsilon,
        delta=balance.delta,
        claim=claim,
        until=opened.until,
        closed={block or ALL_ROWS: why for block, why in balance.closed.items()},
        places=tuple(
            PlaceSummary(
                block=block,
                side=side.value,
                taken=part_of(balance.taken((block, side)), budget),
                drawn=part_of(drawn.get((block, side), GaussianCost()), budget),
            )
            for block, side in balance.places()
        ),
        spenders=tuple(_of_spender(balance, name) for name in sorted({*balance.spenders, *shared})),
        sweeps=tuple(_of_sweep(id_, sweep, budget) for id_, sweep in balance.sweeps.items()),
    )


def part_of(cost: GaussianCost, budget: GaussianCost) -> float:
    """Return the share of a budget that a cost is, of its square or of its slack, whatever is larger."""
    return max(cost.square / budget.square, cost.slack / budget.slack)


def share_in_words(part: float, *, up: bool = True) -> str:
    """Return a share of a budget as every command, page and answer says it: what is taken up, what is left down.

    >>> share_in_words(0.24688), share_in_words(0.24688, up=False), share_in_words(0.0), share_in_words(1e-9)
    ('24.7 %', '24.6 %', '0 %', '< 0.001 %')
    """
    if 0.0 < part < SMALLEST_SHARE:
        return f"< {100 * SMALLEST_SHARE:g} %"
    return f"{round_up(100 * part, 3) if up else round_down(100 * part, 3)} %"


def count_like(balance: Balance, spender: str, blocks: Iterable[str], costs: Costs) -> int | None:
    """Return how often sweeps of such costs fit into what a spender may still take, ``None`` for ever."""
    counts = []
    for block in blocks:
        for side, cost in costs.items():
            rooms = _rooms(balance, spender, (block, side))
            counts += [count for room in rooms if (count := count_alike(room, cost)) is not None]
    return min(counts, default=None)


def further_sweeps(balance: Balance, wanted: Reservation) -> int | None:
    """Return how many more sweeps of what one wants there is room for behind it, ``None`` for any number."""
    count = count_like(balance, wanted.spender, wanted.blocks, missing_sides(balance, wanted))
    return None if count is None else max(count - 1, 0)


def room_of(balance: Balance, spender: str, places: Iterable[Place]) -> Room:
    """Return what a spender may still take on each of these sides of blocks; of a new block where there is none."""
    found = [cost for place in places for cost in _rooms(balance, spender, place)]
    found = found or list(_rooms(balance, spender, (ALL_ROWS, Side.TRAINING)))
    budget = balance.budget
    return Room(
        left=min(min(cost.square / budget.square, cost.slack / budget.slack) for cost in found),
        epsilon=min(epsilon_within(cost, budget, balance.delta) for cost in found),
    )


def _rooms(balance: Balance, spender: str, place: Place) -> Iterator[GaussianCost]:
    """Yield what the budget leaves of a side, and each share of a spender; nothing for one without any."""
    yield balance.left(place)
    shares = balance.shares_of(spender)
    if balance.shares and not shares:
        yield NOTHING
    for share in shares:
        yield balance.left_under(share, spender, place)


def _drawn(balance: Balance) -> dict[tuple[str, Side], GaussianCost]:
    found: dict[tuple[str, Side], GaussianCost] = {}
    for sweep in balance.sweeps.values():
        for block in sweep.blocks:
            for side, cost in sweep.drawn.items():
                before = found.get((block, side), GaussianCost())
                found[block, side] = GaussianCost(before.square + cost.square, before.slack + cost.slack)
    return found


def _of_sweep(id_: str, sweep: SweepAccount, budget: GaussianCost) -> SweepSummary:
    return SweepSummary(
        id=id_,
        title=sweep.title,
        spender=sweep.spender,
        blocks=sweep.blocks,
        since=sweep.since,
        reserved=part_of(_largest(sweep.reserved), budget),
        taken=part_of(_largest(sweep.held), budget),
        drawn=part_of(_largest(sweep.drawn), budget),
        is_settled=not sweep.is_open,
    )


def _largest(costs: Mapping[Side, GaussianCost]) -> GaussianCost:
    most = GaussianCost()
    for cost in costs.values():
        most = larger(most, cost)
    return most


def _of_spender(balance: Balance, name: str) -> SpenderSummary:
    taken = [part_of(balance.taken_by(name, place), balance.budget) for place in balance.places()]
    shares = [share.part for share in balance.shares_of(name)]
    none = 0.0 if balance.shares else 1.0
    return SpenderSummary(name=name, taken=max(taken, default=0.0), most=min(shares, default=none))
