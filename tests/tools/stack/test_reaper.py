"""A reaper starts its service again as its policy says, and leaves nothing of it behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools.stack import reaper

PATIENCE_SECONDS = 300.0  # ends a test that hangs; no test takes so long


def wait(until):
    end = time.monotonic() + PATIENCE_SECONDS
    while not (found := until()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def is_there(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    except OSError:
        return False


def settings(folder, script, restart="unless-stopped", grace_seconds=10.0):
    return {
        "command": ["sh", "-c", script],
        "environment": {"PATH": os.environ["PATH"]},
        "folder": str(folder),
        "log": str(folder / "log"),
        "state": str(folder / "state"),
        "restart": restart,
        "stop_signal": "SIGTERM",
        "grace_seconds": grace_seconds,
        "scratch": [str(folder / "scratch")],
        "user": None,
    }


class Kept:
    """A reaper of a shell script, in a process of its own."""

    def __init__(self, folder, script, **options):
        self.folder, self.state, self.scratch = folder, folder / "state", folder / "scratch"
        (folder / "settings.json").write_text(json.dumps(settings(folder, script, **options)))
        self.process = subprocess.Popen([sys.executable, "-I", reaper.__file__, str(folder / "settings.json")])

    def kept(self, starts=1):
        def read():
            if not self.state.exists():
                return None
            content = json.loads(self.state.read_text())
            return content if content["starts"] >= starts else None

        return wait(read)

    def stop(self):
        self.process.terminate()
        return self.process.wait(PATIENCE_SECONDS)


@pytest.fixture
def keep(tmp_path):
    made = []

    def make(script, **options):
        made.append(Kept(tmp_path, script, **options))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def test_a_service_that_is_killed_is_started_again(keep):
    kept = keep("echo began >> log2; exec sleep 100")
    first = kept.kept()["pid"]
    os.kill(first, signal.SIGKILL)
    second = kept.kept(starts=2)["pid"]
    assert second != first
    assert wait(lambda: is_there(second))
    kept.stop()
    assert not is_there(second)


def test_what_a_killed_service_started_is_gone_before_it_is_started_again(keep, tmp_path):
    script = "ls children >> seen; (setsid sleep 100 & echo $! > children); exec sleep 100"
    kept = keep(script)
    first = kept.kept()["pid"]
    child = int(wait(lambda: (tmp_path / "children").exists() and (tmp_path / "children").read_text()))
    assert is_there(child)
    os.kill(first, signal.SIGKILL)
    kept.kept(starts=2)
    assert not is_there(child), "an orphan in a session of its own is found too"


def test_a_service_with_another_policy_stays_ended(keep):
    assert keep("exit 3", restart="no").process.wait(PATIENCE_SECONDS) == 3


def test_a_service_is_started_again_on_failure_only(keep):
    kept = keep("if [ -e once ]; then exit 0; fi; touch once; exit 1", restart="on-failure")
    assert kept.process.wait(PATIENCE_SECONDS) == 0
    assert json.loads(kept.state.read_text())["starts"] == 2


def test_a_service_that_does_not_listen_is_killed_after_the_grace(keep):
    kept = keep("trap '' TERM; touch ready; while :; do sleep 0.1; done", grace_seconds=0.2)
    pid = kept.kept()["pid"]
    wait((kept.folder / "ready").exists)
    kept.stop()
    assert not is_there(pid)


def test_scratch_folders_are_empty_at_each_start(keep):
    kept = keep("ls scratch | wc -l >> counts; touch scratch/left; exec sleep 100")
    wait((kept.scratch / "left").exists)
    os.kill(kept.kept()["pid"], signal.SIGKILL)
    counts = kept.folder / "counts"
    assert wait(lambda: counts.read_text().split() if len(counts.read_text().split()) == 2 else None) == ["0", "0"]


def test_a_keeper_ends_with_whoever_started_it(tmp_path):
    script = "import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-I', *sys.argv[1:]])\ntime.sleep(600)\n"
    (tmp_path / "settings.json").write_text(json.dumps(settings(tmp_path, "exec sleep 100")))
    parent = subprocess.Popen([sys.executable, "-c", script, reaper.__file__, str(tmp_path / "settings.json")])
    try:
        pid = wait(lambda: (tmp_path / "state").exists() and json.loads((tmp_path / "state").read_text())["pid"])
    finally:
        parent.kill()
        parent.wait()
    wait(lambda: not is_there(pid))
