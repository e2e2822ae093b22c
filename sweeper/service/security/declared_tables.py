"""Tables that specs name over the network: what is computed from their rows is the operator's choice, not a client's.

The number of training rows, and whether a table can be used at all, are told to every client. A client that could
choose the columns of units, splits and labels, their values, or the salt and the fractions of a split, would choose
what these answers count: the rows of a diagnosis, or those that one person's row falls together with. The ranges file
that the operator wrote says all of that, and a spec may repeat it.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from clipless.datasets import Evaluation, HashSplit, Ranges, load_ranges
from clipless.errors import DataError
from sweeper.errors import SpecError
from sweeper.specification.data import DataSettings
from sweeper.specification.fields.messages import mistake

SOURCE = "the submitted spec"
SUFFIXES = (".yaml", ".yml")
MAX_RANGES_BYTES = 1_000_000
MOST_RANGES_FILES = 300  # that are looked at for a list of tables
ODD = ("", ".", "..")


def find_table(data: DataSettings, root: Path | None) -> tuple[Path, Path]:
    """Return the table and the ranges file that a spec names, with links followed.

    Raises:
        SpecError: paths that lead out of the data folder, a table that no ranges file declares, or declarations that
            are the spec's own.

    Guarantees:
        The answer says nothing of other files, not even whether they exist.
    """
    if root is None:
        raise mistake(SOURCE, "no file: this service has no data folder", "data.path", remedy="serve with --data-dir")
    table, ranges = (_inside(data, field, root) for field in ("path", "ranges"))
    declared = None if table is None or ranges is None else _declarations(table, ranges)
    if table is None or ranges is None or declared is None:
        raise mistake(
            SOURCE,
            "a table and the ranges file that declares it, in the service's data folder",
            "data.path and data.ranges",
            remedy="its operator declares it by the key table of that file",
        )
    _check_repeats(data, declared)
    return table, ranges


def list_tables(root: Path | None) -> list[tuple[str, str, Ranges]]:
    """Return the tables that specs may name: path and ranges file as they name them, and what is declared.

    Ranges files lie in the data folder or in a folder of it; the first few hundred are looked at.

    Guarantees:
        A table is listed only if `find_table` finds it: its operator declared it by the key ``table``. No row is read.
    """
    found = []
    for path in [] if root is None else islice(_ranges_files(root), MOST_RANGES_FILES):
        ranges = _declared_by(path)
        table = None if ranges is None or ranges.table is None else Path(ranges.table).resolve()
        if root is None or ranges is None or table is None or not table.is_relative_to(root.resolve()):
            continue
        names = table.relative_to(root.resolve()).as_posix(), path.relative_to(root).as_posix()
        with suppress(SpecError):
            find_table(DataSettings(path=names[0], ranges=names[1]), root)
            found.append((*names, ranges))
    return found


def _ranges_files(root: Path) -> Iterator[Path]:
    for pattern in ("*", "*/*"):
        yield from sorted(path for path in root.glob(pattern) if path.suffix in SUFFIXES and path.is_file())


def _inside(data: DataSettings, key: str, root: Path) -> Path | None:
    """Return the file that a relative path names, None where there is none.

    Raises:
        SpecError: any other path.
    """
    text = getattr(data, key)
    if text is None:
        raise mistake(SOURCE, "{name} beside the table", f"data.{key}", remedy="name the file that declares it")
    odd = "\\" in text or ":" in text or "\x00" in text or any(part in ODD for part in text.split("/"))
    if odd or text.startswith("~") or (key == "ranges" and not text.endswith(SUFFIXES)):
        raise mistake(SOURCE, "a relative path within the service's data folder", f"data.{key}")
    try:
        path = (root / text).resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    return path if path.is_relative_to(root.resolve()) and path.is_file() else None


def _declarations(table: Path, path: Path) -> Ranges | None:
    """Return what a ranges file says of a table, None if it is no such file."""
    ranges = _declared_by(path)
    if ranges is None:
        return None
    return ranges if ranges.table is not None and Path(ranges.table).resolve() == table else None


def _declared_by(path: Path) -> Ranges | None:
    try:
        return None if path.stat().st_size > MAX_RANGES_BYTES else load_ranges(path)
    except (DataError, OSError, ValueError, RecursionError):
        return None


def _check_repeats(data: DataSettings, ranges: Ranges) -> None:
    """Refuse a spec that declares what the ranges file does not."""
    evaluation = ranges.evaluation or Evaluation.PRIVATE
    if ranges.target is None or ranges.classes is None:
        raise _refusal("target", None, f"the target and its classes in {ranges.name}")
    if ranges.unpaid and evaluation is not Evaluation.EXPLORATORY:
        raise _refusal("evaluation", None, f"evaluation: exploratory in {ranges.name}, computed from the rows,")
    splits = None if data.splits is None else data.splits.splitting()
    for key, given, declared in (
        ("evaluation", data.evaluation, evaluation),
        ("target", data.target, ranges.target),
        ("classes", data.classes, ranges.classes),
        ("unit", data.unit, ranges.unit or "row"),
        ("block", data.block, ranges.block),
        ("splits", splits, ranges.splits or HashSplit()),
    ):
        if given is not None and given != declared:
            raise _refusal(key, data.model_dump(mode="json")[key], f"{{name}} as {ranges.name} declares it")


def _refusal(key: str, got: Any, expected: str) -> Exception:
    remedy = "over the network a spec may only repeat what the operator declares beside the data"
    return mistake(SOURCE, expected.replace("{name}", key), f"data.{key}", got, remedy)
