"""Private selections as they run: who gets to see what, and what every broken condition costs.

Candidates are played by a script instead of Ray; one real sweep runs at the end.
"""

import contextlib
import json
import random
import re
import shutil
import sqlite3
import stat
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

import clipless
from clipless.privacy.accounting.selection_price import selection_epsilon
from clipless.privacy.events import PoissonGaussian
from clipless.privacy.randomness import SecureSource
from clipless.testing import SeededSource
from sweeper.backend import cluster, training, unseen
from sweeper.backend.endings import RunResult
from sweeper.backend.trainable import CliplessTrial
from sweeper.backend.training import Backend
from sweeper.backend.trial_states import TrialStates
from sweeper.cli.main import main
from sweeper.cli.tables import sweep_view, sweeps_table
from sweeper.driver import driver
from sweeper.driver.options import Options
from sweeper.driver.runner import resume_sweep, run_sweep
from sweeper.driver.selection import candidates, private_run, selection_run
from sweeper.driver.selection.candidates import Candidate
from sweeper.driver.selection.hidden_folder import hide
from sweeper.driver.selection.private_run import outcome_of, recover, recover_all, select
from sweeper.errors import FOR_THE_OWNER, RecordError, SweeperError, UnknownSweepError
from sweeper.privacy.claims import Claim
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import price
from sweeper.privacy.score_noise import ScoreNoise
from sweeper.records import TrialPlan, TrialStatus
from sweeper.results.front import read_front
from sweeper.results.sweep import Sweep
from sweeper.search.space import resolve
from sweeper.service.catalog import Catalog
from sweeper.service.supervision.states import State
from sweeper.service.supervision.supervisor import check_resumable
from sweeper.spec.spec import Spec
from sweeper.store.jsonl import JsonlFile, append_alone
from sweeper.store.lock import driver_lock, is_driven
from sweeper.store.manifest import MANIFEST_NAME, SELECTING, Manifest
from sweeper.store.requests import NAME, ask_to_stop, enqueue
from sweeper.store.sweep_folder import HIDDEN, SweepFolder, hidden_sweeps, is_waiting, list_sweeps
from sweeper.tracking.outbox import Undelivered
from sweeper.trials.build import build_loss, build_model
from sweeper.trials.preview import first_plan
from sweeper.trials.stream import EpochRow, FirstDrawRow, FreeRow, PlanRow

pytestmark = pytest.mark.slow

DELTA = 1e-4
SPEC = {
    "name": "small",
    "data": {"name": "digits"},
    "model": {"architecture": "mlp", "width": 8},
    "training": {"epochs": 2, "batch_size": 256, "learning_rate": {"log": [0.02, 0.1]}, "sensitivity_fraction": 0.1},
    "privacy": {"noise_multiplier": 3.0, "delta": DELTA},
    "search": {"sampler": "random", "selection": "private", "selection_mean": 5},
}
FOUR = [[0.511111, 0.622222], [0.533333, 0.644444], [0.733333, 0.822222], [0.555555, 0.566666]]  # the third one wins


class Bytes(SecureSource):
    """Counts as secure and makes a geometric law of mean 5 draw 4; configurations stay random."""

    def __init__(self, byte=128):
        super().__init__()
        self._first = byte

    def random_bytes(self, count):
        if self._first is not None:
            byte, self._first = self._first, None
            return bytearray([byte]) * count
        return super().random_bytes(count)


@pytest.fixture(scope="module")
def data():
    return clipless.datasets.load("digits")


@pytest.fixture(scope="module")
def plan(data):
    made = first_plan(Spec.from_mapping(SPEC), data)
    curve = made.epsilon_curve()
    priced = {"epsilon_curve": curve, "accountants": {"pld": curve}}
    return made.to_json() | priced | {"secure_generator": True, "repeats": 1}


