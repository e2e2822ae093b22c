"""What an address of the user's is told of a sweep, and how: one small JSON by POST, in words that a chat understands.

It holds how the sweep stands and counts: no data, no configuration, no score of a trial; of a sweep without a
guarantee not even the hypervolume, and of one that may publish its winner only not even the counts: the price of
private selection holds while nobody learns how many trials there were. The address may hold a secret, so messages name
its host alone. Nothing that happens here can fail a sweep. When something is told,
`sweeper.driver.reporting.alerts` says.
"""

import enum
import json
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import NotRequired, TypedDict
from urllib.parse import urlsplit

from sweeper.errors import SweeperError
from sweeper.records import Interval, SweepStatus
from sweeper.results.front import Front
from sweeper.rounding import in_brackets, number_of
from sweeper.specification.addresses import NoRedirection, check_url

TIMEOUT_SECONDS = 10.0
TRIES = 3
PAUSE_SECONDS = 1.0  # before the second try; twice that before the third
CONTENT_VERSION = 2
_HOSTS = {
    "slack": ("hooks.slack.com", "hooks.slack-gov.com"),
    "teams": ("webhook.office.com", "logic.azure.com", "api.powerplatform.com", "powerautomate.com"),
}
_TRY_AGAIN = (408, 425, 429, 500, 502, 503, 504)


class Event(enum.Enum):
    """What is told."""

    START = "start"
    FIRST_FRONT = "first-front"
    BUDGET = "budget-nearly-spent"
    END = "end"
    FAILURE = "failure"


class Announcement(TypedDict):
    """What is told of a sweep; a count is ``None`` where it is not known yet, or not to be told."""

    webhook_version: int
    event: str
    sweep: str
    folder: str | None
    status: str
    reason: str
    trials: Mapping[str, int] | None  # how many by status
    points: int | None
    front_points: int | None
    hypervolume: float | None
    hypervolume_interval: Interval | None  # where scores are noisy
    text: str
    page: NotRequired[str]  # address of the sweep's live page


class MessageForm(enum.Enum):
    """What an address understands."""

    JSON = "json"
    SLACK = "slack"
    TEAMS = "teams"

    @classmethod
    def of(cls, url: str, wanted: str = "auto") -> "MessageForm":
        """Return the form that is wanted; ``auto``: that of the address's host, plain JSON for an unknown one.

        Raises:
            SweeperError: no such form.
        """
        known = [form.value for form in cls]
        if wanted not in ("auto", *known):
            raise SweeperError(f"Expected auto, {', '.join(known)}, got {wanted!r} (--webhook-format)")
        if wanted != "auto":
            return cls(wanted)
        host = urlsplit(url).hostname or ""
        found = (form for form, ends in _HOSTS.items() if any(host == end or host.endswith(f".{end}") for end in ends))
        return cls(next(found, "json"))


def news(event: Event, sweep: str, folder: Path | None, said: str) -> Announcement:
    """Return what is told while a sweep runs: that something has happened, ``said`` in one sentence, and no number."""
    return {
        "webhook_version": CONTENT_VERSION,
        "event": event.value,
        "sweep": sweep,
        "folder": None if folder is None else folder.name,
        "status": SweepStatus.RUNNING.value,
        "reason": "",
        "trials": None,
        "points": None,
        "front_points": None,
        "hypervolume": None,
        "hypervolume_interval": None,
        "text": f"{sweep} {said}",
    }


def summary(front: Front, *, status: SweepStatus, reason: str, folder: Path, winner_only: bool = False) -> Announcement:
    """Return what is told of a sweep that has ended.

    Of a failure no reason is told, because its text may quote data; of the folder only the name. ``winner_only``: only
    the winner may be published, as in private selection.
    """
    silent = front.claim.exploratory or winner_only
    failed = status is SweepStatus.FAILED
    content: Announcement = {
        "webhook_version": CONTENT_VERSION,
        "event": (Event.FAILURE if failed else Event.END).value,
        "sweep": front.sweep,
        "folder": folder.name,
        "status": status.value,
        "reason": "" if failed else reason,
        "trials": None if winner_only else dict(Counter(trial.status for trial in front.trials.values())),
        "points": None if winner_only else len(front.points),
        "front_points": None if silent else len(front.on_front),
        "hypervolume": None if silent else front.hypervolume,
        "hypervolume_interval": None if silent else front.hypervolume_interval,
        "text": "",
    }
    return {**content, "text": _in_words(content)}


