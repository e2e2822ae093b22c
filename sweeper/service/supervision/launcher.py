"""How drivers of sweeps are started, apart from the service: a crash of the service touches none of them.

A driver is the program `sweeper` with the arguments ``run``, ``resume`` or ``extend``. The one here starts processes of
this machine; others may submit them elsewhere, as long as the sweeps' folders are the same there.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from sweeper.errors import SweeperError
from sweeper.store.sweep_folder import OWNER_ALONE

LOG_NAME = "driver.log"  # in the sweep's folder: what its driver said, to the owner of the data alone
PREVIOUS_LOG_NAME = "driver.previous.log"  # and the one before
_PROGRAM = "from sweeper.cli.main import main; main()"


class Launcher(Protocol):
    """Starts drivers and knows whether they are still there, also after the service itself was started again.

    Whether one is alive is asked in several threads at once.
    """

    def start(self, arguments: Sequence[str], folder: Path) -> str:
        """Start ``sweeper ARGUMENTS`` for an existing sweep folder and return at once.

        Returns:
            A text by which the others know the driver; it is kept on the disk.

        Raises:
            SweeperError: it cannot be started.
        """

    def is_alive(self, job: str) -> bool:
        """Return whether the driver has not ended; False for an unknown one."""

    def is_away(self) -> bool:
        """Return whether what runs the drivers did not answer when it was last asked, so that what is known is old."""

    def kill(self, job: str) -> None:
        """End a driver that cannot be asked, because it has not begun its sweep; one that has ended is no error."""


class ProcessLauncher:
    """Starts drivers as processes of this machine, each in a session of its own."""

    def __init__(self) -> None:
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, arguments: Sequence[str], folder: Path) -> str:
        """As `Launcher.start`; the driver writes to ``driver.log`` in the folder."""
        command = [sys.executable, "-c", _PROGRAM, *arguments]
        try:
            if (folder / LOG_NAME).exists():
                (folder / LOG_NAME).replace(folder / PREVIOUS_LOG_NAME)
            with os.fdopen(os.open(folder / LOG_NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWNER_ALONE), "wb") as log:
                child = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, start_new_session=True
                )
        except OSError as error:
            raise SweeperError(f"Cannot start a driver in {folder.name}: {error.strerror or error}") from error
        job = f"{child.pid}:{_birth(child.pid)}"
        self._children[job] = child
        return job

    def is_alive(self, job: str) -> bool:
        """As `Launcher.is_alive`; a process that reuses the number of an earlier one does not count."""
        child = self._children.get(job)
        if child is not None:
            if child.poll() is None:
                return True
            self._children.pop(job, None)  # another thread may have found out, too
            return False
        number, _, birth = job.partition(":")
        return number.isdecimal() and bool(birth) and _birth(int(number)) == birth

    def is_away(self) -> bool:
        """As `Launcher.is_away`: this machine is there."""
        return False

    def kill(self, job: str) -> None:
        """As `Launcher.kill`: the driver and what it started."""
        if self.is_alive(job):
            try:
                os.killpg(int(job.partition(":")[0]), signal.SIGKILL)
            except ProcessLookupError:
                return


def _birth(number: int) -> str:
    """Return when a process was started, in ticks since this machine was; empty if there is no such process."""
    try:
        with open(f"/proc/{number}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
