"""A private selection that spends an account: charged as a whole, and of the number of candidates nothing is told."""

import datetime
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from clipless.datasets import HashSplit
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.events import Composed, PoissonGaussian, Relation
from sweeper.account import store as store_module
from sweeper.account.account import Account
from sweeper.account.cost import event_cost, is_within, selection_cost, total
from sweeper.account.draws import SELECTION, WINNER, draws_of
from sweeper.account.entries import Side
from sweeper.account.owner import open_account, raise_account
from sweeper.account.receipts import read_receipt
from sweeper.account.verify import settle_folder, verify_account
from sweeper.driver.options import Options
from sweeper.driver.runner import resume_sweep, run_sweep
from sweeper.driver.selection import private_run, selection_run
from sweeper.driver.selection.private_run import SelectionWaitsError, recover, select
from sweeper.errors import AccountError, RecordError, SweeperError
from sweeper.planning.account_plan import plan_account, planned_costs
from sweeper.privacy.claims import COPIED
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.selection import Terms
from sweeper.privacy.spending._exploration import Exploration
from sweeper.privacy.spending._stages import Stage
from sweeper.specification.addresses import parse_address
from sweeper.specification.spec import Spec
from sweeper.store.sweep_folder import HIDDEN, SweepFolder, hidden_sweeps
from tests.factories import plan_sweep

from ...account.accounts import begin_quickly
from .played import DELTA, SPEC, Bytes, check_only_the_winner, everything_in, killed

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("bare")]

NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)


@pytest.fixture
def address(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "_begin_by_hand", begin_quickly)
    return parse_address(f"{tmp_path}/accounts.db#digits")


def opened(address, epsilon=40.0):
    relation = Relation.ADD_OR_REMOVE_ONE
    open_account(address, unit="row", relation=relation, epsilon=epsilon, delta=DELTA, by="owner", at=NOW)
    return Account(address)


def spec_of(address, **search):
    keys = {"privacy": SPEC["privacy"] | {"account": str(address)}, "search": SPEC["search"] | search}
    return Spec.from_mapping(SPEC | keys)


def ran(address, tmp_path, **search):
    return run_sweep(spec_of(address, **search), Options(out=tmp_path / "out", duration_is_seen=True)).sweep.folder


def sweep_of(account, folder):
    return account.balance().sweeps[read_receipt(folder.path).sweep]


def cost_of(terms, account):
    given = account.balance().epsilon, account.balance().delta
    return selection_cost(terms.priced, terms.repetitions, *given)


def test_a_selection_is_charged_once_and_nothing_tells_how_many_candidates_there_were(whole, address, tmp_path):
    account = opened(address)
    folder = ran(address, tmp_path)
    known, terms = sweep_of(account, folder), Ledger(folder.ledger).selection
    assert list(known.charged) == [SELECTION, WINNER]
    assert known.charged[WINNER] == {}
    assert known.charged[SELECTION] == {Side.TRAINING: cost_of(terms, account)}
    assert (known.is_open, known.held == known.drawn, known.title) == (False, True, "small")
    found = verify_account(address, [folder.path])
    entries = ["opened", "bound", "reserved", "charged", "charged", "settled"]
    assert (found.findings, found.folders, found.entries) == ((), 1, len(entries))
    check_only_the_winner(everything_in(folder.path) + address.path.read_bytes(), whole)
    assert [path.name for path in (tmp_path / "out").iterdir() if path.is_dir()] == [folder.path.name]


def test_the_account_shows_how_long_it_takes_and_so_its_user_must_consent(address, tmp_path):
    opened(address)
    with pytest.raises(
        SweeperError, match=r"Expected --duration-is-seen for a private selection with privacy\.account"
    ):
        run_sweep(spec_of(address), Options(out=tmp_path / "out"))


def test_a_selection_that_does_not_fit_leaves_nothing(whole, address, tmp_path):
    account = opened(address, epsilon=2.0)
    before = account.head
    with pytest.raises(AccountError, match="has room for, got one that reserves"):
        ran(address, tmp_path)
    assert Account(address).head == before
    assert list((tmp_path / "out").iterdir()) == []
    assert whole.asked == []


def test_no_candidate_draws_before_the_selection_is_charged(whole, address, tmp_path):
    """The ledger says first that one draws; the engine reports an epoch only behind that."""
    account, seen = opened(address), []
    reported = whole.report

    def report(states, trial, *args):
        hidden = whole.folder
        seen.append((list(sweep_of(account, hidden).charged), Ledger(hidden.ledger).is_drawn(trial)))
        seen.append(sweep_of(account, hidden).position.length)
        reported(states, trial, *args)

    whole.report = report
    ran(address, tmp_path)
    assert seen[:2] == [([SELECTION], True), 0]
    assert set(seen[1::2]) == {0}, "the length of the hidden ledger would tell how many candidates have begun"


