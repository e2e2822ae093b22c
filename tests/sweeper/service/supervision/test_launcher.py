"""Drivers as processes: apart from whoever starts them, and known again."""

import os
import subprocess
import sys
import time

import pytest

from sweeper.errors import SweeperError
from sweeper.service.supervision import launcher as launcher_module
from sweeper.service.supervision.launcher import LOG_NAME, ProcessLauncher


@pytest.fixture
def quick(monkeypatch):
    """Let the program be one that prints its arguments, or sleeps."""
    program = "import sys, time; print('\\n'.join(sys.argv[1:]), flush=True); time.sleep(900 * ('sleep' in sys.argv))"
    monkeypatch.setattr(launcher_module, "_PROGRAM", program)


def wait(is_true):
    """Wait for something that will come; a test that waits for ever is ended from outside."""
    while not is_true():
        time.sleep(0.02)


@pytest.mark.usefixtures("quick")
def test_a_driver_says_what_it_says_to_a_file(tmp_path):
    launcher = ProcessLauncher()
    job = launcher.start(["a", "b c"], tmp_path)
    wait(lambda: not launcher.is_alive(job))
    assert (tmp_path / LOG_NAME).read_text() == "a\nb c\n"
    assert (tmp_path / LOG_NAME).stat().st_mode & 0o777 == 0o600, "it may quote data"
    again = launcher.start(["d"], tmp_path)
    wait(lambda: not launcher.is_alive(again))
    assert (tmp_path / LOG_NAME).read_text() == "d\n", "what an earlier driver said is not this one's"
    assert (tmp_path / "driver.previous.log").read_text() == "a\nb c\n"


@pytest.mark.usefixtures("quick")
def test_a_driver_is_in_a_session_of_its_own_and_known_to_the_next_service(tmp_path):
    first, second = ProcessLauncher(), ProcessLauncher()
    job = first.start(["sleep"], tmp_path)
    number = int(job.partition(":")[0])
    try:
        assert os.getsid(number) == number != os.getsid(0)
        assert second.is_alive(job)
        assert not second.is_alive(f"{number}:1"), "another process of the same number"
    finally:
        first.kill(job)
    wait(lambda: not second.is_alive(job))
    wait(lambda: not first.is_alive(job))
    first.kill(job)


@pytest.mark.parametrize("job", ["", "none", "x:y", "1", "999999999:5", "me:", "-1:3"])
def test_a_driver_that_nobody_knows_has_ended(job):
    job = job.replace("me", str(os.getpid()))
    assert not ProcessLauncher().is_alive(job)
    ProcessLauncher().kill(job)


@pytest.mark.usefixtures("tmp_path")
def test_a_process_that_has_ended_but_was_not_waited_for_has_ended():
    child = subprocess.Popen([sys.executable, "-c", ""])
    wait(lambda: launcher_module._birth(child.pid) == "")
    child.wait()


def test_a_driver_that_cannot_be_started_is_an_error(tmp_path):
    with pytest.raises(SweeperError, match="Cannot start a driver in none: No such file"):
        ProcessLauncher().start(["x"], tmp_path / "none")


@pytest.mark.long
def test_the_program_is_the_real_one(tmp_path):
    launcher = ProcessLauncher()
    job = launcher.start(["run", str(tmp_path / "none.yaml")], tmp_path)
    wait(lambda: not launcher.is_alive(job))
    assert (tmp_path / LOG_NAME).read_text().startswith("sweeper: Cannot read")
