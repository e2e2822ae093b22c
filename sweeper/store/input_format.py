"""``data.json``: how new rows become the input of a sweep's models, kept beside them.

Public declarations only; no row is in it. A sweep's folder holds one, or it is found again from the spec and the
schema of the data; what `sweeper pick` writes carries a copy.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clipless.errors import CliplessError, DataError
from sweeper.errors import RecordError
from sweeper.store.jsonl import read_object, replace_file, to_text
from sweeper.store.manifest import Manifest

if TYPE_CHECKING:
    from clipless.datasets import InputFormat

DATA_NAME = "data.json"
_UNKNOWN = "Cannot find how the rows of {} are encoded"
_REMEDY = "name the data with --data-dir"


def write_input(folder: Path, content: "InputFormat") -> Path:
    """Write ``data.json`` into ``folder``.

    Raises:
        RecordError: not written.
    """
    return write_input_content(folder, content.to_json())


def write_input_content(folder: Path, content: Mapping[str, Any]) -> Path:
    """Write ``data.json`` from what another one holds, likewise."""
    path = folder / DATA_NAME
    replace_file(path, to_text(content, indent=2) + "\n")
    return path


def read_input(folder: Path) -> "InputFormat":
    """Read the ``data.json`` of a folder.

    Raises:
        RecordError: there is none.
        clipless.errors.DataError: not such a file.
    """
    from clipless.datasets import InputFormat  # torch, which copying does not need

    path = folder / DATA_NAME
    if not path.is_file():
        raise RecordError(f"Expected {path}, which says how rows are encoded; take the model with sweeper pick again")
    return InputFormat.from_json(read_object(path), str(path))


def input_content_of_sweep(folder: Path, manifest: Manifest, data_dir: Path | None = None) -> Mapping[str, Any]:
    """Return what the ``data.json`` of a sweep holds, or would hold, as `input_of_sweep`.

    Raises: as `input_of_sweep`; what only `read_input` checks is not checked.
    """
    path = folder / DATA_NAME
    return read_object(path) if path.is_file() else input_of_sweep(folder, manifest, data_dir).to_json()


def input_of_sweep(folder: Path, manifest: Manifest, data_dir: Path | None = None) -> "InputFormat":
    """Return the input format of a sweep: the one in its folder, or that of the data its spec names.

    ``data_dir`` holds local copies of data sets; a table of one's own lies there with its ranges file.

    Raises:
        SweeperError: neither there nor to be found again.
        clipless.errors.DataError: likewise, for a reason that only the owner of the data may see.
    """
    from clipless.datasets import input_format

    if (folder / DATA_NAME).is_file():
        return read_input(folder)
    try:
        spec = manifest.read_spec(None if data_dir is None else str(data_dir / "spec.yaml"))
        found = data_dir or (Path(manifest.data_dir) if manifest.data_dir else None)
        return input_format(**spec.data_options(found))
    except CliplessError as error:  # it may quote data
        raise DataError(f"{_UNKNOWN.format(folder)}: {error}; {_REMEDY}") from None
