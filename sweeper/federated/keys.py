"""Private keys of those who take part, one file each, and what a party has spent under its key."""

import contextlib
import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from clipless.federated.primitives import KEY_BYTES, Identity
from sweeper.errors import RecordError, SweeperError
from sweeper.federated.federation import Federation
from sweeper.store.jsonl import JsonlFile, alone

_OWNER_ALONE = 0o600
LEDGER_SUFFIX = ".ledger.jsonl"


def make_key(path: Path) -> Identity:
    """Make a private key that only its owner can read.

    Raises:
        SweeperError: the file is there already, or cannot be written.
    """
    identity = Identity()
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ALONE), "w") as file:
            file.write(identity.private.hex() + "\n")
    except OSError as error:
        raise SweeperError(f"Cannot write {path}: {error.strerror or error}; a key is never replaced") from error
    return identity


def read_key(path: Path) -> Identity:
    """Read a private key.

    Raises:
        SweeperError: the file cannot be read, or holds none.
    """
    try:
        private = bytes.fromhex(path.read_text(encoding="ascii"))
    except OSError as error:
        raise SweeperError(f"Cannot read {path}: {error.strerror or error} (--key)") from error
    except ValueError:
        private = b""
    if len(private) != KEY_BYTES:
        raise SweeperError(f"Expected a private key in {path}; make one with sweeper federated key (--key)")
    return Identity(private)


def end_with_parent(folder: str) -> None:
    """End this process, and remove the folder of its key, as soon as the other end of its standard input closes."""

    def watch() -> None:
        os.read(sys.stdin.fileno(), 1)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def ledger_of(key: Path) -> Path:
    """Return where a party keeps what it has spent."""
    return key.with_name(key.name + LEDGER_SUFFIX)


@contextlib.contextmanager
def alone_in(federation: Federation, key: Path) -> Iterator[None]:
    """Wait until no other process takes part in the same evaluation under the key.

    Raises:
        RecordError: no file can be made beside the key.
    """
    with alone(key.with_name(f"{key.name}.{federation.digest.hex()[:16]}.lock"), _OWNER_ALONE):
        yield


def spend(
    key: Path, federation: Federation, most: float | None, charge_account: Callable[[], None] | None = None
) -> float:
    """Enter an evaluation into a party's ledger, on the disk, before anything of its rows is sent.

    Args:
        key: the party's file, beside which the ledger is.
        federation: what it costs.
        most: the largest sum of epsilons, None for any.
        charge_account: charges the account of its rows, once the ledger has room; what it raises is raised, and
            nothing is entered.

    Returns:
        What is spent with it: epsilons of pure differential privacy add up.

    Raises:
        SweeperError: more would be spent.
        RecordError: the ledger cannot be read or written. The account may have been charged then.

    Guarantees:
        Whatever else spends under the key at the same time, the sum of all that return is at most ``most``.
    """
    path = ledger_of(key)
    with alone(path, _OWNER_ALONE):
        ledger = JsonlFile(path, durable=True)
        before = _epsilons(ledger)
        total = math.fsum([*before, federation.epsilon])
        if most is not None and not total <= most:
            raise SweeperError(
                f"Expected at most {most:g} to be spent of these rows, got {federation.epsilon:g} beyond "
                f"{math.fsum(before):g} (--max-epsilon)"
            )
        entry = {
            "time": time.time(),
            "epsilon": federation.epsilon,
            "relation": federation.relation,
            "protocol": federation.protocol,
            "federation": federation.digest.hex(),
        }
        if charge_account is not None:
            charge_account()
        ledger.append(entry)
    return total


def _epsilons(ledger: JsonlFile) -> list[float]:
    try:
        return [float(entry["epsilon"]) for entry in ledger.read()]
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"Expected a ledger in {ledger.path}, got something else: {error!r}") from None
