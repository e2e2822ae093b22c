"""Calls of a service, from Python's own library: what the commands and `sweeper.service.remote` send."""

import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlencode

from sweeper.errors import AccountError, RecordError, SweeperError, UnknownSweepError
from sweeper.specification.addresses import NoRedirection, check_url

TIMEOUT_SECONDS = 30.0
TRIES = 4
PAUSE_SECONDS = 1.0  # before the second try; twice that before the third
YAML, JSON = "application/yaml", "application/json"
_OTHER_ANSWER = "Expected the answer of a service of sweeper, got another one; correct {option}"


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the API.

    Attributes:
        path: below ``/api/v1``.
        what: is sent, in words, for messages: "the spec".
        method: of HTTP.
        data: that is sent, of the given kind.
        query: parameters; those that are ``None`` are left out, a list repeats one.
        refused: the kind of error where the service refuses what is sent.
        key: by which the service knows a call again that comes twice.
    """

    path: str
    what: str = "this"
    method: str = "GET"
    data: bytes | None = None
    kind: str = JSON
    query: dict[str, Any] = field(default_factory=dict)
    refused: type[SweeperError] = SweeperError
    key: str | None = None

    @property
    def can_be_repeated(self) -> bool:
        """Whether it does no more if it arrives twice."""
        return self.method == "GET" or self.key is not None


@dataclass(frozen=True, slots=True, repr=False)
class Connection:
    """A service, and the token that is shown to it.

    Redirections are not followed: they could lead the token to another host.

    Attributes:
        url: the address of the service.
        token: that is shown to it.
        option: that the address came by, for messages.
    """

    url: str
    token: str | None
    option: str = "--url"

    def __repr__(self) -> str:
        """Return the address alone: a token is no text to be shown."""
        return self.url

    def ask(self, call: Call) -> bytes:
        """Return the answer to a call.

        Raises:
            UnknownSweepError: there is no such sweep, trial or file.
            RecordError: it cannot be done to this sweep now.
            AccountError: the account of its data has no room for it.
            SweeperError: the service cannot be reached, or refuses the token or what is sent; the message holds its
                sentence.

        Guarantees:
            A call whose connection breaks is repeated only if it does no more when it arrives twice.
        """
        reason = ""
        for attempt in range(TRIES if call.can_be_repeated else 1):
            if attempt:
                time.sleep(PAUSE_SECONDS * attempt)
            try:
                with self._open(call) as answer:
                    return bytes(answer.read())
            except urllib.error.HTTPError as error:
                with error:
                    raise refusal(error.code, _rest_of(error), call) from None
            except (OSError, HTTPException) as error:
                reason = _reason(error)
        raise SweeperError(
            f"Cannot reach the service at {self.url}: {reason}; start one with sweeper serve, or correct {self.option}"
        )

    def read(self, call: Call) -> dict[str, Any]:
        """Return the JSON object that a call is answered with; raises as `ask`."""
        return content_of(self.ask(call), self.option)

    def stream(self, path: str, after: str | None) -> Iterator[tuple[str, str, str]]:
        """Yield the events of a stream behind an id: kind, id and data of each, until it ends or its connection does.

        Raises:
            UnknownSweepError, SweeperError: as `ask`.
        """
        call = Call(path)
        try:
            with self._open(call, {} if after is None else {"Last-Event-ID": after}) as answer:
                found: dict[str, str] = {}
                for line in answer:
                    name, _, value = line.decode().rstrip("\n").partition(": ")
                    if name:
                        found[name] = value
                    elif "event" in found:
                        yield found["event"], found["id"], found["data"]
                        found = {}
        except urllib.error.HTTPError as error:
            with error:
                raise refusal(error.code, _rest_of(error), call) from None
        except (OSError, HTTPException):  # who reads it goes on behind the last event
            return

    def _open(self, call: Call, more: dict[str, str] | None = None) -> HTTPResponse:
        headers = {"User-Agent": "sweeper", **(more or {})}
        headers |= {} if call.data is None else {"Content-Type": call.kind}
        headers |= {} if call.key is None else {"Idempotency-Key": call.key}
        headers |= {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        given = {name: value for name, value in call.query.items() if value is not None}
        base = check_url(self.url, "the address of a service", self.option).rstrip("/")
        address = f"{base}/api/v1{call.path}" + (f"?{urlencode(given, doseq=True)}" if given else "")
        request = urllib.request.Request(address, data=call.data, headers=headers, method=call.method)
        answer: HTTPResponse = urllib.request.build_opener(NoRedirection).open(request, timeout=TIMEOUT_SECONDS)
        return answer


def submit(url: str, spec_text: str, token: str | None = None) -> dict[str, Any]:
    """Submit a spec to the service at ``url`` and return its answer: ``id``, ``state`` and ``url`` of the sweep.

    Raises:
        SweeperError: the service cannot be reached, or refuses the token or the spec; the message holds its sentence.

    Guarantees:
        However often the connection breaks, one sweep is submitted.
    """
    call = Call("/sweeps", "the spec", "POST", spec_text.encode(), YAML, key=uuid.uuid4().hex)
    found = Connection(url, token).read(call)
    try:
        return {name: str(found[name]) for name in ("id", "state", "url")}
    except KeyError:
        raise SweeperError(_OTHER_ANSWER.format(option="--url")) from None


def _reason(error: Exception) -> str:
    inner = getattr(error, "reason", error)
    return str(getattr(inner, "strerror", None) or type(inner).__name__)


def content_of(answer: bytes, option: str = "--url") -> dict[str, Any]:
    """Return the JSON object that a service answered, whose address came by ``option``.

    Raises:
        SweeperError: it is none.
    """
    try:
        found = json.loads(answer)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise SweeperError(_OTHER_ANSWER.format(option=option))
    return found


def refusal(status: int, answer: bytes, call: Call) -> SweeperError:
    """Return the error that a service answered a call with."""
    said = _detail(status, answer)
    match status:
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return SweeperError(f"The service refuses access: {said}; put a token into SWEEPER_TOKEN")
        case HTTPStatus.BAD_REQUEST | HTTPStatus.UNPROCESSABLE_ENTITY:
            return call.refused(f"The service refuses {call.what}: {said}")
        case HTTPStatus.PAYMENT_REQUIRED:
            return AccountError(said)
        case HTTPStatus.NOT_FOUND:
            return UnknownSweepError(said)
        case HTTPStatus.CONFLICT:
            return RecordError(said)
        case _:
            return SweeperError(f"The service does not take {call.what} now: {said}")


def _rest_of(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read()
    except OSError:
        return b""


def _detail(status: int, answer: bytes) -> str:
    try:
        return str(json.loads(answer)["detail"])
    except (ValueError, KeyError, TypeError):
        return f"it answers {status}, not as a service of sweeper does"
