"""The protocol of an executor, what trains a run of trials: the local pool, or a Ray cluster."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sweeper.backend.endings import RunResult
from sweeper.backend.interruption import Interruption
from sweeper.backend.queue import TrialQueue
from sweeper.backend.trainable import CliplessTrial, Constants
from sweeper.backend.trial_states import TrialStates
from sweeper.privacy.spending import Spending
from sweeper.trials.settings import TrialSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What a backend has to know of a run of trials.

    Attributes:
        trial: what all trials share.
        folder: of the sweep; the trials write checkpoints and models there.
        interruption: where Ctrl-C is noted.
        should_stop: asked at least ten times a second; what it returns, unless ``None``, ends the run in that way.
        hours: the run stops after this long.
        trial_hours: a trial stops after this long.
        storage: URL through which nodes exchange files where they share no disk.
        spending: what gives the trials their noise, where their configurations do not.
    """

    trial: TrialSettings
    folder: Path
    interruption: Interruption
    should_stop: Callable[[], RunResult | None]
    hours: float | None = None
    trial_hours: float | None = None
    storage: str | None = None
    spending: Spending

    def constants(self) -> Constants:
        """Return what the configuration of every trial holds, but for the data."""
        folder = str(self.folder.resolve())
        return {"settings": self.trial, "spending": self.spending, "folder": folder, "storage": self.storage}


class Backend(Protocol):
    """Trains runs of trials, one run after the other, on data that it was opened with."""

    @property
    def statements(self) -> tuple[str, ...]:
        """What its user should know of it, one sentence each."""

    def run(
        self, kind: type[CliplessTrial], queue: TrialQueue, states: TrialStates, settings: RunSettings
    ) -> RunResult:
        """Train trials until there are enough, time is up, or a request to stop arrives.

        A trial whose process dies is started again, ``trial_states.MOST_RESTARTS`` times without coming further.

        Args:
            kind: what the trials are.
            queue: says which trial starts next.
            states: takes every start, row and end.
            settings: what else there is to know.

        Raises:
            SweeperError: no process can train, or the hooks of ``states`` have failed.
            KeyboardInterrupt: on a second Ctrl-C, once the trials have been closed.

        Guarantees:
            A trial draws nothing more before ``states`` has taken every row that it has reported.
        """