@pytest.fixture(scope="module")
def weights(data, tmp_path_factory):
    """A saved model of the spec."""
    config = resolve(Spec.from_mapping(SPEC), {"training.learning_rate": 0.05})
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    clipless.save(build_model(config, data, build_loss(config), seed=0), path)
    return path.read_bytes()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Requests at once."""
    monkeypatch.setattr(candidates, "LOOK_SECONDS", 0.0)


@dataclass
class Play:
    """An engine that lets each candidate do what the script says, one after the other."""

    plan: dict
    weights: bytes
    accuracies: list
    does: dict = field(default_factory=dict)
    folder: SweepFolder | None = None
    extra: dict = field(default_factory=dict)
    asked: list = field(default_factory=list)

    def __call__(self, kind, queue, states, should_stop):
        assert kind is Candidate
        while (started := queue.start()) is not None:
            trial, proposal = started
            self.asked.append((trial, proposal))
            self.run(states, trial, {"trial": trial, "proposal": proposal, "recorded": 0})
            queue.end(trial)
            if reason := should_stop():
                states.close(TrialStatus.INTERRUPTED, reason)
                return RunResult(False, reason)
        return RunResult()

    def run(self, states, trial, config):
        does = self.does.get(trial, "ends well")
        if callable(does):
            does(self, states, trial)
            does = "ends well"
        states.start(trial, config)
        if does == "is refused":
            return states.end(trial, TrialStatus.FAILED, "SpecError: no such thing")
        if does == "dies before its first noise":
            assert states.restart(trial)
            return self.run_again(states, trial, config)
        plan = self.plan
        if does == "plans another event":
            plan = plan | {"event": plan["event"] | {"steps": plan["event"]["steps"] - 1}}
        self.report_plan(states, trial, plan)
        for epoch, accuracy in enumerate(self.accuracies[int(trial[1:]) - 1], start=1):
            if does == "crashes":
                return states.end(trial, TrialStatus.FAILED, "its process died")
            if does == "runs out of memory" and epoch == 2:
                self.report_plan(states, trial, plan)
            if does == "dies" and epoch == 2:
                assert not states.restart(trial)
                return states.fail(trial, "its process died")
            if does == "draws again" and epoch == 2:
                states.restart(trial)
                states._entries[trial].running = False
                states.start(trial, config)
            if does == "is interrupted" and epoch == 2:
                return states.end(trial, TrialStatus.INTERRUPTED, "interrupted")
            if does == "is stopped":
                states.overrule(trial, TrialStatus.STOPPED, "asked to")
                return states.end(trial, TrialStatus.COMPLETED)
            if does == "ends too soon" and epoch == 2:
                break
            self.report(states, trial, epoch, float("nan") if does == "is undefined" else accuracy)
        return states.end(trial, TrialStatus.COMPLETED)

    def run_again(self, states, trial, config):
        self.does = {name: what for name, what in self.does.items() if name != trial}
        self.run(states, trial, config)

    def report_plan(self, states, trial, plan):
        states.receive(trial, PlanRow(attempt=uuid4().hex, plan=TrialPlan.from_json(plan)))
        states.receive(trial, FirstDrawRow())

    def report(self, states, trial, epoch, accuracy):
        name = SweepFolder.model_name(trial, epoch)
        (self.folder.path / name).write_bytes(self.weights)
        values = {"epsilon": self.plan["epsilon_curve"][epoch - 1], "accuracy": accuracy}
        free = tuple(self.free(epoch, one) for one in self.extra.get((trial, epoch), ()))
        row = EpochRow(epoch=epoch, values=values, model=name, done=epoch == 2, free=free)
        states.receive(trial, row)

    def free(self, epoch, extra):
        trial, made_from, accuracy = extra
        name = SweepFolder.model_name(trial, epoch, made_from)
        (self.folder.path / name).write_bytes(self.weights + made_from.encode())
        return FreeRow(made_from=made_from, values={"accuracy": accuracy}, model=name)


@pytest.fixture
def play(plan, weights, data, tmp_path):
    """Run a private selection in which each candidate does what it is told."""

    def run(does=None, *, source=None, accuracies=FOUR, content=SPEC, extra=None):
        spec = Spec.from_mapping(content)
        hidden = hide(tmp_path / "out")
        started = Manifest(name="small", spec=spec.to_plain(), source="the spec", status=TrialStatus.RUNNING)
        hidden.write_manifest(started)
        engine = Play(plan, weights, accuracies, does or {}, hidden, extra or {})
        claim = Claim.about(data.metadata, len(data.train), delta=DELTA)
        with driver_lock(hidden.path):
            folder = select(spec, data, claim, hidden, engine, source=source or Bytes())
        return SimpleNamespace(folder=folder, engine=engine, spec=spec, hidden=hidden, out=tmp_path / "out")

    return run


def said(folder):
    return Ledger(folder.ledger).answers(DELTA)["winner"].statement


def everything_in(folder):
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()) + b"\n".join(
        str(path.relative_to(folder)).encode() for path in folder.rglob("*")
    )


def check_only_the_winner(left, engine, winner=3):
    """Nothing that another candidate did, was, or was called; only one row, and one trial that is called t0001."""
    losers = [pair for pair in engine.asked if pair[0] != f"t{winner:04d}"]
    assert len(losers) == 3
    for number, epochs in enumerate(FOUR, start=1):
        for value in epochs:
            assert (str(value).encode() in left) == (number == winner)
    for trial, proposal in losers:
        assert trial == "t0001" or trial.encode() not in left
        assert repr(proposal["training.learning_rate"]).encode() not in left
    assert f"t{winner:04d}".encode() not in left


def test_the_folder_that_is_left_holds_the_winner_and_nothing_of_the_others(play):
    ran = play()
    assert [path.name for path in ran.out.iterdir()] == [ran.folder.path.name]
    assert ran.folder.path.name.startswith("small-")
    assert {p.name for p in ran.folder.path.iterdir()} == {
        "front.json",
        "ledger.jsonl",
        "models",
        "points.jsonl",
        "sweep.json",
        "trials.jsonl",
    }
    assert list(ran.folder.trials()) == ["t0001"]
    assert list(ran.folder.points()) == [("t0001", 1, ""), ("t0001", 2, "")]
    check_only_the_winner(everything_in(ran.folder.path), ran.engine)
    (learning_rate,) = (proposal for trial, proposal in ran.engine.asked if trial == "t0003")
    assert ran.folder.trials()["t0001"].config["training"]["learning_rate"] in learning_rate.values()


def test_the_front_of_a_winner_says_nothing_of_the_number_of_candidates(play):
    assert read_front(play().folder.front).ledger_entries == 1


def test_the_ledger_has_one_row_which_prices_the_winner_and_nothing_else(play):
    ran = play()
    (row,) = ran.folder.ledger.read_text().splitlines()
    assert json.loads(row)["terms"]["broken"] == []
    answers, event = Ledger(ran.folder.ledger).answers(DELTA), PoissonGaussian.from_json(ran.engine.plan["event"])
    assert answers["winner"].epsilon == pytest.approx(selection_epsilon(event, ran.spec.search.repetitions, DELTA))
    assert [answers[question].released for question in ("winner", "front", "everything")] == [True, False, False]
    assert outcome_of(ran.folder) == RunResult()


def test_the_winner_may_be_made_from_iterates_and_each_of_its_models_stays_its_own(play):
    """The second candidate wins by an average; its price is that of all its epochs, as everybody's."""
    extra = {
        ("t0002", 1): [("t0002", "quick", 0.97), ("t0002", "slow", 0.97)],
        ("t0004", 2): [("t0004", "slow", 0.96)],
    }
    ran = play(extra=extra)
    points = ran.folder.points()
    assert list(points) == [("t0001", epoch, name) for epoch, name in ((1, ""), (1, "quick"), (1, "slow"), (2, ""))]
    assert points["t0001", 1, "slow"].values["accuracy"] == 0.97
    curve = ran.engine.plan["epsilon_curve"]
    assert all(point.values["epsilon"] == curve[epoch - 1] for (_, epoch, _), point in points.items())
    kept = [point for point in points.values() if point.model]
    assert [point.made_from for point in kept] == ["quick", "slow"], "equal points of the front of the winner"
    for point in kept:
        assert (ran.folder.path / point.model).read_bytes().endswith(point.made_from.encode())
    picked = Sweep(ran.folder.path).pick()
    assert picked.point.made_from == "quick"
    event = PoissonGaussian.from_json(ran.engine.plan["event"])
    price_of_all = selection_epsilon(event, ran.spec.search.repetitions, DELTA)
    assert picked.card.to_json()["guarantee"]["selected"] == pytest.approx(price_of_all)


def test_models_of_the_winner_survive_those_that_were_better_while_it_trained(play):
    """The winner's first epoch is beaten by nobody else, its rivals' models are gone, and its own can be loaded."""
    ran = play(accuracies=[[0.9, 0.1], [0.8, 0.95], [0.2, 0.3], [0.2, 0.3]])
    points = ran.folder.points()
    assert [point.model for point in points.values()] == ["models/t0001-1.safetensors", "models/t0001-2.safetensors"]
    assert {p.name for p in (ran.folder.path / "models").iterdir()} == {"t0001-1.safetensors", "t0001-2.safetensors"}
    clipless.load(ran.folder.path / points["t0001", 2, ""].model)
    assert points["t0001", 2, ""].values["accuracy"] == 0.95


def test_an_epoch_off_the_winners_own_front_has_no_model(play):
    ran = play(accuracies=[[0.9, 0.1]] + [[0.2, 0.3]] * 3)
    assert [p.model for p in ran.folder.points().values()] == ["models/t0001-1.safetensors", None]
    assert [p.name for p in (ran.folder.path / "models").iterdir()] == ["t0001-1.safetensors"]


def test_while_it_runs_only_its_owner_can_read_it_and_no_list_shows_it(play):
    seen = []

    def look(engine, _states, _trial):
        seen.append(stat.S_IMODE(engine.folder.path.stat().st_mode))
        assert list_sweeps(engine.folder.path.parent) == []
        assert hidden_sweeps(engine.folder.path.parent)[0].path == engine.folder.path
        assert recover_all(engine.folder.path.parent) == ()  # somebody drives it

    ran = play({"t0002": look, "t0004": look})
    assert seen == [0o700, 0o700]
    assert stat.S_IMODE(ran.folder.path.stat().st_mode) & 0o055 == 0o055


