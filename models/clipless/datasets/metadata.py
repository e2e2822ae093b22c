"""What a data set is made of: frozen public facts, and three splits of tensors.

Everything in `Metadata` is a public input of the guarantee and may be printed, logged and saved. The tensors
of a `Split` are the sensitive values; nothing here summarises them. Checks on them answer yes or no, and a no
ends the run.
"""

from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor

from clipless.datasets.kinds import Evaluation
from clipless.errors import DataError

# Relative rounding of float32 entries at the declared bound.
NORM_ROUNDING = 1e-5
_CHUNK = 4096


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """Public facts about a data set: declared, never computed from its rows.

    Attributes:
        name: of the data set.
        input_shape: shape of one example.
        classes: names of the classes; label ``i`` is ``classes[i]``.
        evaluation: whether the validation and test rows are public.
        unit: the privacy unit: ``"row"``, or the column that identifies it.
        input_norm: upper bound of the Euclidean norm of one preprocessed example.
        input_gain: Lipschitz constant of the preprocessing, from the units of radii to the tensor.
        radius_unit: the units in which radii of certificates are given.
        public_facts: sentences for the privacy card: what was taken as public, and why.
        conditions: sentences for the privacy card: what the guarantee does not cover.
        training_published: whether the training rows are published too, so that attacks may read them.
        split_by_row: whether the split of each row is a function of that row and of public constants alone, so that
            one row more or less changes one split.
    """

    name: str
    input_shape: tuple[int, ...]
    classes: tuple[str, ...]
    evaluation: Evaluation
    unit: str
    input_norm: float
    input_gain: float
    radius_unit: str
    public_facts: tuple[str, ...]
    conditions: tuple[str, ...]
    training_published: bool = False
    split_by_row: bool = False

    def __post_init__(self) -> None:
        for field in ("name", "unit", "radius_unit"):
            _require(isinstance(getattr(self, field), str) and getattr(self, field), field, "a text", self)
        shape = self.input_shape
        shape_is_sound = isinstance(shape, tuple) and shape and all(type(n) is int and n > 0 for n in shape)
        _require(shape_is_sound, "input_shape", "positive integers", self)
        distinct = len(set(self.classes)) == len(self.classes) >= 2
        _require(distinct and _are_texts(self.classes), "classes", "a tuple of at least two different texts", self)
        _require(isinstance(self.evaluation, Evaluation), "evaluation", "an Evaluation", self)
        for field in ("input_norm", "input_gain"):
            value = getattr(self, field)
            _require(isfinite(value) and value > 0, field, "a finite number > 0", self)
        for field in ("public_facts", "conditions"):
            _require(_are_texts(getattr(self, field)), field, "a tuple of sentences", self)
        for field in ("training_published", "split_by_row"):
            _require(type(getattr(self, field)) is bool, field, "True or False", self)

    @property
    def training_is_open(self) -> bool:
        """Whether scores of training rows may leave unpaid: of published rows, or marked exploratory."""
        published = self.training_published and self.evaluation is Evaluation.PUBLIC
        return published or self.evaluation is Evaluation.EXPLORATORY


@dataclass(frozen=True, eq=False)
class Split:
    """Rows of one split.

    Attributes:
        x: float32, (n, *input_shape), every entry finite.
        y: int64, (n,), labels from 0.
    """

    x: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        if self.x.dtype != torch.float32 or self.y.dtype != torch.int64:
            raise DataError(f"Expected x float32 and y int64, got {self.x.dtype} and {self.y.dtype} (Split)")
        if self.x.dim() < 2 or self.y.shape != self.x.shape[:1]:
            raise DataError(
                f"Expected x (n, *input_shape) and y (n,), got {tuple(self.x.shape)} and {tuple(self.y.shape)} (Split)"
            )

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set, ready to train on.

    Guarantees:
        Every split is non-empty, of the declared shape, with labels among the classes, and no example's norm
        exceeds ``metadata.input_norm`` (up to float32 rounding), so no entry is infinite or NaN. Construction
        fails otherwise.
    """

    metadata: Metadata
    train: Split
    validation: Split
    test: Split

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            _check_split(self.metadata, name, getattr(self, name))


def _check_split(metadata: Metadata, name: str, split: Split) -> None:
    where = f"({metadata.name}, split {name})"
    if len(split) == 0:
        raise DataError(f"No rows fall into the {name} split; enlarge its fraction or bring more rows {where}")
    if tuple(split.x.shape[1:]) != metadata.input_shape:
        raise DataError(f"Expected examples of shape {metadata.input_shape}, got {tuple(split.x.shape[1:])} {where}")
    if not (int(split.y.min()) >= 0 and int(split.y.max()) < len(metadata.classes)):
        raise DataError(f"Expected labels from 0 to {len(metadata.classes) - 1}, got others {where}")
    # In double precision: whether rows within the bound pass may not depend on how a float32 sum of them rounds.
    norms = (torch.linalg.vector_norm(rows.flatten(1).double(), dim=1) for rows in split.x.split(_CHUNK))
    if not all(bool((norms_B <= metadata.input_norm * (1 + NORM_ROUNDING)).all()) for norms_B in norms):  # nor NaN
        raise DataError(f"An example is not finite or exceeds the declared norm {metadata.input_norm:g} {where}")


def _are_texts(values: object) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, str) and value for value in values)


def _require(condition: object, field: str, expected: str, metadata: Metadata) -> None:
    if not condition:
        raise DataError(f"Expected {field} to be {expected}, got {getattr(metadata, field)!r} (Metadata)")
