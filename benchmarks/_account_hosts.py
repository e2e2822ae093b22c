"""What an account is spent through, as processes that can be killed: see ``account_kills.py``.

PostgreSQL, a service, the drivers that it asks for, and servers of the Model Context Protocol. All but PostgreSQL are
forked from a process that has imported what they need, which takes milliseconds instead of seconds.
"""

import contextlib
import io
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sweeper.cli.commands import running
from sweeper.cli.commands.service import TOKEN, serve_automatic_client
from sweeper.cli.main import main as sweeper
from sweeper.errors import AccountError, RecordError, SweeperError
from sweeper.service import app
from sweeper.service.client import JSON, Call, Connection
from sweeper.service.serving import serve
from sweeper.service.settings import ServiceSettings
from sweeper.specification.addresses import AccountAddress
from tests.sweeper.in_process import trained_in_process
from tools.stack.database import owner, programs

DONE, REFUSED, BROKEN, AWAY = 0, 3, 4, 5
READY_SECONDS = 60.0
PATIENCE_SECONDS = 600.0  # of a client for one sweep
PAUSE_SECONDS = 0.3
FAREWELL_SECONDS = 1.5  # within which a server of the protocol is killed that was asked to submit
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "a client", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def as_child(work: Callable[[], None], log: Path | None = None) -> int:
    """Fork a process that does some work, and return its id; what it says is appended to a log."""
    child = os.fork()
    if child:
        return child
    code = BROKEN
    try:
        if log is None:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                work()
        else:
            file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(file, 1)
            os.dup2(file, 2)
            work()
        code = DONE
    except AccountError:
        code = REFUSED
    except RecordError as error:
        os.write(2, f"RecordError: {error}\n".encode())
        code = AWAY
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else BROKEN
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def ended(child: int) -> int:
    """Return how a child ended, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def has_ended(child: int) -> bool:
    """Whether a child has ended, which is left to be waited for."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


class Database:
    """A PostgreSQL of this machine behind a socket in a folder.

    Its writes are left to the system: a process that is killed loses none of them.
    """

    def __init__(self, folder: Path) -> None:
        self._bin, self._folder, self._data = programs(), folder, folder / "data"
        self._data.mkdir(parents=True)
        who = owner()
        self._identity: dict[str, Any] = {} if who is None else {"user": who, "group": who, "extra_groups": []}
        if who is not None:
            for path in (folder, self._data):
                shutil.chown(path, who, who)
        init = [self._bin / "initdb", "--pgdata", self._data, "--username=me", "--auth=trust", "--no-sync"]
        subprocess.run([*init, "--no-instructions"], check=True, cwd="/", stdout=subprocess.DEVNULL, **self._identity)
        self.address = AccountAddress(f"postgresql://me@/postgres?host={folder}", "people")
        self._server: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers, which it does not before those of a killed one are gone."""
        until = time.monotonic() + READY_SECONDS
        options = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={self._folder}", "-c", "fsync=off"]
        command = [self._bin / "postgres", "-D", self._data, *options]
        quiet = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        while time.monotonic() < until:
            if self._server is None or self._server.poll() is not None:
                self._server = subprocess.Popen(command, cwd="/", **quiet, **self._identity)
            ready = [self._bin / "pg_isready", "--quiet", "--host", self._folder]
            if subprocess.run(ready, check=False).returncode == 0:
                return
            time.sleep(0.05)
        raise SystemExit("PostgreSQL does not start")

    def kill(self, chance: random.Random) -> None:
        """Kill its first process, with which all end, or another one, after which it recovers by itself."""
        assert self._server is not None
        children = Path(f"/proc/{self._server.pid}/task/{self._server.pid}/children").read_text(encoding="ascii")
        one = chance.choice([str(self._server.pid), *children.split()])
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(one), signal.SIGKILL)
        if int(one) == self._server.pid:
            self._server.wait()

    def close(self) -> None:
        """End it."""
        if self._server is not None:
            self._server.terminate()
            self._server.wait()


class Desk:
    """A launcher whose drivers another process forks: it finds what is to be started in a folder.

    Like those of this machine its drivers outlive the service.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def start(self, arguments: Sequence[str], folder: Path) -> str:
        """Ask for a driver, and return the name of the request."""
        job = uuid.uuid4().hex
        asked = {"arguments": list(arguments), "folder": str(folder)}
        (self._folder / f"{job}.new").write_text(json.dumps(asked), encoding="utf-8")
        (self._folder / f"{job}.new").rename(self._folder / f"{job}.asked")
        return job

    def is_alive(self, job: str) -> bool:
        """Whether a driver was asked for that has not ended."""
        return any((self._folder / f"{job}.{state}").exists() for state in ("asked", "taken"))

    def is_away(self) -> bool:
        """It is here."""
        return False

    def kill(self, job: str) -> None:
        """Leave it: nobody stops a sweep here."""
        del job

    def take(self) -> list[tuple[str, int, Path]]:
        """Fork the drivers that were asked for; return of each the request, the process and the folder of its sweep."""
        found = []
        for path in sorted(self._folder.glob("*.asked")):
            asked = json.loads(path.read_text(encoding="utf-8"))
            path.rename(path.with_suffix(".taken"))
            folder = Path(asked["folder"])
            child = as_child(lambda given=asked["arguments"]: drive(given), folder / "driver.log")
            found.append((path.stem, child, folder))
        return found

    def finish(self, job: str) -> None:
        """Note that a driver has ended."""
        (self._folder / f"{job}.taken").unlink()