COMMANDS = (
    ["show", "SWEEP"],
    ["log", "SWEEP", "t0001"],
    ["front", "SWEEP", "--format", "json"],
    ["pick", "SWEEP"],
    ["compare", "SWEEP", "SWEEP"],
    ["diagnose", "SWEEP"],
    ["predict", "SWEEP", "rows.csv"],
    ["register", "SWEEP", "--name", "best"],
    ["note", "SWEEP", "t0001", "good"],
    ["tag", "SWEEP", "t0001", "a=b"],
    ["enqueue", "SWEEP", "--set", "training.learning_rate=0.05"],
    ["delete", "SWEEP", "--yes"],
    ["replay", "SWEEP"],
    ["resume", "SWEEP"],
    ["extend", "SWEEP", "--trials", "9"],
    ["run", "WARM", "--out", "OUT"],
)
REFUSALS = "nobody may see more than the winner|drives|which may be a copy|drawn once|got a link to one"


def test_every_command_refuses_a_selection_that_runs_by_whatever_name(play, tmp_path, capsys):
    said_of = []

    def refused(sweep, arguments):
        (tmp_path / "warm.yaml").write_text(warm(sweep), encoding="utf-8")
        given = {"SWEEP": str(sweep), "WARM": str(tmp_path / "warm.yaml"), "OUT": str(tmp_path / "others")}
        with pytest.raises(SystemExit) as ended:
            main([given.get(argument, argument) for argument in arguments])
        said_of.append((arguments, ended.value.code, *capsys.readouterr()))
        assert sweep.exists()

    def look(engine, *_):
        hidden, copy = engine.folder.path, tmp_path / "copies" / "small-1"
        shutil.copytree(hidden, copy)
        shutil.copytree(hidden, copy.with_name(f"{HIDDEN}x"))
        (tmp_path / "link").symlink_to(hidden)
        for sweep in (hidden, copy, copy.with_name(f"{HIDDEN}x"), tmp_path / "link"):
            for arguments in COMMANDS:
                refused(sweep, arguments)

    assert "its conditions held" in said(play({"t0003": look}).folder)
    for arguments, code, out, err in said_of:
        assert (code, out) == (2, ""), arguments
        assert re.search(REFUSALS, err), (arguments, err)
        assert not any(str(value) in err for values in FOUR for value in values)
    assert len(said_of) == 4 * len(COMMANDS)


def warm(sweep):
    content = SPEC | {"search": {"trials": 1, "warm_start": str(sweep)}}
    return Spec.from_mapping(content).to_yaml()


def test_no_list_no_service_and_no_report_shows_a_copy_of_a_selection_that_runs(play, tmp_path, capsys):
    from dashboards.data import read

    def look(engine, *_):
        shutil.copytree(engine.folder.path, tmp_path / "copies" / "small-1")
        (tmp_path / "copies" / "small-1" / "front.json").write_text("{}")
        main_quietly(["list", "--out", str(tmp_path / "copies")])
        main_quietly(["list", "--out", str(engine.folder.path)])
        main_quietly(["gc", str(tmp_path / "copies")])
        assert capsys.readouterr().out.count("No sweep in") == 2
        catalog = Catalog(tmp_path / "copies")
        assert catalog.names() == ()
        with pytest.raises(UnknownSweepError):
            catalog.folder("small-1")
        with pytest.raises(RecordError, match="nobody may see more than the winner"):
            read(tmp_path / "copies" / "small-1")

    assert "its conditions held" in said(play({"t0003": look}).folder)


def test_a_selection_that_runs_has_no_front_and_so_no_price_that_is_not_known(play):
    def look(engine, *_):
        assert not list(engine.folder.path.rglob("front*"))

    play({"t0003": look})


def test_a_copy_is_not_recovered_by_any_name_nor_is_what_lies_in_a_hidden_folder(play, tmp_path):
    def look(engine, *_):
        copies = [tmp_path / "copies" / name for name in (f"{HIDDEN}x", "small-1")]
        for copy in copies:
            shutil.copytree(engine.folder.path, copy)
            with pytest.raises(RecordError, match="which may be a copy"):
                recover(SweepFolder(copy))
        assert recover_all(copies[0].parent) == ()

    ran = play({"t0003": look})
    inner = tmp_path / "copies" / f"{HIDDEN}x" / "winner"
    shutil.copytree(ran.folder.path, inner)
    with pytest.raises(RecordError, match="which may be a copy"):
        resume_sweep(inner)
    assert inner.is_dir()


def test_a_selection_whose_claim_is_lost_is_no_sweep(play, tmp_path):
    kill, copy = killed(tmp_path)
    play({"t0003": kill})
    copy.write_manifest(replace(copy.read_manifest(secret=True), claim=None))
    with pytest.raises(RecordError, match="Expected the claim of a private selection"):
        recover(copy)
    assert copy.path.exists()


def test_what_a_command_writes_of_a_sweep_that_ended_bears_no_mark(play):
    assert SELECTING not in (play().folder.path / MANIFEST_NAME).read_text()
    assert SELECTING not in (play({"t0002": "crashes"}).folder.path / MANIFEST_NAME).read_text()


def test_what_a_candidate_spends_is_on_the_disk_before_it_may_draw_noise(play):
    rows = []

    class Watched(Play):
        def report(self, states, trial, epoch, accuracy):
            rows.append(sum(entry.trial == trial for entry in Ledger(self.folder.ledger).entries()))
            super().report(states, trial, epoch, accuracy)

    def watch(engine, *_):
        engine.__class__ = Watched

    play({"t0001": watch})
    assert rows == [1] * 8


BREAKS = {
    "crashes": "Candidate t0002 crashed",
    "is stopped": "Candidate t0002 was ended before its planned steps were done",
    "draws again": "Candidate t0002 was started again",
    "plans another event": "Candidate t0002 planned another event",
    "ends too soon": "Candidate t0002 crashed",
    "is refused": "Candidate t0002 crashed",  # a configuration that has a plan: something else was wrong
}


@pytest.mark.parametrize("does", BREAKS)
def test_a_condition_that_breaks_is_named_and_everything_is_charged(play, does):
    ran = play({"t0002": does})
    ledger = Ledger(ran.folder.ledger)
    answers = ledger.answers(DELTA)
    assert BREAKS[does] in answers["winner"].statement
    assert "its price does not hold" in answers["winner"].statement
    charged = [entry.charged for entry in ledger.entries()]
    assert {answer.epsilon for answer in answers.values()} == {price(charged, DELTA).epsilon}
    assert len(charged) == {"is refused": 1}.get(does, 2)  # none behind it
    assert hidden_sweeps(ran.out) == []
    front = read_front(ran.folder.front)
    assert set(front.trials) == {"t0001", "t0002"}
    assert {point.trial for point in front.points} <= {"t0001", "t0002"}
    assert {p.name for p in (ran.folder.path / "models").iterdir()} == {
        p.model.removeprefix("models/") for p in front.front_points
    }
    assert "the conditions of private selection did not hold" in outcome_of(ran.folder).reason
    assert "running" not in {trial.status for trial in front.trials.values()}


def test_a_score_that_is_no_number_is_an_outcome_and_breaks_nothing(play):
    ran = play({"t0003": "is undefined"})
    assert "its conditions held" in said(ran.folder)
    assert ran.folder.points()["t0001", 2, ""].values["accuracy"] == 0.644444


