"""A stack of small services: order, restarts, refusals, and an end that leaves nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweeper.backend.interruption import Interruption
from sweeper.errors import SweeperError
from tools.stack import __main__ as program
from tools.stack.running import Stack, StackSettings

PATIENCE_SECONDS = 300.0  # ends a test that hangs; no test takes so long
SERVICE = """
  {name}:
    image: x:1.0
    user: "1:1"
    networks: [inside]
    command: [sh, -c, "{command}"]
    volumes: ["kept:/kept"]
    tmpfs: ["/tmp"]
    secrets: [key]
    environment: {{KEY: /run/secrets/key}}
    healthcheck: {{test: [CMD, test, -e, /tmp/ready], interval: 1s, timeout: 9s, retries: 1, start_period: 9s,
                  start_interval: 1s}}
    restart: always
    depends_on: {needs}
"""
REST = """
networks: {inside: {}}
volumes: {kept: {}}
secrets: {key: {file: "${SWEEPER_SECRETS}/key"}}
"""
READY = "echo $KEY; cat $KEY > /kept/key; touch /tmp/ready; exec sleep 600"


@pytest.fixture
def settings(tmp_path):
    def make(second="test -e /kept/key && " + READY, **more):
        services = SERVICE.format(name="first", command=READY, needs="{}")
        services += SERVICE.format(name="second", command=second, needs="{first: {condition: service_healthy}}")
        (tmp_path / "compose.yml").write_text(f"name: x\nservices:{services}{REST}")
        return StackSettings(file=tmp_path / "compose.yml", state=tmp_path / "state", **more)

    return make


def is_there(pid):
    return Path(f"/proc/{pid}").exists()


def test_a_stack_starts_in_order_mends_what_is_killed_and_leaves_no_process(settings):
    told = []
    with Stack(settings(say=told.append)) as stack:
        assert told == ["first is well", "second is well"]
        pid = stack.pid("first")
        os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + PATIENCE_SECONDS
        while stack.starts("first") < 2 and time.monotonic() < end:
            time.sleep(0.05)
        stack.wait_until_well("first")
        assert stack.pid("first") != pid
        pids = [one for name in ("first", "second") for one in stack.below(name)]
        assert len(pids) >= 2
        scratch = stack.places[0].scratch[0]
        assert scratch.exists()
        key = (stack.folder("first", "/kept") / "key").read_text()
    assert not any(map(is_there, pids))
    assert not scratch.exists()
    assert len(key) == 64


def test_secrets_are_made_once_and_readable_by_their_owner_only(settings, tmp_path):
    keys = []
    for _ in range(2):
        with Stack(settings()):
            file = tmp_path / "state" / "secrets" / "key"
            keys.append(file.read_text())
            assert file.stat().st_mode & 0o077 == 0
    assert keys[0] == keys[1]


@pytest.mark.long
def test_a_service_that_does_not_get_well_is_named_with_its_last_words(settings, tmp_path):
    log = tmp_path / "state" / "logs" / "second.log"

    def clock():
        """Years pass when it has said why."""
        return 1e9 * (log.exists() and "cannot go on" in log.read_text())

    with (
        pytest.raises(SweeperError, match=r"but it is not; .* ends with: cannot go on"),
        Stack(settings(second="echo cannot go on; exec sleep 600", clock=clock)),
    ):
        pytest.fail("it is not well")


@pytest.mark.long
def test_two_stacks_do_not_share_a_folder(settings):
    with (
        Stack(settings()),
        pytest.raises(SweeperError, match="but one runs there; stop it or name another"),
        Stack(settings()),
    ):
        pytest.fail("the folder is taken")


def test_a_keeper_that_dies_is_told(settings):
    with Stack(settings()) as stack:
        stack.check()
        reaper = Path(f"/proc/{stack.pid('second')}/stat").read_text().rpartition(")")[2].split()[1]
        os.kill(int(reaper), signal.SIGTERM)
        process = stack._reapers["second"]
        process.wait(PATIENCE_SECONDS)
        with pytest.raises(SweeperError, match="Expected second to be well"):
            stack.check()


def test_folders_with_spaces_are_refused(tmp_path):
    with pytest.raises(SweeperError, match="Expected a folder without spaces"):
        Stack(StackSettings(file=tmp_path / "x", state=tmp_path / "a b"))


def test_other_systems_are_sent_to_docker(settings, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SweeperError, match="got darwin; use docker compose"):
        Stack(settings())


def test_the_program_says_in_one_sentence_what_is_wrong(tmp_path, capsys):
    assert program.main(["--file", str(tmp_path / "none.yml"), "--state", str(tmp_path / "state")]) == 2
    assert capsys.readouterr().err.startswith("stack: Cannot read ")


def test_the_program_runs_until_it_is_asked_to_stop(monkeypatch):
    interruption, said = Interruption(), []

    class Known:
        def __init__(self, _settings):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            said.append("ended")

        def address(self, name, port):
            return f"{name}:{port}"

        def check(self):
            interruption.requested = True

    monkeypatch.setattr(program, "Stack", Known)
    program.run(StackSettings(file=Path("x"), state=Path("y"), say=said.append), interruption)
    assert said[0] == "sweeper  http://sweeper:8600"
    assert said[1] == "mlflow   http://mlflow:5000"
    assert said[-1] == "ended"


def test_a_stack_that_is_killed_takes_its_services_with_it(settings, tmp_path):
    settings()
    script = (
        "import sys, time; from pathlib import Path\n"
        "from tools.stack.running import Stack, StackSettings\n"
        "with Stack(StackSettings(file=Path(sys.argv[1]), state=Path(sys.argv[2]))) as stack:\n"
        "    print(stack.pid('first'), stack.pid('second'), flush=True)\n"
        "    time.sleep(600)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "compose.yml"), str(tmp_path / "state")]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        pids = [int(pid) for pid in process.stdout.readline().split()]
        process.kill()
    assert len(pids) == 2
    end = time.monotonic() + PATIENCE_SECONDS
    while any(map(is_there, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(is_there, pids))
