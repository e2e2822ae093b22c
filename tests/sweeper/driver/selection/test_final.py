"""A private selection at a whisper and its final aloud: what is seen, what it costs, and what kills may do to it.

Candidates and final are played by a script instead of Ray; one real sweep runs at the end.
"""

import errno
import json
import math
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

import clipless
from sweeper.adapters import parse
from sweeper.backend.endings import RunEnding, RunResult, close_trials
from sweeper.backend.trainable import CliplessTrial
from sweeper.cli.main import main
from sweeper.driver import driver
from sweeper.driver.options import Options
from sweeper.driver.reporting import alerts
from sweeper.driver.runner import resume_sweep, run_sweep
from sweeper.driver.selection import private_run, selection_run
from sweeper.driver.selection.candidates import Candidate
from sweeper.driver.selection.hidden_folder import has_final_left, hidden_of
from sweeper.driver.selection.private_run import SelectionWaitsError
from sweeper.errors import RecordError, SweeperError
from sweeper.privacy.claims import COPIED
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.spending._exploration import Exploration
from sweeper.program import program
from sweeper.records import SweepStatus, TrialPlan, TrialStatus
from sweeper.results.sweep import Sweep
from sweeper.service.supervision.supervisor import check_resumable
from sweeper.specification.spec import Spec
from sweeper.store.manifest import MANIFEST_NAME
from sweeper.store.requests import ask_to_stop
from sweeper.store.sweep_folder import HIDDEN, SweepFolder, hidden_sweeps
from sweeper.tracking.names import price_metrics
from sweeper.trials.build import build_loss, build_model, build_plan
from sweeper.trials.stream import FirstDrawRow, PlanRow
from tests.factories import plan_sweep

from ...in_process import fake_backend
from .played import FOUR, Bytes, Calls, Play, check_only_the_winner, everything_in

pytestmark = pytest.mark.slow

DELTA = 1e-4
SPEC = {
    "name": "small",
    "data": {"name": "digits"},
    "model": {"architecture": "mlp", "width": 8},
    "training": {
        "epochs": 2,
        "batch_size": 256,
        "learning_rate": {"log": [0.02, 0.1]},
        "sensitivity_fraction": {"log": [0.01, 0.5]},
    },
    "privacy": {"sweep_epsilon": 3.0, "delta": DELTA},
    "search": {"selection": "private", "selection_mean": 5},
}
QUESTIONS = ("winner", "front", "everything")


@pytest.fixture(scope="module")
def budget(data):
    return plan_sweep(Spec.from_mapping(SPEC), data).spending


@pytest.fixture(autouse=True)
def cut_once(monkeypatch):
    """Cut the budget of this spec once for all tests; others as they come."""
    cut, of_share = {}, Exploration.of_share

    def remembered(*args, **options):
        key = repr((args, options))
        cut[key] = cut.get(key) or of_share(*args, **options)
        return cut[key]

    monkeypatch.setattr(Exploration, "of_share", staticmethod(remembered))


@pytest.fixture(scope="module")
def plans(data, budget):
    """The plan of a candidate and that of the final."""
    spec = Spec.from_mapping(SPEC)
    config = spec.space.resolve({"training.learning_rate": 0.05, "training.sensitivity_fraction": 0.1})
    loss = build_loss(config)
    model = build_model(config, data, loss, 0)
    made = []
    for slot in (budget.selection.event, budget.final.slot):
        plan = build_plan(config, model, loss, len(data.train), slot)
        curve = plan.epsilon_curve()
        priced = {"epsilon_curve": curve, "accountants": {"pld": curve}}
        made.append(plan.to_json() | priced | {"secure_generator": True, "repeats": 1})
    return made


class Killed(BaseException):
    """Stands for a kill: nothing of the process comes after it."""


