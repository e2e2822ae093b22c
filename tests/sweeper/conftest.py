import contextlib
import copy
import fcntl
import functools
import gc
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

import clipless
from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.adapters import parse
from sweeper.backend.environment import worker_environment
from sweeper.cli.main import main
from sweeper.privacy.claims import Claim
from sweeper.records import Objective, Point, Trial, TrialPlan, TrialStatus
from sweeper.results.front import build_front
from sweeper.store.sweep_folder import SweepFolder
from sweeper.tracking.outbox import Undelivered

from ..conftest import WITH_RAY

typer.main.get_command = functools.cache(typer.main.get_command)  # else each of hundreds of calls makes all commands

CONTENT = {
    "name": "digits",
    "data": {"name": "digits"},
    "model": {"architecture": "mlp"},
    "training": {"epochs": 10},
    "privacy": {"epsilon": 3.0, "delta": 1e-4},
}


@pytest.fixture(autouse=True)
def nothing_ahead(monkeypatch):
    """A command that runs in the tests' own process starts no process for workers that it may never want."""
    monkeypatch.setattr("sweeper.cli.commands.running.start_ahead", lambda: None)


@pytest.fixture
def in_process():
    """Sweeps train in this process instead of workers of their own."""
    from .in_process import trained_in_process

    with trained_in_process():
        yield


@pytest.fixture
def bare(monkeypatch):
    """A sweep ends without audits and without a report, three quarters of the time of one whose trials are played."""
    monkeypatch.setattr("sweeper.driver.driver.audit_trials_of_front", lambda *_, **__: [])
    monkeypatch.setattr("sweeper.driver.finished.exporter", lambda _name: lambda *_: None)


class Nobody:
    """Stands for a tracker whose store takes everything; making one takes a second."""

    def __init__(self, *_args, **_options):
        self.destination, self.refused = SimpleNamespace(uri="nowhere", sweep="x"), ()

    def __getattr__(self, name):
        return lambda *_args, **_options: None

    def close(self, *_args, **_options):
        return Undelivered()


@pytest.fixture
def untracked(monkeypatch):
    """A sweep tells no store of itself."""
    monkeypatch.setattr("sweeper.driver.driver.Tracker", Nobody)


@pytest.fixture
def content():
    """A small valid spec as a nested mapping, to be changed freely."""
    return copy.deepcopy(CONTENT)


@pytest.fixture
def event():
    """What the plan of ``plan_json`` spends."""
    return PoissonGaussian(noise_multiplier=2.0, sampling_rate=0.2, steps=50, relation=Relation.ADD_OR_REMOVE_ONE)


@pytest.fixture
def plan_json(event):
    """``Plan.to_json()`` of a plan for 1000 rows, expected batch 200, 10 epochs of 5 steps."""
    return {
        "population": 1000,
        "batch_size": 200,
        "sampling_rate": 0.2,
        "steps_per_epoch": 5,
        "preliminary_steps": 0,
        "epochs": 10,
        "noise_multiplier": 2.0,
        "delta": 1e-4,
        "relation": "add-or-remove-one",
        "risks": [],
        "allocation": "min-variance",
        "method": "clipless",
        "clip_norm": None,
        "follow_weights": False,
        "clipping": {"kind": "constant"},
        "count_std": 0.0,
        "freezing": None,
        "sensitivity_fraction": 0.3,
        "sensitivities": {"1.weight": 2.5, "3.weight": 1.25},
        "noise_stds": {"1.weight": 7.5, "3.weight": 3.75},
        "event": event.to_json(),
        "repeats": 1,
        "secure_generator": True,
        "epsilon_curve": [0.1 * epoch for epoch in range(1, 11)],
        "accountants": {"pld": [0.1 * epoch for epoch in range(1, 11)]},
    }


@pytest.fixture(scope="session")
def digits():
    """The embedded data set."""
    return clipless.datasets.load("digits")


@pytest.fixture
def plan(plan_json):
    """The plan of ``plan_json``."""
    return parse(TrialPlan, plan_json)


@pytest.fixture
def trial(plan):
    """A completed trial."""
    config = {"training": {"loss": {"name": "tau-cce", "temperature": 0.25}}, "model": {"architecture": "mlp"}}
    return Trial(id="t0001", config=config, plan=plan, run_id="abc", status=TrialStatus.COMPLETED)


