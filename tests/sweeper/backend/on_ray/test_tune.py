import logging
import math
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from ray import cloudpickle
from ray.exceptions import ActorDiedError, AuthenticationError, RayTaskError
from ray.tune import Trainable

from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.backend import interruption
from sweeper.backend import trial_states as states_module
from sweeper.backend.backend import RunSettings
from sweeper.backend.endings import RunEnding, RunResult
from sweeper.backend.environment import worker_environment
from sweeper.backend.interruption import Interruption
from sweeper.backend.on_ray import cluster as cluster_module
from sweeper.backend.on_ray import starting, tune
from sweeper.backend.on_ray.cluster import join_cluster
from sweeper.backend.on_ray.starting import InterruptedStartError
from sweeper.backend.on_ray.tune import TUNE_ENVIRONMENT, _failure, train_alone
from sweeper.backend.queue import TrialQueue
from sweeper.backend.trial_states import Hooks, TrialStates
from sweeper.errors import FOR_THE_OWNER, SweeperError, one_line
from sweeper.privacy.spending._composition import Composition
from sweeper.records import Objective, TrialPlan, TrialStatus
from sweeper.search.optuna_search import Search
from sweeper.trials.stream import EpochRow, PlanRow

pytestmark = pytest.mark.slow

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test

MOST_RESTARTS = 1  # every process that is started costs seconds
EVENT = PoissonGaussian(noise_multiplier=2.0, sampling_rate=0.2, steps=3, relation=Relation.ADD_OR_REMOVE_ONE)
PLAN = TrialPlan(
    method="clipless", population=5, batch_size=1, sampling_rate=0.2, steps_per_epoch=1, preliminary_steps=0, epochs=3,
    noise_multiplier=2.0, delta=1e-4, relation=Relation.ADD_OR_REMOVE_ONE, allocation="global",
    sensitivity_fraction=1.0, clip_norm=None, follow_weights=False, clipping={"kind": "constant"}, count_std=0.0,
    freezing=None, sensitivities={}, noise_stds={}, event=EVENT, epsilon_curve=(1.0, 2.0, 3.0), accountants={},
    repeats=1, secure_generator=True,
)  # fmt: skip
OBJECTIVES = (Objective.named("epsilon"), Objective.named("certified@1/4"))


class Toy(Trainable):
    """Reports its plan, then three epochs; goes wrong in the way its proposal says."""

    def setup(self, config):
        self.way = config["proposal"]["way"]
        self.folder = Path(config["folder"])
        self.attempt = f"{os.getpid()}-{time.monotonic()}"
        self.epoch = None

    def reset_config(self, new_config):
        self.setup(new_config)
        return True

    def step(self):
        if self.epoch is None and self.way != "no plan":
            self.epoch = self.config["recorded"]
            threads = os.environ.get("OMP_NUM_THREADS")
            return PlanRow(attempt=self.attempt, plan=PLAN, kept=self.epoch, placed={"threads": threads})
        if not (self.folder / f"plan-{self.config['trial']}").exists():
            raise AssertionError("trained before its plan\nwas written down")
        self.epoch += 1
        died = self.folder / f"died-{self.config['trial']}"
        if self.way == "die" or (self.way == "die once" and self.epoch == 2 and not died.exists()):
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.way == "hang":
            time.sleep(600)
            (self.folder / "woke").touch()
        values = {"epsilon": float(self.epoch), "certified@1/4": math.nan if self.way == "nan" else 0.5}
        return EpochRow(epoch=self.epoch, values=values, done=self.epoch == 3)


@pytest.fixture(scope="module", autouse=True)
def ray_session(ray_running):
    """Tune runs on it."""


@pytest.fixture(autouse=True)
def short_grace(monkeypatch):
    monkeypatch.setattr(tune, "GRACE_SECONDS", 0.5)


