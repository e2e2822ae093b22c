"""A sweep that names an account reserves before it draws, charges each draw after its ledger, and is settled at its end."""

import contextlib
import csv
import datetime
import json
import re
import shutil
from dataclasses import asdict, replace
from html import escape
from types import SimpleNamespace

import pytest
import yaml
from starlette.testclient import TestClient

import clipless
from clipless.privacy.events import PoissonGaussian, Relation
from clipless.privacy.noisy_counts import scores_event
from sweeper.account.account import Account
from sweeper.account.blocks import ALL_ROWS
from sweeper.account.cost import NOTHING
from sweeper.account.draws import Draw, draw_of, draws_of
from sweeper.account.entries import Side
from sweeper.account.owner import close_account, open_account
from sweeper.account.receipts import Receipt, read_receipt
from sweeper.account.summary import share_in_words, summarise
from sweeper.account.verify import settle_folder, verify_account
from sweeper.adapters import parse
from sweeper.cli.main import main
from sweeper.driver.options import Options
from sweeper.driver.recording.account_charges import reserve_account
from sweeper.driver.recording.spending import SpendingRecord
from sweeper.driver.runner import run
from sweeper.errors import AccountError, RecordError, SpecError, TrialError
from sweeper.planning.account_plan import NO_ACCOUNT, make_reservation, planned_costs
from sweeper.planning.account_quote import quote_of
from sweeper.planning.configurations import plan_configuration
from sweeper.planning.make import steer_plan
from sweeper.privacy.claims import Steering
from sweeper.privacy.entries import Entry
from sweeper.privacy.evaluation.paid_scores import PaidScores
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import drawn_by, price, whole_event
from sweeper.records import Trial, TrialPlan
from sweeper.results.front import read_front
from sweeper.rounding import round_up
from sweeper.search.space import sample
from sweeper.service.app import create_app
from sweeper.service.settings import ServiceSettings
from sweeper.specification.addresses import parse_address
from sweeper.specification.spec import Spec
from sweeper.store.sweep_folder import SweepFolder
from tests.factories import make_spec, plan_sweep, small_content, spec_error
from tests.sweeper.conftest import Nobody

TRIAL = Trial(id="t0001", config={})
NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
EVENT = PoissonGaussian(noise_multiplier=3.0, sampling_rate=0.1, steps=20, relation=Relation.ADD_OR_REMOVE_ONE)
PRIVATE = small_content(
    data={"name": "breast_cancer", "evaluation": "private"}, search={"trials": 2, "rehearse": False}
)


def opened(folder, epsilon=6.0):
    address = parse_address(f"{folder}/accounts.db#clinic")
    open_account(
        address, unit="row", relation=Relation.ADD_OR_REMOVE_ONE, epsilon=epsilon, delta=1e-4, by="owner", at=NOW
    )
    return address


def content(address, **privacy):
    keys = {"sweep_epsilon": 3.0, "delta": 1e-4, "account": str(address), "epsilon": None, **privacy}
    given = {**PRIVATE, "privacy": {key: value for key, value in keys.items() if value is not None}}
    return {**given, "training": {"epochs": 1, "batch_size": 64, "learning_rate": {"log": [0.02, 0.1]}}}


@pytest.fixture(scope="module")
def data():
    return clipless.datasets.load("breast_cancer", evaluation="private")


def check_prices_agree(sweep, address, condition):
    """Page, card, REST, the command line and the ledgers say the same of one sweep, to the last digit."""
    summary = summarise(Account(address).balance())
    (own,) = summary.sweeps
    settings = ServiceSettings(out=sweep.directory.parent, accounts={"breast_cancer": address})
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        url, account = f"/api/v1/sweeps/{sweep.directory.name}", "/api/v1/accounts/clinic"
        told = client.get(account).json()
        assert (told["taken"], told["drawn"]) == (summary.taken, summary.drawn) == (own.taken, own.drawn)
        assert told["sweeps"] == [{**asdict(own), "blocks": list(own.blocks)}]
        assert (told["epsilon"], told["delta"]) == (summary.epsilon, summary.delta)
        front, card = client.get(f"{url}/front").json(), client.get(f"{url}/card?format=json").json()
        price = sweep.front().price
        assert price.epsilon == front["ledger"]["everything"]["epsilon"] == card["ledger"]["everything"]["epsilon"]
        assert condition in front["claim"]["conditions"]
        assert condition in client.get(f"{url}/card").text
        row = next(csv.DictReader(client.get(f"{url}/front?format=csv").text.splitlines()))
        claimed = {"account": "clinic", "account.epsilon": repr(told["epsilon"]), "account.delta": repr(told["delta"])}
        assert claimed.items() <= row.items()
        assert row["price"] == repr(price.epsilon)
        page = client.get("/live/part/account?account=clinic").text
        assert f"<dd>{share_in_words(own.taken)}<small>all of it drawn" in page
        assert all(f'data-value="{part}"' in page for part in (own.taken, own.drawn))
        cost = client.get(f"/live/part/cost?sweep={sweep.directory.name}").text
        assert f"epsilon {round_up(price.epsilon)}" in card["ledger"]["everything"]["statement"] + cost
        assert escape(condition) in cost
        assert client.get(f"{account}/verify").json() == {
            "verified": True, "entries": Account(address).head.number, "ledgers": 1, "findings": [], "unsettled": [],
        }  # fmt: skip


