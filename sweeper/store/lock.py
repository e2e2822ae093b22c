"""Who drives a sweep, and who serves a folder: one process at a time, which a crash cannot leave behind as a lock."""

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sweeper.errors import RecordError
from sweeper.store.manifest import MANIFEST_NAME

NAME = "driver.json"
DELETING_NAME = "deleting"  # marks a folder whose deletion has begun
SERVICE_LOCK_NAME = ".service.lock"
LOOKS, LOOK_SECONDS = 10, 0.01
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_GROWING = ("ledger.jsonl", "trials.jsonl", "points.jsonl")  # which drivers write to at their ends
_TOLERANCE_SECONDS = 0.05  # between two writes, one behind the other; on a busy machine after some
_TRIES = 5


class DriverLock:
    """Held by the process that drives a sweep.

    Attributes:
        rebooted: whether rows that an earlier driver wrote last may be lost: it ran before this machine was started the
            last time, or on another one, or that is not known.
        copied: whether the folder is a copy, or was put back from one, so that what the sweep did since is not in it.
        is_first_of_copy: whether no driver has taken up that copy yet, with `take_up`.

    The first two stay so until a driver has come to its end: one that is killed may not have charged yet for what was
    lost.
    """

    def __init__(self, folder: Path, handle: int, *, is_first: bool) -> None:
        self._folder, self._handle = folder, handle
        self._me = {"pid": os.getpid(), "host": socket.gethostname(), "boot": _boot()}
        before = {} if is_first else _read(handle)
        moved = (before.get("boot"), before.get("host")) != (self._me["boot"], self._me["host"])
        is_copy = not is_first and self._is_copy(before)
        self.copied = is_copy or (not is_first and before.get("copied") is True)
        self.is_first_of_copy = is_copy or (not is_first and before.get("taken_up") is False)
        self.rebooted = not is_first and (self.copied or moved or before.get("rebooted") is not False)

    def take_up(self) -> None:
        """Write down that the copy, if it is one, has an id of its own from now on."""
        self.is_first_of_copy = False
        self.note()

    def note(self) -> None:
        """Write down how far the records are; a file that is shorter when the sweep resumes was put back."""
        with contextlib.suppress(OSError):
            self.write()

    def write(self, *, ended: bool = False) -> None:
        """Write who drives, and what tells this file from a copy."""
        lost = {"rebooted": self.rebooted and not ended, "copied": self.copied and not ended}
        lost |= {"taken_up": not self.is_first_of_copy}
        for _ in range(_TRIES):  # each says when the one before was, as the file system tells the time
            found = os.fstat(self._handle)
            told = self._me | lost | {"inode": found.st_ino, "changed": found.st_ctime, "sizes": self._sizes()}
            text = json.dumps(told).encode().ljust(found.st_size)  # whole whenever this process is killed
            os.pwrite(self._handle, text, 0)
            if os.fstat(self._handle).st_ctime - found.st_ctime <= _TOLERANCE_SECONDS / 2.0:
                break

    def _sizes(self) -> dict[str, int]:
        return {name: (self._folder / name).stat().st_size for name in _GROWING if (self._folder / name).exists()}

    def _is_copy(self, before: Mapping[str, Any]) -> bool:
        """Whether this file is not the one that a driver wrote, or records are shorter than they were then."""
        if "pid" in before and "inode" not in before:
            return False  # an earlier version wrote it, which tells no copy
        found, changed, sizes, now = os.fstat(self._handle), before.get("changed"), before.get("sizes"), self._sizes()
        if before.get("inode") != found.st_ino or not isinstance(changed, int | float) or not isinstance(sizes, dict):
            return True
        if abs(found.st_ctime - changed) > _TOLERANCE_SECONDS:
            return True
        return any(now.get(name, 0) < size for name, size in sizes.items())


