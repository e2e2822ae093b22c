"""Three splits of tensors beside the public facts about them.

The tensors of a `Split` are the sensitive values; nothing here summarises them. Checks on them answer yes or no, and a
no ends the run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from clipless.datasets.metadata import Metadata
from clipless.datasets.splits import hash_rows, labelled_bytes
from clipless.errors import DataError

# Relative rounding of float32 entries at the declared bound.
NORM_ROUNDING = 1e-5
_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class Split:
    """Rows of one split, those of each privacy unit one behind the other.

    Its length is N, the number of units: training draws units, and a score weighs them alike.

    Attributes:
        x: float32, (n, *input_shape), every entry finite.
        y: int64, (n,), labels from 0.
        offsets: int64, (N + 1,), from 0 to n: unit i has the rows from ``offsets[i]`` up to ``offsets[i + 1]``, one at
            least. None where each row is a unit.
    """

    x: Tensor
    y: Tensor
    offsets: Tensor | None = None

    def __post_init__(self) -> None:
        if self.x.dtype != torch.float32 or self.y.dtype != torch.int64:
            raise DataError(f"Expected x float32 and y int64, got {self.x.dtype} and {self.y.dtype} (Split)")
        if self.x.dim() < 2 or self.y.shape != self.x.shape[:1]:
            raise DataError(
                f"Expected x (n, *input_shape) and y (n,), got {tuple(self.x.shape)} and {tuple(self.y.shape)} (Split)"
            )
        if self.offsets is not None and not _are_offsets(self.offsets, len(self.y)):
            raise DataError(
                "Expected increasing int64 offsets of units from 0 to the number of rows, got others (Split)"
            )

    def __len__(self) -> int:
        return len(self.y) if self.offsets is None else len(self.offsets) - 1

    def take(self, units_B: Tensor) -> "Split":
        """Return the units of these numbers, in this order, with all their rows."""
        if self.offsets is None:
            return Split(self.x[units_B], self.y[units_B])
        first_B, counts_B = self.offsets[units_B], self.offsets.diff()[units_B]
        offsets = torch.cat([counts_B.new_zeros(1), counts_B.cumsum(0)])
        rows_R = torch.arange(int(offsets[-1]), device=offsets.device)
        rows_R = rows_R + (first_B - offsets[:-1]).repeat_interleave(counts_B)
        return Split(self.x[rows_R], self.y[rows_R], offsets)

    def to(self, device: torch.device | str) -> "Split":
        """Return the split on a device."""
        offsets = None if self.offsets is None else self.offsets.to(device)
        return Split(self.x.to(device), self.y.to(device), offsets)

    def weights(self) -> Tensor:
        """Return the weight of each row, (n,) float64: one over the rows of its unit."""
        if self.offsets is None:
            return torch.ones_like(self.y, dtype=torch.float64)
        counts_N = self.offsets.diff()
        return counts_N.double().reciprocal().repeat_interleave(counts_N)


def _are_offsets(offsets: Tensor, rows: int) -> bool:
    if offsets.dtype != torch.int64 or offsets.dim() != 1 or len(offsets) < 1:
        return False
    return bool(offsets[0] == 0) and bool(offsets[-1] == rows) and bool((offsets.diff() > 0).all())


@dataclass(frozen=True, eq=False)
class Blocks:
    """The block of each row of a data set.

    Attributes:
        column: that cuts the rows.
        names: of the blocks that were read.
        train: int64, (n,), the number of the block of each row of that split, and so on.
        units: uint8, (u, 16), of each block the hashes of the ids of its privacy units; ``None`` where each row is one.
    """

    column: str
    names: tuple[str, ...]
    train: Tensor
    validation: Tensor
    test: Tensor
    units: Mapping[str, Tensor] | None = None


@dataclass(frozen=True, eq=False)
class RowHashes:
    """The hash of each row of a data set as it was read: of every column, those that make no feature too.

    What decides the split of a row is in it, so that rows with equal hashes are on the same side in any file.

    Attributes:
        train: uint8, (n, 16), of the rows of that split, and so on.
        unread: uint8, (n, 16), of the rows of the file that are in no split: those of blocks that are not read.
    """

    train: Tensor
    validation: Tensor
    test: Tensor
    unread: Tensor = field(default_factory=lambda: torch.empty((0, 16), dtype=torch.uint8))

    @classmethod
    def of(cls, *splits: Split) -> Self:
        """Return those of rows of which nothing but example and label was read, of training, validation and test."""
        contents = (labelled_bytes(split.x.numpy(), split.y.numpy()) for split in splits)
        return cls(*(torch.from_numpy(hash_rows(own)) for own in contents))


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set, ready to train on.

    Guarantees:
        Every split is non-empty, of the declared shape, with labels among the classes, and no example's norm
        exceeds ``metadata.input_norm`` (up to float32 rounding), so no entry is infinite or NaN. Construction
        fails otherwise.

    Attributes:
        raw: the rows that these are features of, None where rows are as they were loaded. An account knows rows by
            them, whatever encoder they go through.
        hashes: of the rows of a table or of a plug-in; None of published images, whose sides follow from their pixels.
    """

    metadata: Metadata
    train: Split
    validation: Split
    test: Split
    blocks: Blocks | None = None  # of a table that is cut into blocks
    raw: "Dataset | None" = field(default=None, kw_only=True)
    hashes: RowHashes | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("train", "validation", "test"):
            _check_split(self.metadata, name, getattr(self, name))
            if self.blocks is not None and len(getattr(self.blocks, name)) != len(getattr(self, name).y):
                raise DataError(f"Expected a block for each row of the {name} split, got another number (Dataset)")


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
