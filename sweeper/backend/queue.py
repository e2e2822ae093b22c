"""Which trial starts next: those to go on with, then new ones until there are enough."""

from collections import deque
from collections.abc import Callable, Iterable

from sweeper.records import Scalar
from sweeper.search.optuna_search import Proposer


class TrialQueue:
    """The trials of one run.

    Args:
        search: asked for new trials; what it holds open is what can be started.
        trials: how many in all, those of earlier runs of the sweep included.
        unfinished: trials of earlier runs to go on with.
        barriers: numbers of trials that have all ended before another is asked for.
        is_full: told how many trials are running, tells whether another one has no room until one of them has ended.
    """

    def __init__(
        self,
        search: Proposer,
        trials: int,
        unfinished: Iterable[str] = (),
        barriers: Iterable[int] = (),
        is_full: Callable[[int], bool] = lambda running: False,  # noqa: ARG005
    ) -> None:
        self._search, self._trials, self._barriers, self._is_full = search, trials, frozenset(barriers), is_full
        self._again = deque(unfinished)
        self._running: set[str] = set()

    @property
    def running(self) -> int:
        """How many trials are running."""
        return len(self._running)

    @property
    def finished(self) -> bool:
        """Whether every trial has ended."""
        return not (self._again or self._running) and self._search.asked >= self._trials

    @property
    def left(self) -> int:
        """How many trials could start now, with as many places as one likes."""
        until = min([one for one in self._barriers if one > self._search.asked] + [self._trials])
        return len(self._again) + (0 if self._waits() else max(0, until - self._search.asked))

    def start(self) -> tuple[str, dict[str, Scalar]] | None:
        """Return the next trial and its proposal, None if there is none now."""
        if self._again:
            trial = self._again.popleft()
        elif self._waits():
            return None
        elif self._search.asked < self._trials:
            trial = self._search.ask()
        else:
            return None
        self._running.add(trial)
        return trial, self._search.open[trial]

    def _waits(self) -> bool:
        """Whether a trial that is running has to end before another is asked for."""
        return bool(self._running) and (self._search.asked in self._barriers or self._is_full(self.running))

    def put_back(self, trial: str) -> None:
        """Start a running trial again before any other."""
        self._running.discard(trial)
        self._again.appendleft(trial)

    def end(self, trial: str) -> None:
        """A trial has ended."""
        self._running.discard(trial)
