"""Why an account refuses a reservation, and what a reservation takes on each side of each block."""

import datetime
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from clipless.privacy.events import Relation
from clipless.privacy.gaussian import GaussianCost
from sweeper.account.balance import UNKNOWN, Balance, Place, SweepAccount
from sweeper.account.blocks import ALL_ROWS, is_declared, is_same_split
from sweeper.account.cost import (
    NOTHING,
    epsilon_of,
    is_within,
    larger,
    left_of,
    rounded_up,
    total,
)
from sweeper.account.entries import Bound, Charged, Costs, Entry, Position, Reserved, Settled, Side
from sweeper.rounding import round_down, round_up

_WHY_MOVED = "the split is another, or a column that decides the side of a row has changed"
MOVED = f"its rows are not known to be on the sides on which the account has charged them: {_WHY_MOVED}"
_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What a sweep asks of an account: everything that it plans, of which it may have a part already.

    A release outside of a sweep asks alike, for itself.

    Outside of a sweep there are neither ``split`` nor ``sides``, and nothing is said of public rows.

    Attributes:
        sweep: its id, which it keeps when it is resumed.
        spender: whose share it takes from.
        unit: the privacy unit of its data, and ``relation`` that of its events.
        costs: all that it plans, by the side of its own split that each release reads.
        split: what says the side of each row, see `split_in_text`; ``None`` where rows are not assigned one by one.
        sides: the keyed digest of what put the rows of each block there, see `digest_sides`.
        blocks: the blocks that it reads, each with the keyed digest of its rows.
        table: the keyed digest of all rows of its file as they were read, see `digest_table`.
        read: those of the rows of each block, see `digest_read_blocks`.
        whole: those of the rows of all blocks together, see `digest_whole`; none of one block.
        units: those of the units of each block, see `digest_units`.
        cut: the column that cuts the rows into blocks; ``None`` where none does.
        federation: the digest of the federation in whose sums the rows are, ``None`` of a sweep.
        has_public_rows: whether rows held back are declared public, so that reading them is free.
        advice: what would fit instead, in front of who can raise the account; empty where nobody has looked.
    """

    sweep: str
    title: str
    spender: str
    unit: str
    relation: Relation
    costs: Costs
    split: str | None
    sides: Mapping[str, str] | None = None
    blocks: Mapping[str, str]
    table: str | None = None
    read: Mapping[str, str] = field(default_factory=dict)
    whole: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    cut: str | None = None
    federation: str | None = None
    has_public_rows: bool | None = None
    advice: str = ""


def known_rows(wanted: Reservation) -> set[str]:
    """Return the digests by which a store knows the rows of a request again, under whatever account."""
    return {*wanted.blocks.values(), *wanted.read.values(), *wanted.whole, *filter(None, [wanted.table])}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Need:
    """What a request takes of one side of a block, and what is left there of one room.

    Attributes:
        room: the account, or a share of it, with a verb, in words.
        whose: the budget, in words.
        remedy: who can give more.
    """

    room: str
    whose: str
    remedy: str
    place: Place
    cost: GaussianCost
    left: GaussianCost


def sides_of(costs: Costs, *, split: str | None, relation: Relation, own: bool) -> dict[Side, GaussianCost]:
    """Return what releases cost on each side of an account, in whole steps.

    Args:
        costs: by the side of the sweep's own split that a release reads.
        split: see `Reservation`.
        relation: of the events.
        own: whether every row is on the side on which the account has it.

    Guarantees:
        A row of either side of the account loses no more than what is charged there. By the account's own split it is
        read by the releases of its side alone. By another one it may be on any side of the sweep, so every side pays
        the largest. Where rows are not assigned one by one, or a neighbouring data set replaces a row and so may change
        two sides, every side pays everything.
    """
    if split is not None and own and relation is Relation.ADD_OR_REMOVE_ONE:
        return {side: rounded_up(cost) for side, cost in costs.items()}
    if split is not None and relation is Relation.ADD_OR_REMOVE_ONE:
        most = NOTHING
        for cost in costs.values():
            most = larger(most, rounded_up(cost))
        return dict.fromkeys(Side, most)
    return dict.fromkeys(Side, total(map(rounded_up, costs.values())))


def account_sides(balance: Balance, wanted: Reservation, costs: Costs) -> dict[Side, GaussianCost]:
    """Return what releases of a sweep cost on each side of an account, whose split is that of its first sweep.

    Guarantees:
        Only a sweep whose rows are on the sides on which the account has charged them is charged by side; where that
        cannot be known, every side pays.
    """
    return sides_of(costs, split=wanted.split, relation=wanted.relation, own=keeps_sides(balance, wanted))


def keeps_sides(balance: Balance, wanted: Reservation) -> bool:
    """Whether every row is on the side on which its block was charged first; those of a new block are."""
    own, sides = balance.split, wanted.sides or {}
    is_own = is_declared(balance.opened, wanted.split) if own is None else is_same_split(wanted.split, own)
    return is_own and all(balance.sides.get(block) in (None, sides.get(block, UNKNOWN)) for block in wanted.blocks)


def is_moved(balance: Balance, wanted: Reservation) -> bool:
    """Whether every side pays for a sweep whose rows are assigned one by one."""
    return wanted.split is not None and not keeps_sides(balance, wanted)


def missing_sides(balance: Balance, wanted: Reservation) -> dict[Side, GaussianCost]:
    """Return what a sweep must still reserve: all that it plans without what it has, where that is anything."""
    known = balance.sweeps.get(wanted.sweep)
    held = {} if known is None else known.held
    planned = account_sides(balance, wanted, wanted.costs)
    left = {side: left_of(cost, held.get(side, NOTHING)) for side, cost in planned.items()}
    return {side: cost for side, cost in left.items() if cost != NOTHING}


def find_refusal(balance: Balance, wanted: Reservation, today: datetime.date) -> str | None:
    """Return why an account refuses a request, in one sentence, ``None`` if it has room for it."""
    missing = missing_sides(balance, wanted)
    known = balance.sweeps.get(wanted.sweep)
    reasons = (
        _refuse_description(balance, wanted),
        _refuse_rows(balance, wanted),
        _refuse_party(balance, wanted),
        _refuse_sweep(known, wanted),
        _refuse_end(balance, wanted, today) if missing or known is None else None,
        _refuse_amount(balance, wanted, missing),
    )
    return next(filter(None, reasons), None)


def reserve_entries(balance: Balance, wanted: Reservation, at: str) -> Iterator[Entry]:
    """Yield what an account enters for a request that it does not refuse; nothing if the sweep has it already."""
    missing = missing_sides(balance, wanted)
    for block, digest in wanted.blocks.items():
        if block not in balance.digests:
            yield Bound(block=block, digest=digest, units=wanted.units.get(block), at=at)
    yield from _late_units(balance, wanted, at)
    known = balance.sweeps.get(wanted.sweep)
    if missing or known is None or not known.is_open or _is_news(balance, wanted):
        yield _reserved(wanted, missing, at)


def _is_news(balance: Balance, wanted: Reservation) -> bool:
    """Whether an earlier version, in which a sweep began, has not noted by what its rows are known again."""
    return wanted.cut != balance.cut or not _blocks_by_rows(wanted).keys() <= _known_blocks(balance).keys()


def _known_blocks(balance: Balance) -> dict[str, tuple[str, ...]]:
    return balance.read | {digest: (block,) for block, digest in balance.digests.items()}


def _blocks_by_rows(wanted: Reservation) -> dict[str, tuple[str, ...]]:
    """Return the blocks of rows that are one block's or are read together, by each digest of these rows."""
    alone = {digest: (block,) for block, digest in wanted.blocks.items()}
    return alone | _reserved(wanted, {}, "").blocks_by_rows()


