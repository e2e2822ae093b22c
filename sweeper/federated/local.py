"""Evaluates a model over a federation: on servers elsewhere, or on this machine in processes that talk over loopback.

On this machine each server and party has a private key of its own, in a folder that only the user can read. The folder
is removed in the end, with the ledgers of what was spent under these keys; what stays is the entry in the account of a
party's rows, where it has one. However this process ends, those that it started end with it, and nobody pays any more.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import IO, Self

from clipless.errors import CliplessError, FederationError
from clipless.federated.primitives import Identity
from sweeper.account.rules import known_rows
from sweeper.errors import AccountError, RecordError, SweeperError, one_line
from sweeper.federated.evaluation import FederatedEvaluation, ask
from sweeper.federated.federation import ANALYST, SERVERS, Federation, Server, read_federation
from sweeper.federated.keys import ledger_of, make_key, read_key
from sweeper.federated.party import ask_account, check_curves
from sweeper.federated.payment import Paid, Payment
from sweeper.results.models.predict import load_predictor
from sweeper.specification.addresses import parse_address
from sweeper.store.jsonl import replace_file, to_text

_PROGRAM = (
    "import sys; from sweeper.federated.keys import end_with_parent; end_with_parent(sys.argv.pop(1)); "
    "from sweeper.cli.main import main; main()"
)
_SIGNALS = signal.SIGTERM, signal.SIGHUP
_END_SECONDS = 5.0
_MOST_PARTIES = 64  # processes
_LONGEST_NAME = 200  # bytes; file systems take 255, and a file is written beside its place under a longer name


class _Children:
    """Processes that end with this one, however it ends, and leave no folder of keys.

    They hold one end of a pipe, whose other end closes with this process: all see that at the same moment.
    """

    def __init__(self, folder: str) -> None:
        self._folder, self._started = folder, list["subprocess.Popen[str]"]()
        self._theirs, self._own = os.pipe()

    def start(self, arguments: Sequence[str]) -> "subprocess.Popen[str]":
        """Start a process of the command line."""
        command = [sys.executable, "-c", _PROGRAM, self._folder, *arguments]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=self._theirs, stdout=pipe, stderr=pipe, text=True)
        self._started.append(process)
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        os.close(self._own)
        os.close(self._theirs)
        for process in self._started:
            try:
                process.communicate(timeout=_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Let signals that would end this process at once unwind it first, where nobody has decided otherwise."""
    in_main = threading.current_thread() is threading.main_thread()
    taken = [number for number in _SIGNALS if in_main and signal.getsignal(number) is signal.SIG_DFL]

    def leave(number: int, _frame: FrameType | None) -> None:
        for other in taken:
            signal.signal(other, signal.SIG_IGN)
        raise SystemExit(128 + number)

    try:
        for number in taken:
            signal.signal(number, leave)
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def evaluate_here(federation: Federation, model: Path) -> FederatedEvaluation:
    """Evaluate a model over parties whose rows are files of this machine, a process for each party and server.

    Raises:
        SweeperError: a party without data, too many of them, or a process that fails; says what it said.
        clipless.errors.FederationError: there is no result.
    """
    without = [party.name for party in federation.parties if party.data is None]
    if without or len(federation.parties) > _MOST_PARTIES:
        raise SweeperError(
            f"Expected addresses of servers (servers.url), or data of each of up to {_MOST_PARTIES} parties on this "
            f"machine (parties.data), got none of {', '.join(without) or 'that'}"
        )
    with (
        _signals_raise(),
        tempfile.TemporaryDirectory(prefix="sweeper-federated-") as folder,
        _Children(folder) as children,
    ):
        whole, analyst = _with_keys(federation, Path(folder))
        _check_accounts(whole, Path(folder), model)
        whole = _with_servers(whole, Path(folder), children)
        parties = [_party(whole, Path(folder), party.name, str(party.data), model, children) for party in whole.parties]
        try:
            for name, process in parties:
                if whole.protocol != "aggregation":
                    _wait_for(name, process)
            found = ask(whole, analyst)
        except (SweeperError, FederationError) as error:
            error.args = ("; ".join([str(error), *_why(whole, Path(folder), parties)]),)
            raise
        failed = {}
        for name, process in parties:
            try:
                _wait_for(name, process)
            except SweeperError as error:  # an aggregation goes on without it
                failed[name] = str(error)
        unkept = tuple(party.name for party in federation.parties if party.account is None)
        return replace(found, unkept=unkept, refused={**found.refused, **failed})


def _check_accounts(federation: Federation, folder: Path, model: Path) -> None:
    """Refuse what a party or its account would, where one pays, before any of them does for no result."""
    if all(party.account is None for party in federation.parties):
        return
    asked: dict[str, Paid] = {}
    for party in federation.parties:
        account = None if party.account is None else parse_address(party.account)
        payment = Payment(key=_key_of(federation, folder, party.name), account=account, block=party.block)
        try:
            paid = ask_account(federation, party.name, model, Path(str(party.data)), payment)
            _check_beside(paid, asked)
            asked[party.name] = paid
        except (SweeperError, CliplessError) as error:
            raise SweeperError(f"The party {party.name!r} cannot take part, and none has paid: {error}") from error


def _check_beside(paid: Paid, asked: Mapping[str, Paid]) -> None:
    """Refuse what the account would once the parties before have paid.

    Raises:
        AccountError: its rows are at one of these, under whatever account of the store, or there is room for one.
    """
    if paid.account is None or paid.wanted is None:
        return
    before = []
    for name, other in asked.items():
        if other.account is None or other.wanted is None or other.account.store_id != paid.account.store_id:
            continue
        if known_rows(other.wanted) & known_rows(paid.wanted):
            raise AccountError(f"Expected rows at one party, got those of {name!r} again; leave one out")
        before += [other.wanted] if other.account.address.name == paid.account.address.name else []
    refused = paid.account.refusal(paid.wanted, *before)
    if refused is not None:
        raise AccountError(refused)


