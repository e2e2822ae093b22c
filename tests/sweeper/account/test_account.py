"""Sweeps that spend one account: it is never overspent, nothing that drew comes back, and refusals say what is left."""

import datetime
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clipless.privacy.events import Relation
from clipless.privacy.gaussian import GaussianCost
from sweeper.account.account import Account
from sweeper.account.balance import Balance
from sweeper.account.blocks import ALL_ROWS
from sweeper.account.cost import (
    budget_of,
    is_covered,
    is_within,
    left_of,
    rounded_down,
    rounded_up,
    total,
)
from sweeper.account.entries import Bound, Charged, Opened, Position, Settled, Share, Side
from sweeper.account.owner import close_account, give_shares, open_account, raise_account
from sweeper.account.rules import find_refusal, reserve_entries, share_of_room
from sweeper.account.summary import further_sweeps, room_of, summarise
from sweeper.account.verify import verify_account
from sweeper.errors import AccountError, RecordError
from sweeper.specification.addresses import parse_address

from .accounts import DAY, ONE, OTHER_SPLIT, RELATION, SPLIT, costs, make, wants, write_rows

TRAINING = (ALL_ROWS, Side.TRAINING)
EMPTY = Position(length=0, digest="")


def test_four_sweeps_fit_and_the_fifth_is_told_what_it_asks_what_is_left_and_who_can_raise_it(account):
    for number in range(4):
        account.reserve(wants(f"s{number}"))
    with pytest.raises(AccountError) as refused:
        account.reserve(wants("s4"))
    assert str(refused.value) == (
        "Expected a sweep that account 'clinic' has room for, got one that reserves 24.7 % of its budget on training rows "
        "where 1.37 % is left (an account counts a sweep as one Gaussian signal, here of epsilon 3.01 at delta 1e-05, "
        "which is at least its price there); ask its owner to raise it"
    )
    assert sorted(account.balance().sweeps) == ["s0", "s1", "s2", "s3"]


def test_a_sweep_that_is_resumed_finds_its_own_reservation_and_takes_nothing_twice(account, address):
    account.reserve(wants("s"))
    before = account.balance().taken(TRAINING)
    again = Account(address, clock=lambda: DAY)
    again.reserve(wants("s"))
    assert again.balance().taken(TRAINING) == before
    again.reserve(wants("s", costs(2 * ONE)))  # extended: the rest alone
    assert again.balance().taken(TRAINING) == rounded_up(GaussianCost(2 * ONE, 1e-8))


def test_what_was_never_drawn_is_returned_and_what_drew_is_not(account, ledger):
    account.reserve(wants("s"))
    write_rows(ledger, "draw")
    drawn = {Side.TRAINING: rounded_up(GaussianCost(ONE / 4, 1e-9))}
    account.charge(wants("s"), "t1/1", drawn, ledger)
    account.charge(wants("s"), "t1/1", drawn, ledger)  # again changes nothing
    returned = account.settle("s", ledger)
    assert total([returned[Side.TRAINING], drawn[Side.TRAINING]]) == rounded_up(GaussianCost(ONE, 1e-8))
    assert account.balance().taken(TRAINING) == drawn[Side.TRAINING]
    assert account.settle("s", ledger) == {}
    account.reserve(wants("s"))  # it goes on: what it drew counts for what it plans
    assert account.balance().taken(TRAINING) == rounded_up(GaussianCost(ONE, 1e-8))


def test_what_is_drawn_beyond_the_reservation_is_taken_too_or_refused(account, ledger):
    account.reserve(wants("s"))
    write_rows(ledger, "draw")
    account.charge(wants("s"), "t1/1", costs(2 * ONE), ledger)
    account.charge(wants("s"), "test/1", costs(ONE / 2, side=Side.TEST), ledger)
    assert account.balance().taken(TRAINING) == rounded_up(GaussianCost(2 * ONE, 1e-8))
    assert account.balance().sweeps["s"].drawn == account.balance().sweeps["s"].held
    before = account.head
    assert "has room for, got one that reserves" in account.make_room(wants("s"), [costs(3 * ONE)])
    assert account.head == before
    with pytest.raises(AccountError, match="has room for"):
        account.charge(wants("s"), "t2/1", costs(3 * ONE), ledger)
    with pytest.raises(RecordError, match="got 'unknown'; reserve it first"):
        account.charge(wants("unknown"), "t1/1", costs(), ledger)


def test_room_that_was_made_for_releases_is_there_when_they_are_charged(account, ledger):
    """Whatever another sweep takes meanwhile: a draw that the ledger says is never refused."""
    account.reserve(wants("s"))
    both = [costs(2 * ONE), costs(ONE), costs(ONE / 2, side=Side.TEST)]
    assert account.make_room(wants("s"), both) is None
    head = account.head
    assert account.make_room(wants("s"), both[::-1]) is None
    assert account.head == head, "it is held already"
    left = left_of(account.balance().budget, account.balance().taken(TRAINING)).square
    with pytest.raises(AccountError, match="has room for"):
        account.reserve(wants("t", costs(left + 0.01)))
    account.reserve(wants("t", costs(left - 0.01)))
    write_rows(ledger, "draw")
    for number, draw in enumerate(both):
        account.charge(wants("s"), f"t{number}/1", draw, ledger)
    assert account.balance().sweeps["s"].undrawn == {}


