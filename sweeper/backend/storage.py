"""Models and checkpoints on storage that all nodes reach, where they share no disk; the only door to fsspec.

A trial writes into a folder of its own node and pushes its files after each epoch; the driver pulls each model that a
row names into the sweep's folder, where everything else is. The storage holds weights with their noise and what is
computed from them, as the sweep's folder does.
"""

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec

from sweeper.backend.trial_states import Hooks
from sweeper.errors import RecordError, SweeperError, one_line
from sweeper.records import TrialStatus
from sweeper.trials.stream import EpochRow, PlanRow

CHECKPOINTS = "checkpoints"
TRIES, PAUSE_SECONDS = 3, 1.0
_ID_DIGITS = 8


class Storage:
    """A folder of a file system that fsspec knows: ``s3://bucket/path``, ``gs://``, ``file:///mnt/x``, ...

    Credentials come from the environment, as the file system's own package reads them.

    Raises:
        SweeperError: fsspec knows no such file system, or its package is missing.
    """

    def __init__(self, url: str) -> None:
        try:
            self._files, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except ImportError as error:
            raise SweeperError(f"Cannot use {url}: {one_line(str(error))}; pip install it on every node") from error
        except (ValueError, TypeError, OSError) as error:
            raise SweeperError(f"Expected a URL that fsspec knows, such as s3://BUCKET/PATH, got {url}") from error
        self._root = str(root).rstrip("/")

    def push(self, folder: Path, name: str, attempt: str = "") -> None:
        """Put a file of a folder there; others see it whole or not at all.

        That of one attempt of a trial is no other's: a node that was taken for dead may push its own later.

        Raises:
            RecordError: it cannot be put there.
        """
        target = f"{self._root}/{_of_attempt(name, attempt)}"

        def put() -> None:
            self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
            self._files.put_file(str(folder / name), f"{target}.part")
            self._files.mv(f"{target}.part", target)

        self._try(put, f"write {target}")

    def pull(self, folder: Path, name: str, attempt: str = "") -> None:
        """Get a file into a folder, that which an attempt has pushed.

        Raises:
            RecordError: it is not there, or cannot be read.
        """
        source, part = f"{self._root}/{_of_attempt(name, attempt)}", folder / f"{name}.part"

        def get() -> None:
            part.parent.mkdir(parents=True, exist_ok=True)
            self._files.get_file(source, str(part))
            part.replace(folder / name)

        self._try(get, f"read {source}")

    def checkpoints(self, trial: str) -> list[str]:
        """Return the names of a trial's checkpoints that are there.

        Raises:
            RecordError: the storage cannot be read.
        """
        pattern = f"{self._root}/{CHECKPOINTS}/{trial}-*.safetensors"
        found: list[str] = self._try(lambda: self._files.glob(pattern), f"read {pattern}")
        return sorted(f"{CHECKPOINTS}/{path.rpartition('/')[2]}" for path in found)

    def delete(self, *names: str, attempt: str = "") -> None:
        """Delete files; what cannot be deleted stays."""
        for name in names:
            with contextlib.suppress(Exception):
                self._files.rm_file(f"{self._root}/{_of_attempt(name, attempt)}")

    @staticmethod
    def _try(do: Any, what: str) -> Any:
        for left in range(TRIES - 1, -1, -1):
            try:
                return do()
            except Exception as error:  # each file system has its own
                if not left:
                    raise RecordError(f"Cannot {what}: {one_line(error)}; check the storage (--storage)") from error
                time.sleep(PAUSE_SECONDS)
        return None


def _of_attempt(name: str, attempt: str) -> str:
    return f"{name}.{attempt}" if attempt else name


def url_of_sweep(url: str | None, sweep: Path, id_: str | None) -> str | None:
    """Return the URL of a sweep's own folder on a storage, if there is one: sweeps of other folders may have its name.

    >>> url_of_sweep("s3://bucket/sweeps/", Path("out/digits-1"), "1f0a93c25d5b4a7e")
    's3://bucket/sweeps/digits-1-1f0a93c2'
    >>> url_of_sweep("s3://bucket/sweeps/", Path("out/digits-1"), None)  # of an earlier version
    's3://bucket/sweeps/digits-1'
    """
    name = sweep.name if id_ is None else f"{sweep.name}-{id_[:_ID_DIGITS]}"
    return None if url is None else f"{url.rstrip('/')}/{name}"


class SharedFolder:
    """A folder of this node with the files of one trial, which storage brings to other nodes."""

    def __init__(self, url: str, trial: str) -> None:
        self._url, self._trial = url, trial
        self._folder = tempfile.TemporaryDirectory(prefix="trial-", ignore_cleanup_errors=True)
        self._storage: Storage | None = None

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self._folder.name)

    def fetch(self) -> None:
        """Bring the checkpoints here, and nothing else.

        Raises:
            SweeperError: the storage cannot be used.
        """
        self._storage = Storage(self._url)
        for name in ("models", CHECKPOINTS):
            shutil.rmtree(self.path / name, ignore_errors=True)
            (self.path / name).mkdir()
        for name in self._storage.checkpoints(self._trial):
            self._storage.pull(self.path, name)

    def share(self, models: Iterable[str], attempt: str) -> None:
        """Push the checkpoints, and the models that an attempt keeps.

        Raises:
            RecordError: they cannot be pushed.
        """
        if self._storage is None:
            return
        for file in sorted((self.path / CHECKPOINTS).glob("*.safetensors")):
            self._storage.push(self.path, f"{CHECKPOINTS}/{file.name}")
        for model in models:
            self._storage.push(self.path, model, attempt)
            (self.path / model).unlink()

    def close(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()


def fetch_models(hooks: Hooks, storage: Storage, folder: Path) -> Hooks:
    """Return hooks that bring every model into the sweep's folder before its epoch is recorded.

    Guarantees:
        It is the model of the attempt that the row is of, whose scores and certificates stand in it.
    """
    attempts: dict[str, str] = {}

    def on_plan(trial: str, row: PlanRow) -> str | None:
        attempts[trial] = row.attempt
        return hooks.on_plan(trial, row)

    def on_epoch(trial: str, row: EpochRow) -> str | None:
        for model in row.models:
            storage.pull(folder, model, attempts[trial])
            storage.delete(model, attempt=attempts[trial])
        return hooks.on_epoch(trial, row)

    def on_end(trial: str, status: TrialStatus, reason: str, started_epochs: int) -> None:
        hooks.on_end(trial, status, reason, started_epochs)
        if status is not TrialStatus.INTERRUPTED:
            with contextlib.suppress(RecordError):
                storage.delete(*storage.checkpoints(trial))

    return replace(hooks, on_plan=on_plan, on_epoch=on_epoch, on_end=on_end)
