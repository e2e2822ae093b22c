"""Trials on worker processes of the driver's own: the order of what is written, ends, kills, and what workers share."""

import contextlib
import gc
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytest
import torch

import clipless
from clipless.datasets import Split
from clipless.privacy.events import PoissonGaussian, Relation
from clipless.privacy.randomness import SecureSource
from sweeper.backend import trial_states as states_module
from sweeper.backend.backend import RunSettings
from sweeper.backend.devices import DeviceShares
from sweeper.backend.endings import DIED, INTERRUPTED, RunResult
from sweeper.backend.environment import worker_environment
from sweeper.backend.interruption import Interruption
from sweeper.backend.placed_data import PlacedDataset, from_memory, in_memory
from sweeper.backend.queue import TrialQueue
from sweeper.backend.trial_states import Hooks, TrialStates
from sweeper.backend.workers import dispatcher, fork_server, pool
from sweeper.backend.workers.local import LocalPool, local_workers
from sweeper.errors import FOR_THE_OWNER, SweeperError
from sweeper.privacy.spending._composition import Composition
from sweeper.records import TrialPlan, TrialStatus
from sweeper.trials.stream import EpochRow, FirstDrawRow, PlanRow

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test

EVENT = PoissonGaussian(noise_multiplier=2.0, sampling_rate=0.2, steps=3, relation=Relation.ADD_OR_REMOVE_ONE)
PLAN = TrialPlan(
    method="clipless", population=5, batch_size=1, sampling_rate=0.2, steps_per_epoch=1, preliminary_steps=0, epochs=3,
    noise_multiplier=2.0, delta=1e-4, relation=Relation.ADD_OR_REMOVE_ONE, allocation="global",
    sensitivity_fraction=1.0, clip_norm=None, follow_weights=False, clipping={"kind": "constant"}, count_std=0.0,
    freezing=None, sensitivities={}, noise_stds={}, event=EVENT, epsilon_curve=(1.0, 2.0, 3.0), accountants={},
    repeats=1, secure_generator=True,
)  # fmt: skip

PATIENCE_SECONDS = 120.0


class Toy:
    """Reports its plan, its first draw, then three epochs; goes wrong in the way its proposal says."""

    def setup(self, config):
        self.config, self.way, self.folder = config, config["proposal"]["way"], Path(config["folder"])
        self.attempt, self.epoch, self.draws = f"{os.getpid()}-{time.monotonic()}", None, False

    def cleanup(self):
        pass

    def step(self):
        if self.epoch is None and self.way != "no plan":
            self.epoch = self.config["recorded"]
            placed = {"threads": os.environ["OMP_NUM_THREADS"], "pid": str(os.getpid())}
            placed["visible"] = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
            return PlanRow(attempt=self.attempt, plan=PLAN, kept=self.epoch, placed=placed)
        if not self.draws and self.way != "no draw":
            self.draws = True
            return FirstDrawRow()
        if not (self.folder / f"drawn-{self.config['trial']}").exists():
            raise AssertionError("trained before its draw\nwas written down")
        self.epoch += 1
        died = self.folder / f"died-{self.config['trial']}"
        if self.way == "die" or (self.way == "die once" and self.epoch == 2 and not died.exists()):
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.way == "hang":
            (self.folder / f"hangs-{os.getpid()}").touch()
            time.sleep(600)
        print("Name-042450", flush=True)
        values = {"epsilon": float(self.epoch), "certified@1/4": math.nan if self.way == "nan" else 0.5}
        with (self.folder / f"trained-{self.config['trial']}").open("a") as file:
            file.write(".")
        return EpochRow(epoch=self.epoch, values=values, done=self.epoch == 3)


class Proposals:
    """Gives trials these ways."""

    def __init__(self, ways):
        self._ways, self.asked, self.open = ways, 0, {}

    def ask(self):
        way = self._ways[self.asked]
        self.asked += 1
        self.open[f"t{self.asked:04d}"] = {"way": way}
        return f"t{self.asked:04d}"


