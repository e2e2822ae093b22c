"""Tables that specs name over the network: what is computed from their rows is the operator's choice, not a client's.

The number of training rows, and whether a table can be used at all, are told to every client. A client that could
choose the columns of units, splits and labels, their values, or the salt and the fractions of a split, would choose
what these answers count: the rows of a diagnosis, or those that one person's row falls together with. The ranges file
that the operator wrote says all of that, and a spec may repeat it.
"""

from pathlib import Path
from typing import Any

from clipless.datasets import Evaluation, HashSplit, Ranges, load_ranges
from clipless.errors import DataError
from sweeper.specification.data import DataSettings
from sweeper.specification.fields.messages import mistake

SOURCE = "the submitted spec"
SUFFIXES = (".yaml", ".yml")
MAX_RANGES_BYTES = 1_000_000
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
    try:
        if path.stat().st_size > MAX_RANGES_BYTES:
            return None
        ranges = load_ranges(path)
    except (DataError, OSError, ValueError, RecursionError):
        return None
    return ranges if ranges.table is not None and Path(ranges.table).resolve() == table else None


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