class Final(Play):
    """An engine that trains the final, from a checkpoint where there is one; ``dies`` is asked behind every event."""

    dies = staticmethod(lambda _moment: None)
    loses = 0  # epochs between the last row and the last checkpoint

    def __call__(self, kind, queue, states, should_stop):
        assert kind is CliplessTrial
        while (started := queue.start()) is not None:
            trial, proposal = started
            self.asked.append((trial, proposal))
            self.train(states, trial, {"trial": trial, "proposal": proposal, "recorded": states.last_epoch(trial)})
            if ended := should_stop():
                return close_trials(states, ended)
            queue.end(trial)
        return RunResult()

    def train(self, states, trial, config):
        plan = parse(TrialPlan, self.plan)
        begins = max(states.last_epoch(trial) - self.loses, 0)
        states.start(trial, config)
        self.dies("start")
        kept = begins * plan.steps_per_epoch
        if not states.receive(trial, PlanRow(attempt=f"{len(self.asked)}", plan=plan, kept=kept)):
            return states.end(trial, TrialStatus.FAILED, "refused")
        self.dies("plan")
        states.receive(trial, FirstDrawRow())
        self.dies("draw")
        for epoch in range(begins + 1, plan.epochs + 1):
            if self.does.get(trial) == "crashes":
                return states.end(trial, TrialStatus.FAILED, "its process died")
            self.report(states, trial, epoch, 0.9 + epoch / 100)
            self.dies(f"epoch {epoch}")
            if self.does.get(trial) == "waits" and epoch == 1:
                return None
        return states.end(trial, TrialStatus.COMPLETED)


@pytest.fixture
def whole(monkeypatch, plans, weights):
    """Whole sweeps by `run_sweep`, with a played selection, a played final and a tracker that remembers."""
    engine = SimpleNamespace(
        candidates=Play(plans[0], weights, FOUR), final=Final(plans[1], weights, FOUR), budgets=[], source=Bytes
    )

    def train(kind, queue, states, settings):
        made = engine.candidates if kind is Candidate else engine.final
        made.folder = SweepFolder(settings.folder)
        engine.budgets.append((kind, settings.spending))
        return made(kind, queue, states, settings.should_stop)

    def open_pool(*_, secret, **__):
        assert secret
        return fake_backend(train)()

    monkeypatch.setattr(selection_run, "open_local_pool", open_pool)
    monkeypatch.setattr(driver, "open_backend", fake_backend(train))
    monkeypatch.setattr(driver, "Tracker", Calls)
    monkeypatch.setattr(driver, "SHOW_SECONDS", 0.0)
    chosen = private_run.select
    monkeypatch.setattr(
        selection_run, "select", lambda *args, **options: chosen(*args, **options, source=engine.source())
    )
    return engine


def ran(_whole, tmp_path, **options):
    return run_sweep(Spec.from_mapping(SPEC), Options(out=tmp_path, **options))


def kinds(folder):
    return [json.loads(row)["record"] for row in folder.ledger.read_text().splitlines()]


def test_the_winner_and_its_final_are_seen_and_nothing_of_the_others(whole, tmp_path):
    told = []
    ended = ran(whole, tmp_path, tell=told.append)
    folder = ended.sweep.folder
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {folder.path.name}
    check_only_the_winner(everything_in(folder.path) + repr(Calls.told).encode() + repr(told).encode(), Losers(whole))
    assert ended.outcome == RunResult()
    assert ended.sweep.manifest().status is SweepStatus.COMPLETED
    assert {name: trial.status for name, trial in folder.trials().items()} == dict.fromkeys(
        ("t0001", "t0002"), TrialStatus.COMPLETED
    )
    assert [(point.trial, point.epoch) for point in folder.points().values()] == [
        (trial, epoch) for trial in ("t0001", "t0002") for epoch in (1, 2)
    ]
    assert "t0002" in {point.trial for point in ended.front.front_points}
    assert not (folder.path / "checkpoints").exists()


class Losers:
    """What `check_only_the_winner` asks of an engine; the final is called as the second candidate was."""

    def __init__(self, whole):
        self.asked = [(trial if trial != "t0002" else "t0001", p) for trial, p in whole.candidates.asked]


@pytest.mark.usefixtures("bare")
def test_the_ledger_has_the_cut_the_selection_and_the_final_in_this_order(whole, tmp_path, budget):
    folder = ran(whole, tmp_path).sweep.folder
    assert kinds(folder) == ["budget", "selection", "open", "draw", "close"]
    ledger = Ledger(folder.ledger)
    assert (ledger.budget, ledger.selection) == (budget, budget.selection)
    (entry,) = ledger.entries()
    assert (entry.trial, entry.stage, entry.event) == ("t0002", 0, budget.final.slot)


