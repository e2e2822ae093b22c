"""A run of tests leaves nothing behind, even one that is killed."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from . import caretaker

PATIENCE_SECONDS = 300.0
# Starts what a run may leave: a process of its own session, one below it that has lost the mark, and a folder.
RUN = """
import subprocess, sys, tempfile
import caretaker
caretaker.take_care()
script = "import os, subprocess; print(subprocess.Popen(['sleep', '900'], env={}).pid, flush=True); os.wait()"
left = subprocess.Popen([sys.executable, "-c", script], start_new_session=True, stdout=subprocess.PIPE, text=True)
print(left.pid, int(left.stdout.readline()), tempfile.mkdtemp(), flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_what_a_killed_run_started_and_wrote_is_cleared_away():
    environment = {name: value for name, value in os.environ.items() if name != caretaker.MARK}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", RUN]
    with subprocess.Popen(command, env=environment, cwd=Path(caretaker.__file__).parent, **pipes) as run:
        *pids, folder = run.stdout.readline().split()
        assert Path(folder).is_dir()
        assert len({int(pid) for pid in pids}) == 2
        run.kill()
    end = time.monotonic() + PATIENCE_SECONDS
    while Path(folder).parent.exists() or any(is_there(pid) for pid in pids):
        assert time.monotonic() < end, f"{pids} or {folder} is still there"
        time.sleep(0.05)


def is_there(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    except OSError:
        return False


def test_a_run_in_a_run_belongs_to_the_outer_one(monkeypatch):
    monkeypatch.setenv(caretaker.MARK, "outer")
    monkeypatch.setattr(os, "posix_spawn", lambda *_, **__: pytest.fail("started another"))
    before = tempfile.gettempdir()
    caretaker.take_care()
    assert (os.environ[caretaker.MARK], tempfile.gettempdir()) == ("outer", before)