@contextlib.contextmanager
def driver_lock(folder: Path, *, looks: bool = False) -> Iterator[DriverLock]:
    """Drive the sweep in ``folder`` inside the block; a killed process lets go by itself.

    ``looks`` says that nothing is taken up in the block, so that the next driver has to.

    Raises:
        RecordError: another process drives it, its deletion has begun, or the folder cannot be written to.

    Guarantees:
        There is one driver, though the driver's file is removed while it drives: the folder itself is held too, where
        its file system can. A sweep that a killed deletion has left without its ledger is never resumed as if nothing
        had been spent. A copy is known by what it cannot keep, the inode of the driver's file and when that was last
        changed, which the system alone sets, and records that were put back without that file by their sizes. A
        snapshot of a whole file system that is rolled back keeps all of these.
    """
    path = folder / NAME
    is_first = not any((folder / name).exists() for name in (NAME, MANIFEST_NAME, *_GROWING))
    with contextlib.ExitStack() as stack:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise RecordError(f"Cannot write {path}: {error.strerror or error}; check permissions") from error
        stack.callback(os.close, handle)
        if not _take_lock(handle):
            before = _read(handle)
            who = f"process {before.get('pid')} on {before.get('host')}"
            raise RecordError(f"Expected a sweep that is not running, but {who} drives {folder}; wait or stop it")
        _hold(stack, folder)
        if (folder / DELETING_NAME).exists():
            raise RecordError(f"Expected a whole sweep, but the deletion of {folder} has begun; delete it again")
        lock = DriverLock(folder, handle, is_first=is_first)
        try:
            lock.write()
        except OSError as error:
            raise RecordError(
                f"Cannot write {path}: {error.strerror or error}; free space or check permissions"
            ) from error
        yield lock
        with contextlib.suppress(OSError):
            lock.write(ended=not looks)


@contextlib.contextmanager
def undriven(folder: Path) -> Iterator[None]:
    """Keep drivers out inside the block, and leave the record of the last one as it is: resuming goes by it.

    Raises:
        RecordError: a process drives the sweep in ``folder``.
    """
    with contextlib.ExitStack() as stack:
        for path in (folder / NAME, folder):
            if path.exists():
                _hold(stack, path)
        yield


def _hold(stack: contextlib.ExitStack, path: Path) -> None:
    """Lock a driver's file, or the folder, which stays the same where that file is removed.

    Raises:
        RecordError: a process drives the sweep.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    stack.callback(os.close, handle)
    if not _take_lock(handle, cannot=path.is_dir()):
        folder = path if path.is_dir() else path.parent
        raise RecordError(f"Expected a sweep that is not running, but a process drives {folder}; wait or stop it")


def _take_lock(handle: int, *, cannot: bool = False) -> bool:
    """Take the lock, past processes that hold it for a moment to see whether it is free.

    ``cannot`` is the answer where the file system has no lock of this kind, as NFS has none of folders.
    """
    for _ in range(LOOKS):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOOK_SECONDS)
        except OSError:
            return cannot
        else:
            return True
    return False


def is_driven(folder: Path) -> bool:
    """Return whether a process on this machine drives the sweep in ``folder``."""
    return any(_is_locked(path) for path in (folder / NAME, folder))


def _is_locked(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: several may look at once
    except BlockingIOError:
        return True
    except OSError:
        return not path.is_dir()
    finally:
        os.close(handle)
    return False


def was_driven_here(folder: Path) -> bool:
    """Return whether the last driver of the sweep in ``folder`` ran on this machine, whose locks can be seen here."""
    try:
        content = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("host") == socket.gethostname()


def _boot() -> str:
    """Return what tells this start of the machine from others; never the same where that is not known."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return f"unknown, {os.getpid()}"


def _read(handle: int) -> dict[str, Any]:
    try:
        content = json.loads(os.pread(handle, 4096, 0))
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


class ServiceLock:
    """The lock of a folder, made if need be; the system lets go of it when the process ends, however it ends."""

    def __init__(self, out: Path) -> None:
        self._path = out / SERVICE_LOCK_NAME
        self._handle: int | None = None

    def take(self) -> None:
        """Take the lock, unless this object has it.

        Raises:
            RecordError: another service has the folder, or it cannot be written to.
        """
        if self._handle is not None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            out = self._path.parent
            raise RecordError(
                f"Expected no other service of {out}, but one runs; stop it or name another with --out"
            ) from None
        except OSError as error:
            sentence = f"Cannot write {self._path}: {error.strerror or error}; choose another with --out"
            raise RecordError(sentence) from error

    def release(self) -> None:
        """Let another service take it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