def test_nothing_is_charged_beyond_what_is_reserved():
    balance = Balance(_opened())
    for entry in reserve_entries(balance, wants("s"), ""):
        balance.take(entry)
    for more in (costs(2 * ONE), costs(side=Side.TEST)):
        whole = {side: rounded_up(cost) for side, cost in more.items()}
        with pytest.raises(RecordError, match="no more than what sweep 's' has reserved"):
            balance.take(Charged(sweep="s", what="t1/1", costs=whole, position=EMPTY, at=""))
    with pytest.raises(RecordError, match="whole steps"):
        balance.take(Charged(sweep="s", what="t1/1", costs=costs(0.1), position=EMPTY, at=""))
    with pytest.raises(RecordError, match="got 'unknown', which has none; reserve it first"):
        balance.take(Charged(sweep="unknown", what="t1/1", costs={}, position=EMPTY, at=""))


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "charge", "settle"]),
        st.integers(0, 5),
        st.floats(0.0, 1.2),
        st.sampled_from(list(Side)),
        st.sampled_from([SPLIT, OTHER_SPLIT, None]),
    ),
    max_size=25,
)


@settings(max_examples=40)
@given(operations=OPERATIONS)
def test_no_sequence_of_several_spenders_overspends_or_takes_back_what_drew(operations):
    """Spenders a, b and c have shares; the model adds up what drew on each side in the worst case for each row."""
    balance = Balance(_opened(Share(name="*", part=0.5), Share(name="c", part=0.9)))
    drawn, most, charged = defaultdict(list), balance.budget, 0
    for what, number, size, side, split in operations:
        sweep, spender = f"s{number}", "abc"[number % 3]
        known = balance.sweeps.get(sweep)
        if what == "reserve":
            wanted = wants(sweep, costs(size * most.square, size * most.slack, side), split=split, spender=spender)
            if find_refusal(balance, wanted, DAY.date()) is None:
                for entry in list(reserve_entries(balance, wanted, "")):
                    balance.take(entry)
        elif known is not None and known.is_open and what == "charge":
            undrawn = known.undrawn
            part = {one: rounded_up(GaussianCost(min(size, 1) * cost.square, 0.0)) for one, cost in undrawn.items()}
            part = {one: cost for one, cost in part.items() if is_within(cost, undrawn[one])}
            charged += 1
            balance.take(Charged(sweep=sweep, what=f"{charged}", costs=part, position=EMPTY, at=""))
            for one, cost in part.items():
                drawn[one, spender].append(cost)
        elif known is not None and known.is_open:
            balance.take(Settled(sweep=sweep, returned=known.undrawn, position=EMPTY, at=""))
        for one in Side:
            spent = {name: total(drawn[one, name]) for name in "abc"}
            assert is_within(total(spent.values()), balance.taken((ALL_ROWS, one)))
            assert is_within(balance.taken((ALL_ROWS, one)), most)
            for name, part in zip("abc", (0.5, 0.5, 0.9), strict=True):
                assert is_within(spent[name], GaussianCost(part * most.square, part * most.slack))


def _opened(*shares):
    budget = budget_of(6.8, 1e-5)
    values = {"epsilon": 6.8, "delta": 1e-5, "square": budget.square, "slack": budget.slack}
    return Opened(name="clinic", unit="row", relation=RELATION, shares=shares, by="", at="", **values)


def test_the_sides_of_the_accounts_own_split_pay_each_for_itself(account):
    account.reserve(wants("s", {**costs(ONE), **costs(ONE / 2, side=Side.VALIDATION)}))
    balance = account.balance()
    assert balance.taken(TRAINING) == rounded_up(GaussianCost(ONE, 1e-8))
    assert balance.taken((ALL_ROWS, Side.VALIDATION)) == rounded_up(GaussianCost(ONE / 2, 1e-8))
    assert balance.taken((ALL_ROWS, Side.TEST)) == GaussianCost()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"split": OTHER_SPLIT}, ONE),  # the largest side of the sweep, wherever a row is
        ({"split": None}, 1.5 * ONE),  # all of it, where a row more moves others
    ],
)
def test_another_split_is_charged_on_every_side(account, changes, expected):
    account.reserve(wants("first", costs(0.0)))
    account.reserve(wants("s", {**costs(ONE), **costs(ONE / 2, side=Side.VALIDATION)}, **changes))
    for side in Side:
        taken = account.balance().taken((ALL_ROWS, side))
        assert taken.square == rounded_up(GaussianCost(expected, 0.0)).square


ASSIGNED = {"one": (0, 1, 2), "two": (1, 2, 0), "three": (0, 2, 1)}  # the side of each of three rows
SWEEPS = st.lists(
    st.tuples(st.sampled_from(sorted(ASSIGNED)), st.booleans(), st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3)),
    min_size=1,
    max_size=6,
)


