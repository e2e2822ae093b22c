"""What stands outside the API: health, metrics, and the form by which a browser shows a token once."""

import os
from dataclasses import replace
from urllib.parse import parse_qs

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from sweeper.service.responses.models import Health
from sweeper.service.routes.dependencies import Dependencies
from sweeper.service.security.access import COOKIE, COOKIE_SECONDS, LOGIN, make_cookie
from sweeper.service.security.tokens import Role

MAX_FORM_BYTES = 2000
_MAX_FIELDS = 5
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Sweeper: sign in</title>
<style>
:root{{color-scheme:light dark;--ink:light-dark(#16202c,#e9edf2);--muted:light-dark(#566270,#9fabb8);
--paper:light-dark(#fff,#11161d);--panel:light-dark(#f6f7f9,#1a212b);--line:light-dark(#aab4bf,#4a5663);
--blue:light-dark(#0072b2,#4db2ec);--red:light-dark(#b3261e,#ff8a80)}}
*{{box-sizing:border-box}}
body{{font:16px/1.5 -apple-system,'Segoe UI',Roboto,'Helvetica Neue','Noto Sans','Liberation Sans',Arial,sans-serif;
color:var(--ink);background:var(--paper);display:grid;place-items:center;
min-height:90vh;margin:1rem}}
form{{display:grid;gap:.75rem;width:min(24rem,calc(100vw - 2rem))}}
h1{{font-size:1.7rem;letter-spacing:-.022em;margin:0}}label{{font-size:.9rem;color:var(--muted)}}
input,button{{font:inherit;padding:.5rem .85rem;border:1px solid var(--line);border-radius:.45rem;color:var(--ink);
background:var(--paper)}}
button{{background:var(--panel);cursor:pointer}}button:hover{{border-color:var(--muted)}}
button.main{{background:var(--blue);border-color:var(--blue);color:var(--paper);font-weight:600}}
:focus-visible{{outline:2px solid var(--blue);outline-offset:2px}}
[role=alert]{{margin:0;padding:.6rem .9rem;background:var(--panel);border-left:3px solid var(--red);
border-radius:.3rem}}
</style></head>
<body><main><form method="post" action="/login"><h1>Sweeper</h1>
<label for="token">Token, as <code>sweeper token</code> printed it</label>
<input id="token" name="token" type="password" autocomplete="off" required autofocus>
{note}<button class="main">Sign in</button>
<button name="read" value="1">Sign in to read only</button></form></main></body></html>"""
_WRONG = '<p role="alert">Expected a token that is known and has not expired.</p>'


def routes(parts: Dependencies) -> APIRouter:
    """Return the routes."""
    router = APIRouter()
    own = CapacityLimiter(1)  # a thread that nothing else can take

    @router.get("/healthz", tags=["service"], responses={503: {"model": Health}}, response_model_exclude_defaults=True)
    async def healthz(answer: Response) -> Health:
        """Say that the service is well, or what is not."""
        down = [] if parts.supervisor.is_well else ["supervisor"]
        down += [] if await to_thread.run_sync(os.access, parts.settings.out, os.W_OK, limiter=own) else ["storage"]
        answer.status_code = 503 if down else 200
        return Health(status="down" if down else "ok", down=tuple(down))

    @router.get("/metrics", tags=["service"], response_class=PlainTextResponse)
    def metrics() -> Response:
        """Return counts for Prometheus."""
        parts.metrics.streams.set(parts.streams.open)
        return Response(generate_latest(parts.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    @router.get(LOGIN, include_in_schema=False)
    async def form() -> Response:
        return _form("")

    @router.post(LOGIN, include_in_schema=False)
    async def login(request: Request) -> Response:
        token, only_reads = _asked(await request.body())
        holder = None if parts.tokens is None else parts.tokens.find(token)
        if holder is None or parts.tokens is None:
            return _form(_WRONG, 401)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            COOKIE,
            make_cookie(parts.tokens, replace(holder, role=Role.READ) if only_reads else holder),
            max_age=COOKIE_SECONDS,
            httponly=True,
            samesite="strict",
            secure=parts.settings.secure_cookies,
        )
        return answer

    @router.post("/logout", include_in_schema=False)
    async def logout() -> Response:
        answer = RedirectResponse(LOGIN, 303)
        answer.delete_cookie(COOKIE)
        return answer

    return router


def _asked(body: bytes) -> tuple[str, bool]:
    """Return the token of a form, and whether to read only; no token if there is none, or if it is another form."""
    try:
        fields = parse_qs(body.decode(errors="replace"), max_num_fields=_MAX_FIELDS)
    except ValueError:
        return "", True
    return fields.get("token", [""])[0].strip(), "read" in fields


def _form(note: str, status: int = 200) -> Response:
    return HTMLResponse(_PAGE.format(note=note), status, {"Content-Security-Policy": _POLICY})