def note_entries(balance: Balance, wanted: Reservation, at: str) -> Iterator[Entry]:
    """Yield what an account enters for a request that it refuses, although it has these rows: their units, if need be.

    No sweep could read a block that is closed or spent, to note its units.
    """
    if _refuse_description(balance, wanted) is None and _refuse_rows(balance, wanted) is None:
        yield from _late_units(balance, wanted, at)


def _late_units(balance: Balance, wanted: Reservation, at: str) -> Iterator[Bound]:
    """Yield the units of blocks that are bound to their rows, where they are not noted yet.

    Rows that come again under other ids would have a second budget under these ids in another block.
    """
    for block, units in wanted.units.items():
        if block in balance.digests and (new := balance.units.missing(block, units)):
            yield Bound(block=block, digest=wanted.blocks[block], units=new, at=at)


def room_refusal(balance: Balance, wanted: Reservation, draws: Iterable[Costs], today: datetime.date) -> str | None:
    """Return why an account has no room for releases beyond what their sweep has reserved, ``None`` if it has."""
    beyond = _beyond(balance, wanted, _together(balance, wanted, draws))
    if not beyond:
        return None
    return _refuse_end(balance, wanted, today) or _refuse_amount(balance, wanted, beyond)


def room_entries(balance: Balance, wanted: Reservation, draws: Iterable[Costs], at: str) -> Iterator[Entry]:
    """Yield what an account enters for releases that it does not refuse, before they are charged."""
    if beyond := _beyond(balance, wanted, _together(balance, wanted, draws)):
        yield _reserved(wanted, beyond, at)


