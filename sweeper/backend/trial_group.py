"""The trials of one worker process, of which those of one shape are trained as one, and the others one at a time.

A trial is *waiting* until its plan is answered and it has said that it will draw noise; then it is *training*. Rows are
those that a lone trial reports, in the same order: whether a trial is trained in a stack shows in none of them.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeper.backend.messages import Failure, Orders, Told
from sweeper.backend.trainable import CliplessTrial
from sweeper.trials.stream import EpochRow, PlanRow, TrialRow


@dataclass(slots=True, eq=False)
class _Trial:
    """A trial of this process; ``is_announced`` once it has said that it will draw noise."""

    work: CliplessTrial
    folder: "tempfile.TemporaryDirectory[str] | None" = None
    is_announced: bool = False


class TrialGroup:
    """Trains what the driver orders, a round at a time: one epoch of every trial that is training.

    Args:
        kind: of the trials.
        constants: what every configuration holds.
        most: how many trials are trained as one; ``None`` for as many as pay.
        shares_folder: whether the driver sees the folder in which models are saved.
    """

    def __init__(
        self,
        kind: type[CliplessTrial],
        constants: Mapping[str, Any],
        most: int | None = 1,
        *,
        shares_folder: bool = True,
    ) -> None:
        self._kind, self._constants, self._shares_folder = kind, dict(constants), shares_folder
        self._most = most
        self._waiting: dict[str, _Trial] = {}
        self._training: dict[str, _Trial] = {}
        self._files: dict[str, bytes] = {}

    @property
    def free(self) -> int:
        """How many more trials it can take."""
        return max(0, 1 - len(self._waiting) - len(self._training))

    def take_files(self) -> dict[str, bytes]:
        """Return the models that the last rows name, where the driver does not see them."""
        files, self._files = self._files, {}
        return files

    def follow(self, orders: Orders) -> list[Told]:
        """Do what the driver says, and return what is to be told of it before anything more is drawn."""
        for trial in orders.stopped:
            self._drop(trial)
        told = [self._begun(config) for config in orders.trials]
        told += self._announced()
        return told or self._round()

    def _begun(self, config: Mapping[str, Any]) -> Told:
        trial = str(config["trial"])
        try:
            self._waiting[trial] = self._make(config)
        except Exception as error:
            return self._failed(trial, error)
        return self._step(trial, self._waiting[trial])

    def _make(self, config: Mapping[str, Any]) -> _Trial:
        made = _Trial(self._kind.__new__(self._kind))
        given = self._constants | dict(config)
        if not self._shares_folder:
            made.folder = tempfile.TemporaryDirectory(prefix="trial-", ignore_cleanup_errors=True)
            (Path(made.folder.name) / "models").mkdir()
            given |= {"folder": made.folder.name, "storage": None}
        made.work.setup(given)
        return made

    def _announced(self) -> list[Told]:
        """Return the first draws of those that are trained next and have not said so."""
        if self._training:
            return []
        chosen = [(trial, one) for trial, one in list(self._waiting.items())[:1] if not one.is_announced]
        for _, one in chosen:
            one.is_announced = True
        return [self._step(trial, one) for trial, one in chosen]

    def _round(self) -> list[Told]:
        for trial in [trial for trial, one in self._waiting.items() if one.is_announced]:
            self._training[trial] = self._waiting.pop(trial)
        return [self._next_row(trial) for trial in list(self._training)]

    def _next_row(self, trial: str) -> Told:
        _, row = told = self._step(trial, self._training[trial])
        if isinstance(row, PlanRow):  # it begins again, with smaller passes
            self._waiting[trial] = self._training.pop(trial)
            self._waiting[trial].is_announced = False
        elif isinstance(row, EpochRow) and row.done:
            self._drop(trial)
        return told

    def _step(self, trial: str, one: _Trial) -> Told:
        try:
            row = one.work.step()
            self._collect(one, row)
        except Exception as error:
            return self._failed(trial, error)
        return trial, row

    def _collect(self, one: _Trial, row: TrialRow) -> None:
        if one.folder is None or not isinstance(row, EpochRow):
            return
        for name in row.models:
            path = Path(one.folder.name) / name
            self._files[name] = path.read_bytes()
            path.unlink()

    def _failed(self, trial: str, error: Exception) -> Told:
        self._drop(trial)
        return trial, Failure.of(error)

    def _drop(self, trial: str) -> None:
        one = self._waiting.pop(trial, None) or self._training.pop(trial, None)
        if one is not None:
            one.work.cleanup()
            if one.folder is not None:
                one.folder.cleanup()