class Driver:
    """Hooks that write the plan down, as the ledger will, and remember everything."""

    def __init__(self, folder):
        self.folder = folder
        self.config, self.plans, self.epochs, self.ends, self.restarts = {}, {}, [], {}, []
        self.failures = {}

    def hooks(self, **more):
        own = {
            "on_start": self.on_start,
            "on_plan": self.on_plan,
            "on_epoch": self.on_epoch,
            "on_restart": lambda *told: self.restarts.append(told),
            "on_end": self.on_end,
            "on_failure": self.failures.__setitem__,
        }
        return Hooks(**(own | more))

    def on_start(self, trial, config):
        self.config[trial] = config

    def on_plan(self, trial, row):
        self.plans[trial] = row
        match self.config[trial]["proposal"]["way"]:
            case "refused":
                return "too dear"
            case "unwritten":
                raise OSError("disk full")
        (self.folder / f"plan-{trial}").touch()
        return None

    def on_epoch(self, trial, row):
        self.epochs.append((trial, row.epoch, row.values))
        return "no hope" if self.config[trial]["proposal"]["way"] == "stopped" else None

    def on_end(self, trial, status, reason, begun):
        self.ends[trial] = (status, reason, begun)


def make_search(ways):
    first = [{"way": way} for way in ways]
    return Search(
        lambda trial: {"way": trial.suggest_categorical("way", sorted(set(ways)))}, OBJECTIVES, seed=0, first=first
    )


def run(folder, ways, hooks, *, recorded=None, queue=None, concurrent=2, cpus=1, gpus=0, **more):
    given = {"trial": None, "folder": folder, "interruption": Interruption(), "should_stop": lambda: None}
    given["spending"] = Composition()
    queue, states = queue or TrialQueue(make_search(ways), len(ways)), TrialStates(hooks, recorded)
    resources = {"CPU": cpus, "GPU": gpus}
    return train_alone(
        Toy, queue, states, RunSettings(**given | more), concurrent=concurrent, resources=resources, data=None
    )


WAYS = {
    "well": (TrialStatus.COMPLETED, "", 3),
    "no plan": (
        TrialStatus.FAILED,
        f"AssertionError: {FOR_THE_OWNER}",
        0,
    ),
    "nan": (TrialStatus.FAILED, "certified@1/4 is not a number in epoch 1", 1),
    "refused": (TrialStatus.STOPPED, "too dear", 0),
    "unwritten": (TrialStatus.FAILED, f"OSError: {FOR_THE_OWNER}", 0),
    "stopped": (TrialStatus.STOPPED, "no hope", 1),
    "die": (TrialStatus.FAILED, "its process died: killed, crashed or out of memory", 1),
    "die once": (TrialStatus.COMPLETED, "", 3),
    "well again": (TrialStatus.COMPLETED, "", 3),
}


SHORT = ("well", "no plan", "unwritten", "die once")  # the others are those of worker processes of our own too


@pytest.fixture(scope="module", params=[SHORT, pytest.param(tuple(WAYS), marks=pytest.mark.long)], ids=["short", "all"])
def finished(request, tmp_path_factory, ray_session):  # noqa: ARG001
    """One run in which trials end in every way there is, or in some; each trial by its way, and what was told."""
    folder = tmp_path_factory.mktemp("sweep")
    driver = Driver(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states_module, "MOST_RESTARTS", MOST_RESTARTS)
        outcome = run(folder, list(request.param), driver.hooks())
    return folder, driver, outcome, {way: f"t{number:04d}" for number, way in enumerate(request.param, start=1)}


def test_every_trial_ends_once_with_its_reason_and_the_run_goes_on(finished):
    _, driver, outcome, trials = finished
    assert driver.ends == {trial: WAYS[way] for way, trial in trials.items()}
    assert outcome == RunResult()


def test_a_trial_is_asked_to_train_only_after_its_plan_was_written_down(finished):
    # the trainable looks for the file and raises without it; a trial that reports no plan shows that it does
    _, driver, *_ = finished
    assert driver.ends["t0001"][0] is TrialStatus.COMPLETED
    assert "before its plan" in driver.failures["t0002"]