def charge_entries(
    balance: Balance, wanted: Reservation, what: str, costs: Costs, position: Position, at: str
) -> Iterator[Entry]:
    """Yield what an account enters for a release that it does not refuse, first what it reserves for it."""
    yield from room_entries(balance, wanted, [costs], at)
    taken = account_sides(balance, wanted, costs)
    yield Charged(sweep=wanted.sweep, what=what, costs=taken, position=position, at=at)


def release_entries(balance: Balance, wanted: Reservation, what: str, position: Position, at: str) -> Iterator[Entry]:
    """Yield what an account enters for a release outside of a sweep, which it does not refuse: all at once."""
    yield from reserve_entries(balance, wanted, at)
    costs = account_sides(balance, wanted, wanted.costs)
    yield Charged(sweep=wanted.sweep, what=what, costs=costs, position=position, at=at)
    yield Settled(sweep=wanted.sweep, returned={}, position=position, at=at)


def _reserved(wanted: Reservation, costs: Costs, at: str) -> Reserved:
    return Reserved(
        sweep=wanted.sweep,
        title=wanted.title,
        spender=wanted.spender,
        blocks=tuple(wanted.blocks),
        costs=costs,
        split=wanted.split,
        sides=wanted.sides,
        public=wanted.has_public_rows,
        table=wanted.table,
        read=tuple(wanted.read.values()) or None,
        cut=wanted.cut,
        whole=wanted.whole or None,
        federation=wanted.federation,
        at=at,
    )


def _together(balance: Balance, wanted: Reservation, draws: Iterable[Costs]) -> dict[Side, GaussianCost]:
    """What releases take of each side of the account, one after the other."""
    each = [account_sides(balance, wanted, costs) for costs in draws]
    taken: dict[Side, list[GaussianCost]] = {}
    for side, cost in chain.from_iterable(costs.items() for costs in each):
        taken.setdefault(side, []).append(cost)
    return {side: total(costs) for side, costs in taken.items()}


def _beyond(balance: Balance, wanted: Reservation, taken: Costs) -> dict[Side, GaussianCost]:
    undrawn = balance.sweeps[wanted.sweep].undrawn
    beyond = {side: left_of(cost, undrawn.get(side, NOTHING)) for side, cost in taken.items()}
    return {side: cost for side, cost in beyond.items() if cost != NOTHING}


def _refuse_description(balance: Balance, wanted: Reservation) -> str | None:
    opened = balance.opened
    if wanted.unit != opened.unit:
        return (
            f"Expected data whose privacy unit is {opened.unit!r}, that of account {opened.name!r}, got "
            f"{wanted.unit!r}; change {_key(wanted, 'data', 'unit')}, or open another account"
        )
    if wanted.relation is not opened.relation:
        return (
            f"Expected the relation {opened.relation.value} of account {opened.name!r}, got {wanted.relation.value}; "
            f"change {_key(wanted, 'privacy', 'relation')}, or open another account"
        )
    return None


