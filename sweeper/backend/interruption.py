"""Ctrl-C, and SIGTERM, as a flag that a long run looks at."""

import math
import signal
import threading
import time
from types import FrameType
from typing import Any, Self

DEBOUNCE_SECONDS = 0.5  # a launcher may pass on the Ctrl-C that the terminal has already sent


class Interruption:
    """The first signal sets ``requested``; a second one raises ``KeyboardInterrupt``.

    Use it around a whole sweep and hand it down; entering it again inside is harmless. Outside the main
    thread, where Python delivers no signals, it is only a flag.
    """

    def __init__(self) -> None:
        self.requested = False
        self._requested_at = -math.inf
        self._depth = 0
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._depth += 1
        if self._depth == 1 and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            self._handlers.clear()

    def _receive(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.requested and now - self._requested_at > DEBOUNCE_SECONDS:
            raise KeyboardInterrupt
        if not self.requested:
            self.requested, self._requested_at = True, now