def test_the_owner_alone_sees_the_whole_of_an_error(finished):
    folder, driver, _, trials = finished
    assert driver.failures[trials["unwritten"]] == "OSError: disk full"
    assert (folder / "ray").stat().st_mode & 0o777 == 0o700


def test_epochs_arrive_in_order_with_their_values_untouched(finished):
    _, driver, *_ = finished
    mine = [(epoch, values) for trial, epoch, values in driver.epochs if trial == "t0001"]
    assert mine == [(epoch, {"epsilon": float(epoch), "certified@1/4": 0.5}) for epoch in (1, 2, 3)]


def test_a_trial_that_lost_its_process_goes_on_behind_its_last_epoch(finished):
    _, driver, _, trials = finished
    once = trials["die once"]
    assert [told for told in driver.restarts if told[0] == once] == [(once, 2)]  # the second epoch had begun
    assert driver.plans[once].kept == 1
    assert [epoch for trial, epoch, _ in driver.epochs if trial == once] == [1, 2, 3]
    if dead := trials.get("die"):
        assert [told for told in driver.restarts if told[0] == dead] == [(dead, 1)] * MOST_RESTARTS


def test_trials_get_their_constants_and_one_thread(finished):
    folder, driver, *_ = finished
    config = {"trial": "t0001", "proposal": {"way": "well"}, "recorded": 0, "front": [], "folder": str(folder)}
    assert config.items() <= driver.config["t0001"].items()
    assert driver.config["t0001"].keys() - config.keys() == {"settings", "spending", "storage", "data"}
    assert driver.plans["t0001"].placed["threads"] == worker_environment(1)["OMP_NUM_THREADS"]


def test_ray_leaves_tracebacks_and_its_state_but_no_logs_of_its_own(finished):
    folder, *_ = finished
    assert "was written down" in (folder / "ray" / "t0002" / "error.txt").read_text()
    names = {path.name for path in (folder / "ray").rglob("*")}
    assert not names & {"progress.csv", "result.json", "params.json", "params.pkl"}
    assert not [name for name in names if name.startswith("events.out")]


@pytest.mark.long
def test_ctrl_c_ends_a_run_whose_trial_hangs_and_says_nothing(tmp_path, capfd):
    driver = Driver(tmp_path)

    def on_plan(trial, row):
        driver.on_plan(trial, row)
        os.kill(os.getpid(), signal.SIGINT)

    outcome = run(tmp_path, ["hang"] * 4, driver.hooks(on_plan=on_plan), concurrent=1)
    assert outcome.is_interrupted
    assert not (tmp_path / "woke").exists(), "nobody waited until the trial hung no more"
    assert driver.ends == dict.fromkeys(driver.plans, (TrialStatus.INTERRUPTED, "interrupted", 1))
    assert capfd.readouterr() == ("", "")


@pytest.mark.long
def test_a_second_ctrl_c_ends_it_at_once_and_the_hooks_are_told(tmp_path, monkeypatch):
    """The second one comes when the grace time is over."""
    monkeypatch.setattr(interruption, "DEBOUNCE_SECONDS", 0.0)
    driver, pressed, kill = Driver(tmp_path), [], tune._TuneRun._kill

    def press(run):
        if not pressed:
            pressed.append(True)
            os.kill(os.getpid(), signal.SIGINT)
        kill(run)

    def on_plan(trial, row):
        driver.on_plan(trial, row)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(tune._TuneRun, "_kill", press)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, ["hang"], driver.hooks(on_plan=on_plan), interruption=Interruption())
    assert not (tmp_path / "woke").exists()
    assert driver.ends == {"t0001": (TrialStatus.INTERRUPTED, "interrupted", 1)}
    assert logging.getLogger("ray.tune").level == logging.NOTSET
    assert not TUNE_ENVIRONMENT.keys() & os.environ.keys()