def test_every_price_is_that_of_the_budget(whole, tmp_path, budget):
    told = []
    ended = ran(whole, tmp_path, tell=told.append)
    prices = ended.front.ledger
    assert [prices[question].epsilon for question in QUESTIONS] == [budget.price] * 3
    assert 2.95 < budget.price <= 3.0
    assert all(prices[question].fixed for question in QUESTIONS)
    assert told == [f"small: {told[0].removeprefix('small: ')}"]
    assert "Price: epsilon 2.99" in told[0]
    picked = ended.sweep.pick()
    guarantee = picked.card.to_json()["guarantee"]
    assert picked.point.trial == "t0002"
    assert guarantee["price"] == {"epsilon": budget.price, "fixed": True}
    assert guarantee["selected"] is None
    assert Exploration.conditions[0] in ended.front.claim.conditions
    metrics = price_metrics(prices)
    assert metrics["price"] == budget.price
    ledger = Ledger(ended.sweep.folder.ledger)
    assert budget.share(ledger.entries()) == pytest.approx(1.0)
    assert any(metrics.items() <= call[3].items() for call in Calls.told if call[0] == "log" and call[1] is None)
    page = (ended.sweep.directory / "front.html").read_text(encoding="utf-8")
    assert ">not released<" not in page


@pytest.mark.usefixtures("bare")
def test_the_final_trains_the_configuration_of_the_winner_with_the_noise_of_its_slot(whole, tmp_path, budget):
    folder = ran(whole, tmp_path).sweep.folder
    (trial, proposal), *_ = whole.final.asked
    winner = dict(whole.candidates.asked)["t0003"]
    assert trial == "t0002"
    assert proposal["training.learning_rate"] == winner["training.learning_rate"]
    assert proposal["training.sensitivity_fraction"] <= winner["training.sensitivity_fraction"]  # moved by the rule
    assert folder.trials()["t0002"].config["training"]["learning_rate"] == winner["training.learning_rate"]
    given = dict(whole.budgets)
    assert given[Candidate].slot_of("t0003") == budget.selection.event
    assert given[CliplessTrial].slot_of("t0002") == budget.final.slot


@pytest.mark.usefixtures("bare")
def test_while_it_selects_the_ledger_has_the_cut_first_and_no_final(whole, tmp_path, budget):
    seen = []

    def look(engine, *_):
        ledger = Ledger(engine.folder.ledger)
        seen.append((kinds(engine.folder)[:2], ledger.budget == budget, bool(ledger.selection.broken)))
        assert not has_final_left(engine.folder.path)
        assert {entry.stage for entry in ledger.entries()} <= {None}

    whole.candidates.does = {"t0001": look, "t0004": look}
    ran(whole, tmp_path)
    assert seen == [(["budget", "selection"], True, True)] * 2


@pytest.mark.usefixtures("bare")
def test_a_selection_that_broke_has_no_final_and_costs_what_was_trained(whole, tmp_path, budget):
    whole.candidates.does = {"t0002": "crashes"}
    ended = ran(whole, tmp_path)
    folder = ended.sweep.folder
    assert whole.final.asked == []
    assert list(folder.trials()) == ["t0001", "t0002"]
    everything = ended.front.ledger["everything"]
    assert everything.epsilon < budget.price
    assert not everything.fixed
    assert "Candidate t0002 crashed" in ended.front.ledger["winner"].statement
    assert not has_final_left(folder.path)
    with pytest.raises(RecordError, match="from a number of trials that was drawn once"):
        resume_sweep(folder.path)


@pytest.mark.usefixtures("bare")
def test_candidates_that_would_cost_more_than_the_budget_are_not_shown_unless_their_owner_asks(
    whole, tmp_path, monkeypatch
):
    """The budget shrinks to less than two whispers, as many more candidates than the mean would make it."""
    whole.candidates.does = {"t0003": "crashes"}
    small = {"epsilon": 0.5}
    asked = Exploration.from_json
    monkeypatch.setattr(Exploration, "from_json", classmethod(lambda _, content: asked(content | small)))
    with pytest.raises(SelectionWaitsError) as waits:
        ran(whole, tmp_path)
    (hidden,) = hidden_sweeps(tmp_path)
    said = (
        "A private selection has no winner, for a condition broke, and all that was trained costs more than its budget, "
        "privacy.sweep_epsilon = 0.5: nothing is shown, and how much that is would tell how many were trained. See all "
        f"of it, at what it costs, with {program()} resume --give-up {hidden.path}, or remove the folder"
    )
    assert str(waits.value) == said, "which candidate crashed, behind how many others, is a release of all of them"
    for _ in range(2):
        with pytest.raises(SelectionWaitsError) as waits:
            resume_sweep(hidden.path)
        assert str(waits.value) == said
    assert [path.name for path in tmp_path.iterdir()] == [hidden.path.name]
    assert len(whole.candidates.asked) == 3
    ended = resume_sweep(hidden.path, give_up=True)
    assert ended.front.ledger["everything"].epsilon > 0.5
    assert "Its owner gave the winner up." in ended.front.ledger["winner"].statement
    assert whole.final.asked == []