@given(sweeps=SWEEPS)
def test_no_row_loses_more_than_its_side_was_charged_wherever_sweeps_have_put_it(sweeps):
    balance, home, lost = Balance(_opened()), None, defaultdict(list)
    for number, (assigned, is_own, squares) in enumerate(sweeps):
        by_side = {side: GaussianCost(square, 0.0) for side, square in zip(Side, squares, strict=True)}
        split = SPLIT if is_own or home is None else OTHER_SPLIT
        wanted = wants(f"s{number}", by_side, split=split, sides={ALL_ROWS: assigned})
        if find_refusal(balance, wanted, DAY.date()) is None:
            for entry in list(reserve_entries(balance, wanted, "")):
                balance.take(entry)
            home = home or ASSIGNED[assigned]
            for row, side in enumerate(ASSIGNED[assigned]):
                lost[row].append(rounded_up(by_side[list(Side)[side]]))
    for row in lost:
        assert is_within(total(lost[row]), balance.taken((ALL_ROWS, list(Side)[home[row]])))


def test_rows_that_have_changed_sides_are_charged_on_every_side_and_those_that_stayed_by_side(account):
    account.reserve(wants("first", costs(0.0)))
    account.reserve(wants("moved", sides={ALL_ROWS: "other"}))
    every = [account.balance().taken((ALL_ROWS, side)).square for side in Side]
    assert every == [rounded_up(GaussianCost(ONE, 0.0)).square] * 3
    account.reserve(wants("stayed"))
    assert [account.balance().taken((ALL_ROWS, side)).square for side in Side][1:] == every[1:]


@pytest.mark.parametrize("sides", ["cd", "other"])
def test_the_same_rows_in_a_file_of_another_name_are_charged_by_side_if_they_stayed(account, address, sides):
    renamed = {"split": SPLIT.replace("clinic", "clinic-march"), "sides": {ALL_ROWS: sides}}
    account.reserve(wants("first", costs(0.0)))
    account.reserve(wants("second", **renamed))
    taken = [account.balance().taken((ALL_ROWS, side)).square > 0.0 for side in Side]
    assert taken == [True, sides != "cd", sides != "cd"]
    account.reserve(wants("second", costs(2 * ONE), split=SPLIT, sides={ALL_ROWS: sides}))  # the name as before
    with pytest.raises(AccountError, match="Expected the split that sweep 'second' began with, got another"):
        account.reserve(wants("second", split=OTHER_SPLIT, sides={ALL_ROWS: sides}))
    assert verify_account(address).findings == ()


@pytest.mark.parametrize("changes", [{"split": None}, {"sides": {ALL_ROWS: "other"}}, {"sides": None}])
def test_rows_that_were_trained_on_are_not_public_elsewhere(account, changes):
    known = {"has_public_rows": True, "sides": {ALL_ROWS: "cd"}, "split": changes.get("split", SPLIT)}
    account.reserve(wants("first", **known))
    account.reserve(wants("second", **known))
    with pytest.raises(AccountError, match="Expected the rows that are public in earlier sweeps of account 'clinic'"):
        account.reserve(wants("third", **(known | {"sides": {ALL_ROWS: "other"}} | changes)))
    account.reserve(wants("new", **(known | {"blocks": {ALL_ROWS: "ab"}})))


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("changes", [{}, {"split": OTHER_SPLIT, "sides": {ALL_ROWS: "other"}}])
def test_a_row_held_back_is_public_in_all_sweeps_or_in_none(account, ledger, first, changes):
    account.release(wants("r", costs(ONE / 4), split=None), "evaluation", ledger)  # says nothing of it
    account.reserve(wants("first", has_public_rows=first))
    words = ("public", "private") if first else ("private", "public")
    with pytest.raises(AccountError, match="Expected rows held back that are {}, .* got {} ones".format(*words)):
        account.reserve(wants("second", has_public_rows=not first, **changes))


def test_a_sweep_that_goes_on_does_not_make_its_rows_public(account):
    account.reserve(wants("s"))
    with pytest.raises(AccountError, match="Expected rows held back that are private"):
        account.reserve(wants("s", has_public_rows=True))


def test_what_a_sweep_of_an_earlier_version_paid_says_whether_its_rows_were_public(address):
    free, paid = make(address), make(type(address)(address.store, "second"))
    free.reserve(wants("old", has_public_rows=None, sides=None))
    paid.reserve(wants("old", {**costs(), **costs(side=Side.VALIDATION)}, blocks={ALL_ROWS: "x"}, has_public_rows=None))
    assert (free.balance().held_back.are_public, paid.balance().held_back.are_public) == (True, False)


def test_the_sides_of_a_new_block_are_those_of_its_first_sweep(account):
    january = {"blocks": {"jan": "x"}, "sides": {"jan": "a"}}
    account.reserve(wants("first", **january))
    both = {"blocks": {"jan": "x", "feb": "y"}, "sides": {"jan": "a", "feb": "b"}}
    account.reserve(wants("second", **both))
    assert account.balance().taken(("feb", Side.TEST)) == GaussianCost()
    account.reserve(wants("third", **(both | {"sides": {"jan": "a", "feb": "c"}})))
    assert account.balance().taken(("jan", Side.TEST)).square == rounded_up(GaussianCost(ONE, 0.0)).square


def test_a_sweep_does_not_go_on_with_rows_that_have_changed_sides(account):
    account.reserve(wants("s"))
    with pytest.raises(AccountError, match="the rows of sweep 's' on the sides on which it began, got others"):
        account.reserve(wants("s", costs(2 * ONE), sides={ALL_ROWS: "other"}))


