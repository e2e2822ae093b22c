"""One shape for every error that the service answers with: problem+json (RFC 9457).

An answer names what was wrong with the request, in one sentence, and its request id. It never holds a traceback, a path
of this machine or the text of an error that was not raised on purpose.
"""

import json
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from clipless.errors import CliplessError
from sweeper.errors import (
    AccountError,
    EmptyFigureError,
    ExportError,
    PickError,
    RecordError,
    RefusalError,
    SpecError,
    SweeperError,
    UnknownAccountError,
    UnknownFigureError,
    UnknownSweepError,
    UnknownTrialError,
    public_sentence,
)
from sweeper.specification.fields.messages import told_without_value

MEDIA_TYPE = "application/problem+json"
MAX_DETAIL = 4000


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    request_id: str


# What `openapi.json` says of errors.
PROBLEMS: dict[int | str, dict[str, Any]] = {
    statuses: {"description": what, "content": {MEDIA_TYPE: {"schema": Problem.model_json_schema()}}}
    for statuses, what in (("4XX", "An error in the request"), ("5XX", "An error here; try again later"))
}
INTERNAL = "Something went wrong here; the log of the service has it under request id"
_STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (UnknownSweepError, 404),
    (UnknownAccountError, 404),
    (UnknownTrialError, 404),
    (AccountError, 402),
    (UnknownFigureError, 404),
    (EmptyFigureError, 409),
    (SpecError, 422),
    (PickError, 422),
    (ExportError, 503),
    (RecordError, 409),
    (CliplessError, 422),
    (SweeperError, 400),
)


def problem(status: int, detail: str, request_id: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer in the one shape."""
    said = " ".join(detail.split())
    said = said if len(said) <= MAX_DETAIL else f"{said[: MAX_DETAIL - 1]}\N{HORIZONTAL ELLIPSIS}"
    content = Problem(title=HTTPStatus(status).phrase, status=status, detail=said, request_id=request_id)
    return Response(json.dumps(content.model_dump()), status, dict(headers or {}), MEDIA_TYPE)


def status_of(error: Exception) -> int:
    """Return the status that an error of ours is answered with."""
    if isinstance(error, RefusalError):
        return error.status
    return next(status for kind, status in _STATUSES if isinstance(error, kind))


class Redactor:
    """Makes paths below some folders of this machine relative in sentences, and cuts addresses of stores short."""

    def __init__(self, *roots: Path, stores: Iterable[str] = ()) -> None:
        self._stores = tuple(stores)
        texts = {str(path) for root in roots for path in (root, root.resolve()) if len(path.parts) > 1}
        self._roots = sorted(texts, key=len, reverse=True)

    def __call__(self, sentence: str) -> str:
        """Return the sentence without them."""
        for store in self._stores:
            sentence = sentence.replace(store, Path(store).name)
        for root in self._roots:
            sentence = sentence.replace(f"{root}/", "").replace(root, ".")
        return sentence


def add_handlers(app: FastAPI, redact: Redactor) -> None:
    """Let an application answer errors in the one shape."""

    async def ours(request: Request, error: Exception) -> Response:
        headers = error.headers if isinstance(error, RefusalError) else {}
        return problem(status_of(error), redact(public_sentence(error, MAX_DETAIL)), id_of(request), headers)

    async def http(request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        return problem(error.status_code, str(error.detail), id_of(request), error.headers)

    async def invalid(request: Request, error: Exception) -> Response:
        if not isinstance(error, RequestValidationError):
            raise error
        return problem(422, "; ".join(map(_mistake, error.errors()[:3])), id_of(request))

    app.add_exception_handler(SweeperError, ours)
    app.add_exception_handler(CliplessError, ours)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)


def id_of(request: Request) -> str:
    """Return the id of a request, empty where none was given."""
    return str(request.scope.get("state", {}).get("request_id", ""))


def _mistake(found: Mapping[str, Any]) -> str:
    """Say what is wrong with a parameter, without quoting what was given."""
    place, *loc = found["loc"]
    return told_without_value({**found, "loc": loc}, f"the {place} of the request")
