"""The stack as it runs: started in the order of its dependencies, looked after, and ended without a trace."""

import fcntl
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from sweeper.errors import SweeperError
from sweeper.service.security.tokens import Role, make_token
from tools.stack import reaper
from tools.stack.compose import read_compose
from tools.stack.database import owner, prepare, programs
from tools.stack.layout import Ground, Layout, Place, free_subnet, search_path, take_ports

LOCK = "stack.lock"
TOKEN = "token"
TOKEN_DAYS = 30
PATIENCE_SECONDS = 300.0
POLL_SECONDS = 0.1
LAST_WORDS = 400  # characters of a log


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSettings:
    """What stack is run, and where."""

    file: Path  # the compose file
    state: Path  # folder for its volumes, logs and secrets
    workers: int = 2  # copies of ``ray-worker``
    without: tuple[str, ...] = ()  # services that are left out
    environment: Mapping[str, str] = field(default_factory=dict)  # more variables for every service
    # of services that are not to get a loopback address of the stack's own
    addresses: Mapping[str, str] = field(default_factory=dict)
    patience_seconds: float = PATIENCE_SECONDS  # until every service must be well
    clock: Callable[[], float] = time.monotonic  # returns seconds
    say: Callable[[str], None] = lambda _: None  # is told what happens, line by line