def test_a_configuration_without_a_plan_is_an_outcome_and_breaks_nothing(play, monkeypatch):
    monkeypatch.setattr(candidates, "can_be_planned", lambda *_: False)
    ran = play({"t0003": "is refused"})
    assert "its conditions held" in said(ran.folder)
    assert ran.folder.points()["t0001", 2, ""].values["accuracy"] == 0.644444


def test_a_generator_that_is_not_the_secure_one_breaks_the_conditions(play):
    ran = play(source=SeededSource(0), accuracies=FOUR * 20)
    assert "injected generator" in said(ran.folder)


def test_a_request_to_stop_leaves_it_waiting_and_shows_nothing(play):
    ran = play({"t0002": lambda engine, _states, _trial: append_alone(engine.folder.path / NAME, {"stop": True})})
    assert ran.folder is None
    assert len(ran.engine.asked) == 2
    assert [path.name for path in ran.out.iterdir()] == [ran.hidden.path.name]
    assert "its price does not hold: The selection was ended before its winner was known." in said(ran.hidden)


LOSSES = ("dies", "runs out of memory", "is interrupted")


@pytest.mark.parametrize("does", LOSSES)
def test_a_candidate_that_dies_after_its_first_noise_is_lost_and_never_draws_again(play, does):
    """The third one would win; it trains once, is charged to nobody, and the next best one wins."""
    ran = play({"t0003": does})
    assert "its conditions held" in said(ran.folder)
    assert [trial for trial, _ in ran.engine.asked] == ["t0001", "t0002", "t0003", "t0004"]
    check_only_the_winner(everything_in(ran.folder.path), ran.engine, winner=2)


@pytest.mark.parametrize("does", LOSSES)
def test_a_lost_candidate_has_one_entry_that_drew(play, does, monkeypatch):
    rows = []
    monkeypatch.setattr(
        private_run, "_write_winner", lambda _made, hidden, *_: rows.extend(Ledger(hidden.ledger).entries())
    )
    with contextlib.suppress(RecordError):
        play({"t0003": does})
    assert [(e.trial, e.drawn) for e in rows] == [(f"t000{n}", True) for n in range(1, 5)]


def test_a_candidate_that_dies_before_its_first_noise_starts_again(play):
    ran = play({"t0003": "dies before its first noise"})
    assert "its conditions held" in said(ran.folder)
    check_only_the_winner(everything_in(ran.folder.path), ran.engine)


def test_a_lost_candidate_leaves_no_trace_beside_the_winner(play):
    """With one lost, the folder says as much as it would with that one being the worst."""
    lost, worst = play({"t0001": "dies"}), play(accuracies=[[0.0, 0.0], *FOUR[1:]])
    assert {p.name for p in lost.folder.path.iterdir()} == {p.name for p in worst.folder.path.iterdir()}
    assert lost.folder.ledger.read_bytes() == worst.folder.ledger.read_bytes()
    assert outcome_of(lost.folder) == outcome_of(worst.folder)


def test_nothing_can_be_stopped_or_added_by_request(play):
    def refuse(engine, _states, _trial):
        for trial in (None, "t0001"):
            with pytest.raises(RecordError, match="nobody may see more than the winner"):
                ask_to_stop(engine.folder.path, trial)
        with pytest.raises(RecordError, match="nobody may see more than the winner"):
            enqueue(engine.folder.path, {"training.learning_rate": 0.05})

    assert "its conditions held" in said(play({"t0002": refuse}).folder)


def test_an_error_of_the_engine_is_raised_once_everything_is_an_ordinary_sweep(play, tmp_path):
    def fail(*_):
        raise OSError("the cluster is gone")

    with pytest.raises(OSError, match="the cluster is gone"):
        play({"t0002": fail})
    (folder,) = map(SweepFolder, (tmp_path / "out").iterdir())
    assert f"OSError: {FOR_THE_OWNER}" in said(folder)
    assert "the cluster is gone" not in said(folder)
    assert folder.failures() == [{"trial": None, "error": "OSError: the cluster is gone"}]
    assert read_front(folder.front).trials["t0001"].status == "completed"


def test_a_winner_that_cannot_be_written_is_no_winner(play, monkeypatch, tmp_path):
    def full(*_args, **_options):
        raise RecordError("the disk is full")

    monkeypatch.setattr(private_run, "_as_winner", full)
    with pytest.raises(RecordError, match="the disk is full"):
        play()
    (folder,) = map(SweepFolder, (tmp_path / "out").iterdir())
    assert "the disk is full" in said(folder)
    assert not (folder.path / "winner").exists()
    assert len(Ledger(folder.ledger).entries()) == 4


def as_killed(hidden, copy):
    """Copy a hidden folder to stand for one that was made there and whose driver is killed now."""
    copy.parent.mkdir()
    shutil.copytree(hidden, copy)
    folder = SweepFolder(copy)
    folder.write_manifest(replace(folder.read_manifest(secret=True), selecting=str(copy)))


def killed(tmp_path):
    """Return what copies a hidden folder as a kill at that moment would leave it, and where to."""
    copy = tmp_path / "killed" / f"{HIDDEN}copy"
    return lambda engine, *_: as_killed(engine.folder.path, copy), SweepFolder(copy)


def test_a_selection_that_was_killed_waits_and_is_charged_in_full_if_it_is_given_up(play, tmp_path):
    kill, copy = killed(tmp_path)
    play({"t0003": kill})
    assert "its price does not hold: The selection was ended before its winner was known." in said(copy)
    (sentence,) = recover_all(copy.path.parent)
    assert sentence == private_run.waiting(copy)
    assert list_sweeps(copy.path.parent) == []
    folder = recover(copy)
    assert list_sweeps(copy.path.parent)[0].path == folder.path
    assert not folder.path.name.startswith(".")
    assert [e.trial for e in Ledger(folder.ledger).entries()] == ["t0001", "t0002"]
    assert "The selection was ended before its winner was known. Its owner gave the winner up." in said(folder)
    front = read_front(folder.front)
    assert len({answer.epsilon for answer in front.ledger.values()}) == 1
    assert len(front.points) == 4
    manifest = Sweep(folder.path).manifest()
    assert (manifest.status, f"small-{manifest.started}") == (TrialStatus.INTERRUPTED, folder.path.name)
    assert recover_all(copy.path.parent) == ()


class Mortal(Play):
    """An engine that calls ``dies`` behind every event of a candidate."""

    dies = staticmethod(lambda _engine: None)

    def run(self, states, trial, config):
        told = {}
        for name in ("start", "receive", "end"):
            told[name] = getattr(states, name)

            def tell(*args, name=name):
                answer = told[name](*args)
                self.dies(self)
                return answer

            setattr(states, name, tell)
        super().run(states, trial, config)
        for name in told:
            delattr(states, name)


@pytest.fixture
def again(plan, weights, data):
    """Let another driver go on with a selection that waits."""

    def run(hidden, *, dies=None, accuracies=(*FOUR, *FOUR), source=None):
        spec = Spec.from_mapping(SPEC)
        engine = Mortal(plan, weights, accuracies, {}, hidden)
        engine.dies = dies or (lambda _engine: None)
        claim = Claim.about(data.metadata, len(data.train), delta=DELTA)
        with driver_lock(hidden.path):
            return select(spec, data, claim, hidden, engine, source=source), engine

    return run


