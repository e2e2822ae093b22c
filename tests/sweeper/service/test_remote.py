"""The client of a service: its sweeps as objects."""

import io
import json
import urllib.error
import zipfile
from dataclasses import replace

import pandas as pd
import pytest

import sweeper
from sweeper.errors import PickError, RecordError, SpecError, SweeperError, UnknownSweepError
from sweeper.papers.files import file_hash
from sweeper.papers.verification import read_card
from sweeper.privacy.ledger import Ledger
from sweeper.records import SweepStatus
from sweeper.results.display import trial_frame
from sweeper.results.front import read_front
from sweeper.service import client as client_module
from sweeper.service.client import Call, Connection
from sweeper.service.remote import connect
from sweeper.service.responses.models import SweepRow

from .conftest import DONE, SPEC, model_of


class Answer(io.BytesIO):
    """What a service answered, as Python's own library has it."""


@pytest.fixture
def route(monkeypatch):
    """Let the client's calls reach a service without a port; return what it sent."""
    sent = []

    def to(client):
        class Opener:
            def open(self, request, timeout):
                del timeout
                sent.append(request)
                path = request.full_url.removeprefix("http://127.0.0.1:8000")
                headers = {name.lower(): value for name, value in request.header_items()}
                got = client.request(request.method, path, content=request.data, headers=headers)
                if got.status_code >= 400:
                    raise urllib.error.HTTPError(request.full_url, got.status_code, "", {}, Answer(got.content))
                return Answer(got.content)

        monkeypatch.setattr(client_module.urllib.request, "build_opener", lambda *_: Opener())
        return sent

    return to


@pytest.fixture
def service(client, route):
    route(client)
    return connect()


@pytest.fixture
def remote(service, make_sweep):
    make_sweep()
    return service.sweep(DONE)


def test_a_front_its_trials_and_its_points_are_those_on_the_disk(remote, out):
    front = read_front(out / DONE / "front.json")
    found = remote.front()
    assert found.on_front == front.on_front
    assert found.front_points == front.front_points
    assert found.price == remote.price == front.price
    expected = trial_frame(front)
    pd.testing.assert_frame_equal(remote.trials[list(expected)], expected, check_dtype=False)
    assert len(remote.points) == len(front.points)
    assert remote.state is SweepStatus.COMPLETED
    assert repr(remote).startswith(f"completed, http://127.0.0.1:8000/?sweep={DONE}\ndigits: 3 of 4 points")
    assert "<table>" in remote._repr_html_()


def test_a_sweep_that_waits_says_so_and_has_no_records(service):
    waits = service.submit({"name": "x", **CONTENT})
    expected = f"queued, {waits.page}\nno front yet: it has one when a trial has finished its first epoch"
    assert repr(waits) == expected
    assert "no front yet" in waits._repr_html_()
    for look in (waits.front, waits.pick, lambda: waits.trials, lambda: waits.points):
        with pytest.raises(UnknownSweepError, match="Expected a sweep that has begun, but this one has no records yet"):
            look()
    with pytest.raises(UnknownSweepError, match="Expected the name of a sweep"):
        service.sweep("digits-20200101-000000")
    (submitted,) = service.sweeps["submitted"]
    assert (submitted.tzname(), submitted.year >= 2025) == ("UTC", True)


def test_a_list_without_sweeps_has_its_columns(service, monkeypatch):
    monkeypatch.setattr(Connection, "read", lambda *_: {"sweeps": [], "total": 0})
    assert list(service.sweeps.columns) == list(SweepRow.model_fields)


