"""A real browser and a real service for tests of the page; `conftest.py` has the fixtures."""

import contextlib
import threading
from urllib.parse import urlsplit

import uvicorn

from sweeper.service.app import create_app

POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self' data:; worker-src 'self' blob:; form-action 'self'; base-uri 'none'"
)
PATIENCE = 300_000
POINTS = """() => document.querySelector('#figure-front .js-plotly-plot')?.data
    ?.find((trace) => trace.name === 'points of the front')?.x.length ?? 0"""


@contextlib.contextmanager
def serving(settings, listening, launcher=None):
    """Serve the application behind a port of this machine."""
    app = create_app(settings, launcher)

    @app.middleware("http")
    async def strict(request, call_next):
        answer = await call_next(request)
        if not request.url.path.startswith(("/api/", "/login")):
            answer.headers["Content-Security-Policy"] = POLICY
        return answer

    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run, args=[[listening.dup()]])
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"  # who asks before it has started waits
    server.should_exit = True
    thread.join()


def is_foreign(url, address):
    parts = urlsplit(url)
    return parts.scheme not in ("data", "blob") and parts.netloc != urlsplit(address).netloc


def drawn(page, count=1):
    page.wait_for_function(f"(count) => ({POINTS})() >= count", arg=count, timeout=PATIENCE)
    return page.evaluate(POINTS)


def query(page):
    return urlsplit(page.url).query
