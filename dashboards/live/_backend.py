"""Dash behind the page's routes: its scripts, its callbacks, and its errors, which are the application's to answer.

Dash's own FastAPI backend adds a middleware to the application that it is given, answers every unknown path with the
page, opens a web socket, runs callbacks on the event loop and answers every mistake with 500. Here it gets an
application of its own instead, without the web socket, to which only the page's paths are passed: middleware in front
of the application's routes covers these too.
"""

import gzip
import re
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from dash import Dash
from dash.backends._fastapi import DashMiddleware, FastAPIDashServer
from dash.exceptions import DependencyException, PreventUpdate
from dash.fingerprint import check_fingerprint
from fastapi import FastAPI, HTTPException, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.types import Message, Receive, Scope, Send

from sweeper.errors import RefusalError

_SUITE = re.compile(r'_dash-component-suites/([^/"]+)/([^"]+)"')


class Backend(FastAPIDashServer):
    """Dash's backend without a web socket and without an answer to every path."""

    websocket_capability = False

    def __init__(self, server: FastAPI) -> None:
        super().__init__(server)
        self._packed: dict[tuple[str, str, bool], Response] = {}
        self._packing = threading.Lock()

    def setup_catchall(self, dash_app: Dash) -> None:
        """Leave unknown paths unknown."""

    def setup_backend(self, dash_app: Dash) -> None:
        """Let errors pass."""
        before = self._before_request_funcs
        self.server.add_middleware(_RaisingMiddleware, dash_app=dash_app, dash_server=self, before_request_funcs=before)

    def setup_component_suites(self, dash_app: Dash) -> None:  # type: ignore[override]  # Dash says str, and returns None
        """Serve scripts from threads: reading and packing one takes a while."""

        async def serve(request: Request, package_name: str, fingerprinted_path: str) -> Response:
            asked = (dash_app, package_name, fingerprinted_path, request)
            return await run_in_threadpool(self.serve_component_suites, *asked)

        dash_app._add_url("_dash-component-suites/{package_name}/{fingerprinted_path:path}", serve)

    def serve_component_suites(
        self, dash_app: Dash, package_name: str, fingerprinted_path: str, request: Request
    ) -> Response:
        """Return a script of Dash's, compressed once for each file under any fingerprint."""
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return self._plain(dash_app, package_name, fingerprinted_path, request)
        path, has_fingerprint = check_fingerprint(fingerprinted_path)
        key = (package_name, path, has_fingerprint)
        with self._packing:
            if key not in self._packed:
                plain = self._plain(dash_app, package_name, fingerprinted_path, request)
                if plain.status_code != 200:
                    return plain
                self._packed[key] = _packed(plain)
        packed = self._packed[key]
        known = request.headers.get("if-none-match")
        return Response(status_code=304) if known and known == packed.headers.get("etag") else packed

    def pack(self, dash_app: Dash) -> None:
        """Compress every script that the page names, before a browser asks for one."""
        accepts = {"type": "http", "headers": [(b"accept-encoding", b"gzip")]}
        for package_name, path in _SUITE.findall(dash_app._generate_scripts_html()):
            self.serve_component_suites(dash_app, package_name, path, Request(accepts))

    def serve_callback(self, dash_app: Dash) -> Callable[[Request], Awaitable[Response]]:
        """Refuse what the page would not ask before Dash reads it."""
        dispatch: Callable[[Request], Awaitable[Response]] = super().serve_callback(dash_app)

        async def checked(request: Request) -> Response:
            if not _is_asked(request.state.json_body, dash_app.callback_map):
                raise RefusalError("Expected a request as the live page sends it", 400)
            return await dispatch(request)

        return checked

    def _plain(self, dash_app: Dash, package_name: str, fingerprinted_path: str, request: Request) -> Response:
        try:
            return cast("Response", super().serve_component_suites(dash_app, package_name, fingerprinted_path, request))
        except DependencyException:
            raise RefusalError("Expected a file of the live page, got another one", 404) from None


class PassThrough:
    """Hands requests, as if for ``path``, to the page's own application; the outer one answers what that refuses."""

    def __init__(self, inner: FastAPI, path: str | None = None) -> None:
        self._inner, self._path = inner, path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request.

        Raises:
            HTTPException: the page's own application refuses it; and errors of reading the body.
        """
        body = await Request(scope, receive).body()  # here, since Dash would take a refused body for an empty one
        whole = [{"type": "http.request", "body": body, "more_body": False}]
        refused: Message | None = None

        async def again() -> Message:
            return whole.pop() if whole else await receive()

        async def answer(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start" and message["status"] >= 400:
                refused = message
            if refused is None:
                await send(message)

        await self._inner(scope if self._path is None else {**scope, "path": self._path}, again, answer)
        if refused is not None:
            allowed = dict(refused["headers"]).get(b"allow")
            raise HTTPException(refused["status"], headers=allowed and {"Allow": allowed.decode()})


class _RaisingMiddleware(DashMiddleware):
    """Dash's middleware, which would answer errors itself, in a shape of its own."""

    async def _handle_error(self, error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
        if not isinstance(error, PreventUpdate):
            raise error
        await super()._handle_error(error, scope, receive, send)


def _packed(plain: Response) -> Response:
    headers = {key: plain.headers[key] for key in ("cache-control", "etag") if key in plain.headers}
    headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(gzip.compress(plain.body, 6), 200, headers, plain.media_type)


def _is_asked(body: Any, callbacks: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a body asks for one of the page's callbacks, with the inputs that it takes."""
    match body:
        case {"output": str(output), "outputs": list(outputs), "inputs": list(inputs), "changedPropIds": list(changed)}:
            known = callbacks.get(output, {})
            return (
                "callback" in known
                and f"..{'...'.join(_names(outputs))}.." == output
                and _names(inputs) == _names(known["inputs"])
                and _names(body.get("state")) == _names(known["state"])
                and all(isinstance(name, str) for name in changed)
            )
    return False


def _names(places: Any) -> Sequence[str]:
    """Return the ids and properties of a list of them, nothing if it is another list."""
    if not isinstance(places, list) or not all(isinstance(place, dict) for place in places):
        return ()
    return tuple(f"{place.get('id')}.{place.get('property')}" for place in places)
