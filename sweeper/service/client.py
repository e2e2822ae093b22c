"""Submitting a spec to a service, from Python's own library."""

import json
import time
import urllib.error
import urllib.request
import uuid
from http import HTTPStatus
from http.client import HTTPException
from typing import Any

from sweeper.errors import SweeperError
from sweeper.specification.addresses import NoRedirection, check_url

TIMEOUT_SECONDS = 30.0
TRIES = 4
PAUSE_SECONDS = 1.0  # before the second try; twice that before the third


def submit(url: str, spec_text: str, token: str | None = None) -> dict[str, Any]:
    """Submit a spec to the service at ``url`` and return its answer: ``id``, ``state`` and ``url`` of the sweep.

    Redirections are not followed: they could lead the token to another host.

    Raises:
        SweeperError: the service cannot be reached, or refuses the token or the spec; the message holds its sentence.

    Guarantees:
        However often the connection breaks, one sweep is submitted.
    """
    headers = {"Content-Type": "application/yaml", "Idempotency-Key": uuid.uuid4().hex, "User-Agent": "sweeper"}
    headers |= {} if token is None else {"Authorization": f"Bearer {token}"}
    address = f"{check_url(url, 'the address of a service', '--url').rstrip('/')}/api/v1/sweeps"
    request = urllib.request.Request(address, data=spec_text.encode(), headers=headers, method="POST")
    opener, reason = urllib.request.build_opener(NoRedirection), ""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE_SECONDS * attempt)
        try:
            with opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                return _read(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise SweeperError(_refusal(error)) from None
        except (OSError, HTTPException) as error:
            inner = getattr(error, "reason", error)
            reason = getattr(inner, "strerror", None) or type(inner).__name__
    raise SweeperError(f"Cannot reach the service at {url}: {reason}; is it running there? (--url)")


def _refusal(error: urllib.error.HTTPError) -> str:
    if error.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return f"The service refuses access: {_detail(error)}; put a token into SWEEPER_TOKEN"
    if error.code in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY):
        return f"The service refuses the spec: {_detail(error)}"
    return f"The service does not take the spec now: {_detail(error)}"


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["detail"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"it answers {error.code}, not as a service of sweeper does"


def _read(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
        return {key: str(found[key]) for key in ("id", "state", "url")}
    except (ValueError, KeyError, TypeError):
        raise SweeperError("Expected the answer of a service of sweeper, got another one (--url)") from None
