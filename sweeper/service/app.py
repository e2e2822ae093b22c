"""The service as an ASGI application, from settings alone: testable without a port."""

import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from importlib.metadata import entry_points, version
from threading import Thread

from anyio import to_thread
from fastapi import FastAPI
from starlette.routing import Route

from sweeper.service.problems import PROBLEMS, add_handlers
from sweeper.service.responses.events import Feeds
from sweeper.service.responses.standings import ServiceStandings
from sweeper.service.routes import accounts, public, read, steering, write
from sweeper.service.routes.dependencies import Dependencies
from sweeper.service.security.access import API, LOGIN, AccessMiddleware
from sweeper.service.security.limits import BodyLimitMiddleware
from sweeper.service.security.spec_policy import MAX_SPEC_BYTES
from sweeper.service.settings import ServiceSettings
from sweeper.service.standings import Standings
from sweeper.service.supervision.launcher import Launcher, ProcessLauncher
from sweeper.service.telemetry import TelemetryMiddleware

PAGES = "sweeper.pages"
LIVE = "live"


def create_app(settings: ServiceSettings, launcher: Launcher | None = None) -> FastAPI:
    """Return the service.

    Raises:
        SweeperError: settings under which it may not run.
        RecordError: the file of tokens cannot be read.

    Guarantees:
        Every path except ``/healthz`` and ``/login``, those of the live page included, is checked by
        `sweeper.service.security.access`.
    """
    settings.check()
    data_dir = None if settings.data_dir is None else settings.data_dir.resolve()
    settings = replace(settings, out=settings.out.resolve(), data_dir=data_dir)
    parts = Dependencies.of(settings, launcher or ProcessLauncher())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await to_thread.run_sync(parts.supervisor.open)
        try:
            async with app.state.door.open() if settings.mcp else nullcontext():
                yield
        finally:
            await to_thread.run_sync(parts.supervisor.close)

    app = FastAPI(
        title="Sweeper",
        version=version("sweeper"),
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        responses=PROBLEMS,
    )
    app.state.parts = parts
    app.include_router(read.routes(parts, Feeds(parts.told)))  # first what is asked for most
    app.include_router(accounts.routes(parts))
    app.include_router(write.routes(parts))
    app.include_router(steering.routes(parts))
    app.include_router(public.routes(parts))
    if settings.mcp:
        from sweeper.service.mcp.server import PATH, HttpDoor  # not installed everywhere, and takes a second

        app.state.door = HttpDoor(app)
        app.router.routes.append(Route(PATH, app.state.door, methods=["POST"], include_in_schema=False))
    add_handlers(app, parts.redact)
    standings = ServiceStandings(parts.catalog, parts.supervisor, parts.redact)
    app.state.warm_ups = mount_pages(app, parts, standings)
    least = {API: MAX_SPEC_BYTES, LOGIN: public.MAX_FORM_BYTES}
    app.add_middleware(BodyLimitMiddleware, most=settings.limits.body_bytes, most_below=least)
    app.add_middleware(AccessMiddleware, settings=settings, tokens=parts.tokens, rates=parts.rates)
    app.add_middleware(TelemetryMiddleware, metrics=parts.metrics)  # added last, it is the outermost
    return app


def mount_pages(app: FastAPI, parts: Dependencies, standings: Standings) -> list[Callable[[], None]]:
    """Let the installed live page, if there is one, add itself at ``/``; return what its first visit would wait for."""
    entries = entry_points(group=PAGES, name=LIVE)
    more = {"tracking": parts.settings.tracking_page, "standings": standings, "accounts": parts.accounts}
    return [entry.load()(app, parts.catalog, **more) for entry in entries]


def warm_up(app: FastAPI) -> None:
    """Do in a thread what the first visit of a page would wait for; an error is left to that visit.

    What is imported stays, and is not searched for garbage again: that stops every thread for a third of a second.
    """

    def work() -> None:
        for one in app.state.warm_ups:
            with suppress(Exception):
                one()
        gc.collect()
        gc.freeze()

    Thread(target=work, name="warm-up", daemon=True).start()
