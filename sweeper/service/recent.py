"""What is looked up at most so often, and once for all who ask at the same time."""

import asyncio
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from anyio import to_thread

T = TypeVar("T")


class Recent(Generic[T]):
    """Looks things up in a thread and keeps them for a moment; for one event loop.

    Args:
        look: is given the name of a thing.
        seconds: for which what it returned is kept; what it raised is not.
    """

    def __init__(self, look: Callable[[str], T], seconds: float) -> None:
        self._look, self._seconds = look, seconds
        self._kept: dict[str, tuple[float, T]] = {}
        self._looking: dict[str, asyncio.Task[T]] = {}

    async def get(self, name: str) -> T:
        """Return what is known of a thing, and raise what ``look`` raises."""
        kept = self._kept.get(name)
        if kept is not None and time.monotonic() - kept[0] < self._seconds:
            return kept[1]
        looking = self._looking.get(name)
        if looking is None:
            looking = self._looking[name] = asyncio.create_task(self._found(name))
        return await asyncio.shield(looking)

    def forget(self, name: str) -> None:
        """Look it up again next time; may be called from any thread."""
        self._kept.pop(name, None)

    async def _found(self, name: str) -> T:
        try:
            found = await to_thread.run_sync(self._look, name)
            now = time.monotonic()
            self._kept = {key: kept for key, kept in self._kept.items() if now - kept[0] < self._seconds}
            self._kept[name] = (now, found)
            return found
        finally:
            del self._looking[name]
