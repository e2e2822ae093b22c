"""Routes of the live page, and its files."""

import gzip
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import cache, partial
from hashlib import sha256
from importlib.resources import files

from fastapi import FastAPI, Request, Response
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool

from dashboards.figures import DARK, LIGHT, exchange, plotly_js
from dashboards.live.dynamic import PARTS, PARTS_OF_ACCOUNTS, DynamicFragments, Rights
from dashboards.live.encoding import load_pandas
from dashboards.live.page_state import show_view
from dashboards.live.resources import KINDS, Resources
from dashboards.live.skeleton import document
from dashboards.live.snapshots import Snapshots
from dashboards.live.view import PREFIX, View
from dashboards.pages._page import variables
from sweeper.service.accounts import ServiceAccounts
from sweeper.service.catalog import Catalog
from sweeper.service.responses.rendered import RenderedResponse
from sweeper.service.standings import RecordedStandings, Standings

_PLOTLY = "plotly.js"
_ASSETS = {
    "page.css": ("text/css", ("report.css", "live.css", "actions.css")),
    "page.js": (
        "text/javascript",
        (
            *("figures.js", "sketch.js", "tables.js", "compare.js"),
            *("browser.js", "plots.js", "live.js", "actions.js"),
        ),
    ),
    "icon.svg": ("image/svg+xml", ("icon.svg",)),
    _PLOTLY: ("text/javascript", ()),
}
_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}  # an address names a version
_NOWHERE = {"Cache-Control": "private, no-store"}


def mount(
    app: FastAPI,
    catalog: Catalog,
    *,
    tracking: str | None = None,
    standings: Standings | None = None,
    accounts: ServiceAccounts | None = None,
) -> Callable[[], None]:
    """Add the live page to an application, which answers errors itself.

    The page offers what the REST API of the service does to those whom the service has found to be allowed to write.

    Args:
        app: gets the routes ``/`` and everything under ``/live/``, all of them for reading only.
        catalog: of the sweeps that may be seen.
        tracking: where browsers find the tracking server, if not under the address that sweeps report to.
        standings: says how sweeps stand; by default as their records and locks do.
        accounts: of the data sets of the service.

    Returns:
        What may be called in a thread once the application listens: it does what the first visit would wait for.
    """
    snapshots = Snapshots(catalog)
    parts = DynamicFragments(snapshots, catalog, standings or RecordedStandings(catalog), tracking, accounts=accounts)
    resources = Resources(snapshots, tracking)
    add = partial(app.add_api_route, include_in_schema=False)
    add("/", _page_route(resources, has_accounts=accounts is not None and bool(accounts.names)))
    add(f"{PREFIX}state", _state_route(snapshots, parts))
    for name, (media_type, _) in _ASSETS.items():
        add(PREFIX + name, _asset_route(name, media_type))
    for kind in KINDS:
        add(f"{PREFIX}{kind}/{{name}}", _resource_route(resources, parts, kind))
    return _warm_up


def _warm_up() -> None:
    """Import and compress what every visit needs; a second of one processor."""
    for name in _ASSETS:
        _packed_asset(name)
    load_pandas()


def _page_route(resources: Resources, *, has_accounts: bool) -> Callable[[Request], Response]:
    page = gzip.compress(document(_version(), has_accounts=has_accounts).encode(), 6)

    def show(request: Request) -> Response:
        """Send the page, and make its first figure while the browser reads the scripts."""
        answer = _unpacked(request, page, "text/html; charset=utf-8", {"Cache-Control": "private, no-cache"})
        answer.background = BackgroundTask(resources.prepare, View.parse(request.url.query))
        return answer

    return show


def _state_route(snapshots: Snapshots, parts: DynamicFragments) -> Callable[[Request], Response]:
    def state(request: Request) -> Response:
        """Say what the page shows; nothing if the browser shows that already."""
        content = asdict(show_view(snapshots, parts, View.parse(request.url.query)))
        return RenderedResponse.of(json.dumps(content).encode(), "application/json").to(request, **_NOWHERE)

    return state


def _asset_route(name: str, kind: str) -> Callable[[Request], Response]:
    def asset(request: Request) -> Response:
        return _unpacked(request, _packed_asset(name), kind, _FOREVER)

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
        if kind == "part" and name in (*PARTS, *PARTS_OF_ACCOUNTS):
            rights = Rights.of(request.scope.get("state", {}).get("holder"))
            made = await run_in_threadpool(parts.get, name, view, rights)
        else:
            made = await run_in_threadpool(resources.get, kind, name, view)
        named = {"Content-Disposition": f'attachment; filename="{made.filename}"'} if made.filename else {}
        return _unpacked(request, made.content, made.media_type, _NOWHERE | named)

    return resource


def _unpacked(request: Request, content: bytes, media_type: str, headers: dict[str, str]) -> Response:
    """Send content that is compressed already, unpacked for a client that does not take gzip."""
    headers = headers | {"Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(gzip.decompress(content), media_type=media_type, headers=headers)
    return Response(content, media_type=media_type, headers=headers | {"Content-Encoding": "gzip"})
