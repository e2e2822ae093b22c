"""Fetching public data sets from OpenML, once, into a cache with a checksum.

The first fetch records a SHA-256 of the arrays in a canonical form, and every later read verifies it: it
protects against a damaged or edited cache, not against what OpenML sent the first time. Nothing is fetched at
import.
"""

import contextlib
import hashlib
import os
import socket
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from clipless.errors import DataError

Arrays: TypeAlias = Mapping[str, NDArray[Any]]

_CHECKSUM = "sha256"
_TIMEOUT_SECONDS = 60.0


def cache_dir() -> Path:
    """Return ``$SWEEPER_CACHE``, or ``sweeper`` in the user's cache folder."""
    chosen = os.environ.get("SWEEPER_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sweeper"


def checksum(arrays: Arrays) -> str:
    """Return the SHA-256 of names, types, shapes and little-endian contents, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name], dtype=arrays[name].dtype.newbyteorder("<"))
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def read_or_fetch(name: str, fetch: Callable[[], Arrays]) -> Arrays:
    """Return the arrays of ``name`` from the cache, fetching them first where there are none.

    Raises:
        DataError: the cached file is damaged or does not match its checksum, or cannot be written.
    """
    path = cache_dir() / f"{name}.npz"
    if not path.exists():
        arrays = fetch()
        try:
            _write(path, arrays)
        except OSError as error:
            raise DataError(
                f"Cannot write {path}: {error.strerror}; set SWEEPER_CACHE to a folder that can be written"
            ) from None
        return arrays
    return read_verified(path)


def read_verified(path: Path) -> Arrays:
    """Read a cached file and verify its checksum.

    Raises:
        DataError: unreadable, or not what was recorded.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        recorded = str(arrays.pop(_CHECKSUM))
    except (OSError, EOFError, ValueError, KeyError, zlib.error, zipfile.BadZipFile):
        raise DataError(f"Cannot read the cached file {path}: delete it to fetch it again") from None
    if checksum(arrays) != recorded:
        raise DataError(f"The cached file {path} does not match its checksum: delete it to fetch it again")
    return arrays


def _write(path: Path, arrays: Arrays) -> None:
    """Write atomically: a concurrent reader sees the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            members: dict[str, Any] = {_CHECKSUM: np.array(checksum(arrays)), **arrays}
            np.savez_compressed(file, **members)
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def download(name: str, data_id: int, remedy: str, *, as_frame: bool) -> Any:
    """Fetch an OpenML data set as scikit-learn's bunch.

    Raises:
        DataError: no network, or OpenML does not answer; ``remedy`` says what else helps.
    """
    from sklearn.datasets import fetch_openml  # 0.5 s that other data sets need not pay

    try:
        with _network_timeout():
            return fetch_openml(data_id=data_id, as_frame=as_frame, cache=False, n_retries=1, parser="auto")
    except (OSError, ValueError) as error:  # URLError and time-outs are OSErrors; a checksum mismatch a ValueError
        raise DataError(
            f"Cannot fetch {name} from OpenML ({_reason(error)}): connect to the network, or {remedy}"
        ) from None


@contextlib.contextmanager
def _network_timeout() -> Iterator[None]:
    """Limit the time of a fetch: scikit-learn offers no limit, and a firewall may drop packets without an answer."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _reason(error: Exception) -> str:
    text = str(getattr(error, "reason", "") or error)
    return " ".join(text.split())[:120] or type(error).__name__
