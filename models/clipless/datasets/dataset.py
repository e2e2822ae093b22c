"""Three splits of tensors beside the public facts about them.

The tensors of a `Split` are the sensitive values; nothing here summarises them. Checks on them answer yes or no, and a
no ends the run.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from clipless.datasets.metadata import Metadata
from clipless.errors import DataError

# Relative rounding of float32 entries at the declared bound.
NORM_ROUNDING = 1e-5
_CHUNK = 4096


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
