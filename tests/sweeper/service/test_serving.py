"""The service as a program: a real server on a real port, its client, and what kill -9 of it does to a sweep."""

import contextlib
import importlib
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from sweeper.cli.main import main
from sweeper.errors import SweeperError
from sweeper.service import client as client_module
from sweeper.service import serving
from sweeper.service import settings as settings_module
from sweeper.service.client import submit
from sweeper.service.security.tokens import KnownTokens, Role, make_token
from sweeper.service.settings import ServiceSettings
from sweeper.store.lock import ServiceLock

from .conftest import SPEC

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
# A driver that begins its sweep and waits until it is asked to stop.
DRIVER = """
import json, sys, time
from pathlib import Path
from sweeper.store.lock import driver_lock
from sweeper.store.requests import Requests
folder = Path(sys.argv[sys.argv.index("--into") + 1] if "--into" in sys.argv else sys.argv[2])
def write(content):
    (folder / "sweep.new").write_text(json.dumps(content))
    (folder / "sweep.new").replace(folder / "sweep.json")
with driver_lock(folder):
    begun = {"format": 1, "name": "tiny", "spec": {}, "source": "", "data_dir": None, "tracking": None}
    write(begun | {"status": "running"})
    with (folder / "begun").open("a") as file:
        file.write(sys.argv[1] + "\\n")
    requests = Requests(folder)
    while not requests.look().stop:
        time.sleep(0.05)
    write(begun | {"status": "stopped"})
"""
SERVE = """
import sys
from pathlib import Path
from sweeper.service import app
from sweeper.service.supervision import launcher
launcher._PROGRAM = Path(sys.argv.pop(1)).read_text()
app.entry_points = lambda **_: ()
from sweeper.cli.main import main
main()
"""


