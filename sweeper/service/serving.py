"""Listening: the application behind a socket of this machine, until a signal ends it."""

import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable

import uvicorn

from sweeper.backend.on_ray.jobs import RayJobLauncher, is_job_server
from sweeper.errors import SweeperError
from sweeper.service.app import create_app, warm_up
from sweeper.service.settings import ServiceSettings
from sweeper.service.supervision.launcher import Launcher
from sweeper.service.telemetry import JsonLines

BACKLOG = 2048
GRACE_SECONDS = 3  # for answers that are on their way; streams of events are cut, and clients come back


def serve(
    settings: ServiceSettings, launcher: Launcher | None = None, announce: Callable[[str], None] = lambda _: None
) -> None:
    """Serve until SIGINT or SIGTERM; drivers keep running.

    By default drivers are processes of this machine, or jobs if the cluster is a job server. ``announce`` is given
    the address once the socket listens.

    Raises:
        SweeperError: settings under which it may not run, or an address that cannot be listened on.
        RecordError: another service has the folder, or a file cannot be read or written.
    """
    if launcher is None and is_job_server(settings.cluster):
        launcher = RayJobLauncher(str(settings.cluster))
    app = create_app(settings, launcher)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    name = f"[{settings.host}]" if ":" in settings.host else settings.host
    with _listen(settings.host, settings.port) as listening:
        app.state.parts.supervisor.take_folder()  # else the server would tell in a traceback that another one has it
        _log_as_json()
        warm_up(app)
        announce(f"http://{name}:{listening.getsockname()[1]}")
        with contextlib.suppress(KeyboardInterrupt):  # how uvicorn tells, afterwards, what ended it
            uvicorn.Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=BACKLOG)
    except OSError as error:
        number = error.errno or 0
        why = os.strerror(number) if number > 0 else error.strerror  # which may name the address again
        raise SweeperError(
            f"Cannot listen on {host}, port {port}: {why or error} (--host, --port); choose another, or --port 0"
        ) from error


def _log_as_json() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("sweeper.service", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
