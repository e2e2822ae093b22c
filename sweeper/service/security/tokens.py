"""Tokens: what a client shows to prove that it may read, or read and write.

The file of tokens holds a hash of each, never the token, and the key that signs the cookies of browsers. A token is 32
random bytes, so one round of SHA-256 is enough: there is nothing to guess.
"""

import enum
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from sweeper.errors import RecordError, SweeperError
from sweeper.store.actions import MAX_NAME, check_name
from sweeper.store.jsonl import read_object, replace_file, to_text

PREFIX = "sweeper_"
VERSION = 1  # of the file
MAX_LENGTH = 200
MAX_DAYS = 3660
_DAY_SECONDS = 86400


class Role(enum.Enum):
    """What a token permits; a token that permits to write permits to read."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who asks."""

    id: str  # of the token; ``local`` where none is needed
    role: Role  # what they may do
    owner: str  # their name, which stands beside what they do; no secret
    form_key: str = ""  # of a browser's session that may write: what its forms send to do so


class _Token(BaseModel, extra="forbid", frozen=True):
    """One token as the file has it."""

    id: str
    role: Role
    owner: str = Field(min_length=1, max_length=MAX_NAME)
    hash: str = Field(pattern="^[0-9a-f]{64}$")
    expires: float


_UNKNOWN = _Token(id="", role=Role.READ, owner="nobody", hash="0" * 64, expires=0.0)


class _Content(BaseModel, extra="forbid", frozen=True):
    """The file."""

    version: int
    cookie_key: str
    tokens: tuple[_Token, ...]


def make_token(path: Path, role: Role, days: int, owner: str) -> str:
    """Add a token of a person to the file, which is made if need be, readable by the account alone that runs this.

    Returns:
        The token; only its hash is kept.

    Raises:
        SweeperError: not 1 to 3660 days, or no name that can be shown.
        RecordError: the file cannot be read or written.
    """
    if not 1 <= days <= MAX_DAYS:
        raise SweeperError(f"Expected 1 to {MAX_DAYS} days, got {days} (--days)")
    name, expires = check_name(owner), time.time() + days * _DAY_SECONDS
    id_, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    token = f"{PREFIX}{id_}_{secret}"
    made = _Token(id=id_, role=role, owner=name, hash=_hash(token), expires=expires)
    with _alone(path):
        content = _read(path) if path.exists() else _empty()
        _write(path, content.model_copy(update={"tokens": (*content.tokens, made)}))
    return token


def revoke_token(path: Path, id_: str) -> None:
    """Take a token out of the file; a service that runs refuses it, and the cookies made with it, at once.

    A token's id is the eight characters between its underscores.

    Raises:
        RecordError: no such token, or the file cannot be read or written.
    """
    with _alone(path):
        content = _read(path)
        kept = tuple(token for token in content.tokens if token.id != id_)
        if len(kept) == len(content.tokens):
            raise RecordError(f"Expected the id of a token of {path}, got {id_!r} (--revoke)")
        _write(path, content.model_copy(update={"tokens": kept}))


class KnownTokens:
    """The tokens of a file, read again when it has changed.

    Raises:
        RecordError: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._known: dict[str, _Token] = {}
        self._take(_read(path))

    @property
    def cookie_key(self) -> str:
        """What cookies are signed with."""
        self._look()
        return self._cookie_key

    def find(self, token: str) -> Holder | None:
        """Return whose token it is, None if it is unknown or has expired.

        Guarantees:
            The time that it takes depends on the id in the token, which is no secret, not on how much of the rest is
            right.
        """
        self._look()
        token = token[:MAX_LENGTH]
        known = self._known.get(token.removeprefix(PREFIX).partition("_")[0], _UNKNOWN)
        return _valid(known) if hmac.compare_digest(_hash(token), known.hash) else None

    def holder(self, id_: str) -> Holder | None:
        """Return the holder of the token of that id, None if the token is gone."""
        self._look()
        return _valid(self._known.get(id_, _UNKNOWN))

    def _look(self) -> None:
        """Read the file if it has changed; one that cannot be read permits nothing."""
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_ino)
            if seen != self._seen:
                self._take(_read(self._path))
                self._seen = seen
        except (OSError, RecordError):
            self._seen, self._known = None, {}

    def _take(self, content: _Content) -> None:
        self._cookie_key, self._known = content.cookie_key, {token.id: token for token in content.tokens}


def _empty() -> _Content:
    return _Content(version=VERSION, cookie_key=secrets.token_hex(32), tokens=())


def _valid(known: _Token) -> Holder | None:
    return Holder(known.id, known.role, known.owner) if time.time() < known.expires else None


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def _read(path: Path) -> _Content:
    if not path.exists():
        raise RecordError(f"Expected a file of tokens, got none at {path} (--tokens); make one: sweeper token")
    try:
        content = _Content.model_validate(read_object(path))
    except ValidationError as error:
        field = ".".join(map(str, error.errors(include_url=False, include_input=False)[0]["loc"]))
        raise RecordError(f"Expected tokens as sweeper token writes them in {path}, but not in {field}") from None
    if content.version != VERSION:
        raise RecordError(f"Expected version {VERSION} in {path}, got {content.version}; make the tokens again")
    return content


def _write(path: Path, content: _Content) -> None:
    plain: dict[str, Any] = content.model_dump(mode="json")
    mask = os.umask(0o077)
    try:
        replace_file(path, to_text(plain, indent=1) + "\n")
    finally:
        os.umask(mask)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep others from changing the file meanwhile."""
    try:
        with path.with_name(f".{path.name}.lock").open("w") as lock:
            flock(lock, LOCK_EX)
            yield
    except OSError as error:
        raise RecordError(f"Cannot write {path}: {error.strerror or error}; choose another file (--tokens)") from error
