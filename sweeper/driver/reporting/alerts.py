"""When an address of the user's is told of a sweep: at its start, first front, nearly spent budget, and end.

Deliveries are made in a thread of their own: an address that is slow or out of reach delays no trial.
"""

import queue
import threading
from pathlib import Path

from sweeper.driver.reporting.progress import SweepProgress
from sweeper.driver.reporting.webhook import Announcement, Event, MessageForm, announce, news, with_page
from sweeper.rounding import number_of

NEARLY = 0.9  # of a budget, or of the hours
CLOSE_SECONDS = 35.0  # for what is still to be delivered: three tries and the pauses between them


class Alerts:
    """Tells one address of one sweep; without an address it tells nobody.

    Args:
        name: of the sweep.
        folder: of the sweep, if it is known beforehand.
        page: address of the sweep's live page, which is told with everything.
        silent: tells the end alone: from start and end others could tell how long a private selection took.

    Guarantees:
        What is told before the end holds no number that was computed from rows.
    """

    def __init__(
        self,
        url: str | None,
        name: str,
        *,
        form: MessageForm = MessageForm.JSON,
        folder: Path | None = None,
        page: str | None = None,
        silent: bool = False,
    ) -> None:
        self._url, self._name, self._form, self._folder, self._silent = url, name, form, folder, silent
        self._page = page
        self._told: set[Event] = set()
        self._waiting: queue.SimpleQueue[Announcement | None] = queue.SimpleQueue()
        self._troubles: dict[str, None] = {}
        self._thread = threading.Thread(target=self._work, name="alerts", daemon=True)
        if url is not None:
            self._thread.start()

    def start(self, price: str) -> None:
        """Tell that the sweep has started, and what it will cost, in the words of its announcement."""
        if not self._silent:
            self._tell_once(Event.START, f"has started: {price}")

    def look(self, progress: SweepProgress) -> None:
        """Tell what there is to be told of a sweep that runs."""
        if self._silent or progress.note:
            return
        if progress.front:
            ended = progress.done + progress.failed
            self._tell_once(
                Event.FIRST_FRONT, f"has its first front; {ended} of {number_of(progress.total, 'trial')} ended."
            )
        if progress.spent is not None and progress.spent >= NEARLY:
            self._tell_once(Event.BUDGET, "has nearly spent its budget: what is left is promised to its last trials.")
        elif progress.limit_seconds and progress.elapsed_seconds >= NEARLY * progress.limit_seconds:
            self._tell_once(Event.BUDGET, "has nearly used up its hours.")

    def end(self, content: Announcement) -> str | None:
        """Tell how the sweep ended, and return in one sentence what could not be delivered, None if nothing."""
        if self._url is None:
            return None
        self._waiting.put(content)
        self._waiting.put(None)
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            return "The webhook was not delivered: no answer in time"
        return next(iter(self._troubles), None)

    def _tell_once(self, event: Event, said: str) -> None:
        if self._url is not None and event not in self._told:
            self._told.add(event)
            self._waiting.put(news(event, self._name, self._folder, said))

    def _work(self) -> None:
        while (content := self._waiting.get()) is not None:
            trouble = announce(str(self._url), with_page(content, self._page), self._form)
            if trouble is not None:
                self._troubles[trouble] = None
