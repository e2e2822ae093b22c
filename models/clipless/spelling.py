"""What somebody meant by a name that is not known: the nearest one of those that are, or the nearest file."""

import difflib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_LEAST_BEGINNING = 3  # letters of a name that somebody has not written to its end
_LIKENESS = 0.5  # of two names that are taken for one, from 0 to 1
_LIKENESS_OF_FILES = LIKENESS_OF_COLUMNS = 0.7  # of two paths: their folders have many, and many begin and end alike


def nearest(name: object, known: Iterable[str], likeness: float = _LIKENESS) -> str | None:
    """Return the known name that one begins, or that a misspelled one is nearest to; None where there is none.

    >>> nearest("Acuracy", ["accuracy", "auroc"]), nearest("arch", ["patch", "architecture"])
    ('accuracy', 'architecture')
    """
    small, by_small = str(name).lower(), {one.lower(): one for one in known}
    begun = [one for one in by_small if one.startswith(small)] if len(small) >= _LEAST_BEGINNING else []
    found = begun if len(begun) == 1 else difflib.get_close_matches(small, by_small, n=1, cutoff=likeness)
    return by_small[found[0]] if found else None


def did_you_mean(name: object, known: Iterable[str], *, before: str = "") -> str:
    """Return the remedy for a misspelled name, behind ``before``; empty where no known name is near.

    >>> did_you_mean("adm", ["sgd", "adam"], before="; ")
    "; did you mean 'adam'?"
    """
    found = nearest(name, known)
    return "" if found is None else f"{before}did you mean {found!r}?"


def did_you_mean_file(path: Path, *, before: str = "") -> str:
    """Return the same for a file or folder that is not there: the nearest one in its folder, as ``path`` is written.

    Of files those that end alike are looked at, and those of this name whose ending is near. It names what else lies in
    the folder: for the owner of the machine.
    """
    there: list[Path] = []
    with suppress(OSError):
        there = list(path.parent.iterdir())
    beside = [one.name for one in there if one.suffix.lower() == path.suffix.lower()]
    begun = sorted(one for one in beside if one.startswith(path.name))[-1:]  # a folder's time left out: the newest
    near = begun or difflib.get_close_matches(path.name, beside, n=1, cutoff=_LIKENESS_OF_FILES)
    endings = {one.suffix: one.name for one in there if one.stem == path.stem and path.suffix}
    near = near or [endings[one] for one in difflib.get_close_matches(path.suffix, endings, n=1, cutoff=_LIKENESS)]
    return f"{before}did you mean {path.with_name(near[0])}?" if near else ""
