"""How far the ledger of a sweep had come when its account last heard of it.

Each charge notes how long the ledger was, and the hash of so much of it. A ledger that does not begin with the same
bytes is that of a folder which was restored from a backup, or of a copy whose original has gone on: what it no longer
knows of was drawn. Such a sweep is refused, for its next noise would be charged as if that had not been.
"""

import hashlib
from pathlib import Path

from sweeper.account.entries import Position
from sweeper.errors import RecordError

NOTHING_YET = Position(length=0, digest=hashlib.sha256(b"").hexdigest())
"""Of a ledger of which nothing may stand elsewhere: that of a private selection says how many candidates there are."""


def position_of(ledger: Path) -> Position:
    """Return the length and the hash of the whole lines of a ledger; of none for a file that is not there.

    Raises:
        RecordError: it cannot be read.
    """
    content = _read(ledger)
    whole = content[: content.rfind(b"\n") + 1]
    return Position(length=len(whole), digest=hashlib.sha256(whole).hexdigest())


def begins_with(ledger: Path, position: Position) -> bool:
    """Whether a ledger begins with what it was at a position.

    Raises:
        RecordError: it cannot be read.
    """
    content = _read(ledger)[: position.length]
    return len(content) == position.length and hashlib.sha256(content).hexdigest() == position.digest


def check_position(position: Position | None, ledger: Path, title: str) -> None:
    """Refuse a ledger that has lost what an account knows of it.

    Raises:
        RecordError: it does not begin with what it was at the last charge.
    """
    if position is not None and not begins_with(ledger, position):
        raise RecordError(
            f"Expected the ledger of sweep {title!r} to go on from its last charge, but {ledger} does not hold it: the "
            "folder is a copy, or was restored from a backup; go on in the one that was charged"
        )


def _read(ledger: Path) -> bytes:
    try:
        return ledger.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise RecordError(f"Cannot read {ledger}: {error.strerror or error}; check permissions") from error