def test_where_an_earlier_version_has_charged_by_side_nobody_knows_the_sides(account):
    account.reserve(wants("old", sides=None))
    assert account.balance().taken((ALL_ROWS, Side.TEST)) == GaussianCost()
    account.reserve(wants("new"))
    assert account.balance().taken((ALL_ROWS, Side.TEST)).square == rounded_up(GaussianCost(ONE, 0.0)).square
    account.reserve(wants("old", costs(2 * ONE)))  # it may go on
    assert account.balance().sweeps["old"].sides is None


def test_a_replaced_row_may_change_two_sides_and_so_every_side_pays_everything(address):
    replaced = Relation.REPLACE_ONE
    account = make(address, relation=replaced)
    asked = {**costs(ONE), **costs(ONE / 2, side=Side.VALIDATION)}
    account.reserve(wants("s", asked, relation=replaced))
    assert account.balance().taken((ALL_ROWS, Side.TEST)).square == rounded_up(GaussianCost(1.5 * ONE, 0.0)).square


def test_the_salt_that_an_account_was_opened_with_is_that_of_its_split(address):
    account = make(address, salt="b")
    account.reserve(wants("s"))  # the salt is "a"
    assert account.balance().taken((ALL_ROWS, Side.TEST)).square == rounded_up(GaussianCost(ONE, 0.0)).square
    other = make(type(address)(address.store, "second"), column="part")
    other.reserve(
        wants("s", split='{"column":"part","test":["c"],"train":["a"],"validation":["b"]}', blocks={ALL_ROWS: "x"})
    )
    assert other.balance().taken((ALL_ROWS, Side.TEST)) == GaussianCost()


def test_a_release_whose_rows_are_on_any_side_leaves_the_split_to_the_first_sweep(account, ledger):
    account.release(wants("r", costs(ONE / 4), split=None), "evaluation", ledger)
    account.reserve(wants("first", costs(0.0)))
    account.reserve(wants("s", split=OTHER_SPLIT))
    for side in Side:
        taken = account.balance().taken((ALL_ROWS, side)).square
        assert taken == rounded_up(GaussianCost(ONE, 0.0)).square + rounded_up(GaussianCost(ONE / 4, 0.0)).square


def test_an_undeclared_split_that_comes_first_is_not_that_of_the_account(address):
    account = make(address, salt="b")
    account.reserve(wants("other"))  # the salt is "a"
    account.reserve(wants("again"))
    assert account.balance().taken((ALL_ROWS, Side.TEST)).square == 2 * rounded_up(GaussianCost(ONE, 0.0)).square
    account.reserve(wants("own", split=OTHER_SPLIT))
    assert account.balance().taken((ALL_ROWS, Side.TEST)).square == 2 * rounded_up(GaussianCost(ONE, 0.0)).square


def test_a_release_outside_of_a_sweep_is_reserved_charged_and_settled_at_once_or_not_at_all(account, ledger):
    before = account.head
    with pytest.raises(AccountError, match="has room for"):
        account.release(wants("loud", costs(9 * ONE)), "evaluation", ledger)
    assert account.head == before
    account.release(wants("r"), "evaluation", ledger)
    known = account.balance().sweeps["r"]
    assert (known.is_open, list(known.charged), known.held == known.drawn) == (False, ["evaluation"], True)
    with pytest.raises(AccountError, match="Expected a new id for 'r', got 'r'; draw another"):
        account.release(wants("r"), "evaluation", ledger)
    with pytest.raises(AccountError, match="Expected the split that sweep 'r' began with, got another"):
        account.reserve(wants("r", split=OTHER_SPLIT))


def test_every_block_has_its_own_budget_and_a_sweep_charges_the_blocks_it_names(account):
    for number in range(4):
        account.reserve(wants(f"s{number}", blocks={"january": "j"}))
    with pytest.raises(AccountError, match="on training rows of block 'january'"):
        account.reserve(wants("late", blocks={"january": "j"}))
    account.reserve(wants("new", blocks={"february": "f"}))
    with pytest.raises(AccountError, match="on training rows of block 'january'"):
        account.reserve(wants("both", blocks={"february": "f", "january": "j"}))
    assert "both" not in account.balance().sweeps


def test_every_block_is_charged_that_a_sweep_names(account):
    account.reserve(wants("s", blocks={"january": "j", "february": "f"}))
    balance = account.balance()
    assert balance.taken(("january", Side.TRAINING)) == balance.taken(("february", Side.TRAINING))
    assert balance.taken(("january", Side.TRAINING)) == rounded_up(GaussianCost(ONE, 1e-8))


def test_the_slack_of_an_account_is_spent_like_its_square(account):
    slack = account.balance().budget.slack
    account.reserve(wants("s", costs(1e-3, 0.7 * slack)))
    with pytest.raises(AccountError, match=r"reserves 70.1 % of its budget on training rows where 29.9 % is left"):
        account.reserve(wants("t", costs(1e-3, 0.7 * slack)))


