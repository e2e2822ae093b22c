"""Who drives a sweep, and who serves a folder: one process at a time, which a crash cannot leave behind as a lock."""

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweeper.errors import RecordError

NAME = "driver.json"
DELETING_NAME = "deleting"  # marks a folder whose deletion has begun
SERVICE_LOCK_NAME = ".service.lock"
LOOKS, LOOK_SECONDS = 10, 0.01
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_GROWING = ("ledger.jsonl", "trials.jsonl", "points.jsonl")  # which drivers write to at their ends
_TOLERANCE_SECONDS = 2.0  # between two times of one write


@contextlib.contextmanager
def driver_lock(folder: Path) -> Iterator[bool]:
    """Drive the sweep in ``folder`` inside the block; a killed process lets go by itself.

    Yields:
        Whether rows that an earlier driver wrote last may be lost: it ran before this machine was started the last
        time, or on another one, or the folder is a copy or was restored from one, or none of that is known. That stays
        so until a driver has come to its end: one that is killed may not have charged yet for what was lost.

    Raises:
        RecordError: another process drives it, its deletion has begun, or the folder cannot be written to.

    Guarantees:
        A sweep that a killed deletion has left without its ledger is never resumed as if nothing had been spent. A
        copy is known by what no copy keeps: the inode of the driver's file, and when a file was last changed, which the
        system alone sets. A snapshot of a whole file system that is rolled back keeps both.
    """
    path = folder / NAME
    me = {"pid": os.getpid(), "host": socket.gethostname(), "boot": _boot()}
    is_first = not path.exists() and not any((folder / name).exists() for name in _GROWING)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise RecordError(f"Cannot write {path}: {error.strerror or error}; check permissions") from error
    try:
        before = _read(handle)
        if not _take_lock(handle):
            who = f"process {before.get('pid')} on {before.get('host')}"
            raise RecordError(f"Expected a sweep that is not running, but {who} drives {folder}; wait or stop it")
        if (folder / DELETING_NAME).exists():
            raise RecordError(f"Expected a whole sweep, but the deletion of {folder} has begun; delete it again")
        moved = (before.get("boot"), before.get("host")) != (me["boot"], me["host"])
        moved = moved or not _is_the_file(handle, before) or any(_was_put_back(folder / name) for name in _GROWING)
        rebooted = not is_first and (moved or before.get("rebooted") is not False)
        try:
            _write(handle, me | {"rebooted": rebooted})
        except OSError as error:
            raise RecordError(
                f"Cannot write {path}: {error.strerror or error}; free space or check permissions"
            ) from error
        yield rebooted
        with contextlib.suppress(OSError):
            _write(handle, me | {"rebooted": False})
    finally:
        os.close(handle)


@contextlib.contextmanager
def undriven(folder: Path) -> Iterator[None]:
    """Keep drivers out inside the block, and leave the record of the last one as it is: resuming goes by it.

    Raises:
        RecordError: a process drives the sweep in ``folder``.
    """
    try:
        handle = os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        if not _take_lock(handle):
            raise RecordError(f"Expected a sweep that is not running, but a process drives {folder}; wait or stop it")
        yield
    finally:
        os.close(handle)


def _take_lock(handle: int) -> bool:
    """Take the lock, past processes that hold it for a moment to see whether it is free."""
    for _ in range(LOOKS):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(LOOK_SECONDS)
        else:
            return True
    return False


def is_driven(folder: Path) -> bool:
    """Return whether a process on this machine drives the sweep in ``folder``."""
    try:
        handle = os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: several may look at once
    except OSError:
        return True
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


def _write(handle: int, content: dict[str, Any]) -> None:
    for _ in range(2):  # the second time with when the first was, as the file system tells the time
        written = os.fstat(handle)
        text = json.dumps(content | {"inode": written.st_ino, "changed": written.st_ctime})
        os.ftruncate(handle, 0)
        os.pwrite(handle, text.encode(), 0)


def _is_the_file(handle: int, content: dict[str, Any]) -> bool:
    """Whether a driver wrote this content to this very file, and nobody has written or copied it since."""
    found, changed = os.fstat(handle), content.get("changed")
    if content.get("inode") != found.st_ino or not isinstance(changed, int | float):
        return False
    return abs(found.st_ctime - changed) <= _TOLERANCE_SECONDS


def _was_put_back(path: Path) -> bool:
    """Whether a file has got the time at which it was last written from elsewhere, as one that a backup restores."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return abs(found.st_ctime - found.st_mtime) > _TOLERANCE_SECONDS


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