@pytest.fixture
def claim():
    """The claim of a sweep on public data."""
    return Claim(
        data="digits",
        population=1000,
        unit="row",
        evaluation="public",
        radius_unit="pixels in [0, 1]",
        exploratory=False,
        secure_generator=True,
        public=("N is public.",),
        conditions=("The split.",),
    )


@pytest.fixture
def objectives():
    """Epsilon, accuracy and one radius."""
    return tuple(Objective.named(name) for name in ("epsilon", "accuracy", "certified@1/4"))


@pytest.fixture
def make_point():
    """Make a point from epsilon, accuracy and certified accuracy."""

    def make(trial, epoch, epsilon, accuracy, certified=0.0, **more):
        values = {"epsilon": epsilon, "accuracy": accuracy, "certified@1/4": certified}
        return Point(trial=trial, epoch=epoch, values=values, **more)

    return make


@pytest.fixture
def make_front(objectives, claim, trial):
    """Make the front of points of ``trial``; keywords are those of `build_front`."""

    def make(points=(), **changes):
        given = {"sweep": "digits", "objectives": objectives, "trials": [trial], "ledger": {}, "claim": claim}
        return build_front(points=points, **given | changes)

    return make


@pytest.fixture
def folder(tmp_path):
    """The folder of a sweep that holds nothing yet."""
    (tmp_path / "models").mkdir()
    return SweepFolder(tmp_path)


@pytest.fixture
def sweep_copy(ran, tmp_path):
    """The folder of a copy of ``ran``, to be changed."""
    return shutil.copytree(ran.folder, tmp_path / "sweep", ignore=shutil.ignore_patterns("*.db", "ray*"))


@pytest.fixture
def call(capsys):
    """Run a command in this process; return its exit code, standard output and standard error."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    return run


TINY = """\
# Three small networks, two epochs each.
name: tiny
data: {name: digits}
model: {architecture: mlp, width: 16}
training:
  epochs: 2
  batch_size: 256
  learning_rate: {log: [0.02, 0.1]}
  sensitivity_fraction: 0.1
privacy: {epsilon: 3, delta: 1e-4}
search: {objectives: [epsilon, accuracy, certified@0.25], trials: 3}
"""


@dataclass(frozen=True)
class Ran:
    """A sweep that the program ran in a process of its own."""

    folder: Path
    code: int
    said: str


@pytest.fixture(scope="session")
def ran(tmp_path_factory):
    """The sweep of ``TINY``, run once by the program, for all workers of a test session together; not to be changed."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    with (root / "ran.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = root / "ran.json"
        if not done.exists():
            spec = root / "tiny.yaml"
            spec.write_text(TINY, encoding="utf-8")
            command = [sys.executable, "-c", "from sweeper.cli.main import main; main()", "run", str(spec)]
            result = subprocess.run(
                [*command, "--out", str(root / "ran")], capture_output=True, text=True, check=False, timeout=900
            )
            done.write_text(json.dumps([result.returncode, result.stdout + result.stderr]), encoding="utf-8")
        code, said = json.loads(done.read_text(encoding="utf-8"))
    (manifest,) = (root / "ran").glob("*/sweep.json")
    return Ran(manifest.parent, code, said)


_RAY = contextlib.ExitStack()


@pytest.fixture(scope="module")
def ray_running():
    """A Ray that the tests of a file share, and the files that share one; it ends when they have."""
    import ray

    if not ray.is_initialized():
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {"RAY_USAGE_STATS_ENABLED": "0", **worker_environment(1)}.items():
                patch.setenv(name, value)
            ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=10**8, log_to_driver=False)
        _RAY.callback(ray.shutdown)
        _RAY.callback(gc.collect)  # handles that die after the shutdown still call Ray, which then ends the process


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    """End the Ray that tests shared before others come, which an idle one would slow down."""
    result = yield
    if nextitem is None or _ray_of(item) != _ray_of(nextitem):
        _RAY.close()
    return result


def pytest_sessionfinish():
    """End it also where a run is broken off."""
    _RAY.close()


def _ray_of(item):
    """Whose Ray a test uses, if it uses one."""
    return "shared" if item.nodeid.startswith(WITH_RAY) else item.path
