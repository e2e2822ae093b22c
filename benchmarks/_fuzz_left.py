"""What a fuzzed sweep has left in its folder, read from the files as they are, and what was done to it."""

import json
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from _fuzz_prices import read_account
from _fuzz_specs import Case

import clipless
from clipless.datasets import Dataset
from sweeper.specification.spec import Spec


@dataclass(frozen=True)
class History:
    """What was done to a sweep: each step, how it ended, and the ledger afterwards."""

    steps: Sequence[Mapping[str, Any]]
    outcomes: Sequence[Mapping[str, Any]]
    ledgers: Sequence[bytes]
    drawn: Mapping[str, Counter[str]]

    @property
    def was_killed(self) -> bool:
        """Whether a process of the sweep ended without having been asked."""
        return any(one["kind"] == "killed" for one in self.outcomes) or any(
            one.get("how") == "workers" for one in self.steps
        )

    @property
    def was_disturbed(self) -> bool:
        """Whether anything ended early, or somebody asked for something."""
        broken = any(one["kind"] in ("killed", "interrupted") for one in self.outcomes)
        return broken or self.was_killed or any("ends" in one or "asks" in one for one in self.steps)


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a file."""
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    found = []
    for line in lines:
        try:
            found.append(json.loads(line, parse_constant=_no_constant) if line else None)
        except ValueError:
            continue
    return [row for row in found if row is not None]


def _no_constant(text: str) -> float:
    raise AssertionError(f"{text} is no JSON")


class Left:
    """What a sweep has left in its folder."""

    def __init__(self, case: Case, folder: Path, history: History) -> None:
        self.case, self.folder, self.history = case, folder, history
        self.manifest = json.loads((folder / "sweep.json").read_text(encoding="utf-8"))
        self.account = read_account(folder / "ledger.jsonl")
        self.trials = {row["id"]: row for row in rows_of(folder / "trials.jsonl")}
        self.points = {key_of(row): row for row in rows_of(folder / "points.jsonl")}
        self.front = json.loads((folder / "front.json").read_text(encoding="utf-8"), parse_constant=_no_constant)
        self.objectives = [str(one["name"]) for one in self.front["objectives"]]

    @cached_property
    def spec(self) -> Spec:
        """The spec that is kept."""
        return Spec.from_mapping(self.manifest["spec"], str(self.folder.parents[1] / "spec.yaml"))

    @cached_property
    def data(self) -> Dataset:
        """The rows."""
        return clipless.datasets.load(**self.spec.data_options(None))

    @property
    def delta(self) -> float:
        """Of the guarantee."""
        return float(self.case.spec["privacy"]["delta"])

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left to do."""
        return self.manifest["status"] in ("completed", "stopped")

    @property
    def selects(self) -> bool:
        """Whether the winner was selected privately."""
        return bool(self.case.spec["search"].get("selection"))

    def epochs(self, trial: str) -> list[int]:
        """Return the epochs of a trial that have a point of their own."""
        return sorted(epoch for name, epoch, made_from in self.points if name == trial and not made_from)


def key_of(row: Mapping[str, Any]) -> tuple[str, int, str]:
    """Return what a point is known by."""
    return row["trial"], row["epoch"], row.get("made_from", "")


def run_checks(checks: Iterable[Callable[[Left], Iterator[str]]], left: Left) -> Iterator[str]:
    """Yield what checks find, each sentence behind the name of its check; one that cannot be made finds that."""
    for check in checks:
        name = check.__name__.removeprefix("check_")
        try:
            yield from (f"{name}: {wrong}" for wrong in check(left))
        except Exception:
            yield f"{name}: {traceback.format_exc()}"
