"""Telling an address of the user's that a sweep has ended.

One small JSON by POST. It holds how the sweep ended and counts: no data, no configuration, no score of a trial; of a
sweep without a guarantee not even the hypervolume, and of one that may publish its winner only not even the counts: the
price of private selection holds while nobody learns how many trials there were. The address may hold a secret, so
messages name its host alone. Nothing that happens here can fail a sweep.
"""

import json
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sweeper.errors import SweeperError
from sweeper.records import TrialStatus
from sweeper.results.front import Front
from sweeper.spec.addresses import NoRedirection, check_url

TIMEOUT_SECONDS = 10.0
TRIES = 3
PAUSE_SECONDS = 1.0  # before the second try; twice that before the third
CONTENT_VERSION = 1
_TRY_AGAIN = (408, 425, 429, 500, 502, 503, 504)


def summary(front: Front, *, status: str, reason: str, folder: Path, winner_only: bool = False) -> dict[str, Any]:
    """Return what is told.

    Of a failure the reason is only the kind of the error, because its text may quote data; of the folder the name is
    told. ``winner_only``: only the winner may be published, as in private selection.
    """
    silent = front.claim.exploratory or winner_only
    return {
        "webhook_version": CONTENT_VERSION,
        "sweep": front.sweep,
        "folder": folder.name,
        "status": status,
        "reason": reason.partition(":")[0] if status == TrialStatus.FAILED.value else reason,
        "trials": None if winner_only else dict(Counter(trial.status for trial in front.trials.values())),
        "points": None if winner_only else len(front.points),
        "front_points": None if silent else len(front.on_front),
        "hypervolume": None if silent else front.hypervolume,
    }


def failure(sweep: str, error: BaseException) -> dict[str, Any]:
    """Return what is told of a sweep that ended with an error: as `summary`, with no number in it."""
    reason = type(error).__name__  # its text may quote data
    nothing = dict.fromkeys(("folder", "trials", "points", "front_points", "hypervolume"))
    told = {"webhook_version": CONTENT_VERSION, "sweep": sweep, "status": TrialStatus.FAILED.value, "reason": reason}
    return told | nothing


def announce(url: str, content: Mapping[str, Any]) -> str | None:
    """POST ``content`` as JSON, three times at most, ten seconds each.

    Redirections are not followed: they could lead to another host.

    Returns:
        Why it was not delivered, in one sentence; ``None`` if it was.
    """
    try:
        request = urllib.request.Request(
            check_url(url),
            data=json.dumps(content, allow_nan=False).encode(),
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