def attempts(hidden):
    """How often each candidate has drawn."""
    return Counter(entry.trial for entry in Ledger(hidden.ledger).entries() if entry.drawn)


def test_a_driver_killed_behind_any_event_leaves_a_selection_that_another_one_ends(play, again, tmp_path, monkeypatch):
    """Never more than the four that were drawn draw noise, none twice, and the best that was not lost wins."""
    monkeypatch.setattr(TrialStates, "__slots__", (), raising=False)
    copies, last = [], []

    def copy(engine):
        copies.append(tmp_path / f"killed-{len(copies)}" / f"{HIDDEN}copy")
        as_killed(engine.folder.path, copies[-1])

    def begin(engine, *_):
        engine.__class__ = Mortal
        engine.dies = copy

    play({"t0001": begin})
    decided = private_run._write_winner
    monkeypatch.setattr(private_run, "_write_winner", lambda *args: (last.append(attempts(args[1])), decided(*args)))
    assert len(copies) > 16
    for path in copies:
        hidden = SweepFolder(path)
        before = attempts(hidden)
        folder, engine = again(hidden)
        assert "its conditions held" in said(folder), path
        assert max(last[-1].values()) == 1
        assert len(last[-1]) == 4
        assert not {trial for trial, _ in engine.asked} & set(before)
        assert list(path.parent.iterdir()) == [folder.path]
        assert list(folder.trials()) == ["t0001"]
        assert len(folder.ledger.read_text().splitlines()) == 1


def test_twenty_kills_never_overspend(play, again, tmp_path, monkeypatch):
    """Eighteen are drawn; whatever drivers die, in the end eighteen have drawn, each once."""
    seen, hidden = [], SweepFolder(tmp_path / "killed" / f"{HIDDEN}copy")
    accuracies = [[0.5 + n / 100, 0.5] for n in range(80)]
    luck = random.Random(7)

    class Killed(BaseException):
        """Stands for a kill: nothing of the process comes after it."""

    def die_soon():
        left = [luck.randrange(2, 9)]

        def dies(_engine):
            left[0] -= 1
            if left[0] == 0:
                raise Killed

        return dies

    kill, _ = killed(tmp_path)
    play({"t0001": kill}, source=Bytes(250), accuracies=accuracies)
    decided = private_run._write_winner
    monkeypatch.setattr(private_run, "_write_winner", lambda *args: (seen.append(attempts(args[1])), decided(*args)))
    kills = 0
    while kills < 20:
        try:
            folder, _ = again(hidden, dies=die_soon(), accuracies=accuracies)
        except Killed:
            kills += 1
            assert max(attempts(hidden).values(), default=1) == 1
            assert len(attempts(hidden)) <= 18
        else:
            break
    if kills == 20:
        folder, _ = again(hidden, accuracies=accuracies)
    assert kills > 9
    assert (len(seen[0]), max(seen[0].values())) == (18, 1)
    assert "its conditions held" in said(folder)


def test_the_number_of_candidates_is_drawn_once(play, again, tmp_path):
    kill, copy = killed(tmp_path)
    play({"t0003": kill})
    _, engine = again(copy, source=Bytes(250))
    assert [trial for trial, _ in engine.asked] == ["t0003", "t0004"]


def test_a_selection_that_has_lost_its_number_is_given_up(play, again, tmp_path):
    kill, copy = killed(tmp_path)
    play({"t0003": kill})
    (copy.path / candidates.NUMBER_NAME).unlink()
    folder, engine = again(copy)
    assert "The number of candidates that was drawn was lost." in said(folder)
    assert engine.asked == []


def test_what_broke_is_not_forgotten_by_the_next_driver(play, again, tmp_path, monkeypatch):
    """Killed right behind a crash, before everything had become an ordinary sweep."""
    _, copy = killed(tmp_path)
    surrender = private_run._surrender
    monkeypatch.setattr(
        private_run,
        "_surrender",
        lambda hidden, *args: (as_killed(hidden.path, copy.path), surrender(hidden, *args))[1],
    )
    play({"t0002": "crashes"})
    monkeypatch.setattr(private_run, "_surrender", surrender)
    folder, engine = again(copy)
    assert engine.asked == []
    assert "Candidate t0002 crashed" in said(folder)


def test_a_candidate_whose_rows_were_lost_with_the_machine_is_lost(play, again, tmp_path):
    kill, copy = killed(tmp_path)
    play({"t0004": kill})
    rows = (copy.path / "points.jsonl").read_text().splitlines()
    kept = [row for row in rows if (json.loads(row)["trial"], json.loads(row)["epoch"]) != ("t0003", 2)]
    (copy.path / "points.jsonl").write_text("\n".join(kept) + "\n")
    folder, _ = again(copy)
    assert folder.points()["t0001", 2, ""].values["accuracy"] == 0.644444  # t0003 would have won


def test_a_training_that_was_entered_twice_breaks_the_conditions(play, again, tmp_path):
    kill, copy = killed(tmp_path)
    play({"t0003": kill})
    ledger = Ledger(copy.ledger)
    ledger.open("t0002", ledger.entries()[1].event)
    folder, _ = again(copy)
    assert "Candidate t0002 was started again" in said(folder)


def test_what_cannot_be_started_leaves_a_selection_waiting(play, again, tmp_path):
    kill, copy = killed(tmp_path)
    play({"t0003": kill})

    def no_ray(_engine):
        raise candidates.NotStartedError("no Ray")

    with pytest.raises(candidates.NotStartedError):
        again(copy, dies=no_ray)
    assert "its conditions held" in said(again(copy)[0])


def test_a_trial_that_was_training_when_the_driver_died_is_charged_in_full(play, tmp_path):
    kill, copy = killed(tmp_path)

    class Dying(Play):
        def report(self, states, trial, epoch, accuracy):
            super().report(states, trial, epoch, accuracy)
            if (trial, epoch) == ("t0002", 1):
                kill(self)

    def die(engine, *_):
        engine.__class__ = Dying

    play({"t0001": die})
    folder = recover(copy)
    assert folder.trials()["t0002"].status is TrialStatus.FAILED
    (last,) = (e for e in Ledger(folder.ledger).entries() if e.trial == "t0002")
    assert last.charged == last.event
    assert last.steps is not None


def test_a_selection_that_was_killed_before_its_first_candidate_leaves_nothing(play, tmp_path):
    kill, copy = killed(tmp_path)
    play({"t0001": kill})
    assert recover(copy) is None
    assert list(copy.path.parent.iterdir()) == []


