"""The protocol of a published data set, and the tensors and facts of image data sets.

A new one is a file here with an instance in its ``SOURCES``, and a line in the list of `clipless.datasets.catalog`.

Shape letters: N images, H rows, W columns, C channels.
"""

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clipless.datasets.dataset import Dataset
from clipless.datasets.metadata import ROW_COUNTS, Evaluation, Metadata, evaluation_facts, split_fact
from clipless.datasets.raw_rows import Pixels, RawRows, raw_facts
from clipless.datasets.splits import HashSplit

BENCHMARK = "the data set is a published benchmark"


class DataSource(Protocol):
    """A published data set."""

    @property
    def name(self) -> str:
        """Name of the data set."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; label ``i`` is ``classes[i]``."""

    def raw(self, data_dir: Path | None) -> RawRows:
        """Return the raw format of a row: declarations, and for a table the names and order of its columns.

        Raises:
            DataError: a table that cannot be read.
        """

    def load(self, *, data_dir: Path | None, evaluation: Evaluation, splitting: HashSplit | None) -> Dataset:
        """Load the rows.

        A ``data_dir`` is read instead of fetching; ``splitting`` left out means the source's own fractions.

        Raises:
            DataError: the folder lacks the file, the file is not what its name says, or there is no network.
        """


def level_shares(levels: NDArray[Any], raw: Pixels) -> Tensor:
    """Return images (N, H, W) or (N, H, W, C) as (N, C, H, W) float32, levels divided by the largest one."""
    x = levels[:, None] if levels.ndim == 3 else np.moveaxis(levels, -1, 1)
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32)).div_(raw.largest)


def image_metadata(
    name: str,
    classes: tuple[str, ...],
    raw: Pixels,
    evaluation: Evaluation,
    splitting: HashSplit,
    *,
    largest_is: str,
    published_test: bool = False,
) -> Metadata:
    """Return the facts about a published set of images.

    ``largest_is`` says in words what the largest level is.
    """
    facts, conditions = evaluation_facts(evaluation, public_because=BENCHMARK)
    shape, norm, gain, unit = raw_facts(raw)
    return Metadata(
        name=name,
        input_shape=shape,
        classes=classes,
        evaluation=evaluation,
        unit="row",
        input_norm=norm,
        input_gain=gain,
        radius_unit=unit,
        public_facts=(
            f"Pixels are divided by {raw.largest}, {largest_is}: no norm exceeds the root of their number.",
            split_fact(splitting, published_test=published_test),
            ROW_COUNTS,
            *facts,
        ),
        conditions=conditions,
        training_published=True,
        split_by_row=True,
    )