def archive(files):
    """What a service answers that adds files to the papers of its model."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as written:
        card = json.dumps({"trial": "t0002", "epoch": 2, "made_from": ""}).encode()
        for name, data in {"card.json": card, "model.safetensors": b"", **files}.items():
            written.writestr(name, data)
    return content.getvalue()


def test_a_picked_point_brings_its_model_and_its_papers(remote, out, event, tmp_path, monkeypatch):
    picked = remote.pick()
    assert (picked.trial, picked.epoch) == ("t0002", 2)
    assert repr(picked).startswith("t0002, epoch 2: ")
    assert "; price 9 at delta 0.0001" in repr(picked)
    assert "accuracy 0.900 on validation rows" in " ".join(repr(picked).split())
    Ledger(out / DONE / "ledger.jsonl").open("t0002", event)
    picked.write(tmp_path / "picked")
    files = {path.name for path in (tmp_path / "picked").iterdir()}
    assert {"model.safetensors", "config.json", "card.md", "card.json", "ledger.jsonl", "SHA256SUMS"} <= files
    card = read_card(tmp_path / "picked")
    assert card.files["ledger.jsonl"] == file_hash(tmp_path / "picked" / "ledger.jsonl")
    with pytest.raises(RecordError, match="another point is the best"):
        replace(picked, epoch=1).write(tmp_path / "picked")
    assert (tmp_path / "picked" / "model.safetensors").read_bytes() == model_of("t0002", 2)
    assert json.loads((tmp_path / "picked" / "config.json").read_text()) == picked.config
    before = {path.name: path.read_bytes() for path in (tmp_path / "picked").iterdir()}
    with monkeypatch.context() as context:
        context.setattr(Connection, "ask", lambda *_: archive({"x/sitecustomize.py": b"import os"}))
        with pytest.raises(SweeperError, match="Expected the papers of a model from the service, got something else"):
            picked.write(tmp_path / "picked")
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "sweep.json").touch()
    with pytest.raises(RecordError, match=r"with sweep\.json, which it would replace"):
        picked.write(tmp_path / "sweep")
    assert {path.name: path.read_bytes() for path in (tmp_path / "picked").iterdir()} == before
    assert remote.pick(max_epsilon=1.0).epoch == 1
    with pytest.raises(PickError, match="price"):
        remote.pick(max_price=1.0)
    with pytest.raises(
        PickError, match="The service refuses these conditions: Expected a share from 0 to 1 as the minimum of accuracy"
    ):
        remote.pick(minimum={"accuracy": 2.0})
    (out / DONE / "models").rename(out / "elsewhere")
    with pytest.raises(UnknownSweepError):
        picked.model()


def test_a_card_of_another_version_is_told(remote, monkeypatch):
    answer = remote._read("/pick")
    answer["card"]["ledger"]["winner"]["epsilon"] = "Infinity"
    read = type(remote)._read
    monkeypatch.setattr(
        type(remote), "_read", lambda self, path, *_, **__: answer if path == "/pick" else read(self, path)
    )
    assert "; price inf at delta 0.0001" in repr(remote.pick())
    answer["card"]["ledger"]["winner"]["unproven"] = "Results steer the sweep."
    assert "; price inf at delta 0.0001 (not proven)" in repr(remote.pick())
    del answer["card"]["guarantee"]
    with pytest.raises(RecordError, match=r"Field required \(card.guarantee of the answer of http.*use the version of"):
        remote.pick()


def test_a_spec_is_submitted_as_a_file_a_mapping_or_a_spec(service, tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(SPEC, encoding="utf-8")
    mapping = sweeper.Spec.from_yaml(path).to_plain()
    names = {service.submit(spec).id for spec in (path, mapping, sweeper.Spec.from_yaml(path))}
    assert len(names) == 3
    assert set(service.sweeps["id"]) == names
    assert set(service.sweeps["state"]) == {"queued"}
    found = service.check(mapping)
    assert (found["trials"], found["epsilon"], found["delta"]) == (3, None, 1e-4)
    budget = service.check({**mapping, "privacy": {"sweep_epsilon": 3}})
    assert (budget["epsilon"], budget["delta"]) == (3.0, None)
    with pytest.raises(SpecError, match=r"The service refuses the spec: .*architecture"):
        service.submit(mapping | {"model": {"architecture": "none"}})
    with pytest.raises(SpecError, match="Cannot read"):
        service.submit(tmp_path / "missing.yaml")


def test_a_sweep_is_stopped_extended_enqueued_and_steered(service, make_sweep):
    make_sweep(status="stopped")
    remote = service.sweep(DONE)
    assert remote.enqueue({"training.learning_rate": 0.05}) == {"training.learning_rate": 0.05}
    assert remote.steer("accuracy >= 0.5") == ("accuracy >= 0.5",)
    with pytest.raises(SpecError, match=r"The service refuses it: .*within"):
        remote.enqueue({"training.learning_rate": 5.0})
    with pytest.raises(RecordError):
        remote.stop()
    remote.resume()
    assert remote.state in (SweepStatus.QUEUED, SweepStatus.STARTING)
    remote.stop()


def test_a_sweep_that_has_ended_is_extended(remote):
    remote.extend(trials=9)
    assert remote.status()["submission"]["trials"] == 9


def test_what_happens_is_followed_to_the_end(remote, capsys):
    kinds = [kind for kind, _ in remote.events()]
    assert kinds.count("point") == 4
    assert kinds.count("trial") == 2
    assert kinds[-1] == "end"
    assert remote.wait() is remote
    assert capsys.readouterr().out == ""
    assert remote.wait(progress=True) is remote
    said = f"{DONE}: completed; trials: 1 completed, 1 stopped; 4 points, 3 on the front, hypervolume 0.078"
    assert said in capsys.readouterr().out


def test_a_stream_that_breaks_goes_on_behind_the_last_event(monkeypatch):
    asked = []

    def stream(_self, _path, after):
        asked.append(after)
        yield ("point", "1.0", "{}") if after is None else ("end", "1.0.end", "{}")

    monkeypatch.setattr(Connection, "stream", stream)
    monkeypatch.setattr("sweeper.service.remote.time.sleep", lambda _: None)
    sweep = sweeper.service.remote.RemoteSweep(Connection("http://x", None), "x")
    assert [kind for kind, _ in sweep.events()] == ["point", "end"]
    assert asked == [None, "1.0"]


def test_a_token_is_shown_to_the_service_and_to_nobody_else(serve, tokens, route, monkeypatch):
    path, known = tokens
    sent = route(serve(tokens=path))
    with pytest.raises(SweeperError, match=r"The service refuses access: .*; put a token into SWEEPER_TOKEN"):
        connect()
    service = connect(token=known["read"])
    assert sent[-1].get_header("Authorization") == f"Bearer {known['read']}"
    assert known["read"] not in repr(service) + repr(service._connection) + str(vars(service))
    with pytest.raises(SweeperError, match="The service refuses access"):
        service.submit(sweeper.Spec.from_mapping({**json.loads('{"name": "x"}'), **CONTENT}))
    monkeypatch.setenv("SWEEPER_TOKEN", known["write"])
    connect()
    assert sent[-1].get_header("Authorization") == f"Bearer {known['write']}"


CONTENT = {
    "data": {"name": "digits"},
    "model": {"architecture": "mlp"},
    "training": {"epochs": 1},
    "privacy": {"epsilon": 3.0, "delta": 1e-4},
}


def test_what_may_not_arrive_twice_is_sent_once(monkeypatch):
    tries = []

    def refuse(_self, call, _more=None):
        tries.append(call.method)
        raise ConnectionResetError(104, "reset")

    monkeypatch.setattr(Connection, "_open", refuse)
    monkeypatch.setattr(client_module.time, "sleep", lambda _: None)
    for call, times in ((Call("/x"), 4), (Call("/x", method="POST"), 1), (Call("/x", method="POST", key="k"), 4)):
        tries.clear()
        with pytest.raises(SweeperError, match="Cannot reach the service at http://x: reset"):
            Connection("http://x", None).ask(call)
        assert len(tries) == times
    assert list(Connection("http://x", None).stream("/events", None)) == []
    with pytest.raises(SweeperError, match=r"or correct url$"):
        connect("http://x")


def test_an_answer_that_is_no_object_is_of_something_else(monkeypatch):
    monkeypatch.setattr(Connection, "ask", lambda _self, _call: b"[]")
    with pytest.raises(SweeperError, match="Expected the answer of a service of sweeper"):
        connect()