@pytest.mark.parametrize("moved", [False, True])
def test_once_decided_a_kill_changes_nothing(play, tmp_path, monkeypatch, moved):
    """Killed behind the mark, before or after the winner had moved out: the others' rows can only be removed."""
    copy, release = SweepFolder(tmp_path / "killed" / f"{HIDDEN}copy"), private_run._release

    def kill(hidden):
        as_killed(hidden.path, copy.path)
        return release(hidden)

    monkeypatch.setattr(private_run, "_release", kill)
    ran = play()
    monkeypatch.setattr(private_run, "_release", release)
    if moved:
        shutil.rmtree(copy.path / "winner")
    folder = recover(copy)
    assert hidden_sweeps(tmp_path / "killed") == []
    if moved:
        assert (folder, list(copy.path.parent.iterdir())) == (None, [])
    else:
        check_only_the_winner(everything_in(folder.path), ran.engine)
        assert "its conditions held" in said(folder)


def test_when_nobody_was_drawn_nothing_is_released_and_the_price_is_spent(play):
    content = SPEC | {"search": SPEC["search"] | {"selection_distribution": "poisson"}}
    ran = play(source=Bytes(0), content=content)
    assert ran.engine.asked == []
    front = read_front(ran.folder.front)
    assert (front.trials, front.points) == ({}, ())
    assert 0.0 < front.ledger["winner"].epsilon < 100.0
    assert "nothing is released" in outcome_of(ran.folder).reason


def test_nobody_with_a_score_is_told_from_nobody_drawn_by_nothing(play):
    ran = play({f"t000{n}": "is undefined" for n in range(1, 5)})
    assert (ran.folder.trials(), outcome_of(ran.folder).reason) == ({}, private_run.NOBODY)
    assert len(ran.folder.ledger.read_text().splitlines()) == 1


def test_a_ledger_with_rows_beside_a_winner_whose_conditions_held_is_refused(play, tmp_path):
    kill, copy = killed(tmp_path)
    ran = play({"t0003": kill})
    rows, row = copy.ledger.read_text().splitlines(), ran.folder.ledger.read_text()
    ran.folder.ledger.write_text(row + "\n".join(rows[1:]) + "\n")
    with pytest.raises(RecordError, match="no training behind the private selection"):
        Ledger(ran.folder.ledger)
    ran.folder.ledger.write_text("\n".join(rows[1:]) + "\n" + row)
    with pytest.raises(RecordError, match="no training beside a private selection whose conditions held, got 2"):
        Ledger(ran.folder.ledger)


def test_a_condition_that_was_broken_cannot_be_mended_nor_the_terms_be_changed(tmp_path, play):
    terms = Ledger(play().folder.ledger).selection
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.select(replace(terms, broken=("This.",)))
    ledger.select(terms)
    ledger.select(replace(terms, broken=("That.",)))
    assert Ledger(tmp_path / "ledger.jsonl").selection.broken == ("This.", "That.") == ledger.selection.broken
    with pytest.raises(RecordError, match="got another one's terms"):
        ledger.select(replace(terms, event=terms.event.with_steps(1)))


def test_the_initial_seed_of_a_candidate_is_drawn_anew_and_stays_with_it():
    spec, made = Spec.from_mapping(SPEC), [object.__new__(Candidate) for _ in range(2)]
    for one in made:
        one.setup({"recorded": 0})
    first, other = (one.seed(spec, "t0001") for one in made)
    assert first != other
    assert made[0].seed(spec, "t0001") == first
    assert CliplessTrial.seed(made[0], spec, "t0007") == 7


def test_candidates_are_proposed_from_secret_randomness(play):
    rates = [[p["training.learning_rate"] for _, p in play().engine.asked] for _ in range(2)]
    assert len({*rates[0], *rates[1]}) == 8
    assert all(0.02 <= rate <= 0.1 for rate in rates[0])


class Calls:
    """Stands for the tracker, and remembers all it was told."""

    told: list

    def __init__(self, *args, **kwargs):
        type(self).told = self._told = [("open", args, kwargs)]
        self.destination, self.refused = SimpleNamespace(uri="nowhere"), ()

    def __getattr__(self, name):
        return lambda *args, **_: self._told.append((name, *args))

    def run_id(self, _trial):
        return None

    def close(self, *args, **_):
        self._told.append(("close", *args))
        return Undelivered()


@pytest.fixture
def whole(monkeypatch, plan, weights):
    """Whole sweeps by `run_sweep`, with played candidates and a tracker that remembers."""
    engine = Play(plan, weights, FOUR)

    def run_locally(_workers, kind, queue, states, **options):
        assert options["secret"], "candidates leave no traceback"
        engine.folder = SweepFolder(options["storage_dir"])
        return engine(kind, queue, states, options["should_stop"])

    for module in (selection_run, driver):
        monkeypatch.setattr(module, "backend", lambda *_, **__: contextlib.nullcontext(Backend("nobody", secret=True)))
    monkeypatch.setattr(training, "run_locally", run_locally)
    monkeypatch.setattr(driver, "Tracker", Calls)
    chosen = private_run.select
    monkeypatch.setattr(selection_run, "select", lambda *args, **options: chosen(*args, **options, source=Bytes()))
    return engine


def test_a_whole_sweep_tells_and_writes_of_the_winner_alone(whole, tmp_path):
    shown = []
    ended = run_sweep(Spec.from_mapping(SPEC), Options(out=tmp_path, show=shown.append))
    folder = ended.sweep.directory
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    told = repr(Calls.told).encode()
    check_only_the_winner(everything_in(folder) + told, whole)
    assert [call[1] for call in Calls.told if call[0] == "start_trial"] == ["t0001"]
    assert sum(call[0] == "log" and call[1:3] == ("t0001", 2) for call in Calls.told) == 1
    assert ended.sweep.manifest().status is TrialStatus.COMPLETED
    assert ended.outcome == RunResult()
    assert all(point.test is not None for point in ended.front.front_points)
    assert not (folder / "proposals.jsonl").exists()
    assert {progress.note for progress in shown} <= {"selecting privately", "one trial, selected privately"}
    assert shown[0].note == "selecting privately"
    assert len({int(path.stat().st_mtime) for path in folder.rglob("*")}) == 1
    _check_words(ended.sweep, folder)


def _check_words(sweep, folder):
    """Card, view and report state the price of the winner, and none of what was not released."""
    picked = sweep.pick()
    text, price_ = picked.card.to_markdown(), sweep.front().ledger["winner"].epsilon
    assert picked.card.to_json()["guarantee"]["selected"] == price_
    assert "selected privately" in text
    assert "if its configuration and epoch" not in text
    assert "| The front and its models leave | not released |" in text
    assert " inf " not in text
    page = (folder / "front.html").read_text(encoding="utf-8")
    assert page.count(">not released<") == 2
    assert "∞" not in page[page.index('id="cost"') :]
    assert sweep_view(sweep) is not None
    assert sweeps_table(list_sweeps(folder.parent)).row_count == 1


def test_a_whole_sweep_that_broke_is_tracked_and_says_what_it_costs(whole, tmp_path, capsys):
    whole.does = {"t0002": "crashes"}
    path = tmp_path / "small.yaml"
    path.write_text(Spec.from_mapping(SPEC).to_yaml(), encoding="utf-8")
    main_quietly(["run", str(path), "--out", str(tmp_path / "out")])
    out = capsys.readouterr().out
    assert "the conditions of private selection did not hold" in out
    assert "Candidate t0002 crashed" in out
    assert "sweeper resume" not in out
    assert [call[1] for call in Calls.told if call[0] == "start_trial"] == ["t0001", "t0002"]
    (folder,) = (tmp_path / "out").iterdir()
    assert Sweep(folder).manifest().status is TrialStatus.STOPPED
    for arguments in (["resume", str(folder)], ["extend", str(folder), "--trials", "9"]):
        with pytest.raises(SystemExit):
            main(arguments)
        assert "selected privately, from a number of trials that was drawn once" in capsys.readouterr().err


