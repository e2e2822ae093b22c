"""`sweeper account`: opened, shown, shared, raised, verified and closed from the command line."""

import io
import json
import sqlite3

import pytest
from rich.console import Console, Group

from sweeper.account.summary import LARGEST_SIDE, AccountSummary, PlaceSummary, SpenderSummary, SweepSummary
from sweeper.cli.commands.account import _tables
from sweeper.cli.main import main

from .conftest import TRAINS


@pytest.fixture
def account(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LOGNAME", "ann")
    address = f"{tmp_path}/accounts.db#clinic"

    def call(command, *arguments, code=0):
        try:
            main(["account", command, address, *map(str, arguments)])
            ended = 0
        except SystemExit as error:
            ended = error.code or 0
        said = capsys.readouterr()
        assert ended == code, said
        return said.err if code else said.out

    call.path = tmp_path / "accounts.db"
    return call


@pytest.fixture
def leaves(monkeypatch):
    """A command that ends raises instead of ending the process of the tests."""

    def leave(code):
        raise SystemExit(code)

    monkeypatch.setattr("sweeper.cli.main.leave", leave)


@pytest.mark.usefixtures("leaves")
def test_an_account_is_opened_shown_raised_shared_and_closed(account):
    said = account("open", "--epsilon", 6.8, "--delta", 1e-5, "--share", "lab=0.5:ann,ben", "--until", "2030-01-31")
    assert said.startswith("opened: ")
    assert "in a spec: privacy: {account: " in said
    shown = " ".join(account("show").split())
    assert "through account 'clinic' costs epsilon 6.8 at delta 1e-05 together" in shown
    assert "No sweep begins after 2030-01-31." in shown
    assert (
        account("raise", "--epsilon", 8, "--delta", 1e-5, "--because", "board") == "raised: epsilon 8 at delta 1e-05\n"
    )
    assert account("share", "ann=1", "*=0.1") == "shared: ann=1, *=0.1\n"
    assert account("verify") == "verified: 3 entries, 0 ledgers\n"
    account("close", "--because", "the study has ended")
    summary = json.loads(account("show", "--json"))
    assert (summary["epsilon"], summary["closed"]) == (8.0, {"all": "the study has ended"})
    assert [one["name"] for one in summary["spenders"]] == ["ann"]


@pytest.mark.usefixtures("leaves")
def test_an_account_that_is_not_as_it_was_written_is_told_with_its_own_code(account):
    account("open", "--epsilon", 1, "--delta", 1e-5)
    with sqlite3.connect(account.path) as connection:
        connection.execute("UPDATE account_entries SET text = replace(text, '1.0', '9.0')")
    assert "Expected entry 1 as it was written" in account("verify", code=1)


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("leaves")
@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--share", "ann", "Expected WHO=PART with a part from 0 to 1, such as ann=0.5, got 'ann'"),
        ("--share", "ann=2", "Expected WHO=PART"),
        ("--share", "ann=x", "Expected WHO=PART"),
        ("--until", "soon", "Expected a day as YYYY-MM-DD, got 'soon'"),
        ("--relation", "none", "Expected a relation out of add-or-remove-one, replace-one, got 'none'"),
        ("--delta", "2", "epsilon > 0 and 0 < delta < 1"),
    ],
)
def test_a_wrong_option_is_refused_in_a_sentence_and_makes_nothing(account, option, value, sentence):
    assert sentence in account("open", "--epsilon", 1, "--delta", 1e-5, option, value, code=2)
    assert not account.path.exists()


@pytest.mark.long
def test_looking_at_an_account_imports_nothing_that_trains(imported, tmp_path):
    address = f"{tmp_path}/accounts.db#clinic"
    imported("account", "open", address, "--epsilon", "1", "--delta", "1e-5")
    said, modules = imported("account", "show", address)
    assert "Nothing was reserved from it yet." in said
    assert TRAINS & modules == set()


def test_names_of_an_account_are_never_cut_to_the_width_of_a_terminal():
    name, spender, since = (
        "readmission-of-patients-2024-with-a-long-name",
        "a.long.spender@example.org",
        "2026-11-24T10:39",
    )
    place = PlaceSummary(block="all", side="training", taken=0.25, drawn=0.1)
    sweep = SweepSummary(
        id="s",
        title=name,
        spender=spender,
        blocks=("all",),
        since=since,
        reserved=0.3,
        taken=0.25,
        drawn=0.1,
        is_settled=True,
    )
    words = {"name": "clinic", "unit": "row", "relation": "add-or-remove-one", "claim": "All costs epsilon 3."}
    more = {"epsilon": 3.0, "delta": 1e-5, "until": None, "closed": {}}
    spenders = (SpenderSummary(name=spender, taken=0.25, most=1.0),)
    summary = AccountSummary(**words, **more, places=(place,), spenders=spenders, sweeps=(sweep,))
    console = Console(file=io.StringIO(), width=80, soft_wrap=True)
    console.print(Group(*_tables(summary)))
    shown = console.file.getvalue()
    assert f" {name} by {spender}, since {since}\n   reserved 30 %, drawn 10 %, holds 25 % of all; settled" in shown
    assert f"On what ({LARGEST_SIDE})" in shown
    assert shown.count(spender) == 2
    assert "…" not in shown
