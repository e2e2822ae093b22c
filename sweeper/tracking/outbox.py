"""An outbox: rows delivered in order by a thread of their own, kept in a file while the receiver does not take them.

The driver puts rows and goes on: ``put`` neither blocks nor raises. When a delivery fails, its rows and all
later ones go to the file, and the whole file is tried again after a pause that doubles. Until a row is delivered or in
that file it is in another one, where the next outbox finds it if this one's process is killed. Rows may therefore be
delivered twice, never out of order: the receiver must accept that. What rows mean is not known here.
"""

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from sweeper.errors import RecordError, one_line
from sweeper.store.jsonl import JsonlFile, replace_file, to_text

FLUSH_SECONDS = 3.0  # between two deliveries: the store takes many rows at hardly more than the cost of one
FLUSH_PAUSES = 10.0  # and so many times as long as the last one took: trials need the processor more
LONGEST_FLUSH_SECONDS = 20.0
FIRST_PAUSE_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 60.0

JsonRow = Mapping[str, object]
JsonRows = Sequence[JsonRow]


@dataclass(frozen=True, slots=True)
class Undelivered:
    """What was not delivered when an outbox was closed: how many rows, where they wait, and why."""

    rows: int = 0
    path: Path | None = None
    trouble: str = ""


class Outbox:
    """Delivers rows to one receiver.

    Args:
        deliver: takes rows in order; an exception means that they must come again.
        path: the file for rows that wait; rows left in it by an earlier run are delivered first.
        header: the first row of both files, which says where their rows belong.
        clock: returns seconds.
    """

    def __init__(
        self,
        deliver: Callable[[JsonRows], None],
        path: Path,
        header: JsonRow,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._deliver = deliver
        self._path = path
        self._header = header
        self._clock = clock
        self._file = JsonlFile(path, patient=True)
        self.set_aside: list[str] = []  # a sentence for each file that was broken
        for one in (path, ahead_of(path)):
            self._head_anew(one)
        self._waiting = len(self._sound_rows(path))  # rows in the file
        self._in_hand: JsonRows = ()  # rows that are in neither the queue nor the file
        self._queue: queue.SimpleQueue[JsonRow] = queue.SimpleQueue()
        self._ahead_path = ahead_of(path)
        self._ahead = JsonlFile(self._ahead_path, patient=True)
        for row in self._sound_rows(self._ahead_path):
            self._queue.put(row)
        self._is_ahead_empty = not self._ahead.read()
        self._has_earlier = not self._queue.empty()
        self._putting = threading.Lock()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._abandoned = False
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._retry_at = 0.0
        self._trouble = ""
        self._begun = False
        self._thread = threading.Thread(target=self._work, name=f"outbox {path.name}", daemon=True)

    def start(self) -> None:
        """Begin to deliver, if that has not begun and there may be rows."""
        if not (self._begun or self._abandoned):
            self._begun = True
            self._thread.start()

    def put(self, row: JsonRow) -> None:
        """Hand over one row, of JSON values."""
        with self._putting:
            if self._abandoned and not self._begun:
                return
            if self._is_ahead_empty:
                self._ahead.append(self._header)
                self._is_ahead_empty = False
            self._ahead.append(row)
            self._queue.put(row)

    def withdraw(self) -> None:
        """Forget every row, those that are put from now on too, unless it has begun or rows of an earlier run wait."""
        if self._begun or self._waiting or self._has_earlier:
            return
        self._abandoned = True
        self._drain()
        self._forget_ahead()

    def close(self, timeout_seconds: float) -> Undelivered:
        """Deliver what is left, for no longer than the timeout; put the rest into the file, all if it never began."""
        self._closing.set()
        if self._begun:
            self._thread.join(timeout_seconds)
        with self._lock:
            if (not self._begun or self._thread.is_alive()) and not self._abandoned:
                self._abandoned = True
                silent = f"no answer within {timeout_seconds:g} seconds" if self._begun else "the store was not asked"
                self._trouble = self._trouble or silent
                self._keep([*self._in_hand, *self._drain()])
                self._forget_ahead()
            return Undelivered(self._waiting, self._path, self._trouble) if self._waiting else Undelivered()

    def _work(self) -> None:
        closing = False
        while not closing:
            closing = self._closing.is_set()
            with self._lock:
                rows = self._in_hand = self._drain()
            began = self._clock()
            self._step(rows, patient=not closing)
            took = self._clock() - began
            self._forget_ahead()
            self._closing.wait(max(FLUSH_SECONDS, min(FLUSH_PAUSES * took, LONGEST_FLUSH_SECONDS)))

    def _step(self, rows: JsonRows, *, patient: bool) -> None:
        if self._waiting:  # earlier rows go first
            with self._lock:
                if self._abandoned:
                    return
                self._keep(rows)
                self._in_hand = ()
            if self._file.pending or (patient and self._clock() < self._retry_at):
                return
            with self._lock:
                if self._abandoned:
                    return
                rows = self._sound_rows(self._path)
                if not rows:  # set aside, or deleted by somebody: later rows begin another file
                    self._forget()
        if rows:
            self._try(rows)

    def _try(self, rows: JsonRows) -> None:
        try:
            self._deliver(rows)
            trouble = ""
        except Exception as error:
            trouble = one_line(error)
        with self._lock:
            if self._abandoned:
                return
            if trouble and not self._waiting:
                self._keep(rows)
            if trouble:
                self._retry_at = self._clock() + self._pause_seconds
                self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)
            else:
                self._forget()
            self._trouble = trouble
            self._in_hand = ()

    def _drain(self) -> list[JsonRow]:
        rows = []
        while not self._queue.empty():
            rows.append(self._queue.get())
        return rows

    def _keep(self, rows: JsonRows) -> None:
        if rows and not self._waiting:
            self._file.append(self._header)
        for row in rows:
            self._file.append(row)
        self._file.flush()
        self._waiting += len(rows)

    def _forget_ahead(self) -> None:
        with self._putting:
            if self._queue.empty() and not self._file.pending:
                self._ahead_path.unlink(missing_ok=True)
                self._ahead = JsonlFile(self._ahead_path, patient=True)
                self._is_ahead_empty = True

    def _head_anew(self, path: Path) -> None:
        """Let rows that an earlier run left say that they belong where this one's do: its folder may be a copy."""
        with suppress(RecordError):  # of a broken file, which is set aside
            rows = JsonlFile(path).read()
            if rows and to_text(rows[0]) != to_text(self._header):
                replace_file(path, "".join(f"{to_text(row)}\n" for row in (self._header, *rows[1:])))

    def _sound_rows(self, path: Path) -> JsonRows:
        """Return the rows that wait in a file; a broken one is kept under another name, and is in nobody's way."""
        try:
            return stored_rows(path)
        except RecordError as error:
            names = (f"{path.stem}-broken{number}{path.suffix}" for number in count(1))
            aside = next(other for other in map(path.with_name, names) if not other.exists())
            try:
                path.replace(aside)
            except OSError:
                aside = path
            self.set_aside.append(f"{error}; until then its rows are kept in {aside}, and not delivered")
            return []

    def _forget(self) -> None:
        if self._waiting:
            self._path.unlink(missing_ok=True)
            self._file = JsonlFile(self._path, patient=True)
        self._waiting = 0
        self._pause_seconds = FIRST_PAUSE_SECONDS


def ahead_of(path: Path) -> Path:
    """Return the file of the rows that are neither delivered nor in the file ``path`` yet."""
    return path.with_name(f"{path.stem}-ahead{path.suffix}")


def stored_rows(path: Path) -> JsonRows:
    """Return the rows that wait in a file, without its header."""
    return JsonlFile(path).read()[1:]