@pytest.mark.usefixtures("bare")
def test_when_nobody_has_a_score_there_is_no_final(whole, tmp_path, budget):
    whole.candidates.does = dict.fromkeys(("t0001", "t0002", "t0003", "t0004"), "is undefined")
    ended = ran(whole, tmp_path)
    assert ended.outcome.ending is RunEnding.NO_WINNER
    assert ended.sweep.folder.trials() == {}
    assert ended.front.ledger["everything"].epsilon == budget.price
    assert kinds(ended.sweep.folder) == ["budget", "selection"]
    assert not has_final_left(ended.sweep.directory)


# --- kills


MOMENTS = ("start", "plan", "draw", "epoch 1", "epoch 2")


def dies_at(*moments):
    left = list(moments)

    def dies(moment):
        if left and moment == left[0]:
            left.pop(0)
            raise Killed

    return dies


def killed_in_final(whole, tmp_path, *moments):
    whole.final.dies = dies_at(*moments)
    with pytest.raises(Killed):
        ran(whole, tmp_path)
    (path,) = tmp_path.iterdir()
    forget_the_end(path)
    return path


def forget_the_end(path):
    """As after kill -9: the driver has written nothing of its end."""
    folder = SweepFolder(path)
    folder.write_manifest(replace(folder.read_manifest(), status=SweepStatus.RUNNING, reason=""))


def check_never_overspent(folder, budget):
    ledger = Ledger(folder.ledger)
    *killed, last = [entry for entry in ledger.entries() if entry.drawn] or [None]
    drawn = sum(entry.spent.steps for entry in killed) + (0 if last is None else last.charged.steps)
    assert drawn <= budget.final.pool.steps
    assert all(entry.event.noise_multiplier >= budget.final.slot.noise_multiplier for entry in ledger.entries())
    assert ledger.answers(DELTA)["everything"].epsilon == budget.price


@pytest.mark.sampled(4)
@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_any_moment_of_the_final_it_goes_on_and_the_selection_is_not_run_again(
    whole, tmp_path, budget, moment
):
    path = killed_in_final(whole, tmp_path, moment)
    check_resumable(path, SweepStatus.INTERRUPTED, None)
    candidates, told = len(whole.candidates.asked), []
    ended = resume_sweep(path, Options(tell=told.append))
    assert "Price: epsilon 2.99" in " ".join(told)
    assert len(whole.candidates.asked) == candidates
    assert ended.sweep.directory == path
    assert {trial for trial, _ in whole.final.asked} == {"t0002"}
    assert len({repr(proposal) for _, proposal in whole.final.asked}) == 1
    folder = ended.sweep.folder
    assert folder.trials()["t0002"].status is TrialStatus.COMPLETED
    assert [point.epoch for point in folder.points().values() if point.trial == "t0002"] == [1, 2]
    check_never_overspent(folder, budget)
    with pytest.raises(RecordError, match="from a number of trials that was drawn once"):
        resume_sweep(path)


@pytest.mark.usefixtures("bare")
def test_a_final_that_is_killed_more_often_than_there_are_spare_steps_is_refused(whole, tmp_path, budget):
    """Each attempt loses an epoch: one is spare."""
    whole.final.loses = 1
    path = killed_in_final(whole, tmp_path, "epoch 1", "epoch 1", "epoch 1")
    folder = SweepFolder(path)
    while has_final_left(path):
        try:
            resume_sweep(path)
        except Killed:
            forget_the_end(path)
        check_never_overspent(folder, budget)
    assert "no slot of stage 1 of the budget is left for it" in folder.trials()["t0002"].reason
    drawn = [entry for entry in Ledger(folder.ledger).entries() if entry.drawn]
    assert len(drawn) == 1
    assert not has_final_left(path)


