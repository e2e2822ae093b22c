"""``sketch.json``, what the private sketch of a sweep released; the only module that reads or writes it."""

from pathlib import Path

from clipless.errors import AccountingError
from clipless.sketches.release import Sketch
from sweeper.errors import RecordError
from sweeper.store.jsonl import read_object, replace_file, to_text


def write_sketch(path: Path, sketch: Sketch) -> None:
    """Write what was released, once its event is in the ledger.

    Raises:
        RecordError: it could not be written.
    """
    replace_file(path, to_text(sketch.to_json()) + "\n")


def read_sketch(path: Path) -> Sketch | None:
    """Return what was released, ``None`` where nothing is recorded.

    Raises:
        RecordError: a file that cannot be read.
    """
    if not path.exists():
        return None
    try:
        return Sketch.from_json(read_object(path))
    except (KeyError, TypeError, ValueError, AccountingError) as error:
        raise RecordError(f"Expected a sketch in {path}, got {error!r}; restore the file") from None
