"""The names of data sets, and the one function that loads any of them or a user's own file."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata as importlib_metadata
from pathlib import Path
from typing import Any

from clipless.datasets.kinds import Evaluation
from clipless.datasets.metadata import Dataset
from clipless.datasets.preparation import Preparation, prepare
from clipless.datasets.sources.embedded import load_breast_cancer, load_digits
from clipless.datasets.sources.images import CIFAR10, FASHION_MNIST, MNIST, load_images
from clipless.datasets.sources.known import KNOWN_TABLES, load_known
from clipless.datasets.splits import HashSplit, Splitting
from clipless.datasets.tables.declarations import Ranges
from clipless.datasets.tables.table import load_table
from clipless.errors import DeclarationError

ENTRY_POINTS = "sweeper.datasets"
_SUFFIXES = (".csv", ".csv.gz", ".parquet", ".npz")


@dataclass(frozen=True)
class _Named:
    """A data set with a name: one line about it, and its loader."""

    description: str
    load: Callable[..., Dataset]


def _bundled(load: Callable[..., Dataset], *, data_dir: Path | None, **options: Any) -> Dataset:
    del data_dir  # nothing to look for
    return load(**options)


_TABLE_LINES = {
    "adult": "32,561 or 48,842 persons of a census, 2 classes of income; OpenML or --data-dir",
    "german": "1,000 borrowers, good or bad credit; --data-dir",
    "nursery": "12,960 applications to nursery schools, 5 classes; --data-dir",
    "default-credit": "30,000 card holders, default or not; --data-dir",
}
_NAMED: Mapping[str, _Named] = {
    "digits": _Named("1,797 images of digits, 8 x 8; comes with scikit-learn", partial(_bundled, load_digits)),
    "breast_cancer": _Named(
        "569 tumours, benign or malignant; comes with scikit-learn",
        partial(_bundled, load_breast_cancer),
    ),
    "mnist": _Named("70,000 images of digits, 28 x 28; OpenML or --data-dir", partial(load_images, MNIST)),
    "fashion-mnist": _Named(
        "70,000 images of clothes, 28 x 28; OpenML or --data-dir", partial(load_images, FASHION_MNIST)
    ),
    "cifar10": _Named("60,000 colour photographs, 32 x 32; OpenML or --data-dir", partial(load_images, CIFAR10)),
    **{
        table.name: _Named(
            _TABLE_LINES.get(table.name, "anomaly detection table of ADBench; --data-dir"),
            partial(load_known, table),
        )
        for table in KNOWN_TABLES
    },
}


def available() -> dict[str, str]:
    """Return the names that `load` knows, with one line about each; imports no plug-in, fetches nothing."""
    own = {entry.name: f"plug-in {entry.value}" for entry in _plugins()}
    return own | {name: named.description for name, named in _NAMED.items()}


def load(
    source: str | Path,
    *,
    data_dir: str | Path | None = None,
    target: str | None = None,
    ranges: str | Path | Ranges | None = None,
    evaluation: Evaluation | str | None = None,
    unit: str | None = None,
    classes: Sequence[Any] | None = None,
    splits: Splitting | None = None,
    preparation: Preparation | None = None,
) -> Dataset:
    """Load a data set by name, or a user's own table by path.

    Args:
        source: one of `available`, or a csv, csv.gz, parquet or npz file.
        data_dir: local folder to read from instead of fetching; a relative path is looked for there too.
        target: own table: column of the labels, where the ranges file does not say.
        ranges: own table: its ranges file, or declarations made in Python.
        evaluation: whether validation and test rows are public, private or exploratory; named sets are public
            unless said otherwise, own tables must say.
        unit: own table: column that identifies the privacy unit; each unit has one row. Default: the row.
        classes: own table: the labels in order, where the ranges file does not list them.
        splits: how rows are assigned; default: by keyed hash, 70 / 15 / 15, or 90 / 10 of the training rows
            where a test split is published.
        preparation: per-example maps: colour space, public centring, scaling to a sphere; default: none.

    Guarantees:
        Every example, label and split of a row is a function of that row and of public constants, except for
        data sets whose metadata say ``exploratory``, or, in a condition, otherwise.

    Raises:
        DataError: one sentence naming file, field, value and remedy.
    """
    dataset = _load(
        source,
        data_dir=data_dir,
        evaluation=evaluation,
        splits=splits,
        target=target,
        ranges=ranges,
        unit=unit,
        classes=classes,
    )
    return dataset if preparation is None else prepare(dataset, preparation)


def _load(
    source: str | Path,
    *,
    data_dir: str | Path | None,
    evaluation: Evaluation | str | None,
    splits: Splitting | None,
    target: str | None,
    ranges: str | Path | Ranges | None,
    unit: str | None,
    classes: Sequence[Any] | None,
) -> Dataset:
    chosen = None if evaluation is None else Evaluation.parse(evaluation)
    folder = None if data_dir is None else Path(data_dir)
    if folder is not None and not folder.is_dir():
        raise DeclarationError(f"Expected a folder, got {folder} (--data-dir)")
    name = _name(source)
    if name is None:
        if chosen is None:
            raise DeclarationError(
                f"Say what the validation and test rows of {source} are: evaluation: public, private "
                "or exploratory (data.evaluation)"
            )
        return load_table(
            _found(Path(source), folder),
            evaluation=chosen,
            target=target,
            ranges=ranges,
            unit=unit,
            classes=classes,
            splitting=splits,
        )
    fixed = {"target": target, "ranges": ranges, "unit": None if unit == "row" else unit, "classes": classes}
    _refuse_own_options(name, fixed, splits)
    if name in _NAMED:
        return _NAMED[name].load(data_dir=folder, evaluation=chosen or Evaluation.PUBLIC, splitting=splits)
    return _load_plugin(name, folder, chosen, splits)


def _name(source: str | Path) -> str | None:
    """Return the known name that ``source`` means, or None for a path."""
    if isinstance(source, Path):
        return None
    known = {_folded(name): name for name in available()}
    if _folded(source) in known:
        return known[_folded(source)]
    if source.lower().endswith(_SUFFIXES) or "/" in source or Path(source).exists():
        return None
    near = difflib.get_close_matches(_folded(source), known, n=1, cutoff=0.5)
    hint = f"did you mean {known[near[0]]}?" if near else f"known: {', '.join(sorted(known.values()))}"
    raise DeclarationError(f"Unknown data set {source!r}: {hint} (data.name)")


def _folded(name: str) -> str:
    return name.lower().replace("_", "-")


def _found(path: Path, folder: Path | None) -> Path:
    places = [path] if folder is None or path.is_absolute() else [path, folder / path]
    for place in places:
        if place.is_file():
            return place
    raise DeclarationError(f"No such file: {' or '.join(map(str, places))} (data.path)")


def _refuse_own_options(name: str, options: Mapping[str, object], splits: Splitting | None) -> None:
    for option, value in options.items():
        if value is not None:
            raise DeclarationError(f"{name} declares its own {option}, got {value!r}: leave it out (data.{option})")
    if not (splits is None or isinstance(splits, HashSplit)):
        raise DeclarationError(f"{name} has no column that declares splits: give fractions (data.splits)")


def _plugins() -> tuple[importlib_metadata.EntryPoint, ...]:
    return tuple(importlib_metadata.entry_points(group=ENTRY_POINTS))


def _load_plugin(name: str, folder: Path | None, evaluation: Evaluation | None, splits: Splitting | None) -> Dataset:
    """Call a user's loader ``(data_dir, evaluation, splits) -> Dataset``."""
    entry = next(entry for entry in _plugins() if entry.name == name)
    dataset = entry.load()(data_dir=folder, evaluation=evaluation, splits=splits)
    if not isinstance(dataset, Dataset):
        raise DeclarationError(f"Expected a Dataset from plug-in {entry.value}, got {type(dataset).__name__} ({name})")
    declared = dataset.metadata.evaluation
    if evaluation is not None and evaluation is not declared:
        raise DeclarationError(
            f"{name} declares evaluation: {declared.value}, got {evaluation.value} (data.evaluation)"
        )
    return dataset
