"""Notes and tags that people give to trials, kept in the sweep's folder while it runs and after.

``notes.jsonl`` grows by one row for each, with who wrote it and when (see `sweeper.store.actions`); nothing is taken
back. The driver does not write to it; several people may at once, one after another.
"""

from dataclasses import dataclass
from pathlib import Path

from sweeper.store.actions import NOTES_NAME
from sweeper.store.jsonl import JsonlFile


@dataclass(frozen=True, slots=True)
class SignedText:
    """What somebody wrote, who, and when: ISO 8601 in UTC; both empty where the row does not say."""

    text: str
    by: str = ""
    at: str = ""

    def __str__(self) -> str:
        """The text with its author and day behind it.

        >>> str(SignedText("good", "ada", "2026-01-02T10:00:00+00:00"))
        'good (ada, 2026-01-02)'
        """
        signed = ", ".join(filter(None, (self.by, self.at[:10])))
        return f"{self.text} ({signed})" if signed else self.text


@dataclass(frozen=True, slots=True)
class Notes:
    """What people said about one trial: notes, oldest first, and the last value of each tag."""

    texts: tuple[SignedText, ...] = ()
    tags: tuple[tuple[str, SignedText], ...] = ()

    def __str__(self) -> str:
        """In one line."""
        return "; ".join([*map(str, self.texts), *(f"{key}={value}" for key, value in self.tags)])


def read_notes(folder: Path) -> dict[str, Notes]:
    """Return the notes and tags of a sweep by trial.

    Raises:
        RecordError: the file is broken.
    """
    texts: dict[str, list[SignedText]] = {}
    tags: dict[str, dict[str, SignedText]] = {}
    for row in JsonlFile(folder / NOTES_NAME).read():
        trial, by, at = str(row.get("trial")), str(row.get("by", "")), str(row.get("at", ""))
        if "note" in row:
            texts.setdefault(trial, []).append(SignedText(str(row["note"]), by, at))
        if "key" in row:
            tags.setdefault(trial, {})[str(row["key"])] = SignedText(str(row.get("value")), by, at)
    return {
        trial: Notes(tuple(texts.get(trial, ())), tuple(tags.get(trial, {}).items()))
        for trial in dict.fromkeys([*texts, *tags])
    }
