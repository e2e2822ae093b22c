"""The commands of the service: run it, submit to it, make tokens for it. Each is one function call."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sweeper.cli.options import DEFAULT_OUT, Out, SpecFile, choices
from sweeper.errors import SweeperError

if TYPE_CHECKING:
    from sweeper.specification.addresses import AccountAddress

TOKEN = "SWEEPER_TOKEN"

app = typer.Typer()

Accounts = Annotated[
    list[str] | None,
    typer.Option(
        "--account",
        metavar="DATA=ACCOUNT",
        help="Charge every sweep on DATA, a registered name or a table in --data-dir, to an account; repeatable.",
    ),
]


@app.command()
def serve(
    out: Out = DEFAULT_OUT,
    host: Annotated[str, typer.Option(help="Address to listen on; any but this machine's own needs --tokens.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any.", min=0, max=65535)] = 8000,
    tokens: Annotated[Path | None, typer.Option(help="File of tokens, made by sweeper token.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with data sets and tables that specs may name.")] = None,
    tracking: Annotated[str | None, typer.Option(help="MLflow tracking URI of every sweep.")] = None,
    tracking_page: Annotated[
        str | None,
        typer.Option(
            envvar="SWEEPER_TRACKING_PAGE",
            help="Address under which browsers find that MLflow server, if another.",
        ),
    ] = None,
    page: Annotated[
        str | None,
        typer.Option(help="Address under which people find this service; runs and alerts link to its pages."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Address of the Ray cluster on which sweeps run, or http://HOST:8265 for their drivers too."),
    ] = None,
    drivers: Annotated[int, typer.Option(help="Sweeps that run at a time; others wait.", min=1)] = 1,
    allow_fetch: Annotated[
        bool, typer.Option("--allow-fetch", help="Without --data-dir, let specs name data sets of OpenML.")
    ] = False,
    duration_is_seen: Annotated[
        bool,
        typer.Option(
            "--duration-is-seen",
            help="Accept private selections, although clients see how long they take, and with it about how many "
            "trials there were.",
        ),
    ] = False,
    host_name: Annotated[
        list[str] | None, typer.Option(help="A name by which clients reach the service; repeatable.")
    ] = None,
    account: Accounts = None,
    https: Annotated[bool, typer.Option("--https", help="Browsers come through a proxy that speaks https.")] = False,
    mcp: Annotated[
        bool, typer.Option("--mcp", help="Serve automatic clients too, by the Model Context Protocol at /mcp.")
    ] = False,
    rate: Annotated[float, typer.Option(help="Requests a second of one client; 0 for no limit.", min=0)] = 100.0,
) -> None:
    """Serve sweeps over HTTP: submit, watch, pick; with the live page at /."""
    from sweeper.backend.on_ray.jobs import RayJobLauncher, is_job_server
    from sweeper.service.settings import Limits, ServiceSettings, check_installed
    from sweeper.specification.addresses import check_url

    check_installed()
    from sweeper.service.serving import serve as serve_

    for given, option in ((tracking_page, "--tracking-page"), (page, "--page")):
        if given is not None:
            check_url(given, "an address of pages", option)
    settings = ServiceSettings(
        out=out,
        data_dir=data_dir,
        tokens=tokens,
        host=host,
        port=port,
        tracking=tracking,
        tracking_page=tracking_page,
        page=page,
        cluster=cluster,
        drivers=drivers,
        allow_fetch=allow_fetch,
        duration_is_seen=duration_is_seen,
        secure_cookies=https,
        hosts=tuple(host_name or ()),
        mcp=mcp,
        limits=Limits(requests_per_second=rate),
        accounts=dict(map(_declaration, account or ())),
    )
    launcher = RayJobLauncher(str(cluster)) if is_job_server(cluster) else None
    serve_(settings, launcher, announce=lambda url: typer.echo(f"Sweeper serves {out} at {url}"))


def _declaration(text: str) -> "tuple[str, AccountAddress]":
    from sweeper.specification.addresses import find_account

    data, _, address = text.partition("=")
    if not data or not address:
        raise SweeperError(f"Expected DATA=FILE#NAME, such as digits=accounts.db#clinic, got {text!r} (--account)")
    return data, find_account(address, "")


@app.command()
def submit(
    spec: SpecFile,
    url: Annotated[str, typer.Option(help="Address of the service.")] = "http://127.0.0.1:8000",
) -> None:
    """Submit a spec to a service; the token is read from SWEEPER_TOKEN."""
    from sweeper.service.client import submit as submit_
    from sweeper.specification.yaml_file import read_mapping

    try:
        text = spec.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        read_mapping(spec)  # says what is wrong with the file
        raise
    made = submit_(url, text, os.environ.get(TOKEN) or None)
    base = url.rstrip("/")
    typer.echo(f"{made['id']}: {made['state']}\n{base}/?sweep={made['id']}\n{base}{made['url']}")


@app.command("mcp")
def serve_automatic_client(
    url: Annotated[
        str | None, typer.Option(help="Address of a service; the token is read from SWEEPER_TOKEN.", show_default=False)
    ] = None,
    out: Out = DEFAULT_OUT,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with data sets and tables that specs may name.")] = None,
    drivers: Annotated[int, typer.Option(help="Sweeps that run at a time; others wait.", min=1)] = 1,
    allow_fetch: Annotated[
        bool, typer.Option("--allow-fetch", help="Without --data-dir, let specs name data sets of OpenML.")
    ] = False,
    account: Accounts = None,
) -> None:
    """Serve one automatic client by standard input and output: for a service, or for a folder of sweeps."""
    import anyio

    from sweeper.service.client import Connection
    from sweeper.service.settings import MCP_EXTRA, ServiceSettings, check_installed
    from sweeper.specification.addresses import check_url

    check_installed(MCP_EXTRA, "mcp")
    from sweeper.service.app import create_app
    from sweeper.service.mcp.callers import RemoteCaller
    from sweeper.service.mcp.server import serve_folder, serve_stdio

    if url is not None:
        if data_dir is not None or allow_fetch or account:
            raise SweeperError(
                "Expected no --data-dir, --allow-fetch or --account beside --url: the service decides which data there "
                "are, and what they are charged to; leave them out"
            )
        connection = Connection(check_url(url, "the address of a service", "--url"), os.environ.get(TOKEN) or None)
        anyio.run(serve_stdio, RemoteCaller(connection))
        return
    out.mkdir(parents=True, exist_ok=True)
    settings = ServiceSettings(
        out=out,
        data_dir=data_dir,
        drivers=drivers,
        allow_fetch=allow_fetch,
        port=0,
        accounts=dict(map(_declaration, account or ())),
    )
    serve_folder(create_app(settings))


@app.command()
def token(
    role: Annotated[str, typer.Option(help="What it allows.", **choices(("read", "write")))] = "read",
    owner: Annotated[
        str | None,
        typer.Option(help="Name of the person who gets it, shown beside what they do; yours by default."),
    ] = None,
    days: Annotated[int, typer.Option(help="Days until it expires.")] = 30,
    tokens: Annotated[Path, typer.Option(help="File of tokens, made if need be.")] = Path("tokens.json"),
    revoke: Annotated[
        str | None, typer.Option(help="Take a token back instead, by the eight characters behind sweeper_.")
    ] = None,
) -> None:
    """Make a token for the service and print it, this once."""
    from sweeper.service.security.tokens import Role, make_token, revoke_token
    from sweeper.store.actions import login_name

    if revoke is not None:
        revoke_token(tokens, revoke)
        typer.echo(f"revoked: {revoke}")
        return
    if role not in {known.value for known in Role}:
        raise SweeperError(f"Expected read or write, got {role!r} (--role)")
    typer.echo(make_token(tokens, Role(role), days, login_name() if owner is None else owner))
