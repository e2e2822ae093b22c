"""Why a driver ended before its sweep had begun or gone on, kept where the service that started it looks."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from sweeper.errors import RecordError, one_line, public_sentence
from sweeper.store.jsonl import read_object, replace_file, to_text
from sweeper.store.sweep_folder import SweepFolder

NAME = "failure.json"


@contextlib.contextmanager
def noting(folder: Path | None) -> Iterator[None]:
    """Keep an error that ends a driver in its sweep's folder, if that was made before.

    Guarantees:
        ``failure.json`` holds what anybody may be told; the whole error is with the others that the owner alone reads.
    """
    try:
        yield
    except Exception as error:
        if folder is not None and SweepFolder(folder).spec.is_file():
            SweepFolder(folder).save_failure(one_line(error))
            with contextlib.suppress(RecordError):
                replace_file(folder / NAME, to_text({"said": public_sentence(error)}))
        raise


def said(folder: Path) -> str:
    """Return what the last driver may have said, empty if it ended otherwise."""
    try:
        return str(read_object(folder / NAME).get("said", ""))
    except RecordError:
        return ""


def forget(folder: Path) -> None:
    """Remove what an earlier driver said.

    Raises:
        OSError: it cannot be removed.
    """
    (folder / NAME).unlink(missing_ok=True)
