"""``docker-compose.yml`` as values: what the stack uses of the Compose specification, and nothing else.

A key that is not known here is refused, so that nothing in the file can be without a meaning for `make stack`, or for
the tests of the file.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from sweeper.errors import SweeperError

_VARIABLE = re.compile(r"\$\$|\$\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<rest>[^}]*))?\}")
_DURATION = re.compile(r"(?P<number>\d+)(?P<unit>ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def _seconds(value: object) -> float:
    found = _DURATION.fullmatch(str(value))
    if found is None:
        raise ValueError(f"Expected a duration such as 30s, got {value!r}")
    return int(found["number"]) * _SECONDS[found["unit"]]


Seconds = Annotated[float, BeforeValidator(_seconds)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Healthcheck(_Part):
    """When a service is well. ``test`` begins with ``CMD``."""

    test: tuple[str, ...]
    interval: Seconds
    timeout: Seconds
    retries: int
    start_period: Seconds
    start_interval: Seconds


class Condition(_Part):
    """What is waited for before a service is started."""

    condition: Literal["service_healthy"]


class Build(_Part):
    """How an image is made."""

    context: str
    args: Mapping[str, str] = Field(default_factory=dict)


class Service(_Part):
    """One service."""

    image: str
    build: Build | None = None
    pull_policy: Literal["missing", "never"] = "missing"
    user: str
    profiles: tuple[str, ...] = ()
    command: str | tuple[str, ...]
    environment: Mapping[str, str] = Field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    tmpfs: tuple[str, ...] = ()
    shm_size: str = "64m"
    networks: tuple[str, ...]
    hostname: str | None = None
    ports: tuple[str, ...] = ()
    depends_on: Mapping[str, Condition] = Field(default_factory=dict)
    healthcheck: Healthcheck
    restart: Literal["no", "always", "on-failure", "unless-stopped"]
    init: bool = False
    read_only: bool = False
    cap_drop: tuple[str, ...] = ()
    security_opt: tuple[str, ...] = ()
    logging: Mapping[str, Any] = Field(default_factory=dict)
    deploy: Mapping[str, Any] = Field(default_factory=dict)
    stop_signal: Literal["SIGTERM", "SIGINT", "SIGQUIT"] = "SIGTERM"
    stop_grace_period: Seconds = 10.0

    @property
    def arguments(self) -> tuple[str, ...]:
        """The command as arguments of a process."""
        return tuple(shlex.split(self.command)) if isinstance(self.command, str) else self.command

    def mounts(self) -> Iterator[tuple[str, str]]:
        """Yield each volume, by name or path, and where the service sees it."""
        for volume in self.volumes:
            source, target, *_mode = volume.split(":")
            yield source, target

    def published(self) -> Iterator[tuple[str, str]]:
        """Yield each port under which the machine publishes one of the service, and that one."""
        for entry in self.ports:
            *_address, outside, port = entry.rsplit(":", 2)
            yield outside, port

    def scratch(self) -> Iterator[str]:
        """Yield the folders that are empty whenever the service starts."""
        for entry in self.tmpfs:
            yield entry.partition(":")[0]


class Secret(_Part):
    """A text in a file, which services see below ``/run/secrets``."""

    file: str


class Compose(_Part):
    """A whole file."""

    name: str
    services: Mapping[str, Service]
    networks: Mapping[str, Mapping[str, Any]]
    volumes: Mapping[str, Mapping[str, Any]]
    secrets: Mapping[str, Secret]

    def in_order(self) -> tuple[str, ...]:
        """Return the services, each after those that it depends on.

        Raises:
            SweeperError: some wait for each other.
        """
        ordered: list[str] = []
        while len(ordered) < len(self.services):
            free = [
                name
                for name, service in self.services.items()
                if name not in ordered and set(service.depends_on) <= set(ordered)
            ]
            if not free:
                waiting = sorted(set(self.services) - set(ordered))
                raise SweeperError(f"Expected services that do not wait for each other, got {', '.join(waiting)}")
            ordered += free
        return tuple(ordered)


def read_compose(path: Path, variables: Mapping[str, str]) -> Compose:
    """Read a compose file.

    Args:
        path: of the file.
        variables: what ``${NAME}``, ``${NAME:-default}`` and ``${NAME:?why}`` in it stand for.

    Raises:
        SweeperError: it cannot be read, has a key that is not known here, names something that it does not declare, or
            needs a variable that is not given.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SweeperError(f"Cannot read {path}: {' '.join(str(error).split())}; name another with --file") from None
    if not isinstance(content, dict):
        raise SweeperError(f"Expected a mapping in {path}, got something else; is it a compose file?")
    known = {key: value for key, value in content.items() if not str(key).startswith("x-")}
    try:
        compose = Compose.model_validate(_filled(known, variables, path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise SweeperError(f"{first['msg']} ({'.'.join(map(str, first['loc']))} in {path})") from None
    _check_names(compose, path)
    return compose


def _filled(value: Any, variables: Mapping[str, str], path: Path) -> Any:
    """Return a value with its variables filled in."""
    if isinstance(value, dict):
        return {key: _filled(inner, variables, path) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, variables, path) for inner in value]
    if not isinstance(value, str):
        return value

    def fill(found: re.Match[str]) -> str:
        if found.group() == "$$":
            return "$"
        given = variables.get(found["name"], "")
        if given or found["kind"] == "-":
            return given or found["rest"]
        raise SweeperError(f"Expected a value of {found['name']} for {path}, got none; set it in the environment")

    return _VARIABLE.sub(fill, value)


def _check_names(compose: Compose, path: Path) -> None:
    """Find what is named and not declared."""
    for name, service in compose.services.items():
        volumes = [source for source, _ in service.mounts() if not source.startswith((".", "/"))]
        for kind, named, declared in (
            ("service", service.depends_on, compose.services),
            ("network", service.networks, compose.networks),
            ("volume", volumes, compose.volumes),
            ("secret", service.secrets, compose.secrets),
        ):
            for one in named:
                if one not in declared:
                    raise SweeperError(f"Expected a declared {kind}, got {one} (services.{name} in {path})")
