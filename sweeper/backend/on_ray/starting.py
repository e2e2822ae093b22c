"""Starts that cannot be cut short, such as Ray's, made in a thread so that Ctrl-C need not wait for their end."""

import os
import sys
import threading
import time
from collections.abc import Callable
from math import inf
from typing import Generic, NoReturn, TypeVar

from sweeper.errors import SweeperError

T = TypeVar("T")

# After Ctrl-C a start may take this long to end by itself, which is tidier; what a sweep writes at its end takes a few
# seconds more, and 10 are promised.
PATIENCE_SECONDS = 2.0
LOOK_SECONDS = 0.1

_LEFT_BEHIND: list[object] = []


class InterruptedStartError(SweeperError):
    """A request to stop arrived while something started, and did not wait for it."""


class ThreadedStart(Generic[T]):
    """One start, in a thread that lives until `over`: what it starts may die with the thread, as Ray does on Linux.

    Args:
        start: is given a callable that says whether the wait was given up.
        undo: undoes a start that finished after the wait was given up.
    """

    def __init__(self, start: Callable[[Callable[[], bool]], T], undo: Callable[[], None]) -> None:
        self._start, self._undo = start, undo
        self._made, self._over, self._left = threading.Event(), threading.Event(), threading.Event()
        self._result: list[T] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="starting", daemon=True).start()

    def wait(self, interrupted: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> T:
        """Return what was started.

        Raises:
            InterruptedStartError: it had not ended then, and is left behind.
            BaseException: whatever starting raised.
        """
        until = inf
        try:
            while not self._made.wait(LOOK_SECONDS):
                if interrupted():
                    until = min(until, clock() + PATIENCE_SECONDS)
                if clock() > until:
                    raise InterruptedStartError("It was interrupted while Ray started")
        except BaseException:
            self._left.set()
            _LEFT_BEHIND.append(self)
            self._over.set()
            raise
        if self._error is not None:
            self._over.set()
            raise self._error
        return self._result[0]

    def over(self) -> None:
        """Let the thread end: what it has started is not needed any more."""
        self._over.set()

    def _run(self) -> None:
        try:
            self._result.append(self._start(self._left.is_set))
        except BaseException as error:
            self._error = error
        self._made.set()
        self._over.wait()
        if self._left.is_set() and self._error is None:
            self._undo()


def leave(code: int) -> NoReturn:
    """End the process; at once where a start was left behind, whose own end would be waited for otherwise.

    What it has started by then is killed by the system, as after ``kill -9``.
    """
    if _LEFT_BEHIND:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
