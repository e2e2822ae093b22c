"""The stream of what happens in a sweep, as server-sent events.

Events are ``point`` (a row of points; noisy scores as estimates with their intervals, as they stand when it is sent),
``trial`` (how a trial ended), ``status`` (when it has changed) and ``end``. The
id of an event says how many rows of points and of trials came before and with it, so that a client that lost the
stream resumes after the last event it has, also when the service was started again meanwhile. Sweeps are read once
for all streams.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anyio import to_thread
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from sweeper.adapters import dump, parse
from sweeper.errors import RefusalError, SweeperError
from sweeper.records import Point, SweepStatus
from sweeper.results.estimates import estimate_points
from sweeper.service.responses.views import has_ended
from sweeper.store.jsonl import to_text
from sweeper.store.sweep_folder import SweepFolder
from sweeper.store.tail import JsonlTail, Row, SweepTail

LOOK_SECONDS = 1.0
PING_SECONDS = 15.0
RETRY_MILLISECONDS = 3000
BATCH = 500

Status = Callable[[str], Awaitable[tuple[SweepStatus, bytes]]]


@dataclass
class _Feed:
    """The rows of one sweep, for as long as a client streams it."""

    points: list[str] = field(default_factory=list)
    trials: list[str | None] = field(default_factory=list)
    status: bytes = b""
    state: SweepStatus | None = None
    generation: int = 0
    is_over: bool = False
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    readers: int = 0
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """How many rows of points and trials a client has, and whether it has seen the end."""

    points: int = 0
    trials: int = 0
    is_end: bool = False

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Read the id of an event.

        Raises:
            RefusalError: it is none.
        """
        parts = text.split(".")
        numbers = [int(part) for part in parts[:2] if part.isascii() and part.isdecimal() and len(part) < 10]
        if len(numbers) != 2 or parts[2:] not in ([], ["end"]):
            raise RefusalError("Expected the id of an event of this stream (Last-Event-ID)", 400)
        return cls(numbers[0], numbers[1], bool(parts[2:]))

    def __str__(self) -> str:
        return f"{self.points}.{self.trials}" + ".end" * self.is_end

    def is_last(self, folder: Path) -> bool:
        """Whether a client has seen the end of the sweep in a folder, and all of its rows."""
        rows = tuple(_count_rows(folder / name) for name in ("points.jsonl", "trials.jsonl"))
        return self.is_end and (self.points, self.trials) == rows


class Feeds:
    """The streams of all sweeps."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._feeds: dict[str, _Feed] = {}

    async def stream(
        self, name: str, folder: Path, position: Position | None, may_read: Callable[[], bool] = lambda: True
    ) -> AsyncIterator[bytes]:
        """Yield what happens until the sweep has ended.

        A client that no longer ``may_read`` gets no further event. Without a position the stream begins with
        the first row.
        """
        feed = self._feeds.setdefault(name, _Feed())
        feed.readers += 1
        try:
            if feed.task is None:
                feed.task = asyncio.create_task(self._follow(name, folder, feed))
            yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
            async for event in _events(feed, position or Position()):
                if not may_read():
                    return
                yield event
        finally:
            feed.readers -= 1
            if not feed.readers and feed.task is not None:
                feed.task.cancel()
                self._feeds.pop(name, None)

    async def _follow(self, name: str, folder: Path, feed: _Feed) -> None:
        """Read what is new, now and then, and wake the streams."""
        rows = _RecordReader(folder)
        while not feed.is_over:
            found = _NewRecords()
            try:
                state, status = await self._status(name)
                found = await to_thread.run_sync(rows.read)
            except SweeperError:  # deleted, or broken: a client that connects again gets the error
                feed.is_over = True
            else:
                found.is_news = found.is_news or status != feed.status
                feed.state, feed.status = state, status
            if found.is_news or feed.is_over:
                async with feed.changed:
                    feed.points = found.points if found.is_fresh else feed.points + found.points
                    feed.trials = found.trials if found.is_fresh else feed.trials + found.trials
                    feed.generation += 1
                    feed.changed.notify_all()
            await asyncio.sleep(LOOK_SECONDS)


class EventStream(StreamingResponse):
    """A stream during which ``counted`` is entered: from before the first byte until the client has gone."""

    media_type = "text/event-stream"

    def __init__(self, content: AsyncIterator[bytes], counted: AbstractContextManager[None]) -> None:
        super().__init__(content, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._content, self._counted = content, counted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; refuse, before anything is sent, where there are too many."""
        with self._counted:
            try:
                await super().__call__(scope, receive, send)
            finally:
                close: Any = getattr(self._content, "aclose", None)
                if close is not None:
                    await close()


