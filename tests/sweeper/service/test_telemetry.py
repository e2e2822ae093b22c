"""Ids, logs, counts and headers; and that neither logs nor errors tell what nobody should know."""

import json
import logging
import time

import pytest
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from clipless.errors import DataError, DeclarationError
from sweeper.service.problems import INTERNAL, Redactor, add_handlers
from sweeper.service.responses import views
from sweeper.service.telemetry import LOGGER, JsonLines, where

from .conftest import DONE, SPEC, YAML, bearer, is_problem


@pytest.fixture
def lines(caplog):
    """The lines of the service's log, as they are written."""
    caplog.set_level(logging.INFO, LOGGER.name)
    return lambda: [JsonLines().format(record) for record in caplog.records]


def test_a_request_keeps_its_id_if_it_has_a_plain_one(client):
    assert client.get("/healthz", headers={"X-Request-ID": "abc-1.2_3"}).headers["x-request-id"] == "abc-1.2_3"
    for odd in ("a b", "x" * 65, "<script>", "a;b", "ä".encode()):
        made = client.get("/healthz", headers={"X-Request-ID": odd}).headers["x-request-id"]
        assert len(made) == 32
        assert made.isalnum()
    assert client.get("/healthz").headers["x-request-id"] != client.get("/healthz").headers["x-request-id"]


def test_a_request_is_one_line_without_secrets_or_data(serve, tokens, make_sweep, lines):
    make_sweep()
    client, token = serve(tokens=tokens[0]), tokens[1]["write"]
    headers = bearer(token) | {"X-Request-ID": "mine"}
    client.get(f"/api/v1/sweeps/{DONE}/pick?max_epsilon=1.2345", headers=headers)
    client.post("/api/v1/sweeps", content=SPEC, headers=headers | YAML)
    client.get(f"/api/v1/{token}", headers=headers)
    client.get(f"/{token}")
    client.post("/login", content=f"token={token}", follow_redirects=False)
    told = lines()
    requests = [json.loads(line) for line in told if '"event": "request"' in line]
    assert len(requests) == 5
    first = requests[0]
    assert {key: first[key] for key in ("request_id", "method", "route", "status", "holder", "level")} == {
        "request_id": "mine", "method": "GET", "route": "/api/v1/sweeps/{sweep}/pick", "status": 200,
        "holder": token.split("_")[1], "level": "info",
    }  # fmt: skip
    assert first["milliseconds"] >= 0
    secret = token.split("_", 2)[2]
    for line in told:
        for hidden in (secret, "1.2345", "learning_rate", "tiny:"):
            assert hidden not in line


def test_an_error_that_nobody_raised_on_purpose_is_told_to_the_log_alone(client, make_sweep, lines, monkeypatch):
    make_sweep()

    def fail(*_):
        raise RuntimeError("a row of patient data: 123-45-6789")

    monkeypatch.setattr(views, "front_content", fail)
    answer = client.get(f"/api/v1/sweeps/{DONE}/front", headers={"X-Request-ID": "broken"})
    assert is_problem(answer, 500, f"{INTERNAL} broken")
    assert "RuntimeError" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    (line,) = [line for line in lines() if '"request_id": "broken"' in line]
    assert json.loads(line)["failure"].startswith("RuntimeError in fail:")
    assert "123-45" not in line
    assert client.get(f"/api/v1/sweeps/{DONE}").status_code == 200, "the others go on"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (DataError("Value 'Name-042450' in row 7"), "DataError: its message may quote data"),
        (DeclarationError("Expected one unit"), "Expected one unit"),
    ],
)
def test_an_error_about_data_is_answered_with_what_anybody_may_be_told(error, told, client, make_sweep, monkeypatch):
    make_sweep()

    def fail(*_):
        raise error

    monkeypatch.setattr(views, "front_content", fail)
    answer = client.get(f"/api/v1/sweeps/{DONE}/front")
    assert is_problem(answer, 422, told)
    assert "042450" not in answer.text