def test_rows_are_those_of_one_account_and_of_one_block(account, address):
    account.reserve(wants("s", blocks={"january": "j"}))
    for blocks, sentence in (
        ({"january": "other"}, "Expected the rows that block 'january' of account 'clinic' is bound to, got others"),
        ({"february": "j"}, "Expected new rows in block 'february' of account 'clinic', got those of another"),
        ({"march": "m", "april": "m"}, "other rows in each block of account 'clinic', got the same in two"),
        ({ALL_ROWS: "x"}, r"Expected rows cut into the blocks of account 'clinic' \(january\), got all rows; declare"),
        ({ALL_ROWS: "x", "march": "m"}, "all rows of account 'clinic' or named blocks of them, got both"),
        ({}, "Expected a block of account 'clinic' that the sweep reads, got none"),
    ):
        with pytest.raises(AccountError, match=sentence):
            account.reserve(wants("t", blocks=blocks))
    second = make(type(address)(address.store, "second"))
    with pytest.raises(
        AccountError, match=r"account 'clinic' of .* has those of block 'all': a budget is that of the people"
    ):
        second.reserve(wants("t", blocks={ALL_ROWS: "j"}))


def test_a_table_is_known_again_in_other_blocks_or_with_other_ranges(account, address):
    account.reserve(wants("s", blocks={"january": "j"}, table="t"))
    account.reserve(wants("u", blocks={"january": "j", "february": "f"}, table="longer"))
    second = make(type(address)(address.store, "second"))
    for table in ("t", "longer"):
        with pytest.raises(AccountError, match=r"account 'clinic' of .* has the same table, in other blocks or with"):
            second.reserve(wants("v", blocks={ALL_ROWS: "x"}, table=table))
    account.reserve(wants("w", blocks={"january": "j"}, table="grown", read={"january": "r"}))
    for again in ({"table": "r"}, {"table": "new", "read": {"jan": "r"}}):
        with pytest.raises(
            AccountError, match=r"account 'clinic' of .* has (the same table|those of block 'jan', with)"
        ):
            second.reserve(wants("v", blocks={ALL_ROWS: "x"}, **again))
    second.reserve(wants("v", blocks={ALL_ROWS: "x"}, table="another"))
    account.reserve(wants("s", blocks={"january": "j"}, table="t"))  # its own, found again


def test_one_column_cuts_the_rows_of_an_account(account):
    account.reserve(wants("older", blocks={"2025": "o"}))
    account.reserve(wants("s", blocks={"january": "j"}, cut="month"))
    with pytest.raises(AccountError, match=r"Expected blocks by column 'month', .* 'site': .*; restore data\.block"):
        account.reserve(wants("t", blocks={"clinic": "c"}, cut="site"))
    account.reserve(wants("u", blocks={"february": "f"}, cut="month"))
    assert Account(account.address).balance().cut == "month"
    entry = next(reserve_entries(account.balance(), wants("v", blocks={"january": "j"}, cut="site"), "now"))
    with pytest.raises(RecordError, match="Expected blocks by column 'month', got some by 'site'"):
        account.balance().take(entry)


def test_a_unit_that_comes_again_in_another_block_has_no_second_budget(address):
    account = make(address, unit="who")
    ids = [f"{one:016x}" for one in range(5)]
    january = {"unit": "who", "blocks": {"january": "j"}, "units": {"january": "2:" + "".join(ids[:3])}}
    account.reserve(wants("s", **january))
    account.reserve(wants("t", **january))  # its own block, again
    for again in ("2:" + "".join(ids[2:]), f"2:{ids[0]}"):
        with pytest.raises(
            AccountError,
            match=r"Expected every who in one block of account 'clinic', got one of block 'january' in block "
            r"'february' too, where it would have a second budget; cut by .* \(data\.block\)",
        ):
            account.reserve(wants("u", unit="who", blocks={"february": "f"}, units={"february": again}))
    account.reserve(wants("u", unit="who", blocks={"february": "f"}, units={"february": "2:" + "".join(ids[3:])}))
    with pytest.raises(AccountError, match=r"Expected the units of block 'march' .*; name the column of 'who' \(data"):
        account.reserve(wants("v", unit="who", blocks={"march": "m"}))
    forged = Bound(block="march", digest="m", units=f"2:{ids[0]}", at="now")
    with pytest.raises(RecordError, match="Expected units of block 'march' in no other block, got one"):
        Account(address).balance().take(forged)


KNOWN = "2:" + "00" * 8


def reserve_as_before(account, older, **january):
    """Reserve as an earlier version has."""
    with account._chain.change() as (_, balance, entries):
        entries += (
            replace(entry, units=older) if isinstance(entry, Bound) else entry
            for entry in reserve_entries(balance, wants("old", **january, units={"january": KNOWN}), "then")
        )


@pytest.mark.parametrize("older", [None, "00" * 8])  # the hashes of ids that were spelled otherwise
def test_units_of_a_block_of_an_earlier_version_are_noted_before_another_block_is_read(address, older):
    account = make(address, unit="who")
    january = {"unit": "who", "blocks": {"january": "j"}}
    reserve_as_before(account, older, **january)
    february = {"unit": "who", "blocks": {"february": "f"}, "units": {"february": KNOWN}}
    with pytest.raises(
        AccountError,
        match=r"Expected no new block of account 'clinic' before the units of block 'january' are noted, which an "
        r"earlier version has not done; run a sweep on that block \(data\.blocks\), which notes them even if it is ref",
    ):
        account.reserve(wants("s", **february))
    account.reserve(wants("t", **january, units={"january": KNOWN}))
    with pytest.raises(AccountError, match="got one of block 'january' in block 'february' too"):
        account.reserve(wants("s", **february))
    again = Bound(block="january", digest="j", units=KNOWN, at="now")
    with pytest.raises(RecordError, match="Expected rows for block 'january' once"):
        Account(address).balance().take(again)


