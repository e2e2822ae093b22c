"""Another export of the same file is known again, and so is that its rows have changed sides."""

import datetime
import random

import pytest

import sweeper.account.store as store_module
from clipless.privacy.events import Relation
from sweeper.account.account import Account
from sweeper.account.blocks import ALL_ROWS
from sweeper.account.entries import Side
from sweeper.account.owner import open_account
from sweeper.errors import AccountError, RecordError
from sweeper.planning.account_plan import make_reservation, state_account
from sweeper.planning.defaults import complete
from sweeper.planning.loaded import LoadedSpec
from sweeper.planning.make import make_sweep_plan
from sweeper.specification.addresses import parse_address
from sweeper.specification.spec import Spec
from tests.sweeper.account.accounts import begin_quickly

NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
ROWS = 240
MARKS = ["train"] * 160 + ["validation"] * 40 + ["test"] * 40
COLUMN = {"splits": {"column": "more", "train": ["train"], "validation": ["validation"], "test": ["test"]}}


@pytest.fixture
def reserve(tmp_path, monkeypatch):
    """A function by which a sweep of a table with one more column reserves from an account, and what it reserved."""
    monkeypatch.setattr(store_module, "_begin_by_hand", begin_quickly)
    address = parse_address(f"{tmp_path}/accounts.db#clinic")
    make = random.Random(1)
    rows = [(make.randint(18, 90), make.choice(["no", "yes"])) for _ in range(ROWS)]

    def reserve(title, more, evaluation="private", *, ranges_say="", sites=None, **data):
        declared = "" if data and not sites else ", more: {drop: true}"
        declared += ", site: {drop: true}" if sites else ""
        ranges = 'source: the form\ntarget: {column: left, classes: ["no", "yes"]}\ncolumns: {age: {low: 0, high: 120}'
        (tmp_path / "ranges.yaml").write_text(f"{ranges}{declared}}}\n{ranges_say}\n", encoding="utf-8")
        lines = ["age,left,more", *(f"{age},{left},{cell}" for (age, left), cell in zip(rows, more, strict=True))]
        lines = (
            lines if sites is None else [f"{line},{cell}" for line, cell in zip(lines, ["site", *sites], strict=True)]
        )
        (tmp_path / "t.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        unit = data.get("unit", "row")
        if not (tmp_path / "accounts.db").exists():
            terms = {"unit": unit, "relation": Relation.ADD_OR_REMOVE_ONE, "epsilon": 9.0, "delta": 1e-4}
            open_account(address, **terms, by="owner", at=NOW)
        content = {
            "name": title,
            "data": {"path": "t.csv", "ranges": "ranges.yaml", "evaluation": evaluation} | data,
            "model": {"architecture": "mlp", "width": 8},
            "training": {"epochs": 1, "batch_size": 40, "learning_rate": 0.1},
            "privacy": {"delta": 1e-4, "epsilon": 1.0, "account": str(address)}
            | ({"score_noise": 20} if evaluation == "private" else {}),
            "search": {"trials": 1},
        }
        loaded, account = LoadedSpec.of(Spec.from_mapping(content, str(tmp_path / "t.yaml"))), Account(address)
        wanted = make_reservation(loaded.plan(), loaded.data, account, sweep=title, title=title, spender="ann")
        account.reserve(wanted)
        return account.balance().sweeps[title].held

    return reserve


def shuffled(cells, seed):
    return random.Random(seed).sample(cells, len(cells))


@pytest.mark.parametrize(
    ("data", "first", "second"),
    [
        ({}, ["january"] * ROWS, ["february"] * ROWS),
        ({}, range(ROWS), range(1, ROWS + 1)),
        (COLUMN, shuffled(MARKS, 2), shuffled(MARKS, 3)),
        ({"unit": "more"}, [f"p{i // 2}" for i in range(ROWS)], [f"q{i // 2}" for i in range(ROWS)]),
    ],
    ids=["a column that is dropped", "row numbers", "a split that is drawn anew", "other pseudonyms"],
)
def test_a_sweep_of_another_export_is_charged_on_every_side(data, first, second, reserve):
    by_side = reserve("first", first, **data)
    assert len(set(by_side.values())) > 1
    assert reserve("again", first, **data) == by_side
    moved = reserve("second", second, **data)
    assert set(moved) == set(Side)
    assert len(set(moved.values())) == 1
    assert moved[Side.TEST].square > 0.9 * max(cost.square for cost in by_side.values())  # N is another, too


def test_rows_have_one_budget_however_a_column_would_cut_them(reserve):
    """One file, cut by months and then by sites: each row would have a budget in a block of each."""
    months, sites = ["m1", "m2"] * (ROWS // 2), ["s1", "s1", "s2", "s2"] * (ROWS // 4)
    reserve("month", months, sites=sites, block="more", blocks=["m1", "m2"])
    with pytest.raises(AccountError, match="Expected blocks by column 'more', which cuts the rows of account 'clinic'"):
        reserve("site", months, sites=sites, block="site", blocks=["s1", "s2"])
    reserve("again", months, sites=sites, block="more", blocks=["m2"])


def test_rows_that_are_other_peoples_are_other_rows(reserve):
    reserve("first", [f"p{i // 2}" for i in range(ROWS)], unit="more")
    with pytest.raises(AccountError, match=f"the rows that block '{ALL_ROWS}' of account 'clinic' is bound to, got"):
        reserve("second", [f"p{i % 120}" for i in range(ROWS)], unit="more")


def test_public_rows_of_another_export_are_refused(reserve):
    for title in ("first", "again"):
        reserve(title, range(ROWS), "public")
    with pytest.raises(AccountError, match="Expected the rows that are public in earlier sweeps"):
        reserve("second", range(1, ROWS + 1), "public")
    with pytest.raises(AccountError, match=r"Expected rows held back that are public, .* got private ones"):
        reserve("third", range(ROWS))


def test_a_split_that_the_ranges_file_declares_is_that_of_the_account(reserve):
    by_side = reserve("first", shuffled(MARKS, 2), **COLUMN)
    said = "splits: {column: more, train: [train], validation: [validation], test: [test]}"
    assert reserve("second", shuffled(MARKS, 2), ranges_say=said, unit="row") == by_side


def test_a_plan_is_made_without_its_account_and_stated_with_it(tmp_path, digits):
    content = {
        "name": "digits",
        "data": {"name": "digits"},
        "model": {"architecture": "mlp", "width": 8},
        "training": {"epochs": 1, "batch_size": 256},
        "privacy": {"delta": 1e-4, "epsilon": 1.0, "account": "nowhere.db#team"},
        "search": {"trials": 1},
    }
    spec = Spec.from_mapping(content, str(tmp_path / "digits.yaml"))
    plan = make_sweep_plan(complete(spec, digits), digits)
    assert plan.account.address.name == "team"
    assert plan.claim.account is None
    with pytest.raises(RecordError, match=r"nowhere\.db"):
        state_account(plan)
