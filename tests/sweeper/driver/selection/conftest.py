"""Private selections with played candidates: in their hidden folder, resumed, and as whole sweeps."""

from types import SimpleNamespace

import pytest

import clipless
from sweeper.driver import driver
from sweeper.driver.selection import candidates, private_run, selection_run
from sweeper.driver.selection.hidden_folder import hide
from sweeper.driver.selection.private_run import select
from sweeper.records import SweepStatus
from sweeper.specification.spec import Spec
from sweeper.store.lock import driver_lock
from sweeper.store.manifest import Manifest
from sweeper.store.sweep_folder import SweepFolder
from sweeper.trials.build import build_loss, build_model
from tests.factories import plan_first_configuration, plan_sweep

from ...in_process import fake_backend
from .played import FOUR, SPEC, Bytes, Calls, Mortal, Play


@pytest.fixture(scope="module")
def data():
    return clipless.datasets.load("digits")


@pytest.fixture(scope="module")
def plan(data):
    made = plan_first_configuration(plan_sweep(Spec.from_mapping(SPEC), data), data)
    curve = made.epsilon_curve()
    priced = {"epsilon_curve": curve, "accountants": {"pld": curve}}
    return made.to_json() | priced | {"secure_generator": True, "repeats": 1}


@pytest.fixture(scope="module")
def weights(data, tmp_path_factory):
    """A saved model of the spec."""
    config = Spec.from_mapping(SPEC).space.resolve({"training.learning_rate": 0.05})
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    clipless.save(build_model(config, data, build_loss(config), seed=0), path)
    return path.read_bytes()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Requests at once."""
    monkeypatch.setattr(candidates, "LOOK_SECONDS", 0.0)


@pytest.fixture
def play(plan, weights, data, tmp_path):
    """Run a private selection in which each candidate does what it is told."""

    def run(does=None, *, source=None, accuracies=FOUR, content=SPEC, extra=None):
        spec = Spec.from_mapping(content)
        hidden = hide(tmp_path / "out")
        started = Manifest(name="small", spec=spec.to_plain(), source="the spec", status=SweepStatus.RUNNING)
        hidden.write_manifest(started)
        engine = Play(plan, weights, accuracies, does or {}, hidden, extra or {})
        with driver_lock(hidden.path):
            folder = select(plan_sweep(spec, data), data, hidden, engine, source=source or Bytes())
        return SimpleNamespace(folder=folder, engine=engine, spec=spec, hidden=hidden, out=tmp_path / "out")

    return run


@pytest.fixture
def again(plan, weights, data):
    """Let another driver go on with a selection that waits."""

    def run(hidden, *, dies=None, accuracies=(*FOUR, *FOUR), source=None):
        spec = Spec.from_mapping(SPEC)
        engine = Mortal(plan, weights, accuracies, {}, hidden)
        engine.dies = dies or (lambda _engine: None)
        with driver_lock(hidden.path):
            return select(plan_sweep(spec, data), data, hidden, engine, source=source), engine

    return run


@pytest.fixture
def whole(monkeypatch, plan, weights):
    """Whole sweeps by `run_sweep`, with played candidates and a tracker that remembers."""
    engine = Play(plan, weights, FOUR)

    def train(kind, queue, states, settings):
        engine.folder = SweepFolder(settings.folder)
        return engine(kind, queue, states, settings.should_stop)

    def open_pool(*_, secret, **__):
        assert secret, "candidates leave no traceback"
        return fake_backend(train)()

    monkeypatch.setattr(selection_run, "open_local_pool", open_pool)
    monkeypatch.setattr(driver, "open_backend", fake_backend(train))
    monkeypatch.setattr(driver, "Tracker", Calls)
    chosen = private_run.select
    monkeypatch.setattr(selection_run, "select", lambda *args, **options: chosen(*args, **options, source=Bytes()))
    return engine