def test_every_answer_carries_the_headers_that_protect_browsers(client, make_sweep):
    make_sweep()
    for path in ("/healthz", "/login", "/none", "/api/v1/sweeps", f"/api/v1/sweeps/{DONE}/front?format=html"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "server" not in headers
        assert "access-control-allow-origin" not in headers
    assert client.get("/api/v1/sweeps").headers["content-security-policy"].startswith("default-src 'none';")


def test_requests_are_counted_by_pattern_so_that_clients_cannot_fill_the_memory(client, make_sweep):
    make_sweep()
    for i in range(20):
        client.get(f"/api/v1/sweeps/none{i}")
        client.get(f"/none{i}")
    client.request("BREW", "/none")
    text = client.get("/metrics").text
    assert 'sweeper_requests_total{method="GET",route="/api/v1/sweeps/{sweep}",status="404"} 20.0' in text
    assert 'sweeper_requests_total{method="GET",route="other",status="404"} 20.0' in text
    assert 'method="other"' in text
    assert "none1" not in text
    assert "sweeper_drivers 0.0" in text
    assert "process_resident_memory_bytes" in text


def test_health_says_what_is_down_and_nothing_else(client, supervisor, monkeypatch):
    assert client.get("/healthz").json() == {"status": "ok"}
    supervisor.close()
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (503, {"status": "down", "down": ["supervisor"]})
    monkeypatch.setattr("sweeper.service.routes.public.os.access", lambda *_: False)
    assert client.get("/healthz").json()["down"] == ["supervisor", "storage"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/none", 404),
        ("GET", "/api/none", 404),
        ("GET", "/api/v1/sweeps/", 404),
        ("DELETE", "/api/v1/sweeps", 405),
        ("PUT", "/healthz", 405),
        ("POST", "/api/openapi.json", 405),
        ("GET", "/api/v1/sweeps?limit=x", 422),
        ("POST", "/api/v1/sweeps", 415),
    ],
)
def test_every_error_has_the_one_shape(method, path, status, client):
    assert is_problem(client.request(method, path, follow_redirects=False), status)


def test_what_was_given_is_not_quoted_back(client):
    answer = client.get("/api/v1/sweeps", params={"limit": "<script>alert(1)</script>"})
    assert is_problem(answer, 422, "Expected an integer (limit in the query of the request)")
    assert "<script>" not in answer.text


def test_folders_of_this_machine_are_taken_out_of_sentences(tmp_path):
    redact = Redactor(tmp_path, tmp_path / "data")
    assert (
        redact(f"Cannot read {tmp_path}/data/x.csv of {tmp_path}/sweep and {tmp_path}")
        == "Cannot read x.csv of sweep and ."
    )
    assert redact("nothing") == "nothing"
    assert Redactor(type(tmp_path)("/"))("a/b") == "a/b"


def test_handlers_pass_on_what_is_not_theirs():
    import asyncio

    handlers = {}

    class App:
        def add_exception_handler(self, kind, handler):
            handlers[kind] = handler

    add_handlers(App(), Redactor())
    for kind in (HTTPException, RequestValidationError):
        with pytest.raises(KeyError):
            asyncio.run(handlers[kind](None, KeyError("x")))


def test_a_log_line_of_an_exception_says_where_and_not_what(caplog):
    def fail():
        raise ValueError("secret")

    with pytest.raises(ValueError, match="secret") as failed:
        fail()
    assert where(failed.value).startswith("ValueError in fail:")
    LOGGER.error("failed", exc_info=failed.value)
    line = json.loads(JsonLines().format(caplog.records[-1]))
    assert line["failure"].startswith("ValueError in fail:")
    assert "secret" not in json.dumps(line)


def test_a_supervisor_that_fails_goes_on_and_says_so(supervisor, lines, monkeypatch):
    ticks = []

    def fail():
        ticks.append(1)
        raise RuntimeError("secret")

    monkeypatch.setattr("sweeper.service.supervision.supervisor.TICK_SECONDS", 0.01)
    monkeypatch.setattr(supervisor, "tick", fail)
    while len(ticks) < 3:
        time.sleep(0.01)
    assert supervisor.is_well
    assert any("supervision failed" in line and "secret" not in line for line in lines())
