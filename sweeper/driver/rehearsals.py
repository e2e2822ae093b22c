"""Rehearsing configurations on public rows before a sweep spends anything: what they showed is kept in the folder.

A rehearsal is no trial: it reads no training row, has no entry in the ledger, no point and no model.
"""

from collections.abc import Mapping
from typing import Any

from clipless.privacy.events import PoissonGaussian
from sweeper.backend.queue import TrialQueue
from sweeper.backend.trial_states import Hooks, TrialStates
from sweeper.privacy.pricing import signal_of
from sweeper.records import TrialStatus
from sweeper.search.finalists import Explored
from sweeper.search.space import sample
from sweeper.specification.search_space import SearchSpace
from sweeper.store.jsonl import JsonlFile
from sweeper.store.sweep_folder import SweepFolder
from sweeper.trials.rehearsal import HALVES
from sweeper.trials.stream import EpochRow

BEFORE_ALL = -1  # the stage of a rehearsal


class Rehearsals:
    """The rehearsals of one sweep: each configuration on either half of the public rows.

    It is asked for trainings as a search is; those that an earlier run of the sweep has ended are not among them.

    Args:
        count: of configurations.
        slot: that gives each of them its noise.
    """

    def __init__(self, space: SearchSpace, count: int, folder: SweepFolder, slot: PoissonGaussian) -> None:
        self._folder, self._slot = folder, slot
        self._file = JsonlFile(folder.rehearsals, patient=True)
        self._rows = {str(row["rehearsal"]): row for row in self._file.read()}
        proposals = sample(space, count)
        self.proposals = {f"r{HALVES * i + half + 1:04d}": p for i, p in enumerate(proposals) for half in range(HALVES)}
        self._left = [name for name in self.proposals if name not in self._rows]
        self.open: dict[str, dict[str, Any]] = {}
        self.asked = 0
        self._shown: dict[str, dict[str, Mapping[str, float]]] = {}

    @property
    def total(self) -> int:
        """How many trainings there are in all."""
        return len(self.proposals)

    @property
    def done(self) -> int:
        """How many of them have ended."""
        return len(self._rows)

    def ask(self) -> str:
        """Return the next training."""
        name = self._left[self.asked]
        self.asked += 1
        self.open[name] = dict(self.proposals[name])
        return name

    def queue(self) -> TrialQueue:
        """Return what starts those that are left."""
        return TrialQueue(self, len(self._left))

    def states(self) -> TrialStates:
        """Return what takes their rows."""
        return TrialStates(Hooks(on_epoch=self._on_epoch, on_end=self._on_end, on_failure=self._on_failure))

    def explored(self) -> list[Explored]:
        """Return what each configuration has shown: the means over both halves, of every epoch of both."""
        names = list(self.proposals)
        return [
            Explored(
                proposal=self.proposals[names[i]],
                signal=signal_of(self._slot),
                stage=BEFORE_ALL,
                points=self._means(names[i : i + HALVES]),
            )
            for i in range(0, len(names), HALVES)
        ]

    def _means(self, halves: list[str]) -> list[dict[str, float]]:
        shown = [self._rows.get(name, {}).get("points", {}) for name in halves]
        common = [key for key in shown[0] if all(key in points for points in shown)]
        return [
            {name: sum(points[key][name] for points in shown) / HALVES for name in shown[0][key] if name != "epsilon"}
            for key in common
        ]

    def _on_epoch(self, name: str, row: EpochRow) -> None:
        points = self._shown.setdefault(name, {})
        points[f"{row.epoch}"] = row.values
        for one in row.free:
            points[f"{row.epoch} {one.made_from}"] = one.values

    def _on_end(self, name: str, status: TrialStatus, reason: str, _started: int) -> None:
        if status is TrialStatus.INTERRUPTED:
            return
        points = self._shown.pop(name, {}) if status is TrialStatus.COMPLETED else {}
        row = {"rehearsal": name, "proposal": self.proposals[name], "reason": reason, "points": points}
        self._file.append(row)
        self._rows[name] = row

    def _on_failure(self, name: str, error: str) -> None:
        self._folder.save_failure(error, name)
