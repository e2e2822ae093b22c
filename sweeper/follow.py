"""The records of a running sweep, read as they are written: each row once, however long the sweep runs.

Whoever looks again and again would otherwise parse every row every time. Only whole lines count; a file that was
replaced, or cut behind what was read of it, is read again from its beginning.
"""

import os
from pathlib import Path
from typing import Any

from sweeper.errors import RecordError
from sweeper.records import Point, Trial
from sweeper.rows import parse_lines
from sweeper.store import SweepFolder, points_of, trials_of


class RowTail:
    """What is new in one file of rows.

    Args:
        path: of the file; it need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._inode = 0
        self._offset = 0
        self.lines = 0

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """Return the rows since the last call, and whether those before them no longer count.

        Raises:
            RecordError: unreadable, or broken in what is new; the next call tries again.
        """
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                begun = self._inode and (status.st_ino != self._inode or status.st_size < self._offset)
                if begun:
                    self._offset = self.lines = 0
                self._inode = status.st_ino
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            begun, self._inode, self._offset, self.lines = bool(self._inode), 0, 0, 0
            return [], begun
        except OSError as error:
            raise RecordError(f"Cannot read {self.path}: {error.strerror or error}") from error
        whole = content[: content.rfind(b"\n") + 1]
        rows = parse_lines(whole, self.path, self.lines + 1)
        self._offset += len(whole)
        self.lines += len(rows)
        return rows, bool(begun)


class Follower:
    """Trials, points and decisions of one sweep, as far as `look` has read them.

    Args:
        folder: of the sweep.

    Attributes:
        trials: by id, in the order in which they started.
        points: by trial and epoch, in the order in which they arrived.
        decisions: what schedulers decided, in that order.
    """

    def __init__(self, folder: SweepFolder) -> None:
        names = ("trials", "points", "decisions")
        self._trials, self._points, self._decisions = (RowTail(folder.path / f"{name}.jsonl") for name in names)
        self.trials: dict[str, Trial] = {}
        self.points: dict[tuple[str, int], Point] = {}
        self.decisions: list[dict[str, Any]] = []

    def look(self) -> None:
        """Take in what was written since the last look; points before trials, so that no point lacks its trial.

        Raises:
            RecordError: a file that cannot be read, or a broken row.
        """
        points, fresh = self._points.read()
        found = points_of(points, self._points.path, self._points.lines - len(points) + 1)
        self.points = ({} if fresh else self.points) | {point.key: point for point in found}
        trials, fresh = self._trials.read()
        known = trials_of(trials, self._trials.path, self._trials.lines - len(trials) + 1)
        self.trials = ({} if fresh else self.trials) | {trial.id: trial for trial in known}
        decisions, fresh = self._decisions.read()
        self.decisions = ([] if fresh else self.decisions) + decisions
