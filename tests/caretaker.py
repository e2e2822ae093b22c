"""Leaves nothing of a test run behind, however it ends: no process, no mount, no folder.

`take_care` gives a run a folder for everything temporary and a mark in the environment, and starts this file as a
program. Once the process of the run is gone, be it by SIGKILL, the program ends every process that has the mark, and
all that these have started, unmounts what is mounted in the folder, and removes the folder. A run inside a run
belongs to the outer one.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

MARK = "SWEEPER_TEST_RUN"
LOOK_SECONDS = 0.2
PROC = Path("/proc")


def take_care() -> None:
    """Have everything that this process and its children leave cleared away when this process has ended."""
    if MARK in os.environ or not PROC.is_dir():
        return
    folder = tempfile.mkdtemp(prefix="run-")  # sockets lie in it, whose paths must be short
    os.chmod(folder, 0o711)  # PostgreSQL's user has a folder in it
    command = [sys.executable, "-I", __file__, str(os.getpid()), folder]
    no_input = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    os.posix_spawn(sys.executable, command, os.environ, file_actions=[no_input], setsid=True)
    os.environ[MARK] = os.environ["TMPDIR"] = folder
    tempfile.tempdir = None


def left_of(mark: str) -> set[int]:
    """Return the processes that have a mark, and all below them, but not this one."""
    wanted, children, found = f"{MARK}={mark}".encode(), defaultdict(list), []
    for entry in PROC.iterdir():
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry.name)
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            children[int(parent)].append(pid)
            if state != "Z" and wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(pid)
    left: set[int] = set()
    while found:
        pid = found.pop()
        if pid not in left and pid != os.getpid():
            left.add(pid)
            found += children[pid]
    return {pid for pid in left if not _is_zombie(pid)}


def clear(mark: str) -> None:
    """End what has the mark, and remove the folder of that name."""
    while left := left_of(mark):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK_SECONDS)
    for line in reversed((PROC / "mounts").read_text().splitlines()):
        if (place := line.split()[1]).startswith(f"{mark}/"):
            subprocess.run(["umount", "--lazy", place], check=False)
    shutil.rmtree(mark, ignore_errors=True)


def _is_zombie(pid: int) -> bool:
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def main(run: int, folder: str) -> None:
    """Wait for the end of a run, then clear away what is left of it."""
    os.chdir("/")
    while os.getppid() == run:
        time.sleep(LOOK_SECONDS)
    clear(folder)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
