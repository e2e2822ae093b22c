"""What others ask of a running sweep: to stop, to stop one trial, to try a configuration next.

Each request is a row that a process appends to ``requests.jsonl``; the driver looks there twice a second. A
configuration that is asked for waits in the file until it is tried, in a later run of the sweep too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweeper.errors import RecordError
from sweeper.store.jsonl import JsonlFile, append_alone
from sweeper.store.lock import is_driven
from sweeper.store.sweep_folder import SweepFolder

NAME = "requests.jsonl"


@dataclass(slots=True)
class News:
    """What was asked for since the last look: to stop all, to stop trials after their epoch, to try configurations."""

    stop: bool = False
    trials: list[str] = field(default_factory=list)
    configurations: list[dict[str, Any]] = field(default_factory=list)


class Requests:
    """The driver's side. Requests to stop that are older than this object are over."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._rows = 0
        self._size = 0
        self.earlier = self.look().configurations

    def look(self) -> News:
        """Return what is new."""
        news = News()
        try:
            size = self._path.stat().st_size
        except FileNotFoundError:
            return news
        if size == self._size:
            return news
        rows = JsonlFile(self._path).read()
        for row in rows[self._rows :]:
            if "try" in row:
                news.configurations.append(dict(row["try"]))
            elif row.get("stop") is True:
                news.stop = True
            else:
                news.trials.append(str(row.get("stop")))
        self._rows, self._size = len(rows), size
        return news


def ask_to_stop(folder: Path, trial: str | None = None, *, driven: bool | None = None) -> None:
    """Ask the driver of a sweep to end it, or one trial after the epoch that it is in.

    ``driven``: whether there is a driver, from who knows; looked for on this machine by default.

    Raises:
        RecordError: no driver, no such trial that is running, or a private selection that has not ended.
    """
    sweep = SweepFolder(folder)
    sweep.read_manifest()
    if not (is_driven(folder) if driven is None else driven):
        raise RecordError(f"Expected a sweep that runs on this machine, but no process drives {folder}")
    if trial is not None:
        running = [one.id for one in sweep.trials().values() if one.status.value == "running"]
        if trial not in running:
            known = ", ".join(running) or "none"
            raise RecordError(f"Expected a running trial of {folder}, got {trial!r}; running: {known}")
    _append(folder, {"stop": trial or True})


def enqueue(folder: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """Ask for a configuration to be tried next, now or when the sweep is resumed or extended.

    ``values`` are as an entry of ``search.first``: open hyperparameters by dotted name; those left out are sampled.

    Returns:
        The values by the names of the open hyperparameters.

    Raises:
        SpecError: not values of this sweep's open hyperparameters.
        RecordError: not the folder of a sweep, or not written.
    """
    manifest = SweepFolder(folder).read_manifest()
    if manifest.selects_privately:
        raise RecordError(
            f"Expected a sweep that tries what it is given, but {folder} selects privately from one prior"
        )
    spec = manifest.read_spec()
    chosen = dict(spec.with_search(first=[dict(values)], trials=spec.trials).first[-1])
    _append(folder, {"try": chosen})
    return chosen


def _append(folder: Path, row: Mapping[str, Any]) -> None:
    append_alone(folder / NAME, row)
