"""Who did what to a sweep, and when: stops, extensions, configurations, regions, notes and tags, with their people.

Each is a row of ``requests.jsonl`` or ``notes.jsonl`` that names a person and a time, ``by`` and ``at``. Names are
those of the owners of tokens, or of accounts of the machine; they are no secrets. Rows without a name, such as a
request that the service repeats for somebody, are nobody's.
"""

import enum
import getpass
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sweeper.errors import RecordError, SweeperError
from sweeper.store.jsonl import JsonlFile, read_object

REQUESTS_NAME = "requests.jsonl"
NOTES_NAME = "notes.jsonl"
SUBMISSION_NAME = "submission.json"  # what a service was asked to run, in the folder of its sweep
MAX_NAME = 60  # characters of a person's name


class ActionKind(enum.Enum):
    """What somebody did."""

    STOP = "stop"
    RESUME = "resume"
    EXTEND = "extend"
    ENQUEUE = "enqueue"
    STEER = "steer"
    NOTE = "note"
    TAG = "tag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something that somebody did to a sweep or a trial of it."""

    by: str
    at: str  # ISO 8601 in UTC, to the second
    kind: ActionKind
    trial: str = ""  # of which; empty where it was done to the sweep
    detail: str = ""  # the text of a note, a tag and its value, a number of trials, values, bounds


def signature(by: str | None) -> dict[str, str]:
    """Return what a row says of who wrote it and when: whoever runs this process by default, nothing for nobody."""
    name = login_name() if by is None else by
    return {"by": name, "at": datetime.now(UTC).isoformat(timespec="milliseconds")} if name else {}


def login_name() -> str:
    """Return the name of the account that runs this process, its number where the machine knows no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"account {os.getuid()}"


def submitter(folder: Path) -> str:
    """Return who submitted a sweep to a service, by the owner of the token; empty if nobody did."""
    if not (folder / SUBMISSION_NAME).is_file():
        return ""
    try:
        return str(read_object(folder / SUBMISSION_NAME).get("by", ""))
    except RecordError:
        return ""


def owner_of(folder: Path) -> str:
    """Return whose a sweep is: who submitted it, else the account of the machine that ran it; empty if unknown."""
    asked = submitter(folder)
    try:
        return asked or folder.owner()
    except (KeyError, OSError, NotImplementedError):  # no such account, or a system without accounts
        return ""


def check_name(name: str) -> str:
    """Return a person's name without spaces around it.

    Raises:
        SweeperError: empty, longer than 60 characters, or with characters that cannot be shown.
    """
    found = name.strip()
    if not (0 < len(found) <= MAX_NAME and found.isprintable()):
        raise SweeperError(f"Expected a name of 1 to {MAX_NAME} characters that can be shown, got {name!r} (--owner)")
    return found


def read_actions(folder: Path) -> tuple[Action, ...]:
    """Return what people did to a sweep, oldest first.

    Raises:
        RecordError: a file of them is broken.
    """
    rows = [*JsonlFile(folder / REQUESTS_NAME).read(), *JsonlFile(folder / NOTES_NAME).read()]
    found = [action for row in rows if row.get("by") for action in _action_of(row)]
    return tuple(sorted(found, key=lambda action: action.at))


def _action_of(row: Mapping[str, object]) -> Iterator[Action]:
    """Return the action of a row, if it is one of ours."""
    by, at = str(row["by"]), str(row.get("at", ""))
    match row:
        case {"stop": True}:
            yield Action(by=by, at=at, kind=ActionKind.STOP)
        case {"stop": trial}:
            yield Action(by=by, at=at, kind=ActionKind.STOP, trial=str(trial))
        case {"resume": _}:
            yield Action(by=by, at=at, kind=ActionKind.RESUME)
        case {"extend": trials}:
            yield Action(by=by, at=at, kind=ActionKind.EXTEND, detail=str(trials))
        case {"try": dict(values)}:
            pairs = ", ".join(f"{name} = {value}" for name, value in values.items())
            yield Action(by=by, at=at, kind=ActionKind.ENQUEUE, detail=pairs)
        case {"steer": list(bounds)}:
            yield Action(by=by, at=at, kind=ActionKind.STEER, detail=", ".join(map(str, bounds)))
        case {"trial": trial, "note": text}:
            yield Action(by=by, at=at, kind=ActionKind.NOTE, trial=str(trial), detail=str(text))
        case {"trial": trial, "key": key, "value": value}:
            yield Action(by=by, at=at, kind=ActionKind.TAG, trial=str(trial), detail=f"{key} = {value}")