def drive(arguments: list[str]) -> None:
    """Run the command of a driver; it trains in its own process."""
    running.start_ahead = lambda: None
    with trained_in_process():
        sweeper(arguments)


def serve_until_killed(settings: ServiceSettings, desk: Desk) -> None:
    """Serve; the live page is left out."""
    app.mount_pages = lambda *_, **__: []
    serve(settings, desk)


class McpServer:
    """`sweeper mcp --url` as a process, spoken to line by line."""

    def __init__(self, url: str, token: str) -> None:
        theirs, self._ours = os.pipe()
        self._answers, out = os.pipe()
        self._read = b""

        def work() -> None:
            os.dup2(theirs, 0)
            os.dup2(out, 1)
            os.close(self._ours)
            os.close(self._answers)
            os.environ[TOKEN] = token
            sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
            serve_automatic_client(url, Path(), None, 1, False, None)

        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                work()
            os._exit(BROKEN)
        self._child = child
        os.close(theirs)
        os.close(out)

    def send(self, name: str, arguments: dict[str, Any]) -> None:
        """Call a tool."""
        params = {"name": name, "arguments": arguments, "_meta": META}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        os.write(self._ours, (json.dumps(asked) + "\n").encode())

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """Return the result of the call, ``None`` if there is none after so many seconds."""
        until = time.monotonic() + seconds
        while b"\n" not in self._read:
            if not select.select([self._answers], [], [], max(0.0, until - time.monotonic()))[0]:
                return None
            more = os.read(self._answers, 65_536)
            if not more:
                raise SweeperError("the server of the protocol has ended")
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return dict(json.loads(line)["result"])

    def kill(self) -> None:
        """End it at once."""
        os.kill(self._child, signal.SIGKILL)
        ended(self._child)
        os.close(self._ours)
        os.close(self._answers)


class Client:
    """Submits one sweep to a service, and stays until it has ended; it repeats what was not answered.

    Args:
        url, token: of the service.
        spec: without an account, which is the service's to say.
        chance: of the moments.
        kills: a file that gets a byte for each server of the protocol that was killed.
    """

    def __init__(self, url: str, token: str, spec: dict[str, Any], chance: random.Random, kills: Path) -> None:
        self._url, self._token, self._spec, self._chance, self._kills = url, token, spec, chance, kills
        self._connection = Connection(url, token)

    def work(self, way: str, deaths: int) -> None:
        """Submit by ``rest``, ``door`` (the path of the service) or ``stdio``; so many servers of the last are killed.

        Raises:
            AccountError: the account has no room for it.
            SystemExit: it did not end well.
        """
        until, left = time.monotonic() + PATIENCE_SECONDS, deaths

        def try_once() -> str:
            nonlocal left
            dies, left = left > 0, max(0, left - 1)
            return {"rest": self._by_rest, "door": self._by_door}[way]() if way != "stdio" else self._by_stdio(dies)

        self._watch(self._repeat(try_once, until), until)

    def _repeat(self, ask: Callable[[], Any], until: float) -> Any:
        """Return what is answered at last; a service or a store that is away comes back."""
        last = ""
        while time.monotonic() < until:
            try:
                return ask()
            except AccountError:
                raise
            except (SweeperError, OSError) as error:
                last = str(error)
                time.sleep(PAUSE_SECONDS)
        os.write(2, f"no answer: {last}\n".encode())
        raise SystemExit(BROKEN)

    def _by_rest(self) -> str:
        body, key = json.dumps(self._spec).encode(), self._spec["name"]
        call = Call("/sweeps", what="the spec", method="POST", data=body, kind=JSON, key=key)
        return str(self._connection.read(call)["id"])

    def _by_door(self) -> str:
        params = {"name": "submit_sweep", "arguments": {"spec": self._spec, "key": self._spec["name"]}}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": JSON}
        headers["Authorization"] = f"Bearer {self._token}"
        with urllib.request.urlopen(urllib.request.Request(f"{self._url}/mcp", body, headers), timeout=60.0) as answer:
            return self._id_in(json.load(answer)["result"])

    def _by_stdio(self, dies: bool) -> str:
        server = McpServer(self._url, self._token)
        try:
            server.send("submit_sweep", {"spec": self._spec, "key": self._spec["name"]})
            found = server.answer(self._chance.uniform(0.0, FAREWELL_SECONDS) if dies else 60.0)
        finally:
            server.kill()
        if dies:
            with self._kills.open("a", encoding="ascii") as file:
                file.write(".")
        if dies or found is None:
            raise SweeperError("the server was killed")
        return self._id_in(found)

    def _id_in(self, result: dict[str, Any]) -> str:
        if not result["isError"]:
            return str(result["structuredContent"]["id"])
        sentence = str(result["content"][0]["text"])
        raise (AccountError if "has room for" in sentence or "no room" in sentence else SweeperError)(sentence)

    def _watch(self, name: str, until: float) -> None:
        """Wait for the end of a sweep; one that has failed, as where its store was away, is resumed."""
        look, resume = Call(f"/sweeps/{name}"), Call(f"/sweeps/{name}/resume", method="POST")
        while True:
            state = self._repeat(lambda: self._connection.read(look), until)["state"]
            if state == "completed":
                return
            if state in ("failed", "interrupted", "stopped", "lost"):
                with contextlib.suppress(SweeperError):  # it is looked at again
                    self._connection.read(resume)
            if time.monotonic() > until:
                os.write(2, f"{name} stays {state}\n".encode())
                raise SystemExit(BROKEN)
            time.sleep(PAUSE_SECONDS)
