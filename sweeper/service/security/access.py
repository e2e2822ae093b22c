"""Who may do what: a check that every request passes through and that refuses by default.

A client shows a token; a browser exchanges one for a signed cookie, which by itself only reads. To change something a
page of the service sends, beside a cookie of somebody who may write, the session's own `form_key`, which no page from
elsewhere can read or guess. Where no tokens are kept, which
only a service of this machine alone may do, every user of it may do everything, and a request must name this machine as
its host: a page from elsewhere whose name was made to lead here (DNS rebinding) is turned away. A request that changes
something, or opens a web socket, and comes from a page of another origin is refused everywhere.
"""

import hmac
from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import urlsplit

from itsdangerous import BadSignature, TimestampSigner
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request, cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sweeper.errors import RefusalError
from sweeper.service.problems import id_of, problem
from sweeper.service.security.limits import RateLimiter
from sweeper.service.security.tokens import Holder, KnownTokens, Role
from sweeper.service.settings import ServiceSettings, is_loopback

LOCAL = Holder("local", Role.WRITE, "a local user")
COOKIE = "sweeper_session"
BROWSER = ".browser"  # behind the id of a token, where its holder shows a cookie
FORM_KEY = "X-Sweeper-Form"  # the header by which a page shows that it is one of the service
COOKIE_SECONDS = 12 * 3600
LOGIN = "/login"
HEALTH = "/healthz"
API = "/api/"
_SAFE = ("GET", "HEAD", "OPTIONS")
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="sweeper"'}
_NO_KEY = "Expected a request from a form of this service; load the page again"
_NOT_ALLOWED = "Expected a token that permits to write; ask for one made with --role write"


class AccessMiddleware:
    """Checks every request before the application sees it; an ASGI middleware."""

    def __init__(self, app: ASGIApp, settings: ServiceSettings, tokens: KnownTokens | None, rates: RateLimiter) -> None:
        self._app, self._tokens, self._rates = app, tokens, rates
        self._hosts = _known_hosts(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through with its holder in its state, or answer why not."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            scope.setdefault("state", {})["holder"] = self._admit(HTTPConnection(scope))
        except RefusalError as error:
            await self._refuse(error, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _admit(self, asked: HTTPConnection) -> Holder | None:
        """Return the holder of the request's token, None for a path that is open without one.

        Raises:
            RefusalError: the request may not pass.
        """
        path = asked.scope["path"]
        changes = asked.scope.get("method", "GET") not in _SAFE or asked.scope["type"] == "websocket"
        self._check_host(asked.headers)
        if changes:
            _check_origin(asked.headers)
        holder = self._holder(asked)
        if path == HEALTH:  # a probe may have the address of all who come by the same proxy
            return holder
        if holder is None and path == LOGIN:
            self._rates.check(_address(asked))
            return None
        if holder is None:
            self._rates.check(_count_refusals_of(asked))
            raise RefusalError("Expected a token: Authorization: Bearer TOKEN", 401, _CHALLENGE)
        self._rates.check(holder.id)
        if path.startswith(API) and changes and holder.role is not Role.WRITE:
            raise RefusalError(_NO_KEY if holder.form_key else _NOT_ALLOWED, 403)
        return holder

    def _holder(self, asked: HTTPConnection) -> Holder | None:
        """Return the holder of the request's token or cookie, None if it shows neither.

        Raises:
            RefusalError: an unknown token.
        """
        if self._tokens is None:
            return LOCAL
        found = holder_of(self._tokens, asked.headers)
        if found is None and "authorization" in asked.headers:
            self._rates.check(_count_refusals_of(asked))
            raise RefusalError("Expected a token that is known and has not expired", 401, _CHALLENGE)
        return found

    def _check_host(self, headers: Headers) -> None:
        given = headers.getlist("host")
        if self._hosts is not None and not (len(given) == 1 and host_of(given[0]) in self._hosts):
            raise RefusalError("Expected a name of this service as Host, got another one (serve --host-name)", 421)

    async def _refuse(self, error: RefusalError, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope)
        answer: Response = problem(error.status, str(error), id_of(request), error.headers)
        wants_page = "text/html" in request.headers.get("accept", "") and not scope["path"].startswith(API)
        if error.status == 401 and scope["method"] == "GET" and wants_page:
            answer = RedirectResponse(LOGIN, 303)
        await answer(scope, receive, send)


def holder_of(tokens: KnownTokens, headers: Headers) -> Holder | None:
    """Return whose token or cookie a request shows, None if it is unknown or no longer valid."""
    given = headers.getlist("authorization")
    if given:
        scheme, _, token = given[0].partition(" ")
        return tokens.find(token.strip()) if len(given) == 1 and scheme.lower() == "bearer" else None
    cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE)
    found = None if cookie is None else read_cookie(tokens, cookie)
    keys = headers.getlist(FORM_KEY)
    if found is None or not found.form_key or len(keys) != 1:
        return found
    is_own = hmac.compare_digest(keys[0].encode(), found.form_key.encode())
    return replace(found, role=Role.WRITE) if is_own else found


def make_cookie(tokens: KnownTokens, holder: Holder) -> str:
    """Return the value of a cookie for a browser, which lasts as long as the token, and no more than 12 hours.

    The role of ``holder`` is what the browser may do with it at most.
    """
    return TimestampSigner(tokens.cookie_key).sign(f"{holder.id}:{holder.role.value}").decode()


def read_cookie(tokens: KnownTokens, value: str) -> Holder | None:
    """Return whose cookie it is; None if unknown or expired.

    Guarantees:
        The holder has the role of a reader, and a `form_key` only if both the token and the cookie permit to write.
    """
    try:
        signed = TimestampSigner(tokens.cookie_key).unsign(value, max_age=COOKIE_SECONDS).decode()
    except (BadSignature, UnicodeError):
        return None
    id_, _, role = signed.partition(":")
    holder = tokens.holder(id_)
    if holder is None:
        return None
    may_write = holder.role is Role.WRITE and role == Role.WRITE.value
    key = hmac.digest(tokens.cookie_key.encode(), f"form:{value}".encode(), "sha256").hex() if may_write else ""
    return Holder(id_ + BROWSER, Role.READ, holder.owner, key)


def host_of(text: str) -> str:
    """Return the name in a Host header, without its port; empty if it is odd."""
    try:
        return urlsplit(f"//{text}").hostname or ""
    except ValueError:
        return ""


def _known_hosts(settings: ServiceSettings) -> frozenset[str] | None:
    """Return the names that a request may ask for, None if any."""
    if not (settings.hosts or is_loopback(settings.host)):
        return None
    own: Iterable[str] = (settings.host.strip("[]"), *settings.hosts, "localhost", "127.0.0.1", "::1")
    return frozenset(name.lower() for name in own)


def _check_origin(headers: Headers) -> None:
    """Refuse what a page of another origin sends."""
    origins, site = headers.getlist("origin"), headers.get("sec-fetch-site", "same-origin")
    own = headers.get("host", "").lower()
    is_own = all(_place(origin) == own for origin in origins) if len(origins) < 2 else False
    if not is_own or site not in ("same-origin", "none"):
        raise RefusalError("Expected a request from a page of this service, got one from another origin", 403)


def _place(origin: str) -> str | None:
    """Return host and port of an origin, None if it is odd."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _address(asked: HTTPConnection) -> str:
    return asked.client.host if asked.client else "unknown"


def _count_refusals_of(asked: HTTPConnection) -> str:
    """Return by whom to count a request that is refused: its address, apart from those who sign in from there."""
    return f"{_address(asked)} refused"
