"""The samplers by their names: how each is made, and what a search has to know of it. One entry is one sampler."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import optuna
from optuna.samplers import (
    BaseSampler,
    BruteForceSampler,
    GPSampler,
    NSGAIIISampler,
    NSGAIISampler,
    QMCSampler,
    RandomSampler,
    TPESampler,
)

from sweeper.specification import plugins
from sweeper.specification.search import Sampler

# Epochs of one trial that TPE is told. The other samplers are told one: to them a configuration has one outcome.
TOLD_EPOCHS = 3

# Trials of one generation of the evolutionary samplers: sweeps have tens of trials, not thousands.
_POPULATION = 16


class _Grid(BruteForceSampler):
    """Every configuration once, in an order that the seed fixes; conditional values included."""

    def after_trial(self, *args: Any, **kwargs: Any) -> None:
        """Do not end the study when all are done, which only ``Study.optimize`` allows."""


@dataclass(frozen=True, slots=True)
class SamplerKind:
    """What a search has to know of a sampler."""

    make: Callable[..., BaseSampler]  # returns one, given ``seed``
    told_epochs: int = 1  # of one trial that it is told, at most
    # whether it notes things down in the study when it is asked: a rebuilt search has to ask it again
    remembers: bool = False
    one_sequence: bool = False  # whether its proposals are points of one sequence, which share a seed
    slow: bool = False  # whether it is asked for the next proposal before that is needed

    def for_trial(self, seed: int, number: int) -> BaseSampler:
        """Return a sampler for one trial alone, whose proposal depends on the seed, its number and the results.

        Raises:
            SpecError: no such plug-in, or it gives no sampler.
        """
        own = seed if self.one_sequence else int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
        return self.quietly(own)

    def quietly(self, seed: int) -> BaseSampler:
        """Return a sampler, without Optuna's remark that it may change."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return self.make(seed=seed)


SAMPLERS: Mapping[Sampler, SamplerKind] = {
    Sampler.TPE: SamplerKind(TPESampler, told_epochs=TOLD_EPOCHS),
    Sampler.GP: SamplerKind(partial(GPSampler, warn_independent_sampling=False), slow=True),
    Sampler.NSGA2: SamplerKind(partial(NSGAIISampler, population_size=_POPULATION), remembers=True),
    Sampler.NSGA3: SamplerKind(partial(NSGAIIISampler, population_size=_POPULATION), remembers=True),
    Sampler.QUASI_RANDOM: SamplerKind(
        partial(QMCSampler, scramble=True, warn_asynchronous_seeding=False, warn_independent_sampling=False),
        remembers=True,
        one_sequence=True,
    ),
    Sampler.RANDOM: SamplerKind(RandomSampler),
    Sampler.GRID: SamplerKind(_Grid),
}


def sampler_kind(name: Sampler | str) -> SamplerKind:
    """Return what a search has to know of a sampler; a plug-in, by its name, may remember things."""
    if isinstance(name, Sampler):
        return SAMPLERS[name]
    return SamplerKind(partial(plugins.sampler, name, kind=BaseSampler), remembers=True)  # type: ignore[type-abstract]
