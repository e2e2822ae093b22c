"""What a recorder may tell of trials: the protocol, and the null object of a private selection.

A private selection is recorded with `Untracked`. It is no `Tracker` and inherits nothing: what is added to `Tracker`
does not reach it, and a method that is added to `TrialTracker` and not here is an error of types and of names.
"""

from collections.abc import Mapping
from typing import Protocol

from sweeper.records import TrialStatus
from sweeper.store.rehearsal_records import RehearsedConfiguration


class TrialTracker(Protocol):
    """Told of every trial; no method fails or waits."""

    def start_trial(self, trial: str, params: Mapping[str, object], tags: Mapping[str, str]) -> None:
        """Open the trial's run, with its parameters nested as in the spec."""

    def log(self, trial: str | None, epoch: int, metrics: Mapping[str, float]) -> None:
        """Write metrics of one epoch of a trial, or of the sweep."""

    def tag(self, trial: str | None, tags: Mapping[str, str]) -> None:
        """Set tags of a trial, or of the sweep."""

    def end_trial(self, trial: str, status: TrialStatus, reason: str = "") -> None:
        """End the trial's run."""

    def run_id(self, trial: str | None = None) -> str | None:
        """Return the run of a trial, or of the sweep, once there is one."""


class RehearsalTracker(Protocol):
    """Told of every configuration that was rehearsed; it neither fails nor waits."""

    def rehearsal(self, configuration: RehearsedConfiguration) -> None:
        """Make a run of it that is none of a trial."""


class Untracked:
    """The null object: it forgets its arguments, holds nothing, and knows no store."""

    __slots__ = ()

    def start_trial(self, trial: str, params: Mapping[str, object], tags: Mapping[str, str]) -> None:
        """Forget it."""

    def log(self, trial: str | None, epoch: int, metrics: Mapping[str, float]) -> None:
        """Forget it."""

    def tag(self, trial: str | None, tags: Mapping[str, str]) -> None:
        """Forget it."""

    def end_trial(self, trial: str, status: TrialStatus, reason: str = "") -> None:
        """Forget it."""

    def run_id(self, trial: str | None = None) -> str | None:  # noqa: ARG002
        """Return ``None``: there is no run."""
        return None
