r"""Runs of Gaussian slots, simulated: the likelihood ratio of everything that the steps of an event release.

One row contributes 1 where it takes part and 0 where not, or its opposite -1 where it is replaced. A step releases
x ~ N(c, sigma^2) with c its contribution, so with q the sampling rate

    log P(x) / Q(x) = log(1 - q + q exp((2x - 1) / (2 sigma^2))),

less the same of -x where the row is replaced. Steps are independent and their logarithms add up: no adversary who sees
all of them does better than by this sum (Neyman and Pearson). Rounding makes a score a little worse, never invalid.

Shapes: R runs.
"""

import math
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.audits.lower_bound import Floats, RunScores

_MOST_DRAWS = 2e8  # of normal numbers in each world
_MOST_RUNS, _LEAST_RUNS = 400_000, 10_000


def runs_for(steps: float) -> int:
    """Return how many runs of so many steps to simulate, in each world."""
    return int(min(max(_MOST_DRAWS / max(steps, 1.0), _LEAST_RUNS), _MOST_RUNS))


def scores(events: Iterable[PoissonGaussian], runs: int, generator: torch.Generator) -> RunScores:
    """Return the logarithms of the likelihood ratios of everything that all events release together."""
    chosen = tuple(events)
    present, absent = (
        np.sum([losses(event, runs, generator, present=world) for event in chosen] or [np.zeros(runs)], axis=0)
        for world in (True, False)
    )
    return RunScores(present, absent)


def losses(event: PoissonGaussian, runs: int, generator: torch.Generator, *, present: bool) -> Floats:
    """Return (R,) logarithms of the likelihood ratio of what an event releases, in one world."""
    q, noise = event.sampling_rate, event.noise_multiplier
    total_R = torch.zeros(runs, dtype=torch.float64)
    replaced = event.relation is Relation.REPLACE_ONE
    contribution = 1.0 if present else -1.0 if replaced else 0.0
    steps = 0 if q == 0.0 or math.isinf(noise) else event.steps
    for _ in range(steps):
        x_R = noise * torch.randn(runs, generator=generator)
        if contribution:
            x_R += contribution * (torch.rand(runs, generator=generator) < q)
        total_R += _loss(x_R, q, noise)
        if replaced:
            total_R -= _loss(-x_R, q, noise)
    found: Floats = total_R.numpy()
    return found


def _loss(x_R: Tensor, q: float, noise: float) -> Tensor:
    exponent_R = (x_R - 0.5) / noise**2
    if q == 1.0:
        return exponent_R
    largest_R = exponent_R.clamp(min=0.0)
    return largest_R + torch.log((1.0 - q) * torch.exp(-largest_R) + q * torch.exp(exponent_R - largest_R))