def _key(wanted: Reservation, section: str, name: str) -> str:
    """Return where a request says something: a sweep in its spec, a release outside of one in its federation."""
    return f"{name} of the federation" if wanted.sides is None else f"{section}.{name}"


def _refuse_rows(balance: Balance, wanted: Reservation) -> str | None:
    name, known = balance.opened.name, balance.digests
    if not wanted.blocks:
        return f"Expected a block of account {name!r} that the sweep reads, got none; name one"
    if ALL_ROWS in wanted.blocks and len(wanted.blocks) > 1:
        return f"Expected all rows of account {name!r} or named blocks of them, got both; name the blocks alone"
    if known and (ALL_ROWS in known) != (ALL_ROWS in wanted.blocks):
        if ALL_ROWS in wanted.blocks:
            return (
                f"Expected rows cut into the blocks of account {name!r} ({', '.join(known)}), got all rows; declare "
                "their column (data.block) and name those that are read (data.blocks)"
            )
        return (
            f"Expected all rows, to which account {name!r} is bound, got blocks {', '.join(wanted.blocks)}; leave out "
            "data.block, or open an account for blocks"
        )
    if wanted.cut is not None and balance.cut not in (None, wanted.cut):
        return (
            f"Expected blocks by column {balance.cut!r}, which cuts the rows of account {name!r}, got some by "
            f"{wanted.cut!r}: a row would have a budget in a block of each; restore {_key(wanted, 'data', 'block')}"
        )
    for block, digest in wanted.blocks.items():
        bound = known.get(block)
        if bound is None and digest in known.values():
            return f"Expected new rows in block {block!r} of account {name!r}, got those of another; name that one"
        if bound is not None and bound != digest:
            return (
                f"Expected the rows that block {block!r} of account {name!r} is bound to, got others; restore the data "
                "and how its rows are encoded, or open an account for the others"
            )
    if len(set(wanted.blocks.values())) < len(wanted.blocks):
        return f"Expected other rows in each block of account {name!r}, got the same in two; cut them apart"
    return _refuse_recut(balance, wanted) or _refuse_units(balance, wanted) or _refuse_public(balance, wanted)


def _refuse_recut(balance: Balance, wanted: Reservation) -> str | None:
    """Refuse rows that are known in other blocks, each of which would have a budget of its own."""
    known = _known_blocks(balance)
    for digest, blocks in _blocks_by_rows(wanted).items():
        before = known.get(digest, blocks)
        if {*before} != {*blocks}:
            return (
                f"Expected the rows of account {balance.opened.name!r} in block {' and '.join(before)}, as before, got "
                f"the same in {' and '.join(blocks)}, where they would have another budget; restore what cuts them "
                f"({_key(wanted, 'data', 'block')})"
            )
    return None


def _refuse_units(balance: Balance, wanted: Reservation) -> str | None:
    """Refuse units that come again in another block, where each would have a second budget."""
    name = balance.opened.name
    if wanted.unit == "row" or ALL_ROWS in wanted.blocks:
        return None
    for block in wanted.blocks:
        if block not in wanted.units:
            return (
                f"Expected the units of block {block!r} of account {name!r}, got rows alone; name the column of "
                f"{wanted.unit!r} ({_key(wanted, 'data', 'unit')})"
            )
    unknown = [block for block in balance.digests if block not in balance.units.known | wanted.units.keys()]
    if unknown and not wanted.blocks.keys() <= balance.digests.keys():
        return (
            f"Expected no new block of account {name!r} before the units of block {unknown[0]!r} are noted, which an "
            f"earlier version has not done; run a sweep on that block ({_key(wanted, 'data', 'blocks')}), which notes "
            "them even if it is refused"
        )
    for block, units in wanted.units.items():
        other = balance.units.find_other(block, units)
        if other is not None:
            return (
                f"Expected every {wanted.unit} in one block of account {name!r}, got one of block {other!r} in block "
                f"{block!r} too, where it would have a second budget; cut by an attribute of the unit, such as the "
                f"month in which it first came ({_key(wanted, 'data', 'block')})"
            )
    return None