@pytest.mark.usefixtures("bare", "in_process", "untracked")
def test_a_sweep_reserves_charges_and_settles_and_one_that_does_not_fit_leaves_nothing(tmp_path):
    address = opened(tmp_path)
    sweep = run(make_spec(content(address)), Options(out=tmp_path / "out"))
    verification = verify_account(address, [sweep.directory])
    assert (verification.findings, verification.unsettled, verification.folders) == ((), (), 1)
    known = Account(address).balance().sweeps[read_receipt(sweep.directory).sweep]
    assert not known.is_open
    assert known.title == sweep.directory.name
    assert known.held == known.drawn
    trainings = {f"{entry.trial}/{entry.attempt}" for entry in Ledger(sweep.directory / "ledger.jsonl").entries()}
    assert trainings <= set(known.charged)
    assert {name for name in known.charged if name not in trainings} == {
        f"test/{number}" for number in range(1, len(known.charged) - len(trainings) + 1)
    }
    (condition,) = [one for one in read_front(sweep.directory / "front.json").claim.conditions if "account" in one]
    assert "Everything that is ever released through it costs epsilon 6 at delta 0.0001 together" in condition
    check_prices_agree(sweep, address, condition)
    before = Account(address).head
    with pytest.raises(
        AccountError, match=r"account 'clinic' has room for, got one that reserves .* lower privacy.sweep_epsilon to"
    ):
        run(make_spec(content(address, sweep_epsilon=5.5)), Options(out=tmp_path / "out"))
    assert Account(address).head == before
    assert [path for path in (tmp_path / "out").iterdir() if path.is_dir()] == [sweep.directory]


@pytest.mark.usefixtures("bare", "in_process")
def test_mlflow_is_told_the_name_of_an_account_and_not_where_it_lies(tmp_path, monkeypatch):
    told = []

    class Listens(Nobody):
        def __init__(self, *args, params, **options):
            super().__init__(*args, **options)
            told.append(params)

        def text(self, name, text):
            told.append({name: text})

        def artifact(self, path):
            told.append(path.name)

    monkeypatch.setattr("sweeper.driver.driver.Tracker", Listens)
    run(make_spec(content(opened(tmp_path))), Options(out=tmp_path / "out"))
    params, *rest = told
    assert params["privacy"]["account"] == "clinic"
    assert "spec.yaml" not in rest
    (spec,) = (yaml.safe_load(one["spec.yaml"]) for one in rest if isinstance(one, dict))
    assert spec["privacy"] == params["privacy"]
    assert str(tmp_path) not in str(told)


@pytest.mark.usefixtures("bare", "in_process", "untracked")
def test_a_sweep_that_cannot_begin_gives_back_what_it_reserved(tmp_path, monkeypatch):
    """The disk is full right behind the reservation, whose only receipt is in the folder."""
    address, written = opened(tmp_path), Receipt.write

    def fill(receipt, folder):
        if receipt.number:
            raise RecordError(f"Cannot write {folder}: no space left on device")
        written(receipt, folder)

    monkeypatch.setattr(Receipt, "write", fill)
    with pytest.raises(RecordError, match=r"no space left on device$"):
        run(make_spec(content(address)), Options(out=tmp_path / "out"))
    assert not list((tmp_path / "out").iterdir())
    (own,) = Account(address).balance().sweeps.values()
    assert (own.is_open, set(own.held.values())) == (False, {NOTHING})
    monkeypatch.setattr(Receipt, "write", written)
    with monkeypatch.context() as later:  # when the sweep is described
        later.setattr(
            "sweeper.driver.driver.note_rows", lambda *_: (_ for _ in ()).throw(RecordError("no space left on device"))
        )
        with pytest.raises(RecordError, match=r"^no space left on device$"):
            run(make_spec(content(address)), Options(out=tmp_path / "out"))
    assert not list((tmp_path / "out").iterdir())
    assert [sweep.is_open for sweep in Account(address).balance().sweeps.values()] == [False, False]
    monkeypatch.setattr(Receipt, "write", fill)
    monkeypatch.setattr(Account, "settle", lambda *_: (_ for _ in ()).throw(RecordError("the store is busy")))
    with pytest.raises(RecordError, match=r"is kept: what it has reserved is given back by `sweeper account settle "):
        run(make_spec(content(address)), Options(out=tmp_path / "out"))
    monkeypatch.undo()
    (kept,) = (tmp_path / "out").iterdir()
    assert [sweep.is_open for sweep in Account(address).balance().sweeps.values()] == [False, False, True]
    settle_folder(kept)
    assert not any(sweep.is_open for sweep in Account(address).balance().sweeps.values())


