"""The records of a running sweep, read as they are written: each row once, however long the sweep runs.

A page that looks again and again would otherwise parse every row every time. Only whole lines count; a file that was
replaced, or cut behind what was read of it, is read again from its beginning.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from sweeper.errors import RecordError
from sweeper.records import Point, PointKey, Trial
from sweeper.store.jsonl import parse_lines
from sweeper.store.rehearsal_records import RehearsalRecord, rehearsals_of
from sweeper.store.sweep_folder import DecisionRow, SweepFolder, points_of, trials_of

Row = dict[str, Any]
T = TypeVar("T")


class JsonlTail:
    """What is new in one file of rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._inode = 0
        self._offset = 0
        self.lines = 0

    def read(self) -> tuple[list[Row], bool]:
        """Return the rows since the last call, and whether those before them no longer count.

        Raises:
            RecordError: unreadable, or broken in what is new; the next call tries again.
        """
        return self.read_as(lambda rows, _path, _first: rows)

    def read_as(self, make: Callable[[list[Row], Path, int], T]) -> tuple[T, bool]:
        """Return what is made of the rows since the last call, and whether those before them no longer count.

        ``make`` is given the rows, the file, and the number of the first of them in it.

        Raises:
            RecordError: as `read`, and whatever ``make`` raises: these rows are then read again by the next call.
        """
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                inode, replaced = status.st_ino, status.st_ino != self._inode or status.st_size < self._offset
                offset, lines = (0, 0) if replaced else (self._offset, self.lines)
                file.seek(offset)
                content = file.read()
        except FileNotFoundError:
            inode, replaced, offset, lines, content = 0, True, 0, 0, b""
        except OSError as error:
            raise RecordError(f"Cannot read {self.path}: {error.strerror or error}") from error
        whole = content[: content.rfind(b"\n") + 1]
        rows = parse_lines(whole, self.path, lines + 1)
        made, fresh = make(rows, self.path, lines + 1), replaced and self._inode != 0
        self._inode, self._offset, self.lines = inode, offset + len(whole), lines + len(rows)
        return made, fresh


class SweepTail:
    """What one sweep has recorded, each kind in the order of its arrival, as far as `look` has read it."""

    def __init__(self, folder: SweepFolder) -> None:
        names = ("trials", "points", "decisions")
        self._trials, self._points, self._decisions = (JsonlTail(folder.path / f"{name}.jsonl") for name in names)
        self.trials: dict[str, Trial] = {}
        self.trial_rows: list[Trial] = []  # several of each trial
        self.points: dict[PointKey, Point] = {}
        self.decisions: list[DecisionRow] = []
        self._rehearsals = JsonlTail(folder.rehearsals)
        self.rehearsals: list[RehearsalRecord] = []

    def look(self) -> None:
        """Take in what was written since the last look; points before trials, so that no point lacks its trial.

        Raises:
            RecordError: a file that cannot be read, or a broken row; so does the next look, until it is mended.
        """
        found, fresh = self._points.read_as(points_of)
        self.points = ({} if fresh else self.points) | {point.key: point for point in found}
        known, fresh = self._trials.read_as(trials_of)
        self.trials = ({} if fresh else self.trials) | {trial.id: trial for trial in known}
        self.trial_rows = ([] if fresh else self.trial_rows) + known
        decisions, fresh = self._decisions.read()
        self.decisions = ([] if fresh else self.decisions) + cast(list[DecisionRow], decisions)
        rehearsals, fresh = self._rehearsals.read_as(rehearsals_of)
        self.rehearsals = ([] if fresh else self.rehearsals) + rehearsals