MONTHS = {"blocks": {"january": "j", "february": "f"}, "whole": ("jf", "read jf"), "read": {"january": "read j"}}


@pytest.mark.parametrize(
    ("first", "again", "told"),
    [
        (MONTHS, {"blocks": {"q1": "jf"}}, "in block january and february, as before, got the same in q1"),
        ({"blocks": {"q1": "jf"}}, MONTHS, "in block q1, as before, got the same in january and february"),
        (MONTHS, {"blocks": {"early": "e", "late": "l"}, "whole": ("jf",)}, "got the same in early and late"),
        (
            MONTHS,
            {"blocks": {"q1": "other"}, "read": {"q1": "read jf"}},
            "in block january and february, as before, got the same in q1",
        ),
        (
            MONTHS,
            {"blocks": {"jan": "other"}, "read": {"jan": "read j"}},
            "in block january, as before, got the same in jan",
        ),
    ],
    ids=["coarser", "finer", "elsewhere", "coarser with other ranges", "renamed with other ranges"],
)
def test_rows_that_are_cut_otherwise_have_no_second_budget(account, address, first, again, told):
    for name in ("s", "t"):
        account.reserve(wants(name, costs(0.1), **first))
    with pytest.raises(AccountError, match=rf"{told}, where .*; restore what cuts them \(data\.block\)"):
        account.reserve(wants("u", costs(0.1), **again))
    other = make(parse_address(f"{address.store}#other"))
    for wanted in (first, again):
        with pytest.raises(AccountError, match="Expected rows of no other account, but account 'clinic' of"):
            other.reserve(wants("v", **wanted))
    more = {**first, "blocks": {**first["blocks"], "march": "m"}, "whole": ("jfm",)}
    account.reserve(wants("w", costs(0.1), **more))
    assert verify_account(address).findings == ()


def test_a_sweep_of_an_earlier_version_that_is_resumed_notes_what_its_rows_are_known_by(account, address):
    with account._chain.change() as (_, balance, entries):
        found = reserve_entries(balance, wants("old", costs(0.1), **MONTHS), "then")
        entries += (replace(one, whole=None, read=None) if one.kind == "reserved" else one for one in found)
    account.reserve(wants("old", costs(0.1), **MONTHS, cut="month"))
    with pytest.raises(AccountError, match="got the same in q1"):
        account.reserve(wants("s", costs(0.1), blocks={"q1": "jf"}))
    with pytest.raises(AccountError, match="got some by 'week'"):
        account.reserve(wants("s", costs(0.1), **MONTHS, cut="week"))
    before = len([*Account(address).entries(0, 100)])
    account.reserve(wants("old", costs(0.1), **MONTHS, cut="month"))
    assert len([*Account(address).entries(0, 100)]) == before, "it has noted everything"
    assert verify_account(address).findings == ()


@pytest.mark.parametrize("amount", [0.1, 100.0], ids=["has room", "has no room"])
def test_rows_that_come_again_under_other_ids_have_no_second_budget_under_these(address, amount):
    account, other = make(address, unit="who"), "2:" + "11" * 8
    january = {"unit": "who", "blocks": {"january": "j"}}
    account.reserve(wants("s", costs(0.1), **january, units={"january": KNOWN}))
    with nullcontext() if amount < 1 else pytest.raises(AccountError, match="Expected a sweep that account"):
        account.reserve(wants("renewed", costs(amount), **january, units={"january": other}))
    for ids in (KNOWN, other):
        with pytest.raises(AccountError, match="got one of block 'january' in block 'february' too"):
            account.reserve(wants("t", unit="who", blocks={"february": "f"}, units={"february": ids}))
    account.reserve(wants("t", unit="who", blocks={"february": "f"}, units={"february": "2:" + "22" * 8}))
    with pytest.raises(AccountError, match="got one of block 'february' in block 'january' too"):
        account.reserve(wants("u", **january, units={"january": "2:" + "22" * 8}))
    account.reserve(wants("v", costs(0.1), **january, units={"january": other}))
    noted = [entry.units for entry in Account(address).entries(0, 100) if isinstance(entry, Bound)]
    assert noted == [KNOWN, other, "2:" + "22" * 8], "each once"
    assert verify_account(address).findings == ()


@pytest.mark.parametrize("is_closed", [True, False])
def test_units_of_a_block_that_is_closed_or_spent_are_noted_by_a_sweep_that_is_refused(address, is_closed):
    account = make(address, unit="who")
    january = {"unit": "who", "blocks": {"january": "j"}}
    reserve_as_before(account, "00" * 8, **january)
    if is_closed:
        close_account(address, because="retired", by="owner", at=DAY, block="january")
    amount = {"of": costs() if is_closed else costs(100.0)}
    refused = "block 'january' of account 'clinic' is closed" if is_closed else "Expected a sweep that account"
    units = {"units": {"january": KNOWN}}
    with pytest.raises(AccountError, match="Expected the rows that block 'january'"):
        account.reserve(wants("others", unit="who", blocks={"january": "o"}, **units, **amount))
    assert not account.balance().units.known
    both = {"blocks": {"january": "j", "february": "f"}, "units": {"january": KNOWN, "february": "2:" + "11" * 8}}
    with pytest.raises(AccountError, match=refused):
        account.reserve(wants("both", unit="who", **both, **amount))
    balance = Account(address).balance()
    assert (balance.units.known, set(balance.digests), set(balance.sweeps)) == ({"january"}, {"january"}, {"old"})
    february = {"unit": "who", "blocks": {"february": "f"}}
    with pytest.raises(AccountError, match="got one of block 'january' in block 'february' too"):
        account.reserve(wants("s", **february, units={"february": KNOWN}))
    account.reserve(wants("s", **february, units={"february": "2:" + "11" * 8}))
    assert verify_account(address).findings == ()


