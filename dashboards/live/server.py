"""Routes of the live page, and its files."""

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files
from typing import Any, cast

from dash import Dash
from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from dashboards.figures import DARK, LIGHT, exchange, plotly_js
from dashboards.live._backend import Backend, PassThrough
from dashboards.live.dynamic import PARTS, DynamicFragments, Rights
from dashboards.live.page_state import register
from dashboards.live.resources import KINDS, Resources, load_pandas
from dashboards.live.skeleton import layout
from dashboards.live.snapshots import Snapshots
from dashboards.live.view import PREFIX, View
from dashboards.pages._page import variables
from sweeper.service.catalog import Catalog
from sweeper.service.standings import RecordedStandings, Standings

_PLOTLY = "plotly.js"
_ASSETS = {
    "page.css": ("text/css", ("report.css", "live.css", "actions.css")),
    "page.js": ("text/javascript", ("figures.js", "sketch.js", "tables.js", "boxes.js", "live.js", "actions.js")),
    "icon.svg": ("image/svg+xml", ("icon.svg",)),
    _PLOTLY: ("text/javascript", ()),
}
_RENDERER = "renderer.js"
_UNUSED = ("/dash_table/", "/polyfill@")  # Dash's tables, and what browsers of 2015 lack
_INDEX = f"""<!DOCTYPE html>
<html lang="en">
<head>
{{%metas%}}
<meta name="color-scheme" content="light dark">
<title>{{%title%}}</title>
<link rel="icon" type="image/svg+xml" href="{PREFIX}icon.svg">
{{%css%}}
<link rel="stylesheet" href="{PREFIX}page.css?v=VERSION">
<meta name="plotly" content="{PREFIX}{_PLOTLY}?v=VERSION">
<script src="{PREFIX}page.js?v=VERSION"></script>
</head>
<body>
<noscript>This page needs JavaScript; sweeper show and sweeper front do without.</noscript>
{{%app_entry%}}
{{%config%}}
{{%scripts%}}
{{%renderer%}}
</body>
</html>"""


class _LivePage(Dash):
    """Dash whose page has no inline script, so that a policy may forbid them."""

    def interpolate_index(self, *args: Any, **parts: Any) -> str:
        """Return the page, without scripts of Dash that it has no use for."""
        filled: Any = super().interpolate_index
        kept = [line for line in str(parts["scripts"]).splitlines() if not any(name in line for name in _UNUSED)]
        return str(filled(*args, **parts | {"scripts": "\n".join(kept)}))

    def _generate_renderer(self) -> str:
        return f'<script id="_dash-renderer" src="{PREFIX}{_RENDERER}"></script>'


class _Opening(PassThrough):
    """Hands out the page, and makes its first figure while the browser reads the scripts."""

    def __init__(self, inner: FastAPI, resources: Resources) -> None:
        super().__init__(inner, PREFIX)
        self._resources = resources
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself holds tasks weakly

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        view = View.parse(Request(scope).url.query)
        task = asyncio.create_task(run_in_threadpool(self._resources.prepare, view))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await super().__call__(scope, receive, send)


def mount(
    app: FastAPI, catalog: Catalog, *, tracking: str | None = None, standings: Standings | None = None
) -> Callable[[], None]:
    """Add the live page to an application, which answers errors itself.

    The page offers what the REST API of the service does to those whom the service has found to be allowed to write.

    Args:
        app: gets the routes ``/`` and everything under ``/live/``, all of them for reading only.
        catalog: of the sweeps that may be seen.
        tracking: where browsers find the tracking server, if not under the address that sweeps report to.
        standings: says how sweeps stand; by default as their records and locks do.

    Returns:
        What may be called in a thread once the application listens: it does what the first visit would wait for.
    """
    inner = FastAPI(openapi_url=None)
    snapshots = Snapshots(catalog)
    for name, (kind, _) in _ASSETS.items():
        inner.add_api_route(PREFIX + name, _asset_route(name, kind))
    inner.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=4)
    parts = DynamicFragments(snapshots, catalog, standings or RecordedStandings(catalog), tracking)
    page, backend = _page(inner)
    register(page, snapshots, parts)
    resources = Resources(snapshots, tracking)
    app.router.routes.append(Route("/", _Opening(inner, resources), name="live", include_in_schema=False))
    for kind in KINDS:
        route = _resource_route(resources, parts, kind)
        app.add_api_route(f"{PREFIX}{kind}/{{name}}", route, include_in_schema=False)
    app.router.routes.append(Route(f"{PREFIX}{{path:path}}", PassThrough(inner), name="live", include_in_schema=False))
    return partial(_warm_up, page, backend)


def _warm_up(page: Dash, backend: Backend) -> None:
    """Import and compress what every visit needs; a second of one processor."""
    for name in _ASSETS:
        _packed_asset(name)
    backend.pack(page)
    load_pandas()


def _page(inner: FastAPI) -> tuple[Dash, Backend]:
    page = _LivePage(
        __name__,
        server=False,
        backend=Backend,
        assets_folder="",
        include_assets_files=False,
        url_base_pathname=PREFIX,
        title="Sweeper",
        update_title="",
        index_string=_INDEX.replace("VERSION", _version()),
        add_log_handler=False,
    )
    page.layout = layout()
    renderer = page.renderer

    @inner.get(PREFIX + _RENDERER)
    def _renderer() -> Response:
        return Response(renderer, media_type="text/javascript")

    page.init_app(inner)
    return page, cast("Backend", page.backend)


def _asset_route(name: str, kind: str) -> Callable[[Request], Response]:
    def asset(request: Request) -> Response:
        return _unpacked(request, _packed_asset(name), kind, {"Cache-Control": "public, max-age=31536000, immutable"})

    return asset


@cache
def _packed_asset(name: str) -> bytes:
    return gzip.compress(_asset(name).encode(), 6)


@cache
def _asset(name: str) -> str:
    folder = files("dashboards") / "assets"
    if name == _PLOTLY:
        return plotly_js()
    texts = [(folder / part).read_text(encoding="utf-8") for part in _ASSETS[name][1]]
    match name.rpartition(".")[2]:
        case "css":
            texts.insert(0, variables(switch=True))
        case "js":
            colors = {"LIGHT": asdict(LIGHT), "DARK": exchange(LIGHT, DARK)}
            texts[0:0] = [f"const SWEEPER_{key} = {json.dumps(value)};" for key, value in colors.items()]
    return "\n".join(texts)


def _version() -> str:
    return sha256("".join(map(_asset, sorted(_ASSETS))).encode()).hexdigest()[:12]


def _resource_route(
    resources: Resources, parts: DynamicFragments, kind: str
) -> Callable[[Request, str], Awaitable[Response]]:
    async def resource(request: Request, name: str) -> Response:
        view = View.parse(request.url.query)
        if kind == "part" and name in PARTS:
            rights = Rights.of(request.scope.get("state", {}).get("holder"))
            made = await run_in_threadpool(parts.get, name, view, rights)
        else:
            made = await run_in_threadpool(resources.get, kind, name, view)
        headers = {"Cache-Control": "private, no-store"}
        if made.filename:
            headers["Content-Disposition"] = f'attachment; filename="{made.filename}"'
        return _unpacked(request, made.content, made.media_type, headers)

    return resource


def _unpacked(request: Request, content: bytes, media_type: str, headers: dict[str, str]) -> Response:
    """Send content that is compressed already, unpacked for a client that does not take gzip."""
    headers = headers | {"Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(gzip.decompress(content), media_type=media_type, headers=headers)
    return Response(content, media_type=media_type, headers=headers | {"Content-Encoding": "gzip"})
