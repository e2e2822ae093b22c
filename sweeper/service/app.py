"""The service as an ASGI application, from settings alone: testable without a port."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.metadata import entry_points, version

from anyio import to_thread
from fastapi import FastAPI

from sweeper.service import entrance, reading, writing
from sweeper.service.access import API, LOGIN, Access
from sweeper.service.bodies import Bodies
from sweeper.service.catalog import Catalog
from sweeper.service.events import Feeds
from sweeper.service.launcher import Launcher, ProcessLauncher
from sweeper.service.observing import Observing
from sweeper.service.parts import Parts
from sweeper.service.problems import add_handlers
from sweeper.service.settings import ServiceSettings
from sweeper.service.specs import MAX_SPEC_BYTES

PAGES = "sweeper.pages"
LIVE = "live"


def create_app(settings: ServiceSettings, launcher: Launcher | None = None) -> FastAPI:
    """Return the service.

    Args:
        settings: of the service.
        launcher: starts drivers; processes of this machine by default.

    Raises:
        SweeperError: settings under which it may not run.
        RecordError: the file of tokens cannot be read.

    Guarantees:
        Every path except ``/healthz`` and ``/login``, those of the live page included, is behind the door of
        `sweeper.service.access`.
    """
    settings.check()
    data_dir = None if settings.data_dir is None else settings.data_dir.resolve()
    settings = replace(settings, out=settings.out.resolve(), data_dir=data_dir)
    parts = Parts.of(settings, launcher or ProcessLauncher())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await to_thread.run_sync(parts.supervisor.open)
        try:
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
    )
    app.state.parts = parts
    app.include_router(reading.routes(parts, Feeds(parts.told)))  # first what is asked for most
    app.include_router(writing.routes(parts))
    app.include_router(entrance.routes(parts))
    add_handlers(app, parts.redact)
    mount_pages(app, parts.catalog, settings.tracking_page)
    least = {API: MAX_SPEC_BYTES, LOGIN: entrance.MAX_FORM_BYTES}
    app.add_middleware(Bodies, most=settings.limits.body_bytes, most_below=least)
    app.add_middleware(Access, settings=settings, tokens=parts.tokens, rates=parts.rates)
    app.add_middleware(Observing, metrics=parts.metrics)  # added last, it is the outermost
    return app


def mount_pages(app: FastAPI, catalog: Catalog, tracking: str | None = None) -> None:
    """Let the installed live page, if there is one, add itself at ``/``."""
    for entry in entry_points(group=PAGES, name=LIVE):
        entry.load()(app, catalog, tracking=tracking)