def test_all_candidates_are_charged_before_they_are_shown_where_a_condition_broke(whole, address, tmp_path):
    account = opened(address)
    whole.does = {"t0002": "crashes"}
    folder = ran(address, tmp_path)
    known, ledger = sweep_of(account, folder), Ledger(folder.ledger)
    assert list(known.charged) == [SELECTION, "candidates"]
    events = Composed(tuple(entry.event for entry in ledger.entries() if entry.drawn))
    whole_cost = event_cost(events, account.balance().epsilon, account.balance().delta)
    assert is_within(whole_cost, known.drawn[Side.TRAINING])
    assert is_within(cost_of(ledger.selection, account), known.drawn[Side.TRAINING])
    found = verify_account(address, [folder.path])
    assert (found.findings, found.unsettled) == ((), ())


@pytest.mark.long
def test_candidates_that_the_account_has_no_room_for_are_not_shown_until_it_has(whole, address, tmp_path, monkeypatch):
    """Four where one or two are usual: all of them cost more than the best of a secret number."""
    monkeypatch.setattr(selection_run, "select", lambda *args, **given: select(*args, **given, source=Bytes(250)))
    account = opened(address, epsilon=1.4)
    whole.does = {"t0004": "crashes"}
    with pytest.raises(SelectionWaitsError, match="its account has no room for all that was trained") as refused:
        ran(address, tmp_path, selection_mean=1.5)
    said = str(refused.value).replace(str(address.path), "").replace(str(tmp_path), "")
    assert "%" not in said
    assert "t0004" not in said, "until the account has paid, nobody learns what was trained"
    assert refused.value.__cause__.__suppress_context__
    (hidden,) = hidden_sweeps(tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [hidden.path.name]
    with pytest.raises(SelectionWaitsError, match="its account has no room"):
        resume_sweep(hidden.path, give_up=True)
    with pytest.raises(AccountError, match=r"Expected a private selection that has ended, got .*, which waits; resume"):
        settle_folder(hidden.path)
    away = address.path.with_name("away.db")
    address.path.rename(away)
    ledger = hidden.ledger.read_bytes()
    with pytest.raises(RecordError, match="Expected a store of accounts at "):
        resume_sweep(hidden.path, give_up=True)
    assert hidden.ledger.read_bytes() == ledger, "an attempt that is refused gives nothing up"
    away.rename(address.path)
    raise_account(address, 40.0, DELTA, because="agreed", by="owner", at=NOW)
    folder = resume_sweep(hidden.path, give_up=True).sweep.folder
    assert list(sweep_of(account, folder).charged) == [SELECTION, "candidates"]
    assert verify_account(address, [folder.path]).findings == ()


@pytest.mark.long
def test_a_selection_that_ended_before_any_noise_gives_everything_back(whole, address, tmp_path):
    account = opened(address)
    kept = {}

    def kill(engine, *_):
        kept["hidden"] = engine.folder
        raise KeyboardInterrupt

    whole.does = {"t0001": kill}
    with pytest.raises(KeyboardInterrupt):
        ran(address, tmp_path)
    assert not any(sweep.charged for sweep in account.balance().sweeps.values())
    for hidden in hidden_sweeps(tmp_path / "out"):
        assert recover(hidden) is None
    balance = account.balance()
    assert all(balance.taken(place).square == 0.0 for place in balance.places())


@pytest.fixture
def backed_up(whole, tmp_path, monkeypatch):
    """Let the driver die as soon as the winner is in sight; return a copy of the hidden folder as it was before."""
    copies = tmp_path / "backup"

    def copy(engine, *_):
        shutil.copytree(engine.folder.path, copies / engine.folder.path.name)

    def die(*_, **__):
        raise KeyboardInterrupt

    whole.does = {"t0002": copy}
    with monkeypatch.context() as patched:
        patched.setattr(selection_run, "_conclude", die)
        yield copies


def test_a_backup_of_the_hidden_folder_selects_no_second_winner_for_one_charge(address, tmp_path, backed_up):
    account = opened(address)
    with pytest.raises(KeyboardInterrupt):
        ran(address, tmp_path)
    (folder,) = (path for path in (tmp_path / "out").iterdir() if not path.name.startswith(HIDDEN))
    (copy,) = backed_up.iterdir()
    shutil.copytree(copy, tmp_path / "out" / copy.name)
    before = Account(address).head
    refused = r"Expected the ledger of sweep 'small' to go on from its last charge|put back from a copy"
    with pytest.raises(RecordError, match=refused):  # a copy of this moment may have the inode and the time
        resume_sweep(tmp_path / "out" / copy.name)
    assert Account(address).head == before
    assert verify_account(address, [folder]).findings == ()
    assert list(sweep_of(account, SweepFolder(folder)).charged) == [SELECTION, WINNER]


@pytest.mark.usefixtures("whole")
def test_a_selection_that_was_killed_before_it_noted_its_rows_notes_them_when_it_goes_on(
    address, tmp_path, monkeypatch
):
    opened(address)
    noted = []

    def note(folder, _data):
        noted.append([entry.trial for entry in Ledger(folder / "ledger.jsonl").entries()])
        if len(noted) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(selection_run, "note_rows", note)
    with pytest.raises(KeyboardInterrupt):
        ran(address, tmp_path)
    (hidden,) = hidden_sweeps(tmp_path / "out")
    resume_sweep(hidden.path)
    assert noted == [[], []], "before its first candidate"


@pytest.mark.long
@pytest.mark.usefixtures("whole")
def test_a_winner_is_shown_once_its_account_can_be_told(address, tmp_path, monkeypatch):
    account = opened(address)
    told = private_run.note_winner

    def away(*_):
        raise RecordError("the store is away")

    monkeypatch.setattr(private_run, "note_winner", away)
    with pytest.raises(RecordError, match="the store is away"):
        ran(address, tmp_path)
    assert [path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(HIDDEN)] == []
    monkeypatch.setattr(private_run, "note_winner", told)
    (hidden,) = hidden_sweeps(tmp_path / "out")
    folder = resume_sweep(hidden.path).sweep.folder
    assert list(sweep_of(account, folder).charged) == [SELECTION, WINNER]
    assert verify_account(address, [folder.path]).findings == ()


def test_killed_when_the_ledger_of_its_winner_has_moved_the_winner_is_taken_further(
    whole, address, tmp_path, monkeypatch
):
    """Its account knows that ledger, which is not in the hidden folder any more."""

    class Killed(BaseException):
        """Stands for a kill."""

    account, replaced = opened(address), Path.replace

    def replace(path, target):
        found = replaced(path, target)
        if path.name == "ledger.jsonl" and HIDDEN in str(path):
            raise Killed
        return found

    public = tmp_path / "out" / "small"
    public.mkdir(parents=True)
    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(Killed):
        run_sweep(spec_of(address), Options(into=public, duration_is_seen=True))
    monkeypatch.setattr(Path, "replace", replaced)
    ended = resume_sweep(public)
    assert COPIED not in ended.front.claim.conditions
    assert not sweep_of(account, ended.sweep.folder).is_open
    assert len(whole.asked) == 4


@pytest.mark.long
def test_without_its_receipt_no_winner_is_shown(whole, address, tmp_path):
    opened(address)
    whole.does = {"t0003": lambda engine, *_: (engine.folder.path / "account.json").unlink()}
    with pytest.raises(RecordError, match=r"Expected what .* reserved from .* in account.json; restore the file"):
        ran(address, tmp_path)
    assert all(path.name.startswith(HIDDEN) for path in (tmp_path / "out").iterdir())


@pytest.mark.long
def test_without_its_receipt_nothing_is_shown(whole, address, tmp_path):
    opened(address)
    whole.does = {"t0002": lambda engine, *_: (engine.folder.path / "account.json").unlink(), "t0003": "crashes"}
    with pytest.raises(RecordError, match=r"Expected what .* reserved from .* in account.json; restore the file"):
        ran(address, tmp_path)
    assert all(path.name.startswith(HIDDEN) for path in (tmp_path / "out").iterdir())


def made_terms():
    event = PoissonGaussian(noise_multiplier=12.0, sampling_rate=0.1, steps=20, relation=Relation.ADD_OR_REMOVE_ONE)
    return Terms(event=event, repetitions=Repetitions(mean=5.0))


def explored():
    terms = made_terms()
    final = Stage(slot=replace(terms.event, noise_multiplier=4.0), trials=1, spare=3)
    return Exploration(epsilon=3.0, delta=DELTA, terms=terms, final=final)


def test_a_selection_and_its_final_are_reserved_together(data, address):
    account = opened(address)
    plan = plan_sweep(spec_of(address), data)
    budget = explored()
    planned = plan_account(replace(plan, spending=budget), data, HashSplit())
    costs = planned_costs(planned, DELTA, account.balance())
    price = partial(event_cost, epsilon=account.balance().epsilon, delta=DELTA)
    final = [price(budget.final.slot), price(budget.final.slot.with_steps(3))]
    assert costs == {Side.TRAINING: total([cost_of(budget.terms, account), *final])}


def test_behind_a_selection_that_held_its_final_is_a_release_of_its_own(tmp_path):
    ledger, budget = Ledger(tmp_path / "ledger.jsonl"), explored()
    ledger.set_budget(budget)
    ledger.select(budget.terms)
    ledger.open("t0002", budget.final.slot, stage=0, marked=True)
    assert [draw.what for draw in draws_of(ledger)] == [SELECTION, WINNER]
    ledger.draw("t0002")
    assert [draw.what for draw in draws_of(ledger)] == [SELECTION, WINNER, "t0002/1"]


def test_a_selection_that_waits_has_drawn_itself_alone(play, tmp_path):
    kill, copy = killed(tmp_path)
    play({"t0003": kill})
    assert [draw.what for draw in draws_of(Ledger(copy.ledger))] == [SELECTION]
    shown = SweepFolder(tmp_path / "shown")
    shown.path.mkdir()
    shown.ledger.write_bytes(copy.ledger.read_bytes())
    assert [draw.what for draw in draws_of(Ledger(shown.ledger))] == [SELECTION, "candidates"]