@pytest.mark.usefixtures("bare")
def test_no_kill_of_selection_or_final_overspends(whole, tmp_path, budget):
    """Killed behind every event of the final in turn, each time in another copy of the folder."""
    copies, out = [], tmp_path / "out"

    def copy(moment):
        (path,) = out.iterdir()
        copies.append(shutil.copytree(path, tmp_path / f"killed {moment}" / path.name))

    whole.final.dies = copy
    ran(whole, out)
    assert len(copies) == len(MOMENTS)
    whole.final.dies = lambda _moment: None
    for path in copies:
        ended = resume_sweep(path)
        check_never_overspent(ended.sweep.folder, budget)
        assert ended.sweep.manifest().status is SweepStatus.COMPLETED


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("moved", [False, True])
def test_killed_between_selection_and_final_the_winner_is_taken_further(whole, tmp_path, budget, monkeypatch, moved):
    class Nothing(BaseException):
        """Stands for a kill."""

    released = private_run._release

    def kill(hidden):
        if moved:
            released(hidden)
        raise Nothing

    monkeypatch.setattr(private_run, "_release", kill)
    with pytest.raises(Nothing):
        ran(whole, tmp_path)
    monkeypatch.setattr(private_run, "_release", released)
    assert whole.final.asked == []
    (path,) = tmp_path.iterdir()
    assert path.name.startswith(HIDDEN) != moved
    ended = resume_sweep(path)
    assert len(whole.candidates.asked) == 4
    assert [trial for trial, _ in whole.final.asked] == ["t0002"]
    check_never_overspent(ended.sweep.folder, budget)
    assert kinds(ended.sweep.folder) == ["budget", "selection", "open", "draw", "close"]


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("moved", [False, True])
def test_a_winner_that_is_copied_before_its_final_says_so_and_the_original_does_not(
    whole, tmp_path, budget, monkeypatch, moved
):
    """Two finals cost more than the budget; the ledger of either knows its own alone."""
    released = private_run._release

    def kill(hidden):
        if moved:
            released(hidden)
        raise Killed

    monkeypatch.setattr(private_run, "_release", kill)
    with pytest.raises(Killed):
        ran(whole, tmp_path / "out")
    monkeypatch.setattr(private_run, "_release", released)
    (path,) = (tmp_path / "out").iterdir()
    copy = shutil.copytree(path, tmp_path / "kept" / path.name)
    original = resume_sweep(path)
    if not moved:
        copy = copy.rename(path)  # put back where it was made: it is refused elsewhere
    copied = resume_sweep(copy)
    assert [trial for trial, _ in whole.final.asked] == ["t0002", "t0002"]
    for ended, said in ((original, False), (copied, True)):
        check_never_overspent(ended.sweep.folder, budget)
        assert (COPIED in ended.front.claim.conditions) is said
        assert (COPIED in ended.troubles) is said
    assert original.sweep.manifest().id != copied.sweep.manifest().id


@pytest.mark.usefixtures("bare")
def test_a_final_that_was_put_back_without_the_file_of_its_driver_is_charged_in_full_and_says_so(whole, tmp_path):
    path = killed_in_final(whole, tmp_path, "epoch 1")
    (path / "driver.json").unlink()
    ended = resume_sweep(path)
    first, *_ = Ledger(ended.sweep.folder.ledger).entries()
    assert first.steps == first.event.steps
    assert COPIED in ended.front.claim.conditions


@pytest.mark.usefixtures("bare")
def test_killed_in_the_selection_its_cut_and_its_number_stay_and_the_final_follows(
    whole, tmp_path, budget, monkeypatch
):
    """The third candidate is killed before its first noise; nothing is drawn, or cut, a second time."""

    def kill(*_):
        raise Killed

    whole.candidates.does = {"t0003": kill}
    with pytest.raises(Killed):
        ran(whole, tmp_path)
    (hidden,) = hidden_sweeps(tmp_path)
    assert not has_final_left(hidden.path)
    whole.candidates.does, whole.source = {}, lambda: Bytes(250)
    monkeypatch.setattr(Exploration, "cut", lambda *_: pytest.fail("it was cut again"))
    ended = resume_sweep(hidden.path)
    assert [trial for trial, _ in whole.candidates.asked] == ["t0001", "t0002", "t0003", "t0003", "t0004"]
    assert [trial for trial, _ in whole.final.asked] == ["t0002"]
    assert Ledger(ended.sweep.folder.ledger).budget == budget
    check_never_overspent(ended.sweep.folder, budget)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("changed", ["lost", "another"])
