"""The files beside a picked model: its card, copies of the ledger and the spec of its sweep, and the hash of each.

``SHA256SUMS`` has the hashes of all of them, for ``sha256sum --check``; the card has those of all files but itself and
``card.md``, which says the same in words. Whoever signs the card signs these with it.
"""

import csv
import hashlib
import io
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import yaml
from safetensors import SafetensorError, safe_open

from sweeper.errors import RecordError
from sweeper.records import ConfigValues
from sweeper.store.input_format import DATA_NAME
from sweeper.store.jsonl import replace_file, to_text
from sweeper.store.manifest import MANIFEST_NAME, told_spec

MODEL_NAME = "model.safetensors"
CARD_NAME = "card.json"
WORDS_NAME = "card.md"
CONFIG_NAME = "config.json"
LEDGER_NAME = "ledger.jsonl"
SPEC_NAME = "spec.yaml"
SUMS_NAME = "SHA256SUMS"
SIGNATURE_NAME = "card.sig"

REQUIRED = (MODEL_NAME, CONFIG_NAME, LEDGER_NAME, SPEC_NAME)
HASHED = (*REQUIRED, DATA_NAME)
"""What the card has hashes of; ``data.json`` where it could be written."""

PAPERS = (SIGNATURE_NAME, SUMS_NAME, CARD_NAME, WORDS_NAME, CONFIG_NAME, DATA_NAME, LEDGER_NAME, SPEC_NAME)
"""Everything beside the model."""

