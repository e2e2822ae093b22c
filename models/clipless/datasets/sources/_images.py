"""What image data sets share: levels as tensors, and the facts that follow from the format alone.

Shape letters: N images, H rows, W columns, C channels.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clipless.datasets.metadata import ROW_COUNTS, Evaluation, Metadata, evaluation_facts, split_fact
from clipless.datasets.raw_rows import Pixels, raw_facts
from clipless.datasets.sources._base import BENCHMARK
from clipless.datasets.splits import HashSplit


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