class Driver:
    """Hooks that write down what a ledger would, and remember everything."""

    def __init__(self, folder):
        self.folder = folder
        self.config, self.plans, self.epochs, self.ends, self.restarts, self.failures = {}, {}, [], {}, [], {}

    def hooks(self, **more):
        own = {
            "on_start": self.config.__setitem__,
            "on_plan": self.on_plan,
            "on_draw": self.on_draw,
            "on_epoch": self.on_epoch,
            "on_restart": lambda *told: self.restarts.append(told),
            "on_end": lambda trial, *told: self.ends.update({trial: told}),
            "on_failure": self.failures.__setitem__,
        }
        return Hooks(**(own | more))

    def way(self, trial):
        return self.config[trial]["proposal"]["way"]

    def on_plan(self, trial, row):
        self.plans[trial] = row
        return "too dear" if self.way(trial) == "refused" else None

    def on_draw(self, trial):
        if self.way(trial) == "unwritten":
            raise OSError("disk full")
        (self.folder / f"drawn-{trial}").touch()

    def on_epoch(self, trial, row):
        self.epochs.append((trial, row.epoch))
        return "no hope" if self.way(trial) == "stopped" else None


@pytest.fixture(scope="module")
def workers():
    """Two processes that most tests share; those that a test has killed are started again."""
    with local_workers(2, clipless.datasets.load("digits"), 1) as started:
        yield started


def run(workers, folder, ways, hooks, *, recorded=None, queue=None, secret=False, **more):
    given = {"trial": None, "folder": folder, "interruption": Interruption(), "should_stop": lambda: None}
    given["spending"] = Composition()
    queue = queue or TrialQueue(Proposals(ways), len(ways))
    return LocalPool(workers, 1, secret=secret).run(
        Toy, queue, TrialStates(hooks, recorded), RunSettings(**given | more)
    )


WAYS = {
    "well": (TrialStatus.COMPLETED, "", 3),
    "no plan": (TrialStatus.FAILED, "reported a draw before its plan", 0),
    "no draw": (TrialStatus.FAILED, f"AssertionError: {FOR_THE_OWNER}", 1),
    "nan": (TrialStatus.FAILED, "certified@1/4 is not a number in epoch 1", 1),
    "refused": (TrialStatus.STOPPED, "too dear", 0),
    "unwritten": (TrialStatus.FAILED, f"OSError: {FOR_THE_OWNER}", 0),
    "stopped": (TrialStatus.STOPPED, "no hope", 1),
    "die": (TrialStatus.FAILED, DIED, 1),
    "die once": (TrialStatus.COMPLETED, "", 3),
    "well again": (TrialStatus.COMPLETED, "", 3),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory, workers):
    """One run in which trials end in every way there is."""
    folder = tmp_path_factory.mktemp("sweep")
    driver = Driver(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states_module, "MOST_RESTARTS", 1)
        outcome = run(workers, folder, list(WAYS), driver.hooks())
    return folder, driver, outcome


def name(way):
    return f"t{1 + list(WAYS).index(way):04d}"


def test_every_trial_ends_once_with_its_reason_and_the_run_goes_on(finished):
    _, driver, outcome = finished
    assert {driver.way(trial): told for trial, told in driver.ends.items()} == WAYS
    assert outcome == RunResult()


def test_a_trial_draws_only_after_its_draw_was_written_down(finished):
    """The toy looks for the file, and raises without it; one that reports no draw shows that it does."""
    _, driver, _ = finished
    assert driver.ends[name("well")][0] is TrialStatus.COMPLETED
    assert driver.failures[name("no draw")] == "AssertionError: trained before its draw was written down"


def test_a_trial_that_is_stopped_or_refused_trains_no_further_epoch(finished):
    folder, *_ = finished
    assert (folder / f"trained-{name('stopped')}").read_text() == "."
    assert (folder / f"trained-{name('nan')}").read_text() == "."
    assert not (folder / f"trained-{name('refused')}").exists()
    assert not (folder / f"trained-{name('unwritten')}").exists()