@pytest.fixture
def run_service(tmp_path, out):
    """Run the service as a program with a driver of ours; return its process and address."""
    (tmp_path / "driver.py").write_text(DRIVER)
    started = []

    def run(*arguments):
        command = [sys.executable, "-W", "error", "-c", SERVE, str(tmp_path / "driver.py"), "serve", "--port", "0"]
        server = subprocess.Popen(
            [*command, "--out", str(out), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(server)
        line = server.stdout.readline()
        assert line.startswith(f"Sweeper serves {out} at http://127.0.0.1:"), server.stderr.read()
        return server, line.split()[-1]

    yield run
    for server in started:
        server.kill()
        server.communicate()
    for job in out.glob("*/submission.json"):
        number = (json.loads(job.read_text())["job"] or "").partition(":")[0]
        if number:
            subprocess.run(["kill", "-9", number], check=False, stderr=subprocess.DEVNULL)


def get(url, path=""):
    with urllib.request.urlopen(url + path) as answer:
        return json.loads(answer.read())


def wait_for(is_true):
    """Wait for something that will come."""
    while not is_true():
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.long
def test_killing_the_service_touches_no_sweep_and_the_next_one_knows_them_all(run_service, out):
    server, url = run_service()
    name = submit(url, SPEC)["id"]
    folder = out / name
    wait_for(lambda: get(url, f"/api/v1/sweeps/{name}")["state"] == "running")
    server.kill()
    server.wait()
    driver = json.loads((folder / "driver.json").read_text())["pid"]
    os.kill(driver, 0)
    server, url = run_service()
    assert get(url, f"/api/v1/sweeps/{name}")["state"] == "running"
    os.kill(driver, signal.SIGKILL)
    wait_for(lambda: (folder / "begun").read_text() == "run\nresume\n")
    wait_for(lambda: get(url, f"/api/v1/sweeps/{name}")["state"] == "running")
    stop = urllib.request.Request(f"{url}/api/v1/sweeps/{name}/stop", method="POST")
    with urllib.request.urlopen(stop) as answer:
        assert answer.status == 202
    wait_for(lambda: get(url, f"/api/v1/sweeps/{name}")["state"] == "stopped")
    server.send_signal(signal.SIGINT)
    said = server.communicate()[1]
    assert server.returncode == 0, said
    assert all(json.loads(line)["event"] for line in said.splitlines())
    assert (folder / "begun").read_text() == "run\nresume\n"


@pytest.mark.long
@pytest.mark.slow
def test_a_service_with_tokens_takes_what_the_command_submits(run_service, tmp_path, capsys, monkeypatch):
    token = make_token(tmp_path / "tokens.json", Role.WRITE, 1, "ada")
    _, url = run_service("--tokens", str(tmp_path / "tokens.json"))
    spec = tmp_path / "tiny.yaml"
    spec.write_text(SPEC)
    with pytest.raises(SweeperError, match=r"refuses access: Expected a token.*; put a token into SWEEPER_TOKEN"):
        submit(url, SPEC)
    monkeypatch.setenv("SWEEPER_TOKEN", token)
    with pytest.raises(SystemExit) as ended:
        main(["submit", str(spec), "--url", url])
    assert not ended.value.code
    first, page, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"tiny-\d{8}-\d{6}: queued", first)
    assert page == f"{url}/?sweep={first.partition(':')[0]}"
    assert second == f"{url}/api/v1/sweeps/{first.partition(':')[0]}"


@pytest.mark.long
@pytest.mark.slow
def test_many_clients_of_a_large_sweep_are_all_answered(tmp_path, monkeypatch):
    """The benchmark in short: what is measured elsewhere works here, and memory does not grow with the answers."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    load = importlib.import_module("service_load")
    (tmp_path / "out").mkdir()
    load.write(tmp_path / "out" / load.NAME, 20, 10)
    found = load.measure(tmp_path / "out", clients=15, seconds=0.3, live=True)
    assert set(found.statuses) == {200}
    assert min(map(len, found.seconds.values())) >= 15
    assert found.quantile("front", 0.5) <= found.quantile("front", 0.95)
    assert found.memory[-1] < found.memory[0] + 100
    assert found.cpu_seconds > 0


def test_a_port_that_is_taken_is_named(out, monkeypatch):
    monkeypatch.setattr("sweeper.service.app.entry_points", lambda **_: ())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sentence = rf"Cannot listen on 127.0.0.1, port {port}: Address already in use \(--host, --port\)"
        with pytest.raises(SweeperError, match=sentence):
            serving.serve(ServiceSettings(out=out, port=port))


class FakeSocket(contextlib.nullcontext):
    """A socket of no machine."""

    def __enter__(self):
        return self

    def getsockname(self):
        return ("::1", 1234, 0, 0)


def test_an_address_of_six_is_written_in_brackets(out, monkeypatch):
    said, opened = [], []
    monkeypatch.setattr("sweeper.service.app.entry_points", lambda **_: ())
    monkeypatch.setattr(serving, "_log_as_json", lambda: None)
    monkeypatch.setattr(serving.uvicorn.Server, "run", lambda *_, **__: None)
    monkeypatch.setattr(serving.socket, "create_server", lambda *_, **given: opened.append(given) or FakeSocket())
    serving.serve(ServiceSettings(out=out, host="::1", port=0), announce=said.append)
    assert opened[0]["family"] == socket.AF_INET6
    assert said == ["http://[::1]:1234"]


@pytest.fixture
def answer(monkeypatch):
    """Let the client's calls be answered one after the other; return what it sent."""
    sent, answers = [], []

    class Opener:
        def open(self, request, timeout):
            sent.append((request.full_url, dict(request.header_items()), request.data, timeout))
            made = answers.pop(0)
            if isinstance(made, Exception):
                raise made
            return made

    monkeypatch.setattr(client_module.urllib.request, "build_opener", lambda *_: Opener())
    monkeypatch.setattr(client_module.time, "sleep", lambda _: None)
    return sent, answers


class Said:
    """An answer."""

    def __init__(self, content):
        self.content = content

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def read(self):
        return self.content


def test_a_broken_connection_submits_once(answer):
    sent, answers = answer
    answers += [
        ConnectionResetError(104, "reset"),
        TimeoutError(),
        Said(b'{"id": "x", "state": "queued", "url": "/y"}'),
    ]
    assert submit("http://127.0.0.1:1/", SPEC, "token") == {"id": "x", "state": "queued", "url": "/y"}
    assert len(sent) == 3
    assert {headers["Idempotency-key"] for _, headers, _, _ in sent} == {sent[0][1]["Idempotency-key"]}
    assert sent[0][0] == "http://127.0.0.1:1/api/v1/sweeps"
    assert sent[0][1]["Authorization"] == "Bearer token"
    assert sent[0][2] == SPEC.encode()


def test_a_service_that_is_not_there_is_an_error_in_one_sentence(answer):
    _, answers = answer
    answers += [urllib.error.URLError(ConnectionRefusedError(111, "Connection refused"))] * 4
    with pytest.raises(
        SweeperError, match=r"Cannot reach the service at http://x: Connection refused; .* correct --url$"
    ):
        submit("http://x", SPEC)
    answers += [TimeoutError()] * 4
    with pytest.raises(SweeperError, match="TimeoutError"):
        submit("http://x", SPEC)


@pytest.mark.parametrize("content", [b"<html>", b"[]", b"{}", b'{"id": 1}'])
def test_the_answer_of_something_else_is_told_apart(content, answer):
    answer[1].append(Said(content))
    with pytest.raises(SweeperError, match="Expected the answer of a service of sweeper"):
        submit("http://x", SPEC)
    answer[1].append(urllib.error.HTTPError("http://x", 502, "Bad Gateway", {}, io.BytesIO(content)))
    with pytest.raises(SweeperError, match="it answers 502, not as a service of sweeper does"):
        submit("http://x", SPEC)


@pytest.mark.parametrize("url", ["ftp://x", "x", "http://", "http://user:secret@x"])
def test_an_address_is_one_of_http_without_secrets(url):
    with pytest.raises(SweeperError, match=r"Expected the address of a service.*\(--url\)") as refused:
        submit(url, SPEC)
    assert "secret" not in str(refused.value)


def test_the_commands_make_take_back_and_refuse_tokens(tmp_path, call):
    path = tmp_path / "tokens.json"
    token = call("token", "--tokens", path, "--role", "write", "--days", "2")[1].strip()
    assert KnownTokens(path).find(token).role is Role.WRITE
    assert call("token", "--tokens", path, "--revoke", token.split("_")[1])[0] == 0
    assert KnownTokens(path).find(token) is None
    assert "Expected read or write, got 'admin' (--role)" in call("token", "--tokens", path, "--role", "admin")[2]


def test_what_cannot_be_submitted_or_served_is_said_in_one_sentence(tmp_path, call, monkeypatch):
    found = settings_module.find_spec
    for arguments, said in (
        (("submit", tmp_path / "none.yaml"), "Cannot read"),
        (("serve", "--host", "0.0.0.0", "--out", tmp_path), "Expected a file of tokens"),
        (("serve", "--tracking-page", "javascript:alert(1)", "--out", tmp_path), "(--tracking-page)"),
    ):
        code, _, err = call(*arguments)
        assert (code, said in err) == (2, True)
    monkeypatch.setattr(settings_module, "find_spec", lambda name: None if name == "uvicorn" else found(name))
    code, _, err = call("serve", "--out", tmp_path)
    assert (code, "The service needs uvicorn: pip install 'sweeper[service]'" in err) == (2, True)


def test_a_second_service_of_a_folder_is_refused_in_one_sentence(tmp_path, call):
    first = ServiceLock(tmp_path)
    first.take()
    try:
        first.take()  # that it has it is no reason to refuse it
        code, out, err = call("serve", "--out", tmp_path, "--port", "0")
    finally:
        first.release()
    said = f"Expected no other service of {tmp_path}, but one runs; stop it or name another with --out"
    assert (code, out, err) == (2, "", f"sweeper: {said}\n")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "The service refuses access: Expected it; put a token into SWEEPER_TOKEN"),
        (403, "The service refuses access: Expected it; put a token into SWEEPER_TOKEN"),
        (422, "The service refuses the spec: Expected it"),
        (429, "The service does not take the spec now: Expected it"),
    ],
)
def test_what_is_refused_is_named(status, said, answer):
    answer[1].append(urllib.error.HTTPError("http://x", status, "", {}, io.BytesIO(b'{"detail": "Expected it"}')))
    with pytest.raises(SweeperError) as refused:
        submit("http://x", SPEC)
    assert str(refused.value) == said


def test_the_service_works_with_the_installed_page_and_without(out, monkeypatch):
    from starlette.testclient import TestClient

    from sweeper.service import app as app_module

    seen = []

    class Entry:
        def load(self):
            return lambda app, catalog, *, tracking, **_: seen.append((app, catalog.names(), tracking))

    monkeypatch.setattr(app_module, "entry_points", lambda group, name: [Entry()] * (group, name).count("live"))
    app = app_module.create_app(ServiceSettings(out=out, tracking_page="http://mlflow.example"))
    assert seen == [(app, (), "http://mlflow.example")]
    monkeypatch.setattr(app_module, "entry_points", lambda **_: ())
    with TestClient(app_module.create_app(ServiceSettings(out=out)), base_url="http://localhost") as client:
        assert client.get("/").status_code == 404
    shutil.rmtree(out)
