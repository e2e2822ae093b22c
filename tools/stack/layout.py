"""Where the services of a compose file are on this machine: an address, ports and folders for each.

Every service, and every copy of it, gets a loopback address of its own, so that ports are what the file says; one that
something else on this machine has is replaced. What a service sees of other hosts, of its volumes and secrets is
written into its command, health check and environment in their place.
"""

import os
import re
import secrets
import shlex
import socket
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tools.stack.compose import Compose, Service

SECRETS = "/run/secrets"
_HERE = ("127.0.0.1", "localhost")
_PORT = re.compile(r"(?<=port[ =])\d+\b")


@dataclass(frozen=True, slots=True)
class Place:
    """One copy of a service."""

    name: str  # of the copy; that of the service if there is one copy only
    of: str  # the service's name
    service: Service  # what the file says
    address: str  # where it listens
    ports: Mapping[str, str]  # those of this machine by those of the file
    folders: Mapping[str, Path]  # those of this machine by those that the service sees

    @property
    def scratch(self) -> tuple[Path, ...]:
        """The folders that are empty whenever it starts."""
        return tuple(self.folders[target] for target in self.service.scratch())


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What of this machine is given to a stack."""

    base: Path  # folder of the compose file; relative paths in it begin there
    state: Path  # folder for what stays: volumes, logs, secrets
    scratch: Path  # a short one for what does not
    subnet: str  # three numbers of loopback addresses, ``127.77.0``
    # of services, one where nothing is said; none leaves a service out
    copies: Mapping[str, int] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)  # of services that are to have another one
    ports: Mapping[str, str] = field(default_factory=dict)  # of this machine by those of the file, where they differ


class Layout:
    """Where every service of a stack runs."""

    def __init__(self, compose: Compose, ground: Ground) -> None:
        self._compose = compose
        self.all: tuple[Place, ...] = tuple(self._settle(ground))

    def named(self, name: str) -> Place:
        """Return the place of that name."""
        return next(place for place in self.all if place.name == name)

    def command(self, place: Place) -> tuple[str, ...]:
        """Return what is run there."""
        given = place.service.command
        if isinstance(given, str):
            arguments = tuple(shlex.split(self._here(place, given)))
        else:
            arguments = tuple(self._here(place, argument) for argument in given)
        if arguments[:2] == (
            "ray",
            "start",
        ):  # it would take the machine's own address and name, the same for every node
            return (*arguments, "--node-ip-address", place.address, "--node-name", place.name)
        return arguments

    def health(self, place: Place) -> tuple[str, ...]:
        """Return the command that says whether it is well."""
        return tuple(self._here(place, argument) for argument in place.service.healthcheck.test[1:])

    def environment(self, place: Place) -> dict[str, str]:
        """Return the environment that the file gives it."""
        return {name: self._here(place, value) for name, value in place.service.environment.items()}

    def _here(self, place: Place, text: str) -> str:
        """Return a text of the file with the addresses, ports and folders of this machine."""
        text = _folders(place.folders, text)
        text = _PORT.sub(lambda found: place.ports.get(found.group(), found.group()), text)
        hosts = {other.of: other for other in self.all} | dict.fromkeys(_HERE, place)
        published = {outside: (other, port) for other in self.all for outside, port in other.service.published()}
        names = "|".join(map(re.escape, hosts))

        def host(found: re.Match[str]) -> str:
            name, port = found["name"], found["port"]
            if port == "*" and name in _HERE:
                return found.group()
            other = hosts[name]
            if name in _HERE and port not in place.ports:  # of the machine, not of the container
                other, port = published.get(port, (other, port))
            return f"{other.address}:{other.ports.get(port, port)}"

        text = re.sub(rf"(?<![\w.-])(?P<name>{names}):(?P<port>\d+|\*)", host, text)
        return re.sub(r"(?<![\w.-])(0\.0\.0\.0|127\.0\.0\.1)(?![\w.:-])", place.address, text)

    def _settle(self, ground: Ground) -> Iterable[Place]:
        number = 1
        for of in self._compose.in_order():
            service, copies = self._compose.services[of], ground.copies.get(of, 1)
            for copy in range(1, copies + 1):
                number += 1
                yield Place(
                    name=of if copies == 1 else f"{of}-{copy}",
                    of=of,
                    service=service,
                    address=ground.addresses.get(of, f"{ground.subnet}.{number}"),
                    ports={port: ground.ports.get(port, port) for port in _listens_on(service)},
                    folders=self._folders_of(service, ground, number),
                )

    def _folders_of(self, service: Service, ground: Ground, number: int) -> dict[str, Path]:
        folders = {}
        for source, target in service.mounts():
            is_path = source.startswith((".", "/"))
            folders[target] = (ground.base / source).resolve() if is_path else ground.state / "volumes" / source
        for target in service.scratch():
            folders[target] = ground.scratch / str(number) / target.strip("/")
        for name in service.secrets:
            folders[f"{SECRETS}/{name}"] = (ground.base / self._compose.secrets[name].file).resolve()
        return folders


def free_subnet() -> str:
    """Return three numbers of loopback addresses that another stack on this machine hardly has."""
    return f"127.{1 + secrets.randbelow(250)}.{secrets.randbelow(250)}"


def _folders(folders: Mapping[str, Path], text: str) -> str:
    targets = "|".join(map(re.escape, sorted(folders, key=len, reverse=True)))
    if not targets:
        return text
    pattern = rf"(?<![\w./-])(?P<target>{targets})(?=$|[/\s\"'=,;:)])"
    return re.sub(pattern, lambda found: str(folders[found["target"]]), text)


def _listens_on(service: Service) -> list[str]:
    return sorted(set(_PORT.findall(" ".join(service.arguments))))


def take_ports(compose: Compose, held: ExitStack) -> dict[str, str]:
    """Return a port of this machine for each that a service listens on: the same one, unless something has it.

    Guarantees:
        Until ``held`` is closed no other stack of this machine gets one of them, not even while nothing listens:
        Ray's head, which listens on all addresses, may be started later, and again.
    """
    taken = {}
    for wanted in sorted({port for service in compose.services.values() for port in _listens_on(service)}):
        port = _free_port(int(wanted))
        while not _claim(port, held):
            port = _free_port(0)
        taken[wanted] = str(port)
    return taken


def _free_port(wanted: int) -> int:
    """Return a port on which nothing of this machine listens: this one if possible, any for 0."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", wanted))
        except OSError:
            probe.bind(("0.0.0.0", 0))
        return int(probe.getsockname()[1])


def _claim(port: int, held: ExitStack) -> bool:
    """Take a name that one process of this machine can have, and that ends with it; return whether it was free."""
    name = held.enter_context(socket.socket(socket.AF_UNIX))
    try:
        name.bind(f"\0sweeper-stack-{port}")
    except OSError:
        return False
    return True


def search_path(*first: str) -> str:
    """Return where programs are looked for: these folders, then as usual."""
    return os.pathsep.join([*first, os.environ.get("PATH", os.defpath)])
