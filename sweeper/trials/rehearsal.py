"""Rehearsals: trainings on public or synthetic rows, with the noise that a training on the private rows will have.

They show which configuration suits a noise level before anything is spent. A mean over a batch of the smaller set is as
noisy as one over a batch of the training rows: the sampling rate is the same, and the noise multiplier falls in
proportion to the batch. What a rehearsal cannot show is what more rows would teach.
"""

from math import ceil

import torch

from clipless.datasets import Dataset, Evaluation
from sweeper.errors import SpecError
from sweeper.specification.trial_config import TrialConfig

HALVES = 2
MOST_SYNTHETIC = 4096  # rows that a rehearsal on synthetic ones trains on
_SEED = 0  # which half a row is in: public, and the same for every configuration, so that scores compare


def rehearsal_halves(data: Dataset) -> tuple[Dataset, Dataset]:
    """Return two data sets of the validation rows: one half is trained on, the other scored; and the other way round.

    The rows of a privacy unit are in the same half.

    Guarantees:
        No training row and no test row is among them: what is computed from them spends nothing.

    Raises:
        SpecError: the validation rows are not public.
    """
    if data.metadata.evaluation is not Evaluation.PUBLIC:
        raise SpecError(
            f"Expected public validation rows to rehearse on, got evaluation={data.metadata.evaluation.value!r} "
            f"({data.metadata.name}); set search.rehearse: false"
        )
    validation = data.validation
    order = torch.randperm(len(validation), generator=torch.Generator().manual_seed(_SEED)).to(validation.x.device)
    first, second = (validation.take(chosen) for chosen in order.tensor_split(2))
    facts = data.metadata  # and nothing that tells of all rows
    return Dataset(facts, first, second, second), Dataset(facts, second, first, first)


def rehearsal_config(config: TrialConfig, rows: int, population: int) -> TrialConfig:
    """Return the configuration of a rehearsal on ``rows`` rows of a training on ``population``.

    Args:
        config: with a noise multiplier and epochs, so that nothing is calibrated.
        rows: that the rehearsal trains on.
        population: number of training rows.

    Raises:
        SpecError: the configuration has no noise multiplier.
    """
    noise, batch = config.privacy.noise_multiplier, config.training.batch_size
    if noise is None:
        raise SpecError("Expected a noise multiplier to rehearse with, got none")
    smaller = ceil(batch * rows / population)
    training = config.training.model_copy(update={"batch_size": smaller})
    scaled = {"noise_multiplier": noise * smaller / batch}
    privacy = config.privacy.model_copy(update=scaled | {"accept_large_delta": True})  # delta is that of more rows
    return config.model_copy(update={"training": training, "privacy": privacy})