def failure(sweep: str, error: BaseException) -> Announcement:
    """Return what is told of a sweep that ended with an error: as `summary`, with no number in it."""
    content: Announcement = {
        "webhook_version": CONTENT_VERSION,
        "event": Event.FAILURE.value,
        "sweep": sweep,
        "folder": None,
        "status": SweepStatus.FAILED.value,
        "reason": type(error).__name__,  # its text may quote data
        "trials": None,
        "points": None,
        "front_points": None,
        "hypervolume": None,
        "hypervolume_interval": None,
        "text": "",
    }
    return {**content, "text": _in_words(content)}


def with_page(content: Announcement, page: str | None) -> Announcement:
    """Return what is told with the address of the sweep's live page, if it has one."""
    return content if page is None else {**content, "page": page, "text": f"{content['text']} {page}"}


def _in_words(content: Announcement) -> str:
    reason = f": {content['reason']}" if content["reason"] else ""
    said = [f"{content['sweep']} {content['status']}{reason}."]
    if content["trials"]:
        said.append("Trials: " + ", ".join(f"{count} {status}" for status, count in content["trials"].items()) + ".")
    if content["front_points"] is not None and content["hypervolume"] is not None:
        volume = f"{content['hypervolume']:.3f}{in_brackets(content['hypervolume_interval'])}"
        said.append(f"The front has {number_of(content['front_points'], 'point')}, hypervolume {volume}.")
    return " ".join(said)


def payload(content: Announcement, form: MessageForm) -> Mapping[str, object]:
    """Return what is sent: the content itself, or its words as a chat takes them.

    Slack's incoming webhooks take ``text``, in which ``&``, ``<`` and ``>`` are escaped; those of Teams' workflows an
    adaptive card, in which a text block would read Markdown, so that its runs of text are used, which do not.
    """
    text = content["text"]
    if form is MessageForm.SLACK:
        return {"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}
    if form is MessageForm.TEAMS:
        block = {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text}]}
        card = {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard",
            "version": "1.2",
            "body": [block],
        }
        attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
        return {"type": "message", "attachments": [attachment]}
    return content


def announce(url: str, content: Announcement, form: MessageForm = MessageForm.JSON) -> str | None:
    """POST ``content`` as JSON in a form, three times at most, ten seconds each.

    Redirections are not followed: they could lead to another host.

    Returns:
        Why it was not delivered, in one sentence; ``None`` if it was.
    """
    try:
        request = urllib.request.Request(
            check_url(url),
            data=json.dumps(payload(content, form), allow_nan=False).encode(),
            headers={"Content-Type": "application/json", "User-Agent": "sweeper"},
            method="POST",
        )
        opener = urllib.request.build_opener(NoRedirection)
        return _tried(opener, request, urlsplit(url).hostname or "")
    except Exception as error:  # an announcement fails nothing
        return f"The webhook was not called: {_reason(error)}"


def _tried(opener: urllib.request.OpenerDirector, request: urllib.request.Request, host: str) -> str | None:
    reason = ""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE_SECONDS * attempt)
        try:
            with opener.open(request, timeout=TIMEOUT_SECONDS):
                return None
        except urllib.error.HTTPError as error:
            error.close()
            reason = f"{host} answered {error.code}"
            if error.code in (301, 302, 303, 307, 308):
                return (
                    f"The webhook was not delivered: {reason}; redirections are not followed, name the address itself"
                )
            if error.code not in _TRY_AGAIN:
                return f"The webhook was not delivered: {reason}"
        except (OSError, HTTPException) as error:
            reason = f"{host}: {_reason(error)}"
    return f"The webhook was not delivered in {TRIES} tries: {reason}"


def _reason(error: Exception) -> str:
    """Return what went wrong without the address, which may hold a secret."""
    if isinstance(error, SweeperError):
        return str(error)
    inner = getattr(error, "reason", error)
    return getattr(inner, "strerror", None) or type(inner).__name__
