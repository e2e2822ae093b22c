import json
from dataclasses import replace

import pytest
from safetensors.numpy import save
from starlette.testclient import TestClient

from sweeper.errors import SweeperError
from sweeper.privacy.pricing import Price
from sweeper.records import SweepStatus, Trial, TrialStatus
from sweeper.service import app as app_module
from sweeper.service.security.tokens import Role, make_token
from sweeper.service.settings import Limits, ServiceSettings
from sweeper.store.manifest import Course, Manifest
from sweeper.store.sweep_folder import SweepFolder
from tests.factories import Clock

SPEC = """\
name: tiny
data: {name: digits}
model: {architecture: mlp, width: 16}
training: {epochs: 2, batch_size: 256, learning_rate: {log: [0.02, 0.1]}}
privacy: {epsilon: 3, delta: 1e-4}
search: {trials: 3}
"""
YAML = {"Content-Type": "application/yaml"}
DONE = "digits-20250301-090807"


class FakeLauncher:
    """Starts nothing."""

    def __init__(self):
        self.started, self.alive, self.killed, self.broken = [], set(), [], False
        self.away = False

    def start(self, arguments, folder):
        del folder
        if self.broken:
            raise SweeperError("Cannot start a driver")
        self.started.append([str(argument) for argument in arguments])
        job = f"job{len(self.started)}"
        self.alive.add(job)
        return job

    def is_alive(self, job):
        return job in self.alive

    def is_away(self):
        return self.away

    def kill(self, job):
        self.killed.append(job)
        self.alive.discard(job)


def model_of(trial, epoch):
    """The file of a model without weights."""
    return save({}, metadata={"of": f"model of {trial}-{epoch}"})


@pytest.fixture
def launcher():
    return FakeLauncher()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def out(tmp_path):
    """Where the sweeps of a test live."""
    path = tmp_path / "out"
    path.mkdir()
    return path


@pytest.fixture
def make_sweep(out, plan, make_front, make_point, content):
    """Write an imagined sweep of two trials with two epochs each, whose front has three points."""

    def make(name=DONE, status="completed", **info):
        folder = SweepFolder(out / name)
        (folder.path / "models").mkdir(parents=True)
        trials = [
            Trial(id=f"t000{i}", config={"training": {"learning_rate": 0.1 * i}}, plan=plan, run_id=None, status=s)
            for i, s in ((1, TrialStatus.COMPLETED), (2, TrialStatus.STOPPED))
        ]
        values = {
            ("t0001", 1): (1.0, 0.5),
            ("t0001", 2): (2.0, 0.7),
            ("t0002", 1): (1.5, 0.4),
            ("t0002", 2): (3.0, 0.9),
        }
        points = [
            make_point(trial, epoch, *pair, 0.1 * epoch, model=folder.model_name(trial, epoch))
            for (trial, epoch), pair in values.items()
        ]
        for trial in trials:
            folder.save_trial(replace(trial, status=TrialStatus.RUNNING))
        for point in points:
            folder.save_points([point])
        for trial in trials:
            folder.save_trial(trial)
        questions = ("winner", "front", "everything")
        price = {question: Price(epsilon=9.0, delta=1e-4, events=2, statement=question) for question in questions}
        front = make_front(points, trials=trials, ledger=price)
        front.write(folder.front)
        for point in front.front_points:
            (folder.path / point.model).write_bytes(model_of(point.trial, point.epoch))
        training = content["training"] | {"learning_rate": {"log": [0.02, 0.1]}}
        open_spec = content | {"search": {"trials": 2}, "training": training}
        told = {"name": "digits", "status": SweepStatus(status), "spec": open_spec, "source": str(out / "spec.yaml")}
        told |= {"data_dir": str(out), "tracking": "secret", **info}
        course = Course(trials=2, can_be_steered=True)
        folder.write_manifest(Manifest(course=course, **told))
        return folder

    return make


@pytest.fixture
def serve(out, launcher, monkeypatch):
    """Return a client of a service without a port."""
    monkeypatch.setattr(app_module, "entry_points", lambda **_: ())
    opened = []

    def start(headers=None, base_url="http://127.0.0.1", limits=None, **settings):
        known = ServiceSettings(out=out, limits=limits or Limits(requests_per_second=0), **settings)
        made = app_module.create_app(known, launcher)
        client = TestClient(made, base_url=base_url, headers=headers, raise_server_exceptions=False)
        client.__enter__()
        opened.append(client)
        return client

    yield start
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def client(serve):
    """A client of a service of this machine alone."""
    return serve()


@pytest.fixture
def tokens(tmp_path):
    """A file with a token of each role, and the tokens by role."""
    path = tmp_path / "tokens.json"
    return path, {role.value: make_token(path, role, 1, "ada") for role in Role}


@pytest.fixture
def supervisor(client):
    return client.app.state.parts.supervisor


def bearer(token):
    """The header that shows a token."""
    return {"Authorization": f"Bearer {token}"}


def is_problem(answer, status, said=""):
    """Whether an answer is an error in the one shape."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    content = json.loads(answer.content)
    assert set(content) == {"type", "title", "status", "detail", "request_id"}
    assert content["status"] == status
    assert content["request_id"] == answer.headers["x-request-id"]
    assert said in content["detail"], content["detail"]
    return True