def reserved(tmp_path, data, address, **privacy):
    folder = SweepFolder(tmp_path / "sweep")
    folder.path.mkdir(exist_ok=True)
    plan = plan_sweep(make_spec(content(address, **privacy)), data)
    return folder, plan, reserve_account(plan, data, folder)


def test_a_sweep_takes_the_share_of_whom_it_is_told(tmp_path, data, monkeypatch):
    address = opened(tmp_path)
    monkeypatch.setenv("LOGNAME", "ann")
    folder, plan, _ = reserved(tmp_path, data, address)
    assert Account(address).balance().spenders == ("ann",)
    with pytest.raises(AccountError, match=r"Expected the spender 'ann', who has reserved .*, got 'ben'"):
        reserve_account(plan, data, folder, spender="ben")
    other = SweepFolder(tmp_path / "other")
    other.path.mkdir()
    reserve_account(plan, data, other, spender="ben")
    assert Account(address).balance().spenders == ("ann", "ben")


def test_a_driver_that_was_killed_between_its_ledger_and_its_account_charges_what_it_drew(tmp_path, data):
    address = opened(tmp_path)
    folder, plan, _ = reserved(tmp_path, data, address)
    sweep = read_receipt(folder.path).sweep
    ledger = Ledger(folder.ledger)
    ledger.set_budget(plan.spending.budget)
    event = plan.spending.first_slot
    ledger.open("t0001", event, stage=0, marked=True)
    reserve_account(plan, data, folder)
    assert Account(address).balance().sweeps[sweep].charged == {}
    ledger.draw("t0001")
    held = Account(address).balance().sweeps[sweep].held
    reserve_account(plan, data, folder)
    again = Account(address).balance().sweeps[sweep]
    assert list(again.charged) == ["t0001/1"]
    assert again.held == held  # its own reservation, found again


def begun(folder, plan, charges):
    """Let a driver of a folder draw the first noise of its first trial."""
    made = SpendingRecord(folder, plan, charges)
    made.enter_budget()
    made._ledger.open("t0001", plan.spending.first_slot, stage=0, marked=True)
    made.draw(TRIAL)


def test_of_two_copies_of_a_folder_that_both_go_on_one_draws(tmp_path, data):
    """Their ledgers say the same of the same trial, and one charge pays for one draw."""
    address = opened(tmp_path)
    folder, plan, charges = reserved(tmp_path, data, address)
    copy = SweepFolder(tmp_path / "copy")
    shutil.copytree(folder.path, copy.path)
    other = reserve_account(plan, data, copy)
    begun(folder, plan, charges)
    with pytest.raises(RecordError, match="does not hold it: the folder is a copy"):
        begun(copy, plan, other)
    begun_before = Account(address).balance().sweeps[read_receipt(folder.path).sweep]
    assert list(begun_before.charged) == ["t0001/1"]


def test_a_draw_that_could_not_be_charged_is_charged_before_the_sweep_is_settled(tmp_path, data, monkeypatch):
    address = opened(tmp_path)
    folder, plan, charges = reserved(tmp_path, data, address)

    def away(*_, **__):
        raise RecordError("the store is away")

    with monkeypatch.context() as patched:
        patched.setattr(Account, "charge", away)
        with pytest.raises(RecordError, match="the store is away"):
            begun(folder, plan, charges)
    charges.settle()
    assert list(Account(address).balance().sweeps[read_receipt(folder.path).sweep].charged) == ["t0001/1"]
    found = verify_account(address, [folder.path])
    assert (found.findings, found.unsettled) == ((), ())


