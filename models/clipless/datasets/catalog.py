"""The names of data sets, and the one function that loads any of them or a user's own file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib import metadata as importlib_metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clipless.datasets.metadata import Evaluation, Preparation
from clipless.datasets.splits import HashSplit, Splitting
from clipless.datasets.tables.declarations import TEXT_UNIT, Ranges
from clipless.errors import DataError, DeclarationError
from clipless.spelling import did_you_mean, did_you_mean_file

if TYPE_CHECKING:  # listing names imports no torch
    from clipless.datasets.dataset import Dataset
    from clipless.datasets.features.declaration import Features
    from clipless.datasets.raw_rows import RawRows
    from clipless.datasets.sources._base import DataSource

ENTRY_POINTS = "sweeper.datasets"
NO_ENCODER = "Expected an encoder for the texts of {name}, got none: add features: {{name: wordllama}} (data.features)"
_SUFFIXES = (".csv", ".csv.gz", ".parquet", ".npz")


@dataclass(frozen=True, slots=True)
class Listed:
    """A data set with a name: one line about it, and the module of `clipless.datasets.sources` that holds it."""

    description: str
    module: str


_TABLES = ("breast_cancer", "known")  # modules whose sources are tables
_ADBENCH = ("aloi", "campaign", "celeba", "donors", "shuttle", "magic.gamma", "skin", "yeast")
SOURCES: Mapping[str, Listed] = {
    "digits": Listed("1,797 images of digits, 8 x 8; comes with scikit-learn", "digits"),
    "breast_cancer": Listed("569 tumours, benign or malignant; comes with scikit-learn", "breast_cancer"),
    "mnist": Listed("70,000 images of digits, 28 x 28; OpenML or --data-dir", "images"),
    "fashion-mnist": Listed("70,000 images of clothes, 28 x 28; OpenML or --data-dir", "images"),
    "cifar10": Listed("60,000 colour photographs, 32 x 32; OpenML or --data-dir", "images"),
    "adult": Listed("32,561 or 48,842 persons of a census, 2 classes of income; OpenML or --data-dir", "known"),
    "german": Listed("1,000 borrowers, good or bad credit; --data-dir", "known"),
    "nursery": Listed("12,960 applications to nursery schools, 5 classes; --data-dir", "known"),
    "default-credit": Listed("30,000 card holders, default or not; --data-dir", "known"),
    **dict.fromkeys(_ADBENCH, Listed("anomaly detection table of ADBench; --data-dir", "known")),
}


def available() -> dict[str, str]:
    """Return the names that `load` knows, with one line about each; imports no plug-in, fetches nothing."""
    own = {entry.name: f"plug-in {entry.value}" for entry in _plugins()}
    return own | {name: listed.description for name, listed in SOURCES.items()}


def is_table(name: str) -> bool:
    """Whether a name is that of a table listed here; imports no plug-in."""
    found = next((listed for own, listed in SOURCES.items() if _fold(own) == _fold(name)), None)
    return found is not None and found.module in _TABLES


def load(
    source: str | Path,
    *,
    data_dir: str | Path | None = None,
    target: str | None = None,
    ranges: str | Path | Ranges | None = None,
    evaluation: Evaluation | str | None = None,
    unit: str | None = None,
    classes: Sequence[Any] | None = None,
    block: str | None = None,
    blocks: Sequence[str] | None = None,
    splits: Splitting | None = None,
    preparation: Preparation | None = None,
    features: "Features | None" = None,
) -> "Dataset":
    """Load a data set by name, or a user's own table by path.

    Args:
        source: one of `available`, or a csv, csv.gz, parquet or npz file.
        data_dir: local folder to read from instead of fetching; a relative path is looked for there too.
        target: own table: column of the labels, where the ranges file does not say.
        ranges: own table: its ranges file, or declarations made in Python.
        evaluation: whether validation and test rows are public, private or exploratory; named sets are public
            unless said otherwise, own tables private unless their ranges file declares otherwise.
        unit: own table: column that identifies the privacy unit, which may have several rows. Default: the row.
        classes: own table: the labels in order, where the ranges file does not list them.
        block: own table: column that cuts rows into blocks, a public attribute of the unit. Default: none does.
        blocks: own table: the blocks that are read; rows of others are left out.
        splits: how rows are assigned; default: by keyed hash, 70 / 15 / 15, or 90 / 10 of the training rows
            where a test split is published.
        preparation: per-example maps: colour space, public centring, scaling to a sphere; default: none.
        features: a frozen public encoder that makes the examples of the rows; default: none.

    Guarantees:
        Every example, label and split of a row is a function of that row, or of its unit, and of public constants,
        except for data sets whose metadata say ``exploratory``, or, in a condition, otherwise. Whether a table is
        refused does not depend on the content of a row either, if its rows are not open (`Metadata.training_is_open`)
        and its declarations say what stands for a missing number and for an unknown label; but for what the guide lists
        under *not guaranteed*.

    Raises:
        DataError: one sentence naming file, field, value and remedy.
    """
    declared = {"target": target, "ranges": ranges, "unit": unit, "classes": classes, "block": block, "blocks": blocks}
    chosen = None if evaluation is None else Evaluation.parse(evaluation)
    if features is not None and preparation is not None:
        raise DeclarationError("Expected no colour, centre or normalise beside features, which have their own settings")
    dataset = _load(source, _folder(data_dir), chosen, splits, declared)
    if features is not None:
        from clipless.datasets.features.encode import encode

        return encode(dataset, features)
    if dataset.metadata.radius_unit == TEXT_UNIT:
        raise DeclarationError(NO_ENCODER.format(name=dataset.metadata.name))
    if preparation is None:
        return dataset
    from clipless.datasets.maps import prepare

    return prepare(dataset, preparation)


def raw_rows_of(
    source: str | Path, *, data_dir: str | Path | None = None, **declared: Any
) -> "tuple[str, tuple[str, ...], RawRows]":
    """Return the name, the classes and the raw format of a data set: its rows before any preparation.

    Takes what `load` takes; of an own table ``target``, ``ranges``, ``unit``, ``classes``,
    ``block``, ``blocks`` and ``splits``.

    Raises:
        DataError: a file that cannot be read.

    Guarantees:
        No cell of a table and no pixel enters; of a table only the names and the order of its columns.
    """
    from clipless.datasets.raw_rows import Tensors
    from clipless.datasets.tables.table import load_schema

    folder, name = None if data_dir is None else Path(data_dir), _name(source)
    if name is None:
        path = _find(Path(source), folder)
        ranges = load_schema(path, **declared)
        return path.name.split(".")[0], ranges.classes or (), replace(ranges, classes=None)
    if name in SOURCES:
        published = _source(name)
        return published.name, published.classes, published.raw(folder)
    facts = _load_plugin(name, folder, None, None).metadata
    raw = Tensors(facts.input_shape, facts.input_norm, facts.input_gain, facts.radius_unit)
    return facts.name, facts.classes, raw


def _load(
    source: str | Path,
    folder: Path | None,
    evaluation: Evaluation | None,
    splits: Splitting | None,
    declared: Mapping[str, Any],
) -> "Dataset":
    name = _name(source)
    if name is None:
        from clipless.datasets.tables.table import load_table

        return load_table(_find(Path(source), folder), evaluation=evaluation, splits=splits, **declared)
    _refuse_own_options(name, declared, splits)
    if name in SOURCES:
        hashed = splits if isinstance(splits, HashSplit) else None
        return _source(name).load(data_dir=folder, evaluation=evaluation or Evaluation.PUBLIC, splitting=hashed)
    return _load_plugin(name, folder, evaluation, splits)


def _folder(data_dir: str | Path | None) -> Path | None:
    folder = None if data_dir is None else Path(data_dir)
    if folder is not None and not folder.is_dir():
        raise DeclarationError(f"Expected a folder, got {folder} (--data-dir)")
    return folder


def _source(name: str) -> "DataSource":
    module = import_module(f"clipless.datasets.sources.{SOURCES[name].module}")
    sources: tuple[DataSource, ...] = module.SOURCES
    return next(source for source in sources if source.name == name)


def _name(source: str | Path) -> str | None:
    """Return the known name that ``source`` means, or None for a path."""
    if isinstance(source, Path):
        return None
    known = {_fold(name): name for name in SOURCES}
    if _fold(source) not in known:
        known |= {_fold(name): name for name in available()}  # those of plug-ins take longer to find
    if _fold(source) in known:
        return known[_fold(source)]
    if source.lower().endswith(_SUFFIXES) or "/" in source or Path(source).exists():
        return None
    raise DeclarationError(f"Unknown data set {source!r}: {did_you_mean_data(source)} (data.name)")


def check_name(source: str) -> None:
    """Refuse a name that no data set has here, without loading one; what may be the path of a table passes.

    Raises:
        DeclarationError: no such name; says the nearest one.
    """
    _name(source)


def did_you_mean_data(name: str) -> str:
    """Return the remedy for a name that no data set has here: the nearest one, or all of them."""
    known = sorted(available())
    return did_you_mean(_fold(name), known) or f"known: {', '.join(known)}"


def _fold(name: str) -> str:
    return name.lower().replace("_", "-")


def places_of(path: Path, folder: Path | None) -> list[Path]:
    """Return where a table is looked for, in order."""
    return [path] if folder is None or path.is_absolute() else [path, folder / path]


def _find(path: Path, folder: Path | None) -> Path:
    places = places_of(path, folder)
    for place in places:
        if place.is_file():
            return place
    missing = f"No such file: {' or '.join(map(str, places))} (data.path)"
    near = next(filter(None, (did_you_mean_file(place, before="; ") for place in places)), "")
    raise DataError(missing + near) if near else DeclarationError(missing)  # names of other files are the owner's


def _refuse_own_options(name: str, options: Mapping[str, object], splits: Splitting | None) -> None:
    for option, value in options.items():
        if value is not None and (option, value) != ("unit", "row"):
            raise DeclarationError(f"{name} declares its own {option}, got {value!r}: leave it out (data.{option})")
    if not (splits is None or isinstance(splits, HashSplit)):
        raise DeclarationError(f"{name} has no column that declares splits: give fractions (data.splits)")


def _plugins() -> tuple[importlib_metadata.EntryPoint, ...]:
    return tuple(importlib_metadata.entry_points(group=ENTRY_POINTS))


def _load_plugin(name: str, folder: Path | None, evaluation: Evaluation | None, splits: Splitting | None) -> "Dataset":
    """Call a user's loader ``(data_dir, evaluation, splits) -> Dataset``."""
    entry = next(entry for entry in _plugins() if entry.name == name)
    from clipless.datasets.dataset import Dataset, RowHashes

    dataset = entry.load()(data_dir=folder, evaluation=evaluation, splits=splits)
    if not isinstance(dataset, Dataset):
        raise DeclarationError(f"Expected a Dataset from plug-in {entry.value}, got {type(dataset).__name__} ({name})")
    declared = dataset.metadata.evaluation
    if evaluation is not None and evaluation is not declared:
        raise DeclarationError(
            f"{name} declares evaluation: {declared.value}, got {evaluation.value} (data.evaluation)"
        )
    if dataset.hashes is not None:
        return dataset
    return replace(dataset, hashes=RowHashes.of(dataset.train, dataset.validation, dataset.test))