def _refuse_party(balance: Balance, wanted: Reservation) -> str | None:
    """Refuse rows at a second party of one federation.

    A row at K parties moves the same noisy sums K times: that is one mechanism of K times the epsilon, and takes about
    K^2 times of an account what it takes at one party, not K times.
    """
    for other in balance.sweeps.values() if wanted.federation is not None else ():
        if other.federation == wanted.federation and other.title != wanted.title and {*other.blocks} & {*wanted.blocks}:
            return (
                f"Expected the rows of account {balance.opened.name!r} at one party of a federation, got those of "
                f"{other.title!r} again for {wanted.title!r}: their noise is drawn once for both; leave one out"
            )
    return None


def _refuse_public(balance: Balance, wanted: Reservation) -> str | None:
    """Refuse rows that are public in one sweep and private in another: no charge covers what is free."""
    name, is_public, before = balance.opened.name, wanted.has_public_rows, balance.held_back.are_public
    if None not in (is_public, before) and is_public != before:
        was, now = ("public", "private") if before else ("private", "public")
        return (
            f"Expected rows held back that are {was}, as in earlier sweeps of account {name!r}, got {now} ones: a row "
            "is one or the other for all of them; restore data.evaluation"
        )
    if not is_public or wanted.sweep in balance.sweeps:
        return None  # one that goes on has the rows that it began with, see `_refuse_sweep`
    sides = wanted.sides or {}
    if any(balance.held_back.sides.get(block) not in (None, sides.get(block)) for block in wanted.blocks):
        return (
            f"Expected the rows that are public in earlier sweeps of account {name!r}, got others, on which these may "
            f"have trained as private ones: {_WHY_MOVED}; restore the split and the data"
        )
    return None


def _refuse_sweep(known: SweepAccount | None, wanted: Reservation) -> str | None:
    if known is None:
        return None
    if not is_same_split(known.split, wanted.split):
        return f"Expected the split that sweep {known.title!r} began with, got another; restore data.splits"
    if known.spender != wanted.spender:
        return (
            f"Expected the spender {known.spender!r}, who has reserved sweep {known.title!r}, got {wanted.spender!r}; "
            "let them resume it"
        )
    if known.blocks != tuple(wanted.blocks):
        was = ", ".join(known.blocks)
        return f"Expected the blocks {was} that sweep {known.title!r} has reserved, got {', '.join(wanted.blocks)}"
    if known.sides not in (wanted.sides, None):  # an earlier version has noted none
        return (
            f"Expected the rows of sweep {known.title!r} on the sides on which it began, got others: what decides the "
            "side of a row has changed; restore the data"
        )
    return None


def _refuse_end(balance: Balance, wanted: Reservation, today: datetime.date) -> str | None:
    opened = balance.opened
    for block in (None, *wanted.blocks):
        if block in balance.closed:
            what = f"account {opened.name!r}" if block is None else f"block {block!r} of account {opened.name!r}"
            return f"Expected an account that is open, but {what} is closed: {balance.closed[block]}"
    if opened.until is not None and today > datetime.date.fromisoformat(opened.until):
        return f"Expected a day until {opened.until}, the end of account {opened.name!r}, got {today.isoformat()}"
    return None


def _refuse_amount(balance: Balance, wanted: Reservation, missing: Costs) -> str | None:
    name, spender = balance.opened.name, wanted.spender
    shares = balance.shares_of(spender)
    if balance.shares and not shares and missing:
        known = ", ".join(sorted(share.name for share in balance.shares))
        return f"Expected a spender with a share of account {name!r} ({known}), got {spender!r}; ask its owner for one"
    lacking = [need for need in _needs(balance, wanted, missing) if not is_within(need.cost, need.left)]
    if not lacking:
        return None
    return _too_much(balance, min(lacking, key=lambda need: _part_left(need, balance)), wanted)


