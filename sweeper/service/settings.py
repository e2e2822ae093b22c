"""How the service is run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path

from sweeper.errors import SweeperError
from sweeper.specification.addresses import AccountAddress

NO_DATA = ".no-data"  # an empty folder: who is given one as data folder fetches nothing
MEBIBYTE = 2**20
EXTRA = ("fastapi", "itsdangerous", "prometheus_client", "uvicorn")  # what `sweeper[service]` installs
MCP_EXTRA = (*EXTRA, "mcp")  # what `sweeper[mcp]` installs


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one client, or all of them, may take."""

    body_bytes: int = MEBIBYTE  # of a request
    requests_per_second: float = 100.0  # of one client, on the average; 0 for no limit
    burst: int = 1000  # requests that a client may make at once
    streams: int = 100  # of events, of all clients together
    streams_per_client: int = 10  # of events
    page: int = 1000  # rows of a page, at most
    queued: int = 100  # sweeps that wait to be run


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """What `create_app` needs to know."""

    out: Path = Path("sweeps-out")  # where sweeps live
    data_dir: Path | None = None  # local copies of data sets; tables that specs name by path lie in it
    tokens: Path | None = None  # file of tokens; required unless ``host`` is an address of this machine only
    host: str = "127.0.0.1"  # where the service listens
    port: int = 8000
    tracking: str | None = None  # MLflow tracking URI of every sweep; by default one SQLite file in ``out`` for all
    tracking_page: str | None = None  # address under which browsers find that MLflow server, where it is another
    page: str | None = None  # address under which people find the service, to which runs and alerts link
    cluster: str | None = None  # address of the Ray cluster; by default each sweep starts its own on this machine
    drivers: int = 1  # sweeps that run at a time
    allow_fetch: bool = False  # whether specs may name data sets that are fetched from the network
    duration_is_seen: bool = False  # whether specs may select privately, although clients see how long that takes
    secure_cookies: bool = False  # whether browsers reach the service by https only
    hosts: tuple[str, ...] = ()  # names by which clients reach the service, beside ``host`` and those of this machine
    mcp: bool = False  # whether automatic clients find the server of the Model Context Protocol at ``/mcp``
    limits: Limits = field(default_factory=Limits)  # what clients may take
    # By data set, a registered name or a table below ``data_dir``, the account that every sweep on it is charged to.
    accounts: Mapping[str, AccountAddress] = field(default_factory=dict)

    def page_of(self, sweep: str) -> str | None:
        """Return the address of a sweep's live page, None where nobody has said under which the service is found."""
        base = self.page
        if base is None and self.port and is_loopback(self.host):
            name = f"[{self.host}]" if ":" in self.host else self.host
            base = f"http://{name}:{self.port}"
        return None if base is None else f"{base.rstrip('/')}/?sweep={sweep}"

    def find_data_dir(self) -> Path | None:
        """Return where data sets are looked for; from a folder, be it an empty one, nothing is fetched."""
        return None if self.data_dir is None and self.allow_fetch else self.find_local_data()

    def find_local_data(self) -> Path:
        """Return a folder with the data that are here, so that nothing is fetched."""
        if self.data_dir is not None:
            return self.data_dir
        empty = self.out / NO_DATA
        empty.mkdir(parents=True, exist_ok=True)
        return empty

    def check(self) -> None:
        """Refuse settings under which every machine that reaches the service could use it.

        Raises:
            SweeperError: another address than one of this machine, and no tokens; or a package is missing.
        """
        if self.mcp:
            check_installed(MCP_EXTRA, "mcp")
        if self.tokens is None and not is_loopback(self.host):
            raise SweeperError(
                f"Expected a file of tokens for a service that others can reach, got none for {self.host} (--host); "
                "make one with sweeper token and name it with --tokens"
            )


def is_loopback(host: str) -> bool:
    """Whether an address or name is one that only this machine can reach."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_installed(packages: tuple[str, ...] = EXTRA, extra: str = "service") -> None:
    """Find out whether the packages of an extra, by default those of the service, are installed; imports none of them.

    Raises:
        SweeperError: one is missing.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        what = "The service" if extra == "service" else "The door for automatic clients"
        raise SweeperError(f"{what} needs {', '.join(missing)}: pip install 'sweeper[{extra}]'")
