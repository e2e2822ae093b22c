"""Candidates of a private selection that are played by a script instead of being trained."""

import contextlib
import shutil
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from uuid import uuid4

from clipless.privacy.randomness import SecureSource
from sweeper.adapters import parse
from sweeper.backend.endings import RunResult, close_trials
from sweeper.cli.main import main
from sweeper.driver.selection.candidates import Candidate
from sweeper.privacy.ledger import Ledger
from sweeper.records import TrialPlan, TrialStatus
from sweeper.store.lock import driver_lock
from sweeper.store.sweep_folder import HIDDEN, SweepFolder
from sweeper.tracking.outbox import Undelivered
from sweeper.trials.stream import EpochRow, FirstDrawRow, FreeRow, PlanRow

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


@dataclass
class Play:
    """An engine that lets each candidate do what the script says, one after the other."""

    plan: dict
    weights: bytes
    accuracies: list
    does: dict = field(default_factory=dict)
    folder: SweepFolder | None = None
    extra: dict = field(default_factory=dict)
    stds: dict = field(default_factory=dict)  # of noisy scores, by trial and epoch
    asked: list = field(default_factory=list)

    def __call__(self, kind, queue, states, should_stop):
        assert kind is Candidate
        while (started := queue.start()) is not None:
            trial, proposal = started
            self.asked.append((trial, proposal))
            self.run(states, trial, {"trial": trial, "proposal": proposal, "recorded": 0})
            queue.end(trial)
            if ended := should_stop():
                return close_trials(states, ended)
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
                states._trials[trial].running = False
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
        placed = {"node": "here", "device": f"GPU {trial}"}  # its index is less than the number of candidates
        states.receive(trial, PlanRow(attempt=uuid4().hex, plan=parse(TrialPlan, plan), placed=placed))
        states.receive(trial, FirstDrawRow())

    def report(self, states, trial, epoch, accuracy):
        name = SweepFolder.model_name(trial, epoch)
        (self.folder.path / name).write_bytes(self.weights)
        values = {"epsilon": self.plan["epsilon_curve"][epoch - 1], "accuracy": accuracy}
        free = tuple(self.free(epoch, one) for one in self.extra.get((trial, epoch), ()))
        std = self.stds.get((trial, epoch))
        errors = None if std is None else {"accuracy": (std, 800.0)}
        row = EpochRow(epoch=epoch, values=values, model=name, done=epoch == 2, free=free, errors=errors)
        states.receive(trial, row)

    def free(self, epoch, extra):
        trial, made_from, accuracy = extra
        name = SweepFolder.model_name(trial, epoch, made_from)
        (self.folder.path / name).write_bytes(self.weights + made_from.encode())
        return FreeRow(made_from=made_from, values={"accuracy": accuracy}, model=name)


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


class Calls:
    """Stands for the tracker, and remembers all it was told."""

    told: list

    def __init__(self, *args, **kwargs):
        type(self).told = self._told = [("open", args, kwargs)]
        self.destination, self.refused = SimpleNamespace(uri="nowhere", sweep="x"), ()

    def __getattr__(self, name):
        return lambda *args, **_: self._told.append((name, *args))

    def run_id(self, _trial):
        return None

    def close(self, *args, **_):
        self._told.append(("close", *args))
        return Undelivered()


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


def as_killed(hidden, copy):
    """Copy a hidden folder to stand for one that was made there and whose driver is killed now."""
    copy.parent.mkdir()
    shutil.copytree(hidden, copy)
    folder = SweepFolder(copy)
    folder.write_manifest(replace(folder.read_manifest(secret=True), selecting=str(copy)))
    with driver_lock(copy) as lock:
        lock.copied = lock.rebooted = False


def killed(tmp_path):
    """Return what copies a hidden folder as a kill at that moment would leave it, and where to."""
    copy = tmp_path / "killed" / f"{HIDDEN}copy"
    return lambda engine, *_: as_killed(engine.folder.path, copy), SweepFolder(copy)


def main_quietly(arguments):
    with contextlib.suppress(SystemExit):
        main(arguments)