async def _events(feed: _Feed, at: Position) -> AsyncIterator[bytes]:
    seen, told = -1, b""
    while True:
        if feed.generation in (0, seen) and not await _woken(feed, seen):
            yield b": still here\n\n"
            continue
        seen = feed.generation
        if feed.status != told:
            told = feed.status
            yield _event("status", str(at), told.decode())
        at = Position(min(at.points, len(feed.points)), min(at.trials, len(feed.trials)))
        while at.points < len(feed.points):
            batch = feed.points[at.points : at.points + BATCH]
            yield b"".join(
                _event("point", str(Position(at.points + i, at.trials)), row) for i, row in enumerate(batch, start=1)
            )
            at = Position(at.points + len(batch), at.trials)
        for row in feed.trials[at.trials :]:
            at = Position(at.points, at.trials + 1)
            if row is not None:
                yield _event("trial", str(at), row)
        if feed.is_over:
            return
        if feed.state is not None and feed.state.is_end and seen == feed.generation:
            yield _event("end", str(Position(at.points, at.trials, is_end=True)), told.decode())
            return


async def _woken(feed: _Feed, seen: int) -> bool:
    """Wait until there is something new; False where nothing was for a while."""
    async with feed.changed:
        try:
            await asyncio.wait_for(feed.changed.wait_for(lambda: feed.generation not in (0, seen)), PING_SECONDS)
        except TimeoutError:
            return False
    return True


@dataclass
class _NewRecords:
    """Rows that are new, or all rows where the earlier ones no longer count."""

    points: list[str] = field(default_factory=list)
    trials: list[str | None] = field(default_factory=list)
    is_fresh: bool = False
    is_news: bool = False


class _RecordReader:
    """The rows of one sweep as texts; those of running trials are None, and those that say again how one ended."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._tail = folder, SweepTail(SweepFolder(folder))
        self._open()

    def read(self) -> _NewRecords:
        """Return what is new; the points of an ended trial come no later than its end."""
        trials, cut_trials = self._trials.read()
        points, cut_points = self._points.read()
        is_fresh = cut_trials or cut_points
        if is_fresh:
            self._open()
            trials, points = self._trials.read()[0], self._points.read()[0]
        is_news = bool(trials or points)
        shown = self._estimate(points) if points else points
        return _NewRecords([to_text(row) for row in shown], [self._end(row) for row in trials], is_fresh, is_news)

    def _end(self, row: Row) -> str | None:
        """Return how a trial ended; its row is written again once the tracking store has made its run."""
        told = to_text({key: row.get(key) for key in ("id", "status", "reason")}) if has_ended(row) else None
        known, self._ends[row["id"]] = self._ends.get(row["id"]), told
        return None if told == known else told

    def _open(self) -> None:
        self._points, self._trials = JsonlTail(self._folder / "points.jsonl"), JsonlTail(self._folder / "trials.jsonl")
        self._ends: dict[str, str | None] = {}

    def _estimate(self, rows: list[Row]) -> list[Row]:
        """Return rows of points with estimates in place of noisy scores, as the route of points gives them."""
        self._tail.look()
        if all(one.plan is None or one.plan.scores is None for one in self._tail.trials.values()):
            return rows
        stages = SweepFolder(self._folder).read_manifest().course.stages
        points = estimate_points(self._tail.points.values(), self._tail.trials, stages)
        found = {point.key: point for point in points}
        return [dump(found[parse(Point, row).key]) for row in rows]


def _count_rows(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n")
    except OSError:
        return 0


def _event(kind: str, id_: str, data: str) -> bytes:
    """Return one event; data is one line, as JSON is."""
    return f"event: {kind}\nid: {id_}\ndata: {data}\n\n".encode()


def as_line(content: Any) -> bytes:
    """Return JSON values as one line."""
    return json.dumps(content, ensure_ascii=True, sort_keys=True).encode()