def test_a_block_that_is_closed_is_no_way_around_its_units(address):
    account = make(address, unit="who")
    reserve_as_before(account, "00" * 8, unit="who", blocks={"january": "j"})
    close_account(address, because="retired", by="owner", at=DAY, block="january")
    with pytest.raises(AccountError, match="before the units of block 'january' are noted"):
        account.reserve(wants("s", unit="who", blocks={"february": "f"}, units={"february": KNOWN}))


def test_several_may_ask_before_any_of_them_reserves(account):
    one, other = wants("s"), wants("t", blocks={ALL_ROWS: "cd"})
    assert [account.refusal(one), account.refusal(other)] == [None, None]
    assert "Expected the rows that block 'all' of account 'clinic' is bound to" in account.refusal(other, one)
    assert account.refusal(wants("t"), one) is None
    assert account.balance().sweeps == {}
    asked = []
    while (refused := account.refusal(wants(f"s{len(asked)}"), *asked)) is None:
        asked.append(wants(f"s{len(asked)}"))
    for own in asked:
        account.reserve(own)
    with pytest.raises(AccountError) as beyond:
        account.reserve(wants("z"))
    assert str(beyond.value) == refused


def test_data_of_another_unit_or_relation_are_refused(account):
    with pytest.raises(
        AccountError, match=r"Expected data whose privacy unit is 'row'.* got 'patient'; change data\.unit"
    ):
        account.reserve(wants("s", unit="patient"))
    with pytest.raises(AccountError, match=r"Expected the relation add-or-remove-one .* change privacy\.relation"):
        account.reserve(wants("s", relation=Relation.REPLACE_ONE))
    for changes, key in (({"unit": "patient"}, "unit"), ({"relation": Relation.REPLACE_ONE}, "relation")):
        with pytest.raises(AccountError, match=f"; change {key} of the federation, or open another account"):
            account.reserve(wants("s", split=None, **changes))


def test_a_sweep_belongs_to_who_reserved_it_and_to_its_blocks(account):
    account.reserve(wants("s", blocks={"january": "j"}))
    with pytest.raises(AccountError, match="Expected the spender 'ann', who has reserved sweep 's', got 'ben'"):
        account.reserve(wants("s", spender="ben", blocks={"january": "j"}))
    with pytest.raises(AccountError, match="Expected the blocks january that sweep 's' has reserved, got march"):
        account.reserve(wants("s", blocks={"march": "m"}))


def test_a_spender_takes_at_most_their_share_and_a_group_its_own_together(address):
    shares = [Share(name="ann", part=0.3), Share(name="lab", part=0.5, members=("ann", "ben", "cem"))]
    account = make(address, shares=shares)
    account.reserve(wants("a"))
    with pytest.raises(AccountError, match="the share of ann in account 'clinic', 30 % of its budget, has room for"):
        account.reserve(wants("b"))
    account.reserve(wants("c", spender="ben"))
    with pytest.raises(AccountError, match="the share of group lab in account 'clinic', 50 % of its budget, has room"):
        account.reserve(wants("d", spender="cem"))
    with pytest.raises(AccountError, match=r"a spender with a share of account 'clinic' \(ann, lab\), got 'eve'"):
        account.reserve(wants("e", spender="eve"))
    give_shares(address, [Share(name="*", part=1.0)], by="owner", at=DAY)
    account.reserve(wants("e", spender="eve"))


def test_a_spender_who_is_named_like_a_group_takes_from_what_the_group_has(address):
    account = make(address, shares=[Share(name="lab", part=0.5, members=("ann", "ben"))])
    account.reserve(wants("a"))
    account.reserve(wants("b", spender="lab"))
    for spender in ("lab", "ben"):
        with pytest.raises(
            AccountError, match=r"the share of .*lab in account 'clinic', 50 % of its budget, has room for"
        ):
            account.reserve(wants("c", spender=spender))


def test_a_refusal_speaks_of_the_smallest_room(address):
    shares = [Share(name="ann", part=0.25), Share(name="ben", part=0.9)]
    account = make(address, shares=shares)
    for number in range(3):
        account.reserve(wants(f"b{number}", spender="ben"))
    account.reserve(wants("a"))
    room = room_of(account.balance(), "ann", account.balance().places())
    with pytest.raises(AccountError, match=r"the share of ann .* ask the owner of the account for a larger") as refused:
        account.reserve(wants("a2"))
    assert share_of_room(account.balance(), wants("a2")) > 1.0
    assert "account 'clinic' has room" not in str(refused.value)
    left = account.balance().left((ALL_ROWS, Side.TRAINING))
    assert room.left < left.square / account.balance().budget.square


