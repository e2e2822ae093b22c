"""What a worker process does: it asks for trials, trains them and tells of them, until its connection closes.

Whatever a trial reports has been answered before it draws anything more: rows are sent together and answered together,
so that the driver is woken once for all trials of a process. Nothing leaves a worker but through its connection and the
files that its rows name.
"""

import contextlib
import os
import select
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sweeper.backend.placed_data import from_memory
from sweeper.backend.workers.messages import Assignment, Report, Task, TrialReport
from sweeper.backend.workers.trial_group import TrialGroup

FIRST_VICTIM = "900"  # of 1000: what the system kills first where memory runs out


def work(connection: int, rows: int, *lives: int) -> None:
    """Serve the driver at the other end of a connection, for as long as others live: what a worker process runs."""
    threading.Thread(target=_end_with, args=(lives,), daemon=True).start()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_VICTIM, encoding="ascii")
    data = from_memory(rows)
    silence()
    serve(Connection(connection), data)


def _end_with(lives: Sequence[int]) -> None:
    """End this process as soon as nobody holds the other end of one of these pipes, whatever it is doing."""
    select.select(lives, [], [])
    os._exit(1)


def silence() -> None:
    """Throw away what this process writes to its output: it may quote data."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    os.close(sink)


def serve(connection: Connection, data: Any) -> None:
    """Train what comes through a connection until it closes."""
    group: TrialGroup | None = None
    rows: list[TrialReport] = []
    with contextlib.suppress(EOFError, OSError):
        while True:
            connection.send(Report() if group is None else Report(tuple(rows), group.free))
            assignment: Assignment = connection.recv()
            if assignment.task is not None:
                group = make_group(assignment.task, data)
            if group is not None:
                rows = group.follow(assignment)


def make_group(task: Task, data: Any) -> TrialGroup:
    """Return the trials of a worker, none so far, for a task."""
    return TrialGroup(task.unpack(), {**task.constants, "data": data}, task.stack)