def test_a_selection_whose_cut_was_lost_goes_no_further(whole, tmp_path, changed):
    def kill(*_):
        raise Killed

    whole.candidates.does = {"t0003": kill}
    with pytest.raises(Killed):
        ran(whole, tmp_path)
    (hidden,) = hidden_sweeps(tmp_path)
    first, *rows = hidden.ledger.read_text().splitlines(keepends=True)
    cut = json.loads(first)
    cut["selection"]["event"]["noise_multiplier"] *= 2
    hidden.ledger.write_text("".join(rows if changed == "lost" else [json.dumps(cut) + "\n", *rows]))
    asked = len(whole.candidates.asked)
    said = "put back from a copy" if changed == "lost" else "Expected the private selection in the budget"
    with pytest.raises(RecordError, match=said):
        resume_sweep(hidden.path)
    assert len(whole.candidates.asked) == asked


@pytest.mark.usefixtures("bare")
def test_killed_while_the_winner_is_written_it_is_chosen_again(whole, tmp_path, monkeypatch):
    class Nothing(BaseException):
        """Stands for a kill."""

    def kill(*_):
        raise Nothing

    front = private_run._write_front
    monkeypatch.setattr(private_run, "_write_front", kill)
    with pytest.raises(Nothing):
        ran(whole, tmp_path)
    monkeypatch.setattr(private_run, "_write_front", front)
    (hidden,) = hidden_sweeps(tmp_path)
    ended = resume_sweep(hidden.path)
    assert len(whole.candidates.asked) == 4
    assert len(whole.final.asked) == 1
    assert ended.front.ledger["everything"].fixed


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), RecordError("No space left")])
def test_a_winner_that_cannot_be_written_waits_and_is_chosen_again(whole, tmp_path, monkeypatch, error):
    def refuse(*_):
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(private_run, "_write_front", refuse)
        with pytest.raises(RecordError, match="No space left"):
            ran(whole, tmp_path)
    (hidden,) = hidden_sweeps(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [hidden.path.name], "nothing is shown"
    ended = resume_sweep(hidden.path)
    assert len(whole.candidates.asked) == 4, "none is trained again"
    assert ended.front.ledger["everything"].fixed


@pytest.mark.usefixtures("bare")
def test_a_final_that_is_asked_to_stop_waits_to_be_resumed(whole, tmp_path):
    def stop(moment):
        if moment == "epoch 1":
            (path,) = tmp_path.iterdir()
            ask_to_stop(path, driven=True)

    whole.final.does, whole.final.dies = {"t0002": "waits"}, stop
    ended = ran(whole, tmp_path)
    assert ended.sweep.manifest().status is SweepStatus.STOPPED
    assert has_final_left(ended.sweep.directory)
    check_resumable(ended.sweep.directory, SweepStatus.STOPPED, None)
    whole.final.does, whole.final.dies = {}, lambda _moment: None
    again = resume_sweep(ended.sweep.directory)
    assert again.sweep.folder.trials()["t0002"].status is TrialStatus.COMPLETED
    for given in ({"trials": 9}, {"give_up": True}):
        with pytest.raises(RecordError):
            resume_sweep(ended.sweep.directory, **given)
    with pytest.raises(RecordError, match="selected privately"):
        check_resumable(ended.sweep.directory, SweepStatus.COMPLETED, None)


@pytest.mark.usefixtures("bare")
def test_a_final_that_failed_is_not_trained_again(whole, tmp_path, budget):
    whole.final.does = {"t0002": "crashes"}
    ended = ran(whole, tmp_path)
    assert ended.sweep.folder.trials()["t0002"].status is TrialStatus.FAILED
    assert not has_final_left(ended.sweep.directory)
    check_never_overspent(ended.sweep.folder, budget)


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("lost", ["selection", "everything"])
def test_without_the_record_of_its_selection_no_final_is_trained(whole, tmp_path, lost):
    path = killed_in_final(whole, tmp_path, "start")
    ledger = path / "ledger.jsonl"
    rows = ledger.read_text().splitlines()
    ledger.write_text("".join(row + "\n" for row in rows[:1]) if lost == "selection" else "")
    asked = len(whole.final.asked)
    try:
        ended = resume_sweep(path)
    except SweeperError:
        pass
    else:
        price = ended.front.ledger["winner"].epsilon
        assert ended.outcome.ending is RunEnding.SELECTION_BROKE
        assert price == math.inf or lost == "everything"
    assert len(whole.final.asked) == asked
    assert Ledger(ledger).entries() == ()


@pytest.mark.usefixtures("bare")
def test_without_the_record_of_the_winner_no_final_is_trained(whole, tmp_path):
    path = killed_in_final(whole, tmp_path, "start")
    (path / "trials.jsonl").write_text("")
    (path / "proposals.jsonl").unlink()
    (path / "points.jsonl").write_text("")
    assert resume_sweep(path).outcome.ending is RunEnding.NO_WINNER
    assert len(whole.final.asked) == 1
    assert Ledger(path / "ledger.jsonl").entries() == ()


# --- where others can look


@pytest.mark.long
def test_in_a_folder_made_beforehand_the_final_is_seen_and_can_go_on(whole, tmp_path, budget):
    public = tmp_path / "out" / "small-20260101-000000"
    public.mkdir(parents=True)
    with pytest.raises(SweeperError, match="Expected --duration-is-seen"):
        ran(whole, public.parent, into=public)
    whole.final.dies = dies_at("epoch 1")
    with pytest.raises(Killed):
        ran(whole, public.parent, into=public, duration_is_seen=True)
    forget_the_end(public)
    assert hidden_of(public) is None
    check_resumable(public, SweepStatus.INTERRUPTED, None)
    with pytest.raises(RecordError, match="selected privately"):
        check_resumable(public, SweepStatus.INTERRUPTED, 9)
    ended = resume_sweep(public)
    check_never_overspent(ended.sweep.folder, budget)
    check_only_the_winner(everything_in(public) + repr(Calls.told).encode(), Losers(whole))
    assert [path.name for path in public.parent.iterdir()] == [public.name]


@pytest.mark.usefixtures("whole")
def test_commands_say_what_it_costs_first_and_last(tmp_path, capsys, monkeypatch):
    path = tmp_path / "small.yaml"
    path.write_text(Spec.from_mapping(SPEC).to_yaml(), encoding="utf-8")
    announced = []
    monkeypatch.setattr(alerts, "announce", lambda _url, content, _form: announced.append(content))
    with pytest.raises(SystemExit):
        main(["run", str(path), "--out", str(tmp_path / "out"), "--webhook", "http://localhost/hook"])
    (told,) = announced  # nothing before the end: between two alerts others could tell how long it selected
    assert told["trials"] == {"completed": 2}
    out = capsys.readouterr().out
    first = out.splitlines()[0]
    assert "Price: epsilon 2.99" in first
    assert "2 of 2 trials done" in out
    assert "own epsilon" in out
    assert "that of a private selection and of the final" in out
    (folder,) = (tmp_path / "out").iterdir()
    with pytest.raises(SystemExit):
        main(["show", str(folder)])
    assert "2.99" in capsys.readouterr().out
    assert (folder / MANIFEST_NAME).is_file()


@pytest.mark.long
def test_a_real_sweep_selects_at_a_whisper_and_trains_the_winner_aloud(tmp_path):
    """Trials on processes of its own, with whatever number is drawn."""
    content = SPEC | {"search": SPEC["search"] | {"selection_mean": 2}}
    ended = run_sweep(Spec.from_mapping(content), Options(out=tmp_path))
    folder = ended.sweep.folder
    assert list(folder.trials()) == ["t0001", "t0002"]
    assert kinds(folder) == ["budget", "selection", "open", "draw", "close"]
    plans = [trial.plan for trial in folder.trials().values()]
    assert plans[0].noise_multiplier > 1.5 * plans[1].noise_multiplier
    assert plans[1].noise_multiplier == Ledger(folder.ledger).budget.final.slot.noise_multiplier
    for point in ended.front.front_points:
        clipless.load(folder.path / point.model)
    assert 2.9 < ended.front.ledger["everything"].epsilon <= 3.0
    assert Sweep(folder.path).pick().card.to_json()["guarantee"]["price"]["fixed"]