@pytest.mark.long
def test_whoever_is_asked_may_end_a_run_in_any_thread(tmp_path):
    driver = Driver(tmp_path)
    stopped = RunResult(RunEnding.REQUESTED)
    done = []

    def work():
        asked = {"should_stop": lambda: stopped if driver.plans else None, "concurrent": 1}
        done.append(run(tmp_path, ["hang"] * 4, driver.hooks(), **asked))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=300)
    (outcome,) = done
    assert outcome == stopped
    assert driver.ends == {"t0001": (TrialStatus.INTERRUPTED, stopped.in_words(), 1)}  # a later run may go on with it


def test_a_ray_that_dies_ends_a_run_whose_trials_may_go_on(tmp_path, monkeypatch):
    driver, nodes = Driver(tmp_path), ray.nodes
    monkeypatch.setattr(tune, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(tune.ray, "nodes", lambda: [n | {"Alive": not driver.plans} for n in nodes()])
    assert run(tmp_path, ["hang"] * 2, driver.hooks(), concurrent=1) == RunResult(RunEnding.RAY_DIED)
    assert driver.ends == {"t0001": (TrialStatus.INTERRUPTED, "Ray died", 1)}


@pytest.mark.long
def test_a_hook_in_trouble_ends_the_run_and_raises(tmp_path):
    def on_end(*_args):
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        run(tmp_path, ["well"] * 20, Driver(tmp_path).hooks(on_end=on_end), concurrent=1)


def test_a_space_that_raises_ends_the_run_with_its_error(tmp_path):
    def broken(_trial):
        raise ValueError("no such choice")

    with pytest.raises(ValueError, match="no such choice"):
        run(tmp_path, [], Hooks(), queue=TrialQueue(Search(broken, OBJECTIVES, seed=0), 1), concurrent=1)


@pytest.mark.long
def test_a_trial_that_hangs_is_stopped_when_its_time_is_up(tmp_path, monkeypatch):
    driver, passed = Driver(tmp_path), []

    def clock():
        """Two hours pass as soon as it trains, unless the other trial does, too."""
        if "t0001" in driver.plans and ("t0002" not in driver.config or "t0002" in driver.ends):
            passed.append(7200)
        return time.monotonic() + max(passed, default=0)

    monkeypatch.setattr(tune, "time", SimpleNamespace(monotonic=clock))
    assert run(tmp_path, ["hang", "well"], driver.hooks(), trial_hours=1.0) == RunResult()
    reason = "it took longer than the 1 hours of search.trial_hours"
    assert driver.ends["t0001"] == (TrialStatus.STOPPED, reason, 1)
    assert driver.ends["t0002"] == (TrialStatus.COMPLETED, "", 3)
    assert driver.restarts == []


@pytest.mark.long
def test_trials_of_an_earlier_run_come_first_and_go_on(tmp_path):
    driver, search = Driver(tmp_path), make_search(["well", "well again", "well"])
    search.ask()
    search.ask()
    queue = TrialQueue(search, 3, ["t0002", "t0001"])
    run(tmp_path, [], driver.hooks(), queue=queue, recorded={"t0001": 0, "t0002": 2}, concurrent=1)
    started = [(trial, config["proposal"]["way"], config["recorded"]) for trial, config in driver.config.items()]
    assert started == [("t0002", "well again", 2), ("t0001", "well", 0), ("t0003", "well", 0)]
    assert [epoch for trial, epoch, _ in driver.epochs if trial == "t0002"] == [3]


def test_without_ray_it_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(SweeperError, match="with join_cluster"):
        run(tmp_path, ["well"], Hooks())


def test_a_trial_that_no_cluster_could_run_is_refused(tmp_path):
    with pytest.raises(SweeperError, match="at most 2 CPU for a trial, got 3"):
        run(tmp_path, ["well"], Hooks(), cpus=3)
    with pytest.raises(SweeperError, match="at most 0 GPU"):
        run(tmp_path, ["well"], Hooks(), gpus=0.25)


def test_a_cluster_that_is_there_is_used_and_left_alone():
    before = ray.get_runtime_context().get_job_id()
    with join_cluster("auto"):
        assert ray.get_runtime_context().get_job_id() == before
    assert ray.is_initialized()


def test_a_cluster_is_joined_quietly_and_left_as_it_was_found(monkeypatch):
    calls = []
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    monkeypatch.setattr(cluster_module.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster_module.ray, "shutdown", lambda: calls.append("shutdown"))
    monkeypatch.setenv("OMP_NUM_THREADS", "7")

    def init(*args, **options):
        if threading.current_thread() is threading.main_thread():  # Ray then installs a handler of its own
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        calls.append((args, options, os.environ["RAY_USAGE_STATS_ENABLED"], os.environ["OMP_NUM_THREADS"]))

    monkeypatch.setattr(cluster_module.ray, "init", init)
    monkeypatch.setattr(cluster_module.ray, "nodes", lambda: NODES)
    monkeypatch.setattr(cluster_module, "_knock", lambda _: None)
    monkeypatch.setattr(cluster_module, "_facts_of_nodes", dict)
    handler = signal.getsignal(signal.SIGTERM)
    with join_cluster("ray-head:6379", threads=3):
        assert signal.getsignal(signal.SIGTERM) is handler
    (args, options, telemetry, threads), end = calls
    assert end == "shutdown"
    assert telemetry == "0"
    assert threads == "7"
    assert options["log_to_driver"] is False
    assert "RAY_USAGE_STATS_ENABLED" not in os.environ
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert args == ("ray-head:6379",)
    assert options["runtime_env"]["env_vars"] == worker_environment(3)


def test_a_cluster_that_does_not_answer_is_not_waited_for_by_whoever_asks_to_stop(monkeypatch):
    shutdowns = []
    monkeypatch.setattr(cluster_module.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster_module.ray, "shutdown", lambda: shutdowns.append(True))
    end, before = threading.Event(), set(threading.enumerate())
    monkeypatch.setattr(starting, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(starting, "_LEFT_BEHIND", [])
    monkeypatch.setattr(cluster_module.ray, "init", lambda *_, **__: end.wait(60) and None)
    monkeypatch.setattr(cluster_module.ray, "nodes", lambda: NODES)
    monkeypatch.setattr(cluster_module, "_knock", lambda _: None)
    monkeypatch.setattr(cluster_module, "_facts_of_nodes", dict)
    with pytest.raises(InterruptedStartError):
        join_cluster("head:6379", interrupted=lambda: True).__enter__()
    assert shutdowns == []
    end.set()
    for thread in set(threading.enumerate()) - before:  # not that of the module's own Ray, which lives on
        thread.join(60)
    assert shutdowns == [True], "what has started all the same is left again"


NODES = [
    {"Alive": True, "NodeID": "a" * 56, "NodeName": "10.0.0.1", "Resources": {"CPU": 2.0}},
    {"Alive": True, "NodeID": "b" * 56, "NodeName": "10.0.0.2", "Resources": {}},
]


@pytest.fixture
def joining(monkeypatch):
    """How Ray is joined, led by a test."""
    calls = {"init": [], "errors": [], "nodes": [NODES]}

    def init(*_args, **options):
        calls["init"].append(options["runtime_env"])
        if calls["errors"]:
            raise calls["errors"].pop(0)

    def nodes():
        return calls["nodes"].pop(0) if len(calls["nodes"]) > 1 else calls["nodes"][0]

    monkeypatch.setattr(cluster_module.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster_module.ray, "shutdown", lambda: None)
    monkeypatch.setattr(cluster_module.ray, "init", init)
    monkeypatch.setattr(cluster_module.ray, "nodes", nodes)
    monkeypatch.setattr(cluster_module, "JOIN_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(cluster_module, "_knock", lambda _: None)
    monkeypatch.setattr(cluster_module, "_facts_of_nodes", dict)
    return calls


def test_a_head_that_was_started_again_a_moment_ago_is_waited_for_and_its_workers_too(joining):
    joining["errors"] = [ConnectionError("refused"), RuntimeError("not yet")]
    joining["nodes"] = [NODES[1:], NODES[1:], NODES]
    with join_cluster("head:6379") as said:
        assert said == ()
    assert len(joining["init"]) == 3
    assert len(joining["nodes"]) == 1


def test_a_cluster_that_cannot_be_joined_is_one_sentence(joining, monkeypatch):
    monkeypatch.setattr(cluster_module, "JOIN_SECONDS", 0.0)
    joining["errors"] = [ConnectionError("refused")]
    with pytest.raises(SweeperError, match="Cannot join the Ray cluster at head:6379: ConnectionError: refused"):
        join_cluster("head:6379").__enter__()


def test_where_nothing_listens_ray_is_not_asked(monkeypatch):
    """It tries for longer than ten minutes, whatever it is told."""
    asked = []
    monkeypatch.setattr(cluster_module.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster_module.ray, "shutdown", lambda: None)
    monkeypatch.setattr(cluster_module.ray, "init", lambda *given, **_: asked.append(given))
    monkeypatch.setattr(cluster_module, "JOIN_SECONDS", 0.0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SweeperError, match=rf"Cannot join the Ray cluster at {address}: .*refused; is its head"):
            join_cluster(address).__enter__()
        assert asked == []
        taken.listen()
        cluster_module._knock(address)
    for other in ("auto", "ray://127.0.0.1:1", "local"):
        cluster_module._knock(other)


def test_a_wrong_token_is_not_tried_again(joining):
    joining["errors"] = [AuthenticationError("wrong token")]
    with pytest.raises(SweeperError, match=r"RAY_AUTH_MODE=token and, unless .*, RAY_AUTH_TOKEN_PATH set"):
        join_cluster("head:6379").__enter__()
    assert len(joining["init"]) == 1


def test_nodes_with_other_code_are_sent_this_one_and_it_is_said(joining, monkeypatch):
    here = cluster_module.facts_of_this_code()
    monkeypatch.setattr(cluster_module, "_facts_of_nodes", lambda: {"10.0.0.1": here | {"code": ""}})
    with join_cluster("head:6379") as said:
        assert "10.0.0.1" in said[0]
    first, second = joining["init"]
    assert "py_modules" not in first
    assert second["py_modules"] == [here["clipless"], here["sweeper"], here["dashboards"]]
    assert second["env_vars"] == first["env_vars"]


def test_every_node_that_trains_says_what_code_it_has():
    (facts,) = cluster_module._facts_of_nodes().values()
    assert facts == cluster_module.facts_of_this_code()


class Failed:
    """What ``_failure`` looks at of a trial."""

    def __init__(self, folder, error=None):
        self.pickled_error_file = str(folder / "error.pkl")
        if error is not None:
            Path(self.pickled_error_file).write_bytes(cloudpickle.dumps(error))


@pytest.mark.parametrize(
    ("error", "reason", "died"),
    [
        (RayTaskError("train", "Traceback ...\nValueError: no\n", ValueError("no")), "ValueError: no", False),
        (RayTaskError("train", "OddError: no", None), "RayTaskError: OddError: no", False),
        (
            ActorDiedError(RayTaskError("__init__", "ValueError: bad config", ValueError("x"))),
            "ActorDiedError: The actor died because of an error raised in its creation task, ValueError: bad config",
            False,
        ),
        (ActorDiedError(None), "its process died: killed, crashed or out of memory", True),
        (TimeoutError("too long"), "TimeoutError: too long", False),
        (None, "failed, and left no error behind", False),
    ],
)
def test_why_a_trial_failed_is_known(error, reason, died, tmp_path):
    lost, found = _failure(Failed(tmp_path, error))
    assert (lost, one_line(found)) == (died, reason)
