"""What could not be done, through no fault of what was to be done, and when it may be tried again; kept in memory."""

from collections.abc import Callable

from sweeper.service.supervision.states import pause

LONGEST_DELAY_SECONDS = 60.0


class Backoff:
    """When each of several things may be tried again.

    Args:
        clock: in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failed: dict[str, tuple[int, float]] = {}

    def add(self, name: str) -> None:
        """Note that something could not be done; it may be tried again after a pause that grows each time."""
        times = self._failed.get(name, (0, 0.0))[0] + 1
        self._failed[name] = (times, self._clock() + min(LONGEST_DELAY_SECONDS, pause(times)))

    def forget(self, name: str) -> None:
        """Note that it was done, or need not be."""
        self._failed.pop(name, None)

    def hold(self, name: str) -> bool:
        """Whether it is too early to try something again."""
        return name in self._failed and self._clock() < self._failed[name][1]
