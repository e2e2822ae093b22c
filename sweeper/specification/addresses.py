"""Addresses that users give, and how they are called: http or https, no secrets in them, no redirections.

That of an account is a file, or a database, and behind ``#`` the name of the account in it.
"""

import re
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from sweeper.errors import SweeperError

if TYPE_CHECKING:
    import urllib.error
    from email.message import Message

_DATABASE = "postgresql://"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PASSWORD = re.compile(r"//[^:/]*:.*@", re.DOTALL)  # as SQLAlchemy reads an address: it may hold a slash
_OPTIONS = re.compile(r"(://[^?]*)\?.*", re.DOTALL)


def check_url(url: str, what: str = "an address", option: str = "--webhook") -> str:
    """Return the address; ``what`` it is and the ``option`` that it came by are named in messages.

    Raises:
        SweeperError: not http or https, no host, or a user and password in it.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or any(c.isspace() or not c.isprintable() for c in url)
    ):
        raise SweeperError(f"Expected {what} that begins with http:// or https:// and names a host ({option})")
    if parts.username is not None or parts.password is not None:
        raise SweeperError(f"Expected {what} without user and password, for {parts.hostname} ({option})")
    return url


class NoRedirection(urllib.request.HTTPRedirectHandler):
    """Leaves a redirection as the error that it then is."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: "Message", newurl: str
    ) -> None:
        """Leave a redirection as the error that it then is."""


@dataclass(frozen=True, slots=True)
class AccountAddress:
    """One account of a store."""

    store: str  # the path of a file, or the URL of a database
    name: str

    def __str__(self) -> str:
        return f"{self.store}#{self.name}"

    @property
    def path(self) -> Path | None:
        """The file of the store, ``None`` where it is a database."""
        return None if self.store.startswith(_DATABASE) else Path(self.store)

    def absolute(self) -> "AccountAddress":
        """Return the address as it is from any folder."""
        return self if self.path is None else AccountAddress(str(self.path.absolute()), self.name)


def parse_address(text: str) -> AccountAddress:
    """Return the account that a text names.

    >>> parse_address("accounts.db#clinic")
    AccountAddress(store='accounts.db', name='clinic')

    Raises:
        SweeperError: no name behind ``#``, another database than PostgreSQL, or a password.
    """
    store, _, name = text.rpartition("#")
    if not store or not _NAME.fullmatch(name):
        raise SweeperError(
            f"Expected FILE#NAME or {_DATABASE}HOST/DATABASE#NAME, NAME of letters, digits, '.', '_' and '-', got "
            f"{_hide(text)!r} (account)"
        )
    if "://" in store:
        if not store.startswith(_DATABASE):
            raise SweeperError(f"Expected a file or {_DATABASE}HOST/DATABASE, got {_hide(store)!r} (account)")
        if _has_password(store):
            raise SweeperError(
                f"Expected no password in {_hide(store)!r}, which records repeat; put it into PGPASSWORD or ~/.pgpass "
                "(account)"
            )
        return AccountAddress(store, name)
    return AccountAddress(store, name)


def find_account(text: str, source: str) -> AccountAddress:
    """Return the account that a spec names: in a file beside the spec, or else in one of that path.

    Raises:
        SweeperError: it is no address.
    """
    address = parse_address(text)
    if address.path is None:
        return address
    beside = Path(source).parent / address.path
    return AccountAddress(str(beside if beside.is_file() else address.path), address.name).absolute()


def _has_password(url: str) -> bool:
    options = parse_qsl(url.partition("?")[2], keep_blank_values=True)
    return bool(_PASSWORD.search(url)) or any("password" in name.lower() for name, _ in options)


def _hide(text: str) -> str:
    """Return a text without what may be a password: that of a user, and every option of a database."""
    return _OPTIONS.sub(r"\1?...", _PASSWORD.sub("//...@", text))