def main_quietly(arguments):
    with contextlib.suppress(SystemExit):
        main(arguments)


def test_the_logs_of_candidates_are_the_owners_and_gone_afterwards(monkeypatch):
    """Ray is started in a folder of its own; a Ray that stays is refused."""
    seen, running = {}, []
    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: bool(running))
    monkeypatch.setattr(cluster.ray, "init", lambda *_, **options: seen.update(options))
    monkeypatch.setattr(cluster.ray, "shutdown", lambda: None)
    with cluster.cluster(secret=True):
        session = Path(seen["_temp_dir"])
        assert stat.S_IMODE(session.stat().st_mode) == 0o700
        (session / "trial.log").write_text("t0002")
    assert not session.exists()
    running.append(True)
    with pytest.raises(SweeperError, match="no running Ray"), cluster.cluster(secret=True):
        pass


WATCHED = (
    {"cluster": "ray://somewhere"},
    {"storage": "memory://somewhere"},
    {"into": Path("made"), "cluster": "somewhere"},
)


@pytest.mark.parametrize("given", WATCHED)
def test_who_could_be_watched_has_to_consent(tmp_path, given):
    names = ", ".join(f"--{name}" for name in ("into", "cluster", "storage") if name in given)
    with pytest.raises(SweeperError, match=f"Expected --duration-is-seen for a private selection with {names}:"):
        run_sweep(Spec.from_mapping(SPEC), Options(out=tmp_path, **given))
    assert list(tmp_path.iterdir()) == []


def test_with_consent_candidates_train_unseen_on_the_cluster(whole, tmp_path, monkeypatch):
    seen = []

    def run_unseen(kind, queue, states, **options):
        whole.folder = SweepFolder(options["storage_dir"])
        seen.append((options["places"], sorted(options["constants"])))
        return whole(kind, queue, states, options["should_stop"])

    monkeypatch.setattr(unseen, "run_unseen", run_unseen)
    monkeypatch.setattr(cluster, "place", lambda _data: None)
    content = {**SPEC, "resources": {"concurrent": 3}}
    given = Options(out=tmp_path, cluster="somewhere", storage="memory://x", duration_is_seen=True)
    ended = run_sweep(Spec.from_mapping(content), given)
    assert seen == [(3, ["budget", "source", "spec"])]
    assert "its conditions held" in ended.front.ledger["winner"].statement


def test_a_selection_of_this_machine_does_not_move_to_a_cluster(whole, tmp_path):
    kill, copy = killed(tmp_path)
    whole.does = {"t0003": kill}
    run_sweep(Spec.from_mapping(SPEC), Options(out=tmp_path / "out"))
    with pytest.raises(SweeperError, match="Expected no cluster for a private selection that began on this machine"):
        resume_sweep(copy.path, Options(cluster="somewhere"))


# --- a folder made beforehand, as the service makes them


@pytest.fixture
def made(tmp_path):
    """A folder of the service, and how a sweep is run into it."""
    public = tmp_path / "out" / "small-20260101-000000"
    public.mkdir(parents=True)
    return SweepFolder(public), Options(out=public.parent, into=public, duration_is_seen=True)


def test_while_it_runs_its_folder_shows_that_and_nothing_else(whole, made):
    public, options = made
    seen = []

    def look(*_):
        manifest = public.read_manifest()
        seen.append((manifest.status, manifest.reason, sorted(path.name for path in public.path.iterdir())))
        assert is_driven(public.path)
        assert Catalog(public.path.parent).names() == (public.path.name,)
        assert (public.trials(), public.points()) == ({}, {})
        assert not any(price_.released for price_ in read_front(public.front).ledger.values())
        assert sweep_view(Sweep(public.path)) is not None
        assert sweeps_table([public]).row_count == 1
        assert _live(public.path)

    whole.does = {"t0001": look, "t0004": look}
    ended = run_sweep(Spec.from_mapping(SPEC), options)
    assert seen == [(TrialStatus.RUNNING, "selecting privately", ["driver.json", "front.json", "sweep.json"])] * 2
    assert ended.sweep.directory == public.path
    assert [path.name for path in public.path.parent.iterdir()] == [public.path.name]
    check_only_the_winner(everything_in(public.path) + repr(Calls.told).encode(), whole)
    assert "its conditions held" in ended.front.ledger["winner"].statement
    assert public.read_manifest().status is TrialStatus.COMPLETED


def _live(folder):
    from dashboards.data import read

    return read(folder)


def test_in_its_folder_it_is_asked_to_stop_and_goes_on_from_there(whole, made):
    public, options = made
    whole.does = {"t0002": lambda *_: ask_to_stop(public.path)}
    with pytest.raises(private_run.SelectionWaitsError):
        run_sweep(Spec.from_mapping(SPEC), options)
    manifest = public.read_manifest()
    assert (manifest.status, manifest.reason) == (TrialStatus.INTERRUPTED, "selects privately, and waits to be resumed")
    assert is_waiting(public.path)
    check_resumable(public.path, State.INTERRUPTED, None)
    with pytest.raises(RecordError, match="selected privately"):
        check_resumable(public.path, State.INTERRUPTED, 9)
    whole.does = {}
    ended = resume_sweep(public.path)
    assert "its conditions held" in ended.front.ledger["winner"].statement
    assert [trial for trial, _ in whole.asked] == [f"t000{n}" for n in range(1, 5)]
    assert not is_waiting(public.path)
    with pytest.raises(RecordError, match="selected privately"):
        check_resumable(public.path, State.COMPLETED, None)


def test_in_its_folder_what_broke_is_seen_and_charged(whole, made):
    public, options = made
    whole.does = {"t0002": "crashes"}
    ended = run_sweep(Spec.from_mapping(SPEC), options)
    assert ended.sweep.directory == public.path
    assert len(ended.front.trials) == 2
    assert "Candidate t0002 crashed" in ended.front.ledger["winner"].statement
    assert [path.name for path in public.path.parent.iterdir()] == [public.path.name]
    assert not {private_run.SURRENDERED, *private_run.BOOKS} & {path.name for path in public.path.iterdir()}


@pytest.mark.parametrize("does", [{}, {"t0002": "crashes"}], ids=["winner", "broken"])
@pytest.mark.parametrize("moves", range(9))
def test_killed_while_it_moves_into_its_folder_it_moves_on(whole, made, monkeypatch, does, moves):
    """The same files are there in the end, whatever the number of files that had moved."""
    public, options = made

    class Killed(BaseException):
        """Stands for a kill."""

    replaced, left = Path.replace, [moves]

    def replace_some(path, target):
        if HIDDEN in str(path) and HIDDEN not in str(target):
            if not left[0]:
                raise Killed
            left[0] -= 1
        return replaced(path, target)

    whole.does = does
    monkeypatch.setattr(Path, "replace", replace_some)
    with contextlib.suppress(Killed):
        run_sweep(Spec.from_mapping(SPEC), options)
    monkeypatch.setattr(Path, "replace", replaced)
    asked = len(whole.asked)
    with contextlib.suppress(RecordError):  # it had moved as a whole
        resume_sweep(public.path)
    front = read_front(public.front)
    assert len(whole.asked) == asked
    assert len(front.points) == 2
    assert len(front.trials) == (2 if does else 1)
    assert [path.name for path in public.path.parent.iterdir()] == [public.path.name]
    assert ("its conditions held" in said(public)) == (not does)


