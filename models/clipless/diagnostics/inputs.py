"""Norms of examples before the first layer: how much of the declared bound they use, colour space by colour space."""

import torch

from clipless.datasets import ColourSpace, Dataset, Preparation, prepare
from clipless.datasets.raw_rows import PIXEL_UNIT
from clipless.diagnostics.diagnose import public_rows
from clipless.diagnostics.records import InputNorms, linear_norms


def input_norms(dataset: Dataset, space: str) -> InputNorms:
    """Return the norms of the validation rows as they are.

    ``space`` names their coordinates.

    Raises:
        clipless.errors.DataError: rows that are not public.
    """
    norm_N = torch.linalg.vector_norm(public_rows(dataset).x.flatten(1).double(), dim=1)
    bound = dataset.metadata.input_norm
    return InputNorms(space=space, bound=bound, norms=linear_norms(norm_N, bound))


def colour_norms(dataset: Dataset) -> tuple[InputNorms, ...]:
    """Return the norms of the validation rows in every colour space, with the bound of each.

    The data set is as loaded, without a preparation. Nothing but RGB images has colours to convert.

    Raises:
        clipless.errors.DataError: rows that are not public.
    """
    rows, facts = public_rows(dataset), dataset.metadata
    pictures = len(facts.input_shape) == 3 and facts.input_shape[0] == 3 and facts.radius_unit == PIXEL_UNIT
    if not pictures or facts.input_gain != 1.0:  # converted already
        return ()
    looked_at = Dataset(facts, rows, rows, rows)  # converts no training row
    return tuple(input_norms(prepare(looked_at, Preparation(colour=space)), space.value) for space in ColourSpace)
