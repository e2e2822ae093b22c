"""Addresses that users give, and how they are called: http or https, no secrets in them, no redirections."""

import urllib.request
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

from sweeper.errors import SweeperError

if TYPE_CHECKING:
    import urllib.error
    from email.message import Message


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
