"""What is recorded of requests: an id, one line of log, and counts; and the headers that every answer carries.

A line holds no token, no body, no query and no data: only the pattern of the path, not what a client put into it.
"""

import json
import logging
import re
import time
import traceback
import uuid
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sweeper.service.problems import INTERNAL, id_of, problem

LOGGER = logging.getLogger("sweeper.service")
REQUEST_ID = "X-Request-ID"
# The live page has no inline script; Plotly compiles its 3-D figures and parallel coordinates.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; connect-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
API_POLICY = "default-src 'none'; frame-ancestors 'none'"
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # "no-referrer" would make browsers hide the origin of our own forms
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NO_ROUTE = "other"
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET")


class Metrics:
    """The service's counts, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        names = ("method", "route", "status")
        given: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter("sweeper_requests", "Requests that were answered.", names, **given)
        self.seconds = Histogram("sweeper_request_seconds", "Time to the answer's first byte.", ("route",), **given)
        self.waiting = Gauge("sweeper_waiting", "Sweeps that wait for a driver.", **given)
        self.streams = Gauge("sweeper_streams", "Open streams of events.", **given)
        self.drivers = Gauge("sweeper_drivers", "Drivers that run.", **given)
        self.started = Counter("sweeper_driver_starts", "Drivers that the service started.", **given)
        self.restarted = Counter("sweeper_driver_restarts", "Drivers started in place of one that died.", **given)
        ProcessCollector(registry=self.registry)


class TelemetryMiddleware:
    """The outermost middleware: ids, log, counts, headers, and an answer where everything else failed."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request and record that."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, send)
        try:
            await self._app(scope, receive, exchange.send)
        except Exception as error:
            exchange.failure = error
            if scope["type"] == "http" and exchange.status is None:
                request_id = id_of(Request(scope))
                answer = problem(500, f"{INTERNAL} {request_id}", request_id)
                await answer(scope, receive, exchange.send)
        finally:
            exchange.record(self._metrics)


class _Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope, self._send, self._began = scope, send, time.monotonic()
        self.status: int | None = None
        self.failure: Exception | None = None
        self._first: float | None = None
        given = Headers(scope=scope).get(REQUEST_ID, "")
        self._id = given if _ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = self._id

    async def send(self, message: Message) -> None:
        """Pass a part of the answer on, with our headers."""
        if message["type"] == "http.response.start":
            self.status, self._first = message["status"], time.monotonic()
            headers = MutableHeaders(scope=message)
            is_page = not self._scope["path"].startswith("/api/")
            headers.setdefault("Content-Security-Policy", PAGE_POLICY if is_page else API_POLICY)
            headers.setdefault("Cache-Control", "no-store")
            for name, value in _HEADERS.items():
                headers[name] = value
            headers[REQUEST_ID] = self._id
        await self._send(message)

    def record(self, metrics: Metrics) -> None:
        """Count and log."""
        route = str(getattr(self._scope.get("route"), "path", None) or _NO_ROUTE)  # unlike paths, of few values
        method = self._scope.get("method", "WEBSOCKET")
        took = (self._first or time.monotonic()) - self._began
        metrics.requests.labels(method if method in _METHODS else "other", route, self.status or 0).inc()
        metrics.seconds.labels(route).observe(took)
        holder = self._scope["state"].get("holder")
        LOGGER.log(
            logging.ERROR if self.failure else logging.INFO,
            "request",
            extra={
                "fields": {
                    "request_id": self._id,
                    "method": method[:20],
                    "route": route,
                    "status": self.status,
                    "milliseconds": round(1000 * took, 1),
                    "holder": None if holder is None else holder.id,
                    "owner": None if holder is None else holder.owner,
                    **({} if self.failure is None else {"failure": where(self.failure)}),
                }
            },
        )


class JsonLines(logging.Formatter):
    """One JSON object for each record; of an exception where it came from, not its text, which may quote data."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        content = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and isinstance(record.exc_info[1], Exception):
            content["failure"] = where(record.exc_info[1])
        return json.dumps(content, ensure_ascii=True)


def where(error: BaseException) -> str:
    """Return the type of an error and the lines of code that it passed."""
    frames = [f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-8:]]
    return f"{type(error).__name__} in {' < '.join(reversed(frames))}"
