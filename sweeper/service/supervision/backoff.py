"""When a failed action may be tried again; kept in memory."""

from collections.abc import Callable

from sweeper.service.supervision.states import pause

LONGEST_DELAY_SECONDS = 60.0


class Backoff:
    """Growing pauses between attempts, by name."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failed: dict[str, tuple[int, float]] = {}

    def add(self, name: str) -> None:
        """Note a failed attempt; the pause before the next one grows each time."""
        times = self._failed.get(name, (0, 0.0))[0] + 1
        self._failed[name] = (times, self._clock() + min(LONGEST_DELAY_SECONDS, pause(times)))

    def forget(self, name: str) -> None:
        """Note that an attempt succeeded, or that none is needed."""
        self._failed.pop(name, None)

    def hold(self, name: str) -> bool:
        """Whether it is too early for another attempt."""
        return name in self._failed and self._clock() < self._failed[name][1]