class Stack:
    """A stack that runs within a ``with`` block.

    Raises:
        SweeperError: not Linux, no PostgreSQL, a compose file that cannot be used, a folder that another stack has, or
            a service that does not get well.

    Guarantees:
        When the block is left, however, no process of the stack is left. When this process is killed, the reapers of
        its services end them and themselves.
    """

    def __init__(self, settings: StackSettings) -> None:
        if not sys.platform.startswith("linux"):
            raise SweeperError(f"Expected Linux for a stack without Docker, got {sys.platform}; use docker compose")
        self._settings = settings
        self._state = settings.state.resolve()
        if any(character.isspace() for character in str(self._state)):
            raise SweeperError(f"Expected a folder without spaces in its name, got {self._state} (--state)")
        self._reapers: dict[str, subprocess.Popen[bytes]] = {}
        self._well: set[str] = set()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self._state.mkdir(parents=True, exist_ok=True)
            self._take(undo)
            scratch = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="sw-", ignore_cleanup_errors=True)))
            scratch.chmod(0o755)
            self._prepare(scratch, undo)
            undo.callback(self._end)
            self._start()
            self._stack = undo.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    @property
    def token(self) -> str:
        """A token that may do everything with the service."""
        return (self._state / TOKEN).read_text(encoding="ascii").strip()

    @property
    def places(self) -> tuple[Place, ...]:
        """Where everything is."""
        return self._places.all

    def address(self, name: str, port: int) -> str:
        """Return where a port of the compose file is: ``127.77.0.3:5000``."""
        place = self._places.named(name)
        return f"{place.address}:{place.ports[str(port)]}"

    def folder(self, name: str, target: str) -> Path:
        """Return the folder that a service sees as ``target``."""
        return self._places.named(name).folders[target]

    def log(self, name: str) -> Path:
        """Return the file of what a service said."""
        return self._state / "logs" / f"{name}.log"

    def pid(self, name: str) -> int:
        """Return the first process of a service."""
        return int(self._kept(name)["pid"])

    def starts(self, name: str) -> int:
        """Return how often a service was started since the stack was."""
        return int(self._kept(name).get("starts", 0))

    def below(self, name: str) -> list[int]:
        """Return all processes of a service."""
        return reaper.descendants(self._reapers[name].pid)

    def environment(self, name: str) -> dict[str, str]:
        """Return the environment of a service, the secrets that it reads from files not among it."""
        place = self._places.named(name)
        more = self._places.environment(place) | dict(self._settings.environment)
        path = search_path(str(Path(sys.executable).parent), *([str(programs())] if place.of == "postgres" else []))
        return {"PATH": path, "LANG": "C.UTF-8", "HOME": str(self._state)} | more

    def is_well(self, name: str) -> bool:
        """Whether a service passes its health check now."""
        place = self._places.named(name)
        check, test = place.service.healthcheck, self._places.health(place)
        try:
            done = subprocess.run(
                test, env=self.environment(name), capture_output=True, timeout=check.timeout, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0

    def wait_until_well(self, *names: str, seconds: float | None = None) -> None:
        """Wait until services are well; all of them if none is named.

        Raises:
            SweeperError: one is not in time.
        """
        until = self._settings.clock() + (seconds or self._settings.patience_seconds)
        for name in names or [place.name for place in self.places]:
            while not self.is_well(name):
                if self._settings.clock() > until:
                    raise self._ill(name)
                time.sleep(POLL_SECONDS)

    def check(self) -> None:
        """Find reapers that have died, whose services nobody looks after.

        Raises:
            SweeperError: one has.
        """
        for name, process in self._reapers.items():
            if process.poll() is not None:
                raise self._ill(name)

    def _take(self, undo: ExitStack) -> None:
        handle = undo.enter_context((self._state / LOCK).open("w"))
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SweeperError(
                f"Expected no stack in {self._state}, but one runs there; stop it or name another folder with --state"
            ) from None

    def _prepare(self, scratch: Path, undo: ExitStack) -> None:
        """Read the file, find places, and make what there must be before the first start."""
        settings = self._settings
        variables = {
            "RAY_WORKER_CPUS": str(max(1, (os.cpu_count() or 1) // max(1, settings.workers))),
            "RAY_OBJECT_STORE_BYTES": "200000000",
            "MLFLOW_WORKERS": "1",
            "SWEEPER_SECRETS": str(self._state / "secrets"),
        }
        compose = read_compose(settings.file, variables | dict(os.environ))
        gpu = (name for name, service in compose.services.items() if "gpu" in service.profiles)
        ground = Ground(
            base=settings.file.resolve().parent,
            state=self._state,
            scratch=scratch,
            subnet=free_subnet(),
            copies={"ray-worker": settings.workers} | dict.fromkeys([*gpu, *settings.without], 0),
            addresses=settings.addresses,
            ports=take_ports(compose, undo),
        )
        self._places = Layout(compose, ground)
        for folder in ("logs", "reapers", "secrets"):
            (self._state / folder).mkdir(exist_ok=True)
        (self._state / "secrets").chmod(0o700)
        for secret in compose.secrets.values():
            _new_secret((ground.base / secret.file).resolve(), secrets.token_hex(32))
        for place in self.places:
            for _, target in place.service.mounts():
                place.folders[target].mkdir(parents=True, exist_ok=True)
            if place.of == "postgres":
                data, given = place.folders[place.service.environment["PGDATA"]], self._places.environment(place)
                prepare(data, given, programs(), owner())
            if "/tokens" in place.folders and not (self._state / TOKEN).exists():
                file = place.folders["/tokens"] / "tokens.json"
                _new_secret(self._state / TOKEN, make_token(file, Role.WRITE, TOKEN_DAYS, "stack"))

    def _start(self) -> None:
        """Start every service once those are well that it depends on."""
        until = self._settings.clock() + self._settings.patience_seconds
        waiting = list(self.places)
        while len(self._well) < len(self.places):
            for place in list(waiting):
                needed = [other.name for other in self.places if other.of in place.service.depends_on]
                if self._well.issuperset(needed):
                    waiting.remove(place)
                    self._keep(place)
            for name in [name for name in self._reapers if name not in self._well]:
                if self.is_well(name):
                    self._well.add(name)
                    self._settings.say(f"{name} is well")
                elif self._settings.clock() > until or self._reapers[name].poll() is not None:
                    raise self._ill(name)
            time.sleep(POLL_SECONDS)

    def _keep(self, place: Place) -> None:
        """Start the reaper of one service."""
        service = place.service
        kept = reaper.Settings(
            command=self._places.command(place),
            environment=self.environment(place.name),
            folder=str(self._state),
            log=str(self.log(place.name)),
            state=str(self._state / "reapers" / f"{place.name}.state"),
            restart=service.restart,
            stop_signal=service.stop_signal,
            grace_seconds=service.stop_grace_period,
            scratch=tuple(map(str, place.scratch)),
            user=owner() if place.of == "postgres" else None,
        )
        file = self._state / "reapers" / f"{place.name}.json"
        file.write_text(json.dumps(asdict(kept)), encoding="utf-8")
        self._reapers[place.name] = subprocess.Popen(
            [sys.executable, "-I", reaper.__file__, str(file)], stdin=subprocess.DEVNULL, start_new_session=True
        )

    def _kept(self, name: str) -> dict[str, int]:
        try:
            content: dict[str, int] = json.loads((self._state / "reapers" / f"{name}.state").read_text())
        except OSError:
            return {}
        return content

    def _ill(self, name: str) -> SweeperError:
        try:
            said = " ".join(self.log(name).read_text(errors="replace").split())[-LAST_WORDS:]
        except OSError:
            said = ""
        return SweeperError(f"Expected {name} to be well by now, but it is not; {self.log(name)} ends with: {said}")

    def _end(self) -> None:
        """End every service, each before those that it depends on."""
        while self._reapers:
            needed = {of for place in self.places if place.name in self._reapers for of in place.service.depends_on}
            last = [place.name for place in self.places if place.name in self._reapers and place.of not in needed]
            for name in last:
                self._reapers[name].terminate()
            for name in last:
                self._reapers.pop(name).wait()
        shutil.rmtree(self._state / "reapers", ignore_errors=True)


def _new_secret(path: Path, text: str) -> None:
    """Write a text that only this user may read, unless the file is there."""
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(text, encoding="ascii")