def test_a_trial_that_lost_its_process_goes_on_behind_its_last_epoch(finished):
    _, driver, _ = finished
    once, dead = name("die once"), name("die")
    told = [told for told in driver.restarts if told[0] == once]
    assert told[-1:] == [(once, 2)], "the second epoch had begun"
    assert told[:-1] in ([], [(once, 1)]), "handed out already to the process that another trial killed"
    assert driver.plans[once].kept == 1
    assert [epoch for trial, epoch in driver.epochs if trial == once] == [1, 2, 3]
    assert [told for told in driver.restarts if told[0] == dead] == [(dead, 1)]


def test_tracebacks_are_for_the_owner_alone(finished):
    folder, *_ = finished
    assert "was written down" in (folder / "tracebacks" / f"{name('no draw')}.txt").read_text()
    assert (folder / "tracebacks").stat().st_mode & 0o777 == 0o700


def test_workers_have_their_own_processes_and_threads(finished):
    _, driver, _ = finished
    placed = [plan.placed for plan in driver.plans.values()]
    assert {one["threads"] for one in placed} == {worker_environment(1)["OMP_NUM_THREADS"]}
    assert str(os.getpid()) not in {one["pid"] for one in placed}


def test_a_secret_run_leaves_no_traceback(workers, tmp_path):
    driver = Driver(tmp_path)
    run(workers, tmp_path, ["no draw"], driver.hooks(), secret=True)
    assert driver.ends["t0001"][0] is TrialStatus.FAILED
    assert not (tmp_path / "tracebacks").exists()