@pytest.mark.parametrize(
    "shares", [[Share(name="", part=0.5)], [Share(name="a", part=1.5)], [Share(name="a", part=0.1)] * 2]
)
def test_shares_that_are_none_are_refused(address, shares):
    with pytest.raises(AccountError, match="--share"):
        make(address, shares=shares)


def test_nothing_new_is_reserved_after_the_end_or_once_closed_and_what_is_reserved_may_be_drawn(address, ledger):
    account = make(address, until=datetime.date(2026, 3, 1))
    account.reserve(wants("s"))
    late = Account(address, clock=lambda: DAY + datetime.timedelta(days=1))
    with pytest.raises(
        AccountError, match="Expected a day until 2026-03-01, the end of account 'clinic', got 2026-03-02"
    ):
        late.reserve(wants("t"))
    late.reserve(wants("s"))
    close_account(address, because="the study has ended", by="owner", at=DAY)
    with pytest.raises(AccountError, match="but account 'clinic' is closed: the study has ended"):
        account.reserve(wants("t"))
    write_rows(ledger, "draw")
    account.charge(wants("s"), "t1/1", account.balance().sweeps["s"].undrawn, ledger)


def test_a_closed_block_leaves_the_others(account, address):
    account.reserve(wants("s", blocks={"january": "j", "february": "f"}))
    close_account(address, block="january", because="old", by="owner", at=DAY)
    with pytest.raises(AccountError, match="but block 'january' of account 'clinic' is closed: old"):
        account.reserve(wants("t", blocks={"january": "j"}))
    account.reserve(wants("t", blocks={"february": "f"}))
    with pytest.raises(AccountError, match=r"Expected a block of account 'clinic' \(january, february\), got 'march'"):
        close_account(address, block="march", because="old", by="owner", at=DAY)


def test_a_raised_budget_has_room_and_is_never_lowered(account, address):
    for number in range(4):
        account.reserve(wants(f"s{number}"))
    raise_account(address, 9.0, 1e-5, because="ethics board 12/26", by="owner", at=DAY)
    account.reserve(wants("s4"))
    for smaller in ((6.8, 1e-5), (9.0, 1e-6)):
        with pytest.raises(RecordError, match="Expected a budget that is no smaller than epsilon 9"):
            raise_account(address, *smaller, because="", by="owner", at=DAY)
    assert account.balance().epsilon == 9.0


def test_a_raised_budget_has_room_for_what_the_new_signal_has_room_for(account, address):
    """Not only for what is left of the slack: the old budget is full, and took all of its own."""
    before = budget_of(6.8, 1e-5)
    account.reserve(wants("s", {Side.TRAINING: before}))
    raise_account(address, 9.0, 1e-5, because="agreed", by="owner", at=DAY)
    budget, left = account.balance().budget, account.balance().left((ALL_ROWS, Side.TRAINING))
    assert is_covered(budget, 9.0, 1e-5)
    assert budget.slack / budget.square == pytest.approx(before.slack / before.square, rel=1e-6)
    assert left.square / budget.square == pytest.approx(left.slack / budget.slack, rel=1e-6)
    assert left.square > 0.3 * budget.square
    assert account.balance().terms == (6.8, 1e-5)
    with pytest.raises(AccountError, match=r"of its budget on training rows where [\d.]+ % is left"):
        account.reserve(wants("t", {Side.TRAINING: GaussianCost(left.square, 2 * left.slack)}))
    account.reserve(wants("t", {Side.TRAINING: rounded_down(left)}))
    assert account.refusal(wants("u", costs(1e-6))) is not None


@pytest.mark.usefixtures("account")
def test_an_account_is_opened_once(address):
    with pytest.raises(AccountError, match=r"Expected a new name in .*, got 'clinic', which is there"):
        make(address)
    with pytest.raises(AccountError, match="Expected a salt or a column of the split, got both"):
        open_account(
            type(address)(address.store, "other"), unit="row", relation=RELATION, epsilon=1.0, delta=1e-5, by="", at=DAY,
            salt="a", column="b",
        )  # fmt: skip
    with pytest.raises(RecordError, match=r"Expected an account of .* \(clinic\), got 'other'; open it first"):
        Account(type(address)(address.store, "other"))


def test_the_summary_says_what_is_taken_by_whom_and_how_many_more_sweeps_would_fit(account, ledger):
    assert further_sweeps(account.balance(), wants("s", {})) is None
    account.reserve(wants("s0"))
    write_rows(ledger, "draw")
    account.charge(wants("s0"), "t1/1", account.balance().sweeps["s0"].undrawn, ledger)
    account.reserve(wants("s1", spender="ben"))
    balance = account.balance()
    assert further_sweeps(balance, wants("s2")) == 1
    summary = summarise(balance)
    training = next(place for place in summary.places if place.side == "training")
    assert training.taken == pytest.approx(2 * ONE / balance.budget.square)
    assert training.drawn == pytest.approx(ONE / balance.budget.square)
    assert [(one.name, one.most) for one in summary.spenders] == [("ann", 1.0), ("ben", 1.0)]
    assert [(one.title, one.is_settled) for one in summary.sweeps] == [("s0", False), ("s1", False)]
    assert summary.claim == (
        "Everything that is ever released from the private rows through account 'clinic' costs epsilon 6.8 at delta "
        "1e-05 together, whatever earlier sweeps showed (unit row, add-or-remove-one)."
    )
