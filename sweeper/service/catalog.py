"""The sweeps that the service shows: their names, their folders, and when what can be shown of them changed.

No name leads out of the folder in which sweeps live, or to a private selection that has not ended.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from clipless.spelling import did_you_mean
from sweeper.errors import UnknownSweepError
from sweeper.store.actions import SUBMISSION_NAME
from sweeper.store.sweep_folder import SweepFolder, is_secret

# What the pages and answers about a sweep are made from.
SHOWN_FILES = (
    "sweep.json",
    "trials.jsonl",
    "points.jsonl",
    "decisions.jsonl",
    "rehearsals.jsonl",
    "ledger.jsonl",
    "audits.jsonl",
    "front.json",
    "notes.jsonl",
    "requests.jsonl",
)
# What answers about the front are made from: the ledger prices it, and audits refuse points of it.
FRONT_FILES = ("front.json", "ledger.jsonl", "audits.jsonl")
# What answers about rehearsals are made from: trials say which configurations were trained.
REHEARSAL_FILES = ("sweep.json", "rehearsals.jsonl", "trials.jsonl")
NO_SWEEP = "Expected the name of a sweep, as the list of sweeps has it; got another one"
NO_RECORDS = "Expected a sweep that has begun, but this one has no records yet; ask for its state"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,149}")
_STARTED = re.compile(r"-(\d{8}-\d{6})(?:-(\d{1,3}))?$")


class Catalog:
    """The sweeps in a folder, which need not exist yet; safe to use from several threads."""

    def __init__(self, out: Path) -> None:
        self.out = Path(out)

    def names(self) -> tuple[str, ...]:
        """Return the folder names of the sweeps that have started, newest first; none that selects privately yet."""
        found = [file.parent.name for file in self.out.glob("*/sweep.json")]
        return by_age(name for name in found if _NAME.fullmatch(name) and self._is_shown(self.out / name))

    def folder(self, name: str) -> SweepFolder:
        """Return the folder of a sweep.

        Raises:
            UnknownSweepError: no sweep of that name, no name of one, or one that has not begun.
        """
        path = self.out / name if is_name(name) else None
        if path is None or not self._is_shown(path):
            raise self._unknown(name)
        if not (path / "sweep.json").is_file():
            raise UnknownSweepError(NO_RECORDS) if (path / SUBMISSION_NAME).is_file() else self._unknown(name)
        return SweepFolder(path)

    def _unknown(self, name: str) -> UnknownSweepError:
        near = did_you_mean(name, self.names()) if is_name(name) else ""
        return UnknownSweepError("; ".join(filter(None, [NO_SWEEP, near])))

    def version(self, name: str) -> str:
        """Return a text that changes whenever what can be shown of the sweep has changed.

        Raises:
            UnknownSweepError: no sweep of that name.
        """
        return version_of(self.folder(name).path)

    @staticmethod
    def _is_shown(path: Path) -> bool:
        return not (path.is_symlink() or is_secret(path))


def by_age(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of sweeps, each once, newest first."""
    return tuple(sorted(set(names), key=_age, reverse=True))


def is_name(text: str) -> bool:
    """Whether a text could be the name of a sweep's folder."""
    return _NAME.fullmatch(text) is not None


def version_of(folder: Path, files: tuple[str, ...] = SHOWN_FILES) -> str:
    """Return a text that changes with the sizes and times of the files."""
    parts = []
    for name in files:
        try:
            status = (folder / name).stat()
        except OSError:
            parts.append("-")
        else:
            parts.append(f"{status.st_mtime_ns:x}.{status.st_size:x}.{status.st_ino:x}")
    return "_".join(parts)


def _age(name: str) -> tuple[str, int, str]:
    """Return what names sort by: when the sweep was started, as its name says."""
    found = _STARTED.search(name)
    return (found.group(1), int(found.group(2) or 1), name) if found else ("", 0, name)
