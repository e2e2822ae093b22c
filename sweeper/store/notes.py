"""Notes and tags that people give to trials, kept in the sweep's folder while it runs and after.

``notes.jsonl`` grows by one row for each; nothing is taken back. The driver does not write to it; several people may at
once, one after another.
"""

from dataclasses import dataclass
from pathlib import Path

from sweeper.store.jsonl import JsonlFile

NOTES_NAME = "notes.jsonl"


@dataclass(frozen=True, slots=True)
class Notes:
    """What people said about one trial: notes, oldest first, and the last value of each tag."""

    texts: tuple[str, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """In one line."""
        return "; ".join([*self.texts, *(f"{key}={value}" for key, value in self.tags)])


def read_notes(folder: Path) -> dict[str, Notes]:
    """Return the notes and tags of a sweep by trial.

    Raises:
        RecordError: the file is broken.
    """
    texts: dict[str, list[str]] = {}
    tags: dict[str, dict[str, str]] = {}
    for row in JsonlFile(folder / NOTES_NAME).read():
        trial = str(row.get("trial"))
        if "note" in row:
            texts.setdefault(trial, []).append(str(row["note"]))
        if "key" in row:
            tags.setdefault(trial, {})[str(row["key"])] = str(row.get("value"))
    return {
        trial: Notes(tuple(texts.get(trial, ())), tuple(tags.get(trial, {}).items()))
        for trial in dict.fromkeys([*texts, *tags])
    }