_ROWS = ".jsonl"
_OF_SWEEPS = (
    MANIFEST_NAME,
    SPEC_NAME,
    DATA_NAME,
    "front.csv",
    "front.html",
    *(f"{name}.json" for name in ("front", "driver", "rows", "sketch", "account", "submission", "statement")),
)  # files beside rows that the folder of a sweep is read from
_MODELS = ("models", "checkpoints")  # its folders
_DATABASE = b"SQLite format 3\0"  # with which a store of accounts begins, whatever its name


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What a sweep has that travels with a model of it."""

    ledger: bytes  # its rows, as they were when the card was made
    spec: Mapping[str, object]  # as it was completed, as JSON values


def clear_for_model(folder: Path) -> None:
    """Make the folder of a model that leaves, and remove the papers of an earlier model from it.

    Raises:
        RecordError: it has a sweep, or files of these names without a model of ours.
        OSError: not made or not removed.
    """
    names = (MANIFEST_NAME,) if _is_model(folder / MODEL_NAME) else (MANIFEST_NAME, MODEL_NAME, *PAPERS)
    for name in names:
        if (folder / name).exists():
            raise RecordError(
                f"Expected a new folder or that of an earlier model, got {folder} with {name}, which it would replace; "
                "choose another with --output"
            )
    folder.mkdir(parents=True, exist_ok=True)
    for name in PAPERS:
        (folder / name).unlink(missing_ok=True)


def _is_model(path: Path) -> bool:
    """Whether a file is a model of ours, whole."""
    try:
        with safe_open(path, framework="numpy") as file:
            return "architecture" in (file.metadata() or {})
    except (OSError, SafetensorError):
        return False


def copy_model(source: Path, folder: Path) -> None:
    """Copy the model of a point into a folder that `clear_for_model` makes, whole or not at all.

    Raises:
        RecordError: the file is damaged, so that the folder stays as it is, or as `clear_for_model`.
        OSError: not copied.
    """
    partial = folder / f".{MODEL_NAME}.partial"
    try:
        with safe_open(source, framework="numpy"):
            clear_for_model(folder)
            shutil.copyfile(source, partial)
            partial.replace(folder / MODEL_NAME)
    except SafetensorError as error:
        raise RecordError(f"Expected a model in {source}, got a damaged file ({error}); pick another point") from error
    finally:
        partial.unlink(missing_ok=True)


def check_no_record(path: Path) -> None:
    """Refuse a file to write that a sweep or a picked model is read from, or would be, and a store of accounts.

    Raises:
        RecordError: it is such a file.
    """
    if _begins_with(path, _DATABASE):
        raise RecordError(f"Expected another file than {path}, which is a database (--output); name one")
    folder, name = path.absolute().parent, path.name
    of_sweep = (folder / MANIFEST_NAME).is_file() and (name in _OF_SWEEPS or name.endswith(_ROWS))
    of_sweep = of_sweep or (folder.name in _MODELS and (folder.parent / MANIFEST_NAME).is_file())
    of_model = (folder / CARD_NAME).is_file() and name in (MODEL_NAME, *PAPERS)
    if of_sweep or of_model:
        whose = "the sweep" if of_sweep else "the picked model"
        raise RecordError(f"Expected another file than {path}, which {whose} in its folder keeps (--output); name one")


def _begins_with(path: Path, mark: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(mark)) == mark
    except OSError:  # none, or one that cannot be replaced either
        return False


def check_replaces(path: Path, content: bytes) -> None:
    """Refuse to write a table or a mapping over one of something else, such as the rows or the spec of a sweep.

    Raises:
        RecordError: most columns, or keys, of the file that is there are none of those in ``content``.
    """
    new = _names(path.suffix, io.BytesIO(content))
    try:
        if new is None or not path.is_file() or not path.stat().st_size:
            return
        with path.open("rb") as file:
            here = _names(path.suffix, file) or frozenset()
    except OSError:  # it cannot be replaced either
        return
    if 2 * len(here & new) <= len(here | new):
        held = f"with {', '.join(sorted(here)[:4])}" if here else "of another form"
        raise RecordError(
            f"Expected a new file or an earlier version of what is written, got {path} {held} (--output); name "
            "another, or remove it"
        )


def _names(suffix: str, file: BinaryIO) -> frozenset[str] | None:
    """Return the columns of a table or the keys of a mapping, none of one in another form; ``None`` of other files."""
    try:
        match suffix:
            case ".csv":
                return frozenset(next(csv.reader([file.readline().decode("utf-8-sig")]), ()))
            case ".parquet":
                from clipless.datasets.tables.table_file import parquet_columns  # imports pyarrow

                return frozenset(parquet_columns(file))
            case ".json" | ".yaml" | ".yml":
                found = json.load(file) if suffix == ".json" else yaml.safe_load(file)
                return frozenset(map(str, found)) if isinstance(found, Mapping) else frozenset()
    except (ValueError, csv.Error, yaml.YAMLError):
        return frozenset()
    return None


def write_sources(folder: Path, sources: Sources) -> None:
    """Write the ledger and the spec of a sweep into a folder that leaves.

    Raises:
        RecordError: not written, no ledger, a broken one, or one of a private selection that has not ended.

    Guarantees:
        A ledger that may tell how many candidates a private selection draws is not written. Of files of the machine
        that ran the sweep, the spec tells the last part of each path.
    """
    from sweeper.privacy.ledger import Ledger  # takes seconds, and few who read sweeps write papers

    if not sources.ledger.strip():
        raise RecordError(f"Expected the ledger of the sweep for {folder / LEDGER_NAME}, got no row; restore the file")
    copy = folder / LEDGER_NAME
    replace_file(copy, sources.ledger.decode())
    try:
        selection = Ledger(copy).selection
    except RecordError:
        copy.unlink()
        raise
    if selection is not None and selection.undecided and not selection.breaks:  # one that broke is priced as shown
        copy.unlink()
        raise RecordError(f"Expected a private selection that has ended for {copy}; wait for its end")
    replace_file(folder / SPEC_NAME, spec_text(sources.spec))


def spec_text(spec: Mapping[str, object]) -> str:
    """Return the spec of a sweep as others than its owner may read it, as YAML."""
    return yaml.safe_dump(told_spec(spec), sort_keys=False, allow_unicode=True)


def write_config(folder: Path, config: ConfigValues) -> None:
    """Write the configuration of a trial."""
    replace_file(folder / CONFIG_NAME, config_text(config))


def config_text(config: ConfigValues) -> str:
    """Return the configuration of a trial as its file has it."""
    return to_text(config, indent=2) + "\n"


def hashes_of(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file that a card has hashes of.

    Raises:
        RecordError: one that it needs is not there.
    """
    return {name: file_hash(folder / name) for name in HASHED if name in REQUIRED or (folder / name).exists()}


def sums_of(folder: Path) -> str:
    """Return what ``SHA256SUMS`` has to hold, in the format of ``sha256sum``.

    Raises:
        RecordError: a file is not there.
    """
    hashes = {name: file_hash(folder / name) for name in (CARD_NAME, WORDS_NAME)} | hashes_of(folder)
    return "".join(f"{found}  {name}\n" for name, found in sorted(hashes.items()))


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal.

    Raises:
        RecordError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RecordError(f"Cannot read {path}: {error.strerror or error}; take the model with sweeper pick") from error