def share_of_room(balance: Balance, wanted: Reservation) -> float:
    """Return what a sweep must still reserve as a share of what is left for it, where that is largest.

    More than 1 without room for it; infinite where nothing is left, for who has no share, or for too little noise.
    """
    missing = missing_sides(balance, wanted)
    if missing and balance.shares and not balance.shares_of(wanted.spender):
        return math.inf
    return max((_share_of(need) for need in _needs(balance, wanted, missing)), default=0.0)


def _share_of(need: _Need) -> float:
    pairs = ((need.cost.square, need.left.square), (need.cost.slack, need.left.slack))
    share = max((math.inf if not left else cost / left for cost, left in pairs if cost), default=0.0)
    return share if is_within(need.cost, need.left) else max(share, math.nextafter(1.0, 2.0))


def _part_left(need: _Need, balance: Balance) -> float:
    return min(need.left.square / balance.budget.square, need.left.slack / balance.budget.slack)


def _needs(balance: Balance, wanted: Reservation, missing: Costs) -> Iterator[_Need]:
    name, spender = balance.opened.name, wanted.spender
    for place, cost in (((block, side), cost) for block in wanted.blocks for side, cost in missing.items()):
        yield _Need(
            room=f"account {name!r}",
            whose="its budget",
            remedy="ask its owner to raise it",
            place=place,
            cost=cost,
            left=balance.left(place),
        )
        for share in balance.shares_of(spender):
            who = spender if share.name in (spender, "*") else f"group {share.name}"
            yield _Need(
                room=f"the share of {who} in account {name!r}, {100 * share.part:g} % of its budget,",
                whose="the budget",
                remedy="ask the owner of the account for a larger share",
                place=place,
                cost=cost,
                left=balance.left_under(share, spender, place),
            )


def _too_much(balance: Balance, need: _Need, wanted: Reservation) -> str:
    block, side = need.place
    where = f"on {side.value} rows" + ("" if block == ALL_ROWS else f" of block {block!r}")
    signal = round_up(epsilon_of(need.cost, balance.delta), 3)
    return (
        f"Expected a sweep that {need.room} has room for, got one that reserves "
        f"{part_in_words(need.cost, balance.budget)} of {need.whose} {where} where "
        f"{part_in_words(need.left, balance.budget, up=False)} is left (an account counts a sweep as one Gaussian "
        f"signal, here of epsilon {signal} at delta {balance.delta!r}, which is at least its price there"
        f"{f'; every side pays that, for {MOVED}' if is_moved(balance, wanted) else ''}); {wanted.advice}{need.remedy}"
    )


def part_in_words(cost: GaussianCost, budget: GaussianCost, *, up: bool = True) -> str:
    """Return how much of a budget a cost is, in percent, by the number of which it takes more or of which less is left.

    >>> part_in_words(GaussianCost(1.0, 0.0), GaussianCost(8.0, 0.5))
    '12.5 %'
    """
    parts = cost.square / budget.square, cost.slack / budget.slack
    return f"{round_up(100 * max(parts), 3) if up else round_down(100 * min(parts), 3)} %"


def count_alike(left: GaussianCost, cost: GaussianCost) -> int | None:
    """Return how often a cost fits into what is left, ``None`` for ever."""
    pairs = ((left.square, cost.square), (left.slack, cost.slack))
    return min((int(have // need) for have, need in pairs if need), default=None)


def count_in_words(count: int | None, like: str = "this one") -> str:
    """Return a number of further sweeps as people say it; ``like`` is what they are like.

    >>> count_in_words(2), count_in_words(0)
    ('two more sweeps like this one', 'no more sweep like this one')
    """
    if count is None:
        return f"any number of sweeps like {like}"
    word = _COUNTS[count] if count < len(_COUNTS) else str(count)
    return f"{word} more sweep{'s' * (count > 1)} like {like}"
