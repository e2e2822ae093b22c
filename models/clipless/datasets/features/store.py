"""Features kept on this machine, so that the next sweep on the same rows does not compute them again.

They tell as much of private rows as the rows themselves. They lie in ``features`` of the cache folder
(``SWEEPER_CACHE``), which its owner alone may enter: one file for each split, encoder and setting, written as soon as
its rows are encoded. Files that nobody has used for 30 days go, and the oldest ones where all together have more than
8 GiB.

The name of a file is the digest of everything that decides its content: the encoder's digest and settings, the packages
that compute it, the features that made-up rows have now, and the rows. Another encoder, other weights, another setting
or another version therefore never finds it; a file that was damaged or exchanged has another checksum, and is not used.
"""

import contextlib
import hashlib
import json
import os
import stat
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from clipless.datasets.features.encoders import Encoder
from clipless.datasets.sources.openml import cache_dir, checksum

FOLDER = "features"
MOST_BYTES = 8 * 2**30
MOST_SECONDS = 30 * 86_400.0
_SUFFIX = ".npz"
_CHECKSUM, _FEATURES = "sha256", "features"


def key_of(encoder: Encoder, probed: Tensor, rows: Tensor) -> str:
    """Return the name under which the features of rows are kept.

    Args:
        encoder: that is open.
        probed: features of made-up rows, as it computes them now.
        rows: of a split.
    """
    left_out = ("file", "cache", "fingerprint")  # features of made-up rows enter as they are
    declared = {name: value for name, value in encoder.features.to_json().items() if name not in left_out}
    digest = hashlib.sha256(json.dumps([declared, encoder.versions], sort_keys=True).encode())
    for values in (probed, rows):
        digest.update(f"{values.dtype} {tuple(values.shape)}\n".encode())
        digest.update(np.ascontiguousarray(values.numpy()).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def read_features(key: str, count: int) -> Tensor | None:
    """Return the features of a split, None where there are none of so many rows or the file is not what it was."""
    path = cache_dir() / FOLDER / f"{key}{_SUFFIX}"
    try:
        if not _is_private(path.parent):
            return None
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            found, recorded = archive[_FEATURES], str(archive[_CHECKSUM])
    except Exception:  # of a file that is damaged in whatever way: the features are computed again
        return None
    if checksum({_FEATURES: found}) != recorded or len(found) != count:
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return torch.from_numpy(found)


def write_features(key: str, features: Tensor) -> None:
    """Keep features for the next sweep; where that cannot be done, the next one computes them again."""
    folder = cache_dir() / FOLDER
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (_is_private(folder) or folder.is_symlink()):  # the folder behind a link is no cache
            folder.chmod(0o700)
        if not _is_private(folder):
            return
        arrays = {_FEATURES: features.numpy()}
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".")
        try:
            with os.fdopen(descriptor, "wb") as file:
                np.savez(file, **{_CHECKSUM: np.array(checksum(arrays)), **arrays})  # type: ignore[arg-type]
            Path(temporary).replace(folder / f"{key}{_SUFFIX}")
        finally:
            Path(temporary).unlink(missing_ok=True)
        clean(folder, time.time())
    except OSError:
        return


def clean(folder: Path, now: float, *, most_bytes: int = MOST_BYTES) -> None:
    """Remove features that nobody has used for long, and the oldest ones where there are too many."""
    files = sorted(folder.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime, reverse=True)
    total = 0
    for path in files:
        seen = path.stat()
        total += seen.st_size
        if total > most_bytes or now - seen.st_mtime > MOST_SECONDS:
            path.unlink(missing_ok=True)


def _is_private(folder: Path) -> bool:
    """Whether a folder is one of this user's that nobody else may enter."""
    seen = folder.lstat()
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid() and not seen.st_mode & 0o077