def _why(federation: Federation, folder: Path, parties: "Sequence[tuple[str, subprocess.Popen[str]]]") -> Iterator[str]:
    """Yield what parties said that have ended, and which accounts were charged for no result."""
    for name, process in parties:
        if process.poll() and not _pipe(process.stderr).closed:
            yield f"the party {name!r} failed: {one_line(process.communicate()[1])}"
    charged = [
        party.name
        for party in federation.parties
        if party.account is not None and ledger_of(_key_of(federation, folder, party.name)).exists()
    ]
    if charged:
        yield f"charged without a result: the accounts of {', '.join(charged)}"


def _with_keys(federation: Federation, folder: Path) -> tuple[Federation, Identity]:
    servers = federation.servers or [Server(name=f"server-{n}") for n in range(1, SERVERS[federation.protocol] + 1)]
    names = [*(server.name for server in servers), *(party.name for party in federation.parties)]
    keys = {name: make_key(key_path(folder, names.index(name))).public.hex() for name in names}
    analyst = Identity()
    content = {
        **federation.model_dump(),
        "analyst": analyst.public.hex(),
        "servers": [{**server.model_dump(), "key": keys[server.name]} for server in servers],
        "parties": [{**party.model_dump(), "key": keys[party.name]} for party in federation.parties],
    }
    return Federation.model_validate(content), analyst


def key_path(folder: Path, number: int) -> Path:
    """Return where the private key of a server or party is, servers first."""
    return folder / f"{number}.key"


def _key_of(federation: Federation, folder: Path, name: str) -> Path:
    """Return where the private key of a party is."""
    return key_path(folder, len(federation.servers) + [party.name for party in federation.parties].index(name))


def _with_servers(federation: Federation, folder: Path, children: _Children) -> Federation:
    path = _write(federation, folder / "servers.yaml")
    addresses = []
    for number, server in enumerate(federation.servers):
        arguments = ["federated", "serve", str(path), "--name", server.name, "--key", str(key_path(folder, number))]
        process = children.start(arguments)
        addresses.append(_address(server.name, process))
    servers = [
        server.model_copy(update={"url": url}) for server, url in zip(federation.servers, addresses, strict=True)
    ]
    return federation.model_copy(update={"servers": servers})


def _address(name: str, process: "subprocess.Popen[str]") -> str:
    line = _pipe(process.stdout).readline().strip()
    if not line.startswith("http://"):
        process.wait(_END_SECONDS)
        raise SweeperError(f"The server {name!r} did not start: {one_line(_pipe(process.stderr).read())}")
    return line


def _party(
    federation: Federation, folder: Path, name: str, data: str, model: Path, children: _Children
) -> "tuple[str, subprocess.Popen[str]]":
    path = _write(federation, folder / "parties.yaml")
    key = str(_key_of(federation, folder, name))
    arguments = ["federated", "join", str(path), str(model), data, "--name", name, "--key", key]
    return name, children.start(arguments)


def _write(federation: Federation, path: Path) -> Path:
    path.write_text(to_text(federation.model_dump(), indent=1), encoding="utf-8")  # JSON is YAML
    return path


def _wait_for(name: str, process: "subprocess.Popen[str]") -> None:
    _, said = process.communicate()
    if process.returncode:
        raise SweeperError(f"The party {name!r} failed: {one_line(said)}")


def _pipe(pipe: "IO[str] | None") -> "IO[str]":
    if pipe is None:
        raise SweeperError("Expected a process with pipes, got one without")
    return pipe


def evaluate(model: Path, file: Path, key: Path | None = None) -> FederatedEvaluation:
    """Evaluate a model over the parties of a file.

    Args:
        model: a folder that ``sweeper pick`` wrote, or of a sweep.
        file: of the federation; if its servers have no addresses, all run here.
        key: of who is told the result, for servers elsewhere.

    Raises:
        SweeperError: the file, the key or a server cannot be used.
        clipless.errors.CliplessError: there is no result.
    """
    federation = read_federation(file)
    check_curves(federation, load_predictor(model))
    if federation.is_local:
        return evaluate_here(federation, model)
    if key is None:
        raise SweeperError("Expected the private key of who is told the result, for servers elsewhere (--key)")
    identity = read_key(key)
    if identity.public != federation.key_of(ANALYST):
        raise SweeperError("Expected the private key of the analyst in the file, got another one (--key)")
    return ask(federation, identity)


def check_output(path: Path) -> None:
    """Refuse a file that an evaluation could not be written to, before any party pays for it.

    Raises:
        RecordError: another suffix, a long name, a file that exists, or a folder that cannot be written to.
    """
    if path.suffix != ".json":
        raise RecordError(f"Expected a file name that ends in .json, got {path} (--output)")
    if len(os.fsencode(path.name)) > _LONGEST_NAME:
        raise RecordError(
            f"Expected a file name of at most {_LONGEST_NAME} bytes, got {len(os.fsencode(path.name))} (--output)"
        )
    if path.exists():
        raise RecordError(f"Expected a new file, got {path}, which exists; name another, or move it (--output)")
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise RecordError(
            f"Expected a folder that can be written to, got {path.absolute().parent}; make it, or name another file "
            "(--output)"
        )


def write_evaluation(found: FederatedEvaluation, path: Path) -> None:
    """Write an evaluation as JSON.

    Raises:
        RecordError: not written.
    """
    replace_file(path, to_text(found.to_json(), indent=2) + "\n")