RANGES = """source: the form
target: {column: ill, classes: ["no", "yes"]}
unit: person
block: month
columns: {age: {low: 0, high: 400, missing: 50}}
"""


def clinic(folder, months):
    """A table of a clinic by months, of which each person has two rows in one, and what a spec says of it."""
    rows = [(i % 397, f"p{i // 2}", month, "yes" if i % 3 else "no") for month in months for i in _numbers(month)]
    lines = ["age,person,month,ill", *(",".join(map(str, row)) for row in rows)]
    (folder / "clinic.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "ranges.yaml").write_text(RANGES, encoding="utf-8")
    return {"path": str(folder / "clinic.csv"), "ranges": str(folder / "ranges.yaml")}


def _numbers(month):
    begin = 1000 * int(month[-2:])
    return range(begin, begin + 400)


def test_the_file_of_one_account_is_refused_under_another_with_other_ranges(tmp_path):
    first = opened(tmp_path)
    second = parse_address(f"{first.store}#ward")
    relation = Relation.ADD_OR_REMOVE_ONE
    open_account(second, unit="row", relation=relation, epsilon=6.0, delta=1e-4, by="owner", at=NOW)
    given = clinic(tmp_path, ["2026-01"])

    def reserve(address, high):
        bare = RANGES.replace("unit: person\nblock: month\n", "others: {drop: true}\n").replace("400", str(high))
        (tmp_path / "ranges.yaml").write_text(bare, encoding="utf-8")
        spec = make_spec(content(address) | {"data": given | {"evaluation": "private"}})
        data = clipless.datasets.load(**spec.data_options())
        folder = SweepFolder(tmp_path / f"sweep{high}")
        folder.path.mkdir()
        return reserve_account(plan_sweep(spec, data), data, folder)

    reserve(first, 400)
    with pytest.raises(AccountError, match=r"account 'clinic' of .* has the same table, in other blocks or with other"):
        reserve(second, 401)


@pytest.mark.long
@pytest.mark.usefixtures("bare", "in_process", "untracked")
def test_a_sweep_charges_the_months_that_it_reads_and_a_new_month_brings_a_new_budget(tmp_path, capsys):
    address = parse_address(f"{tmp_path}/accounts.db#clinic")
    relation = Relation.ADD_OR_REMOVE_ONE
    open_account(address, unit="person", relation=relation, epsilon=4.2, delta=1e-4, by="owner", at=NOW)

    def sweep(folder, months, blocks, **data):
        given = clinic(tmp_path, months) | ({"blocks": blocks} if blocks else {}) | data
        spec = make_spec(content(address) | {"data": given, "search": {"trials": 1, "rehearse": False}})
        return run(spec, Options(out=tmp_path / folder))

    def taken(block):
        return Account(address).balance().taken((block, Side.TRAINING)).square

    january = sweep("one", ["2026-01"], ["2026-01"])
    before = taken("2026-01")
    assert before > 0.0
    with pytest.raises(AccountError, match=r"on .* rows of block '2026-01' .* is left"):
        sweep("two", ["2026-01", "2026-02"], ["2026-02", "2026-01"])
    february = sweep("three", ["2026-01", "2026-02"], ["2026-02"])
    assert taken("2026-01") == before
    assert taken("2026-02") == pytest.approx(before, rel=0.05)
    assert verify_account(address, [january.directory, february.directory]).findings == ()
    (tmp_path / "whole.yaml").write_text(RANGES.replace("block: month", "") + "others: {drop: true}\n")
    with pytest.raises(AccountError, match=r"the blocks of account 'clinic' \(2026-01, 2026-02\), got all rows"):
        sweep("four", ["2026-01"], None, ranges=str(tmp_path / "whole.yaml"))
    main_quietly(["account", "show", str(address), "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert {place["block"] for place in shown["places"]} == {"2026-01", "2026-02"}
    assert [one["blocks"] for one in shown["sweeps"]] == [["2026-01"], ["2026-02"]]
    check = yaml.safe_dump(content(address) | {"data": clinic(tmp_path, ["2026-03"]) | {"blocks": ["2026-03"]}})
    (tmp_path / "spec.yaml").write_text(check, encoding="utf-8")
    main_quietly(["check", str(tmp_path / "spec.yaml"), "--no-estimate"])
    said = capsys.readouterr()
    assert "of it, now 100 %" in " ".join(said.out.split()), said.err  # of the month that it reads


def test_a_block_that_is_called_as_all_rows_are_is_refused(tmp_path):
    address = opened(tmp_path)
    (tmp_path / "ranges.yaml").touch()
    given = clinic(tmp_path, ["2026-01"])
    path = tmp_path / "clinic.csv"
    path.write_text(path.read_text().replace("2026-01", "all"))
    spec = make_spec(content(address) | {"data": given | {"blocks": ["all"]}})
    data = clipless.datasets.load(**spec.data_options())
    plan = plan_sweep(spec, data)
    with pytest.raises(AccountError, match=r"Expected blocks of other names than 'all', which is all rows"):
        make_reservation(plan, data, Account(address), sweep="", title="t", spender="ann")
    named = replace(data, blocks=replace(data.blocks, names=("2026-01",)))
    assert list(make_reservation(plan, named, Account(address), sweep="", title="t", spender="ann").blocks) == [
        "2026-01"
    ]


def main_quietly(arguments):
    with contextlib.suppress(SystemExit):
        main(arguments)


class Witness:
    """Stands for the account of a sweep, and says what the ledger had when a release was charged."""

    def __init__(self, ledger, refused=None):
        self._ledger, self._refused, self.charged, self.room = ledger, refused, {}, []

    def make_room(self, draws):
        self.room.append([draw.what for draw in draws])
        return self._refused

    def charge(self, draw):
        ledger = Ledger(self._ledger)
        drawn = {f"{one.trial}/{one.attempt}" for one in ledger.entries() if one.drawn}
        drawn |= {f"test/{number + 1}" for number in range(len(ledger.tests()))} | (
            {"sketch"} if ledger.sketch else set()
        )
        self.charged[draw.what] = draw.what in drawn


@pytest.fixture
def spending(tmp_path, data):
    def make(refused=None, **search):
        folder = SweepFolder(tmp_path)
        account = Witness(folder.ledger, refused)
        keys = content(opened(tmp_path))
        plan = plan_sweep(make_spec(keys | {"search": keys["search"] | search}), data)
        made = SpendingRecord(folder, plan, account)
        made.enter_budget()
        return made, account, plan

    return make


def test_every_release_is_in_the_ledger_before_it_is_charged(spending):
    made, account, plan = spending()
    made._ledger.open("t0001", plan.spending.first_slot, stage=0, marked=True)
    made.draw(TRIAL)
    made.pay_test(SimpleNamespace(trial="t0001", epoch=1), plan.shared.noise.paid_test(1))
    assert account.charged == {"t0001/1": True, "test/1": True}


def test_a_training_is_charged_with_the_scores_of_its_validation_rows(spending, tmp_path):
    _, _, plan = spending()
    scores = plan.shared.noise.paid(1)
    draw = draw_of(Entry(trial="t0001", attempt=1, event=plan.spending.first_slot, scores=scores))
    assert draw.events == {Side.TRAINING: plan.spending.first_slot, Side.VALIDATION: scores.event}
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.open("t0001", plan.spending.first_slot, scores=scores, stage=0)
    assert draws_of(ledger) == (draw,)


@pytest.mark.parametrize(
    ("kept", "steps", "releases"),
    [
        ((0, 5), [60, 5], [6, 1]),
        ((0, 5, 20), [60, 5, 5], [6, 1, 1]),
        ((0, 0), [60, 60], [6, 6]),
        ((0, 0, 5), [60, 60, 5], [6, 6, 1]),
    ],
)
def test_a_training_that_goes_on_pays_what_it_draws_beyond_what_the_one_before_planned(tmp_path, kept, steps, releases):
    """Attempts at 60 steps and 6 releases of scores; all but the last are killed, 10 or 20 steps after they began."""
    ledger, event, scores = (
        Ledger(tmp_path / "ledger.jsonl"),
        EVENT.with_steps(60),
        scores_event(9.0, 6, EVENT.relation),
    )
    for number, one in enumerate(kept, 1):
        scored = {0: 0, 5: 2, 20: 4}[one]
        paid = PaidScores(event=scores.with_steps(6 - scored), apart=True, kept=scored)
        ledger.open("t0001", event, kept=one, scores=paid, marked=True)
        ledger.draw("t0001", one + (20 if one else 10))
        if number < len(kept):
            ledger.close("t0001", one + (20 if one else 10), scored=scored + 3)
    draws = draws_of(ledger)
    assert [draw.what for draw in draws] == [f"t0001/{number}" for number in range(1, len(kept) + 1)]
    assert [draw.events[Side.TRAINING] for draw in draws] == [event.with_steps(one) for one in steps]
    assert [draw.events[Side.VALIDATION] for draw in draws] == [scores.with_steps(one) for one in releases]


def test_a_training_that_goes_on_from_one_that_its_account_did_not_hold_back_is_charged_in_full(tmp_path):
    """As ledgers of earlier versions have it: the one before may run somewhere else, up to its end."""
    ledger, event = Ledger(tmp_path / "ledger.jsonl"), EVENT.with_steps(60)
    ledger.open("t0001", event, marked=True)
    ledger.draw("t0001")
    ledger.close("t0001", 10)
    ledger.open("t0001", event, kept=5)
    assert [draw.events[Side.TRAINING].steps for draw in draws_of(ledger)] == [60, 55]


@pytest.fixture
def long_trial(plan_json):
    """A trial of 20 epochs of 5 steps."""
    event = PoissonGaussian(noise_multiplier=20.0, sampling_rate=0.1, steps=100, relation=Relation.ADD_OR_REMOVE_ONE)
    planned = {"event": event.to_json(), "epochs": 20, "epsilon_curve": [1.0] * 20, "accountants": {}}
    return Trial(id="t0001", config={}, plan=parse(TrialPlan, plan_json | planned))


ALONE = {"sweep_epsilon": None, "epsilon": 1.0, "score_noise": 20.0}  # how sweeps spend whose trials are priced alone


@pytest.mark.parametrize("budget", [True, False])
def test_a_training_asks_its_account_again_after_each_eighth_and_within_a_budget_after_each_epoch(
    budget, spending, long_trial
):
    made, account, _ = spending()
    made._ledger = Ledger(made._ledger.path.with_name("other.jsonl"))
    made._planned = made._planned if budget else SimpleNamespace(budget=None)
    made._ledger.open("t0001", whole_event(long_trial.plan), marked=True)
    made.draw(long_trial)
    asked = [made._ledger.granted("t0001")]
    for epoch in range(1, 20):
        made.go_on(long_trial, epoch)
        assert drawn_by(long_trial.plan, epoch + 1) <= made._ledger.granted("t0001")
        asked.append(made._ledger.granted("t0001"))
    granted = [*range(5, 101, 5)] if budget else [15, 30, 45, 60, 75, 90, 100]
    assert list(dict.fromkeys(asked)) == granted
    names = ["t0001/1", *(f"t0001/1/{until}" for until in granted[1:])]
    assert list(account.charged) == names == [draw.what for draw in draws_of(made._ledger)]
    assert not any(draw.events for draw in draws_of(made._ledger)[1:]), "grants cost nothing"


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_copy_of_a_running_sweep_and_the_sweep_do_not_both_train_for_one_charge(
    is_restored, tmp_path, data, long_trial
):
    """The original has gone on when its copy does, up to its next grant; as has one that a backup replaces."""
    address = opened(tmp_path)
    folder, plan, charges = reserved(tmp_path, data, address, **ALONE)
    original, event = SpendingRecord(folder, plan, charges), whole_event(long_trial.plan)
    original._ledger.open("t0001", event, marked=True)
    original.draw(long_trial)
    copy = SweepFolder(tmp_path / "copy")
    shutil.copytree(folder.path, copy.path)
    for epoch in range(1, 3):
        original.go_on(long_trial, epoch)
    if is_restored:  # in place of what has gone on further
        original.go_on(long_trial, 3)
        with pytest.raises(RecordError, match="the folder is a copy, or was restored from a backup"):
            reserve_account(plan, data, copy)
        return
    other = SpendingRecord(copy, plan, reserve_account(plan, data, copy))
    other.take_up(long_trial, 1)
    other._ledger.open("t0001", event, kept=5, marked=True)
    other.draw(long_trial)
    with pytest.raises(RecordError, match="the folder is a copy, or was restored from a backup"):
        original.go_on(long_trial, 3)
    paid = [draw.events[Side.TRAINING].steps for draw in draws_of(other._ledger) if draw.events]
    assert sum(paid) == 15 + 95, "three epochs of the original, and all but the first of the copy"
    assert Account(address).balance().sweeps[read_receipt(copy.path).sweep].charged.keys() == {"t0001/1", "t0001/2"}


def test_a_training_that_had_not_drawn_when_folder_and_account_were_copied_is_charged_to_both(
    tmp_path, data, long_trial
):
    """Put back together, they agree: neither knows that it drew afterwards."""
    address = opened(tmp_path)
    folder, plan, charges = reserved(tmp_path, data, address, **ALONE)
    event = whole_event(long_trial.plan)
    SpendingRecord(folder, plan, charges)._ledger.open("t0001", event, marked=True)
    folder.lacks_rows = folder.is_copy = True
    taken = SpendingRecord(folder, plan, reserve_account(plan, data, folder))
    taken.take_up(long_trial, 0)
    assert [entry.charged.steps for entry in taken._ledger.entries()] == [event.steps]
    taken.settle()
    paid = [draw.events[Side.TRAINING].steps for draw in draws_of(taken._ledger) if draw.events]
    assert paid == [event.steps]
    assert "t0001/1" in Account(address).balance().sweeps[read_receipt(folder.path).sweep].charged


def test_a_sketch_is_in_the_ledger_before_it_is_charged(spending):
    made, account, plan = spending(trials=3, rehearse="sketch")
    made.enter_sketch(plan.spending.sketch)
    assert account.charged == {"sketch": True}
    assert plan.spending.sketch in plan.account.events[Side.TRAINING]


def test_an_epoch_before_the_mark_of_its_draw_is_charged_too(spending):
    made, account, plan = spending()
    made._ledger.open("t0001", plan.spending.first_slot, stage=0, marked=True)
    with pytest.raises(TrialError):
        made.check_drawn(TRIAL)
    assert account.charged == {"t0001/1": True}


def test_what_the_account_has_no_room_for_is_not_entered(spending):
    made, account, plan = spending("no room")
    assert made.pay_test(SimpleNamespace(trial="t0001", epoch=1), plan.shared.noise.paid_test(1)) == "no room"
    assert (made._ledger.tests(), account.charged) == ((), {})


def test_trainings_that_are_entered_and_have_not_drawn_keep_their_room(spending):
    """A draw that the ledger says would be refused for ever, and the sweep never settled."""
    made, account, plan = spending()
    event, test = plan.spending.first_slot, (SimpleNamespace(trial="t0001", epoch=1), plan.shared.noise.paid_test(1))
    made._ledger.open("t0001", event, stage=0, marked=True)
    made.pay_test(*test)
    made.draw(TRIAL)
    made.pay_test(*test)
    assert account.room == [["test/1", "t0001/1"], ["test/2"]]


def test_other_rows_are_refused_and_a_closed_account_begins_no_sweep(tmp_path, data):
    address = opened(tmp_path)
    reserved(tmp_path, data, address)
    fewer = clipless.datasets.Dataset(
        data.metadata, data.train, data.validation, data.test.take(data.test.y.nonzero()[:, 0])
    )
    plan = plan_sweep(make_spec(content(address)), data)
    other = SweepFolder(tmp_path / "other")
    other.path.mkdir()
    with pytest.raises(AccountError, match="is bound to, got others"):
        reserve_account(plan, fewer, other)
    close_account(address, because="spent", by="owner", at=NOW)
    with pytest.raises(AccountError, match="is closed: spent"):
        reserve_account(plan, data, other)


LONG = """\
name: long
data: {name: digits}
model: {architecture: mlp, width: 16}
training: {epochs: 60, batch_size: 256, learning_rate: {log: [0.02, 0.1]}}
privacy: {sweep_epsilon: 3, delta: 1e-5, account: ACCOUNT}
search: {trials: 2, rehearse: false}
"""


@pytest.mark.long
def test_four_sweeps_at_3_fit_into_6_8_and_command_line_and_python_refuse_the_fifth_alike(tmp_path, capsys):
    address = parse_address(f"{tmp_path}/accounts.db#clinic")
    terms = {"unit": "row", "relation": Relation.ADD_OR_REMOVE_ONE, "epsilon": 6.8, "delta": 1e-5}
    open_account(address, **terms, by="owner", at=NOW)
    path, out = tmp_path / "long.yaml", tmp_path / "out"
    path.write_text(LONG.replace("ACCOUNT", f"'{address}'"))
    spec = Spec.from_yaml(path)
    digits = clipless.datasets.load(**spec.data_options())
    plan = plan_sweep(spec, digits)
    for number in range(4):
        folder = SweepFolder(tmp_path / f"sweep{number}")
        folder.path.mkdir()
        reserve_account(plan, digits, folder)
    before = Account(address).head
    with pytest.raises(AccountError, match=r"lower privacy\.sweep_epsilon to [\d.]+, the most that fits") as refused:
        run(spec, Options(out=out))
    main_quietly(["run", str(path), "--out", str(out)])
    assert capsys.readouterr().err == f"sweeper: {refused.value}\n"
    with pytest.raises(SystemExit) as ended:
        main(["check", str(path), "--no-estimate"])
    assert ended.value.code == 2
    told = capsys.readouterr().out
    assert f"Refused by its account: {refused.value}" in told
    assert "then:" not in told, "it would be refused"
    assert Account(address).head == before
    assert [one for one in out.glob("*") if one.is_dir()] == []


def test_check_says_what_a_sweep_would_take_and_how_many_more_fit(tmp_path, data):
    address = opened(tmp_path, epsilon=8.0)
    plan = plan_sweep(make_spec(content(address)), data)
    account = Account(address)
    wanted = make_reservation(plan, data, account, sweep="", title="t", spender="ann")
    said = quote_of(account, wanted, None).in_words()
    assert re.search(
        r"would take [\d.]+ % of its budget \(epsilon 8 at delta 0.0001\) and leave ann [\d.]+ % of it, now 100 %; that",
        said,
    )
    assert said.endswith("more sweeps like this one.")
    assert set(wanted.costs) == set(Side)
    close_account(address, because="spent", by="owner", at=NOW)
    assert quote_of(account, wanted, None).in_words().startswith("Refused by its account: ")


@pytest.mark.parametrize(
    "privacy", [{"accounting": "filter", "epsilon": 1.0}, {"sweep_epsilon": None, "epsilon": 1.0, "score_noise": 20.0}]
)
def test_a_filter_may_take_its_whole_budget_and_trials_without_one_what_the_first_would(tmp_path, data, privacy):
    address = opened(tmp_path)
    plan = plan_sweep(make_spec(content(address, **privacy)), data)
    costs = planned_costs(plan.account, plan.privacy.delta, Account(address).balance())
    assert set(costs) == set(Side)
    assert all(cost.square > 0.0 for cost in costs.values())


def test_what_is_reserved_for_scores_is_enough_once_the_account_is_closed(tmp_path, data):
    address = opened(tmp_path)
    folder, plan, charges = reserved(tmp_path, data, address)
    close_account(address, because="spent", by="owner", at=NOW)
    folder.ledger.touch()
    for side in (Side.VALIDATION, Side.TEST):
        (pool,) = plan.account.events[side]
        assert pool.steps > 1
        for number in range(pool.steps):
            draw = Draw(what=f"{side.value}/{number}", events={side: replace(pool, steps=1)})
            assert charges.make_room([draw]) is None
            charges.charge(draw)
    assert charges.make_room([Draw(what="more", events={Side.TEST: replace(pool, steps=1)})]).startswith("Expected an")


def test_trials_without_a_budget_reserve_as_if_each_were_the_dearest_of_the_first(tmp_path, data):
    address = opened(tmp_path)
    spec = content(address, sweep_epsilon=None, epsilon={"log": [0.5, 4.0]}, score_noise=20.0)
    plan = plan_sweep(make_spec({**spec, "search": {"trials": 3, "rehearse": False}}), data)
    events = {plan_configuration(plan.shared, data, one)[1].event() for one in sample(plan.shared.space, 3)}
    assert len(events) == 3
    dearest = max(events, key=lambda event: price([event], 1e-4).epsilon)
    assert plan.account.events[Side.TRAINING] == (dearest,) * 3


def test_a_sweep_without_an_account_says_so(data):
    keys = content("", account=None)
    assert plan_sweep(make_spec(keys), data).claim.conditions[-1] == NO_ACCOUNT
    assert reserve_account(plan_sweep(make_spec(keys), data), data, SweepFolder("nowhere")) is None


def test_no_account_answers_for_unpaid_scores_that_steer_a_sweep(tmp_path, data):
    plan = plan_sweep(make_spec(content(opened(tmp_path))), data)
    assert steer_plan(plan, Steering(())).claim == plan.claim
    with pytest.raises(SpecError, match="no account for a sweep that looks at private rows without paying"):
        steer_plan(plan, Steering((), exploratory=True))


def test_what_no_account_can_answer_for_is_refused(tmp_path):
    address = opened(tmp_path)
    exploratory = clipless.datasets.load("breast_cancer", evaluation="exploratory")
    spec = make_spec({**content(address), "data": {"name": "breast_cancer", "evaluation": "exploratory"}})
    with pytest.raises(SpecError, match="no account for a sweep that looks at private rows without paying") as refused:
        plan_sweep(spec, exploratory)
    assert "account='clinic'" in str(refused.value)
    assert "accounts.db" not in str(refused.value)
    for wrong in ("accounts.db", 3, "postgresql://me:secret@host/db#clinic"):
        sentence = spec_error(content(address), privacy__account=wrong)
        assert "Expected an account as FILE#NAME or postgresql://HOST/DATABASE#NAME" in sentence
        assert "secret" not in sentence
    assert ALL_ROWS not in Account(address).balance().digests
