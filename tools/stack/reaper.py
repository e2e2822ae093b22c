"""Keeps one service, as Docker's engine would: starts it again by its policy, and leaves nothing of it behind.

A program that imports the standard library only, so that it takes neither time nor memory: ``reaper.py SETTINGS``, a
JSON file of the fields of `Settings`. Whatever the service starts becomes, when its parent has died, a child of this
process, so that all of it is found and ended with it.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 60.0
WELL_AFTER_SECONDS = 10.0  # a service that ran for so long is started again at once


@dataclass(frozen=True)
class Settings:
    """What to keep."""

    command: tuple[str, ...]  # arguments of its process
    environment: dict[str, str]  # all of it
    folder: str  # where it runs
    log: str  # file for what it says
    state: str  # file that says, as JSON, its process and how often it was started
    restart: str  # policy, as in a compose file
    stop_signal: str  # name of the signal that asks it to end
    grace_seconds: float  # how long it may take to
    scratch: tuple[str, ...]  # folders that are emptied before each start
    user: str | None  # who runs it, and owns its scratch folders; whoever runs this program if ``None``


def adopt_orphans(*, die_with_parent: bool = False) -> None:
    """Make every process that loses its parent below this one a child of this one."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if die_with_parent:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """Return the processes below one, as they are now."""
    children = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                children[int(fields[1])].append(int(entry.name))
    found, left = [], [pid]
    while left:
        below = children[left.pop()]
        found += below
        left += below
    return found


def end_descendants() -> None:
    """Kill everything below this process, and wait until it is gone."""
    while below := descendants(os.getpid()):
        for pid in below:
            _kill(pid, signal.SIGKILL)
        _reap()
        time.sleep(0.01)
    _reap()


class Reaper:
    """Keeps one service until it is told to stop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._starts = 0
        self._stopping = False

    def run(self) -> int:
        """Start the service, again and again as its policy says; return its last exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        pause = FIRST_PAUSE_SECONDS
        while True:
            began = time.monotonic()
            code = self._once()
            policy = self._settings.restart
            again = policy in ("always", "unless-stopped") or (policy == "on-failure" and code != 0)
            if self._stopping or not again:
                return code
            pause = FIRST_PAUSE_SECONDS if time.monotonic() - began > WELL_AFTER_SECONDS else pause
            self._sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _once(self) -> int:
        """Run the service once; nothing of it is left afterwards."""
        settings = self._settings
        if self._stopping:
            return 0
        identity: dict[str, Any] = {}
        if settings.user is not None:
            identity = {"user": settings.user, "group": settings.user, "extra_groups": []}
        for folder in settings.scratch:
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
            if settings.user is not None:
                shutil.chown(folder, settings.user, settings.user)
        with open(settings.log, "ab") as log:
            process = subprocess.Popen(
                settings.command,
                env=settings.environment,
                cwd=settings.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **identity,
            )
        self._starts += 1
        state = Path(settings.state)
        temporary = state.with_suffix(".tmp")
        temporary.write_text(json.dumps({"pid": process.pid, "starts": self._starts}), encoding="ascii")
        temporary.replace(state)
        code = self._wait(process)
        end_descendants()
        return code

    def _wait(self, process: "subprocess.Popen[bytes]") -> int:
        """Wait for the end of the service; when told to stop, ask it, and after a while make it."""
        while not self._stopping:
            try:
                return process.wait(0.2)
            except subprocess.TimeoutExpired:
                _reap(but=process.pid)
        _kill(process.pid, signal.Signals[self._settings.stop_signal])
        try:
            return process.wait(self._settings.grace_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < until:
            time.sleep(0.05)

    def _stop(self, *_: object) -> None:
        self._stopping = True


def _kill(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _reap(but: int | None = None) -> None:
    """Take note of the ends of adopted children; of ``but``, somebody else will."""
    for pid in [pid for pid in _children() if pid != but]:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue


def _children() -> list[int]:
    """Return this process's children, those that have ended included."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        try:
            found += [int(pid) for pid in (task / "children").read_text().split()]
        except OSError:
            continue
    return found


def main(path: str) -> int:
    """Keep what the file at ``path`` says."""
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    adopt_orphans(die_with_parent=True)
    content |= {"command": tuple(content["command"]), "scratch": tuple(content["scratch"])}
    return Reaper(Settings(**content)).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