def test_a_hidden_folder_is_resumed_or_given_up(whole, tmp_path):
    kill, copy = killed(tmp_path)
    whole.does = {"t0003": kill}
    run_sweep(Spec.from_mapping(SPEC), Options(out=tmp_path / "out"))
    whole.does, whole.asked = {}, []
    given = tmp_path / "given" / f"{HIDDEN}copy"
    as_killed(copy.path, given)
    with pytest.raises(RecordError, match="drawn once"):
        resume_sweep(copy.path, trials=9)
    ended = resume_sweep(given, give_up=True)
    assert not given.exists()
    assert whole.asked == []
    assert "ended before its winner was known" in ended.front.ledger["winner"].statement
    assert len(ended.front.points) == 4
    assert all(point.test is not None for point in ended.front.front_points)
    ended = resume_sweep(copy.path)
    assert [trial for trial, _ in whole.asked] == ["t0003", "t0004"]
    assert "its conditions held" in ended.front.ledger["winner"].statement
    assert [path.name for path in copy.path.parent.iterdir()] == [ended.sweep.directory.name]
    with pytest.raises(RecordError, match="--give-up"):
        resume_sweep(_ordinary(tmp_path), give_up=True)


def _ordinary(tmp_path):
    folder = SweepFolder.create(tmp_path, "plain", datetime(2026, 1, 1))
    content = {**SPEC, "search": {"trials": 1}}
    plain = Spec.from_mapping(content).to_plain()
    folder.write_manifest(Manifest(name="plain", spec=plain, source="s", status=TrialStatus.INTERRUPTED))
    return folder.path


def test_ctrl_c_leaves_it_waiting_and_says_how_to_go_on(whole, tmp_path, capsys):
    def stop(engine, *_):
        append_alone(engine.folder.path / NAME, {"stop": True})

    whole.does = {"t0002": stop}
    path = tmp_path / "small.yaml"
    path.write_text(Spec.from_mapping(SPEC).to_yaml(), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["run", str(path), "--out", str(tmp_path / "out")])
    (hidden,) = hidden_sweeps(tmp_path / "out")
    assert ended.value.code == 130
    text = "".join(capsys.readouterr())
    assert private_run.waiting(hidden) in " ".join(text.split())
    assert "t000" not in text
    main_quietly(["resume", str(hidden.path)])
    assert "its conditions held" in " ".join("".join(capsys.readouterr()).split())


def test_logs_that_a_killed_driver_left_are_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(selection_run.tempfile, "gettempdir", lambda: str(tmp_path))
    sessions = JsonlFile(tmp_path / "sessions.jsonl")
    for name in ("ray-1", "other", "ray-2/inner"):
        (tmp_path / name).mkdir(parents=True)
        sessions.append({"session": str(tmp_path / name)})
    selection_run._remove_sessions(sessions)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "ray-2", "sessions.jsonl"]


def test_a_real_sweep_selects_privately(tmp_path):
    """Trials on processes of its own, models and the tracking store, with whatever number is drawn."""
    content = SPEC | {"search": SPEC["search"] | {"selection_mean": 2}}
    ended = run_sweep(Spec.from_mapping(content), Options(out=tmp_path))
    path = ended.sweep.directory
    assert {one.name for one in tmp_path.iterdir()} == {path.name, ".mlflow.db.lock", "mlflow.db", "mlflow-artifacts"}
    folder = SweepFolder(path)
    assert "its conditions held" in said(folder)
    assert list(folder.trials()) == ["t0001"]
    for point in ended.front.front_points:
        clipless.load(path / point.model)
    with contextlib.closing(sqlite3.connect(path.parent / "mlflow.db")) as store:
        runs = store.execute("select name, status from runs").fetchall()
        steps = store.execute("select step from metrics where key = 'val/accuracy'").fetchall()
        keys = [key for (key,) in store.execute("select distinct key from metrics").fetchall()]
    assert sorted(runs) == sorted([(path.name, "FINISHED"), ("t0001 mlp-8", "FINISHED")])
    assert not any(key.startswith(("system/", "best/")) and "eps" in key for key in keys)
    assert sorted(steps) == [(1,), (2,)]
    assert len(folder.ledger.read_text().splitlines()) == 1
    assert not list(path.rglob("t0002*"))
    assert not (path / "ray").exists()


# --- scores of private rows


PRIVATE = SPEC | {
    "data": {"name": "digits", "evaluation": "private"},
    "privacy": SPEC["privacy"] | {"score_noise": 2.0},
}


@pytest.fixture
def noise():
    return ScoreNoise.of(Spec.from_mapping(PRIVATE), clipless.datasets.load("digits", evaluation="private"))


def test_a_winner_by_noisy_scores_costs_the_dearer_of_trainings_scores_and_its_own_test_scores(whole, tmp_path, noise):
    whole.plan = whole.plan | {"scores": noise.to_json()}
    ended = run_sweep(Spec.from_mapping(PRIVATE), Options(out=tmp_path))
    folder = ended.sweep.folder
    check_only_the_winner(everything_in(folder.path) + repr(Calls.told).encode(), whole)
    kinds = [json.loads(row)["record"] for row in folder.ledger.read_text().splitlines()]
    tested = [point for point in ended.front.points if point.test is not None]
    assert kinds == ["selection", *["test"] * len(tested)]
    assert tested == list(ended.front.front_points)
    law, event = Spec.from_mapping(PRIVATE).search.repetitions, PoissonGaussian.from_json(whole.plan["event"])
    by_scores = selection_epsilon(noise.paid(2).event, law, DELTA)
    assert by_scores > max(selection_epsilon(event, law, DELTA), price([noise.paid(len(tested)).event], DELTA).epsilon)
    assert ended.front.ledger["winner"].epsilon == by_scores
    assert "its conditions held" in said(folder)
    assert ended.sweep.pick().card.to_json()["guarantee"]["selected"] == by_scores
    assert ("tag", "t0001") in [call[:2] for call in Calls.told]


def test_a_candidate_without_the_noise_that_is_priced_breaks_the_conditions(whole, tmp_path, noise):
    whole.plan = whole.plan | {"scores": noise.to_json() | {"noise_multiplier": 1.9}}
    ended = run_sweep(Spec.from_mapping(PRIVATE), Options(out=tmp_path))
    statement = ended.front.ledger["winner"].statement
    assert "Candidate t0001 planned other releases of scores than those that are priced." in statement
    assert "or of every score of the private rows of a split, whichever is more" in statement
    ledger = Ledger(ended.sweep.folder.ledger)
    assert [event.noise_multiplier for entry in ledger.entries() for event in entry.charged_scores] == [1.9]
