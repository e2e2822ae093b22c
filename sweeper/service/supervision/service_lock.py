"""The lock that makes a service the only one of its folder."""

import fcntl
import os
from pathlib import Path

from sweeper.errors import RecordError

LOCK_NAME = ".service.lock"


class ServiceLock:
    """The lock of a folder, made if need be; the system lets go of it when the process ends, however it ends."""

    def __init__(self, out: Path) -> None:
        self._path = out / LOCK_NAME
        self._handle: int | None = None

    def take(self) -> None:
        """Take the lock.

        Raises:
            RecordError: another service has the folder, or it cannot be written to.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            out = self._path.parent
            raise RecordError(f"Expected no other service of {out}, but one runs; stop it") from None
        except OSError as error:
            sentence = f"Cannot write {self._path}: {error.strerror or error}; choose another with --out"
            raise RecordError(sentence) from error

    def release(self) -> None:
        """Let another service take it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