def test_ctrl_c_ends_a_run_whose_trial_hangs_and_kills_it(workers, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(pool, "GRACE_SECONDS", 0.2)
    driver, interruption = Driver(tmp_path), Interruption()
    given = {"should_stop": lambda: interrupt() if list(tmp_path.glob("hangs-*")) else None}

    def interrupt():
        interruption.requested = True

    outcome = run(workers, tmp_path, ["hang"], driver.hooks(), interruption=interruption, **given)
    assert outcome == INTERRUPTED
    assert driver.ends == {"t0001": (TrialStatus.INTERRUPTED, "interrupted", 1)}
    (hung,) = (int(path.name.removeprefix("hangs-")) for path in tmp_path.glob("hangs-*"))
    wait_until(lambda: not is_alive(hung))
    assert capfd.readouterr() == ("", "")


def test_a_trial_that_hangs_is_stopped_when_its_time_is_up(workers, tmp_path, monkeypatch):
    def clock():
        late = bool(list(tmp_path.glob("hangs-*"))) and "t0002" in driver.ends
        return time.monotonic() + 7200 * late

    driver = Driver(tmp_path)
    monkeypatch.setattr(dispatcher, "time", SimpleNamespace(monotonic=clock))
    assert run(workers, tmp_path, ["hang", "well"], driver.hooks(), trial_hours=1.0) == RunResult()
    assert driver.ends["t0001"] == (TrialStatus.STOPPED, "it took longer than the 1 hours of search.trial_hours", 1)
    assert driver.ends["t0002"] == (TrialStatus.COMPLETED, "", 3)
    assert driver.restarts == []


def test_trials_of_an_earlier_run_come_first_and_go_on(workers, tmp_path):
    driver, search = Driver(tmp_path), Proposals(["well", "well again", "well"])
    search.ask()
    search.ask()
    queue = TrialQueue(search, 3, ["t0002", "t0001"])
    run(workers, tmp_path, [], driver.hooks(), recorded={"t0001": 0, "t0002": 2}, queue=queue)
    started = [(trial, config["proposal"]["way"], config["recorded"]) for trial, config in driver.config.items()]
    assert started == [("t0002", "well again", 2), ("t0001", "well", 0), ("t0003", "well", 0)]
    assert [epoch for trial, epoch in driver.epochs if trial == "t0002"] == [3]


def test_a_stage_begins_when_every_trial_before_it_has_ended(workers, tmp_path):
    driver, ended = Driver(tmp_path), []
    given = {
        "on_start": lambda trial, config: (driver.config.update({trial: config}), ended.append(len(driver.ends)))[0]
    }
    queue = TrialQueue(Proposals(["well"] * 5), 5, barriers=[3, 5])
    run(workers, tmp_path, [], driver.hooks(**given), queue=queue)
    assert len(ended) == 5
    assert ended[3] == 3


def test_a_hook_in_trouble_ends_the_run_and_raises(workers, tmp_path):
    def on_end(*_args):
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        run(workers, tmp_path, ["well"] * 20, Driver(tmp_path).hooks(on_end=on_end))


def test_a_space_that_raises_ends_the_run_with_its_error(workers, tmp_path):
    with pytest.raises(IndexError):
        run(workers, tmp_path, [], Driver(tmp_path).hooks(), queue=TrialQueue(Proposals([]), 1))


def test_a_worker_that_does_not_come_up_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(fork_server, "_START", "raise SystemExit('no memory for a worker')")
    with (
        local_workers(1, clipless.datasets.load("digits"), 1) as broken,
        pytest.raises(SweeperError, match="the last one said 'no memory for a worker'"),
    ):
        run(broken, tmp_path, ["well"], Driver(tmp_path).hooks())


DRIVER = """
import json, sys
from pathlib import Path
sys.path[:] = json.loads(sys.argv[1])
import clipless
from sweeper.backend.workers.local import local_workers
from tests.sweeper.backend.workers.test_local import Driver, run

folder = Path(sys.argv[2])
with local_workers(1, clipless.datasets.load("digits"), 1) as workers:
    run(workers, folder, ["hang"], Driver(folder).hooks())
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "deaf",
    [
        pytest.param(False, id="", marks=pytest.mark.long),
        pytest.param(True, id="while-what-forked-them-is-stopped"),
    ],
)
def test_workers_end_with_a_driver_that_is_killed(tmp_path, deaf):
    """Even one that is in the middle of an epoch: nobody is left to charge what it would draw."""
    path = json.dumps([*sys.path, str(Path(__file__).parents[4])])  # where the code under test is, then this file
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, path, str(tmp_path)])
    with contextlib.ExitStack() as stack:
        stack.callback(driver.wait)
        stack.callback(driver.kill)
        wait_until(lambda: list(tmp_path.glob("hangs-*")))
        (worker,) = (int(path.name.removeprefix("hangs-")) for path in tmp_path.glob("hangs-*"))
        stack.callback(_kill, worker)
        if deaf:
            server = _parent(worker)
            stack.callback(_kill, server)
            os.kill(server, signal.SIGSTOP)
        driver.kill()
        driver.wait()
        wait_until(lambda: not is_alive(worker), seconds=20.0)


def _parent(process):
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def _kill(process):
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def test_workers_read_the_rows_in_place_and_cannot_write_to_them():
    data = clipless.datasets.load("digits")
    rows = data.validation
    data = replace(data, validation=Split(rows.x, rows.y, torch.tensor([0, 7, len(rows.y)])))
    with in_memory(PlacedDataset.of(data)) as file:
        found = from_memory(file.fileno())
    assert found.metadata == data.metadata
    for split in ("train", "validation", "test"):
        for mine, given in zip(getattr(found, split), getattr(PlacedDataset.of(data), split), strict=True):
            assert (mine is None) is (given is None)
            if given is not None:
                np.testing.assert_array_equal(mine, given)
                assert not mine.flags.writeable
    seen = found.dataset()
    assert seen.train.offsets is None
    assert torch.equal(seen.validation.offsets, data.validation.offsets)
    assert seen.train.x.data_ptr() == found.train[0].__array_interface__["data"][0]


class Dice(Toy):
    """Writes down what every generator of its process gives first, then trains as a toy."""

    def setup(self, config):
        super().setup(config)
        bits = {
            "secure": bytes(SecureSource().random_bytes(32)).hex(),
            "inherited": [bytes(source.random_bytes(32)).hex() for source in in_reach(SecureSource)],
            "system": os.urandom(32).hex(),
            "python": random.random(),
            "numpy": np.random.random(),  # noqa: NPY002  # the generator that all of a process share
            "threads": len(os.listdir("/proc/self/task")),
            "pid": os.getpid(),
        }
        (self.folder / f"dice-{config['trial']}").write_text(json.dumps(bits))


def in_reach(kind):
    """Return every object of a kind that this process holds."""
    gc.unfreeze()
    return [found for found in gc.get_objects() if isinstance(found, kind)]


def test_two_workers_share_no_generator_and_inherit_no_source(tmp_path, monkeypatch):
    """Both are forked from one process; a source cannot be sent to one either."""
    with pytest.raises(TypeError, match="never copied or pickled"):
        cloudpickle.dumps(SecureSource())
    monkeypatch.setattr(sys.modules[__name__], "Toy", Dice)
    with local_workers(2, clipless.datasets.load("digits"), 1) as two:
        run(two, tmp_path, ["die once", "die once", "well", "well"], Driver(tmp_path).hooks())
    rolled = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("dice-*"))]
    assert len({one["pid"] for one in rolled}) > 1
    assert [one["inherited"] for one in rolled] == [[]] * len(rolled)
    for generator in ("secure", "system", "python", "numpy"):
        assert len({one[generator] for one in rolled}) == len(rolled), generator


@pytest.mark.long
def test_a_worker_sees_its_device_alone_and_so_does_the_one_that_takes_its_place(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    driver, seen = Driver(tmp_path), []

    def on_plan(trial, row):
        seen.append((row.placed["pid"], row.placed["visible"]))
        return driver.on_plan(trial, row)

    with local_workers(1, clipless.datasets.load("digits"), 1, DeviceShares(["GPU-7"], 1.0)) as one:
        outcome = run(one, tmp_path, ["die once"], driver.hooks(on_plan=on_plan))
    assert outcome == RunResult()
    (first, device), (second, other) = seen
    assert first != second
    assert device == other == "GPU-7"


@pytest.mark.usefixtures("finished")
def test_what_forks_workers_has_one_thread(workers):
    """A fork copies no other thread."""
    assert len(os.listdir(f"/proc/{workers._server._process.pid}/task")) == 1


@pytest.mark.long
def test_workers_end_with_the_process_that_forked_them_and_others_take_their_place(tmp_path):
    driver, killed = Driver(tmp_path), []

    def on_epoch(trial, row):
        if not killed:
            killed.append(two._server._process.pid)
            _kill(killed[0])
            there = [int(plan.placed["pid"]) for plan in driver.plans.values()]
            wait_until(lambda: not any(map(is_alive, there)), seconds=20.0)
        return driver.on_epoch(trial, row)

    with local_workers(2, clipless.datasets.load("digits"), 1) as two:
        outcome = run(two, tmp_path, ["well"] * 4, driver.hooks(on_epoch=on_epoch))
        assert two._server._process.pid != killed[0]
        there = {int(plan.placed["pid"]) for plan in driver.plans.values()}
        assert all(map(is_alive, there))
    assert not any(map(is_alive, there)), "closed, yet there"
    assert outcome == RunResult()
    assert set(driver.ends.values()) == {(TrialStatus.COMPLETED, "", 3)}
    assert driver.restarts


@pytest.mark.long
def test_what_was_started_ahead_is_taken_once_and_only_for_the_same_workers(monkeypatch):
    class Started:
        def __init__(self, threads):
            self.threads, self.closed, self.is_alive = threads, False, True

        serves = fork_server.ForkServer.serves
        _path = sys.path

        def close(self, *, has_workers):
            assert not has_workers
            self.closed = True

    monkeypatch.setattr(fork_server, "ForkServer", Started)
    monkeypatch.setattr(fork_server, "_AHEAD", [])
    fork_server.start_ahead()
    fork_server.start_ahead()
    (ahead,) = fork_server._AHEAD
    assert fork_server.fork_server(1) is ahead
    assert fork_server.fork_server(1) is not ahead
    for change in (lambda one: setattr(one, "is_alive", False), lambda one: setattr(one, "_path", ["elsewhere"])):
        fork_server.start_ahead()
        (ahead,) = fork_server._AHEAD
        change(ahead)
        assert fork_server.fork_server(1) is not ahead
        assert ahead.closed
    fork_server.start_ahead()
    (ahead,) = fork_server._AHEAD
    assert fork_server.fork_server(2).threads == 2
    assert ahead.closed


def is_alive(pid):
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def wait_until(there, seconds=PATIENCE_SECONDS):
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.02)
