r"""Lower bounds of privacy profiles: what a mechanism is at least as distinguishable as.

``P`` and ``Q`` are the outputs of one step on two neighbours. Its line is cut into cells by the privacy loss
``log(dP/dQ)``, about one for each ``width`` of it. Which cell an output lies in is a function of the output, so the
cells' pair is nowhere more distinguishable than ``P`` and ``Q``, wherever the cuts are. The loss of a cell, the
logarithm of the ratio of its two masses, is then rounded down to a grid that is shifted by ``b``: to a multiple of the
width, less b. That enlarges its mass under ``Q``, and lowers every hockey-stick divergence again. Steps compose as in
``pld_grid``, whose errors are taken off.

Losses of cells lie within about width^2 of their middles, so that a small b, chosen for the least loss on average,
serves nearly all of them: rounding costs width^2 a step, not width. T steps of deviation s lose about
T width^2 / s, and the width is a small multiple of s T^(-1/4).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

import numpy as np
from scipy import special

from clipless.privacy.accounting.pld_grid import TAIL, FloatArray, LossGrid, delta_slack
from clipless.privacy.accounting.spending import LARGEST_LOSS
from clipless.privacy.events import PoissonGaussian, Relation

_FINENESS = 0.04  # of the deviation of one step's loss, times steps^(-1/4): at most 0.3 % of noise is lost
_MOST_CELLS = 2**19
_REACH = 14.0  # deviations of noise within which cuts are made
_ROUNDING = 1e-11  # of a cell's mass and likelihood ratio: a hundred times what differences of normal tails were off


@dataclass(frozen=True, slots=True, eq=False)
class LowerProfile:
    """A convex, piecewise linear lower bound of a privacy profile, as a function of alpha = e^epsilon >= 1.

    Attributes:
        losses: its knots, as epsilons: increasing. Shape: (K,).
        masses: by how much mass the profile bends there. Shape: (K,).
        slack: what is taken off everywhere.
    """

    losses: FloatArray
    masses: FloatArray
    slack: float

    def __call__(self, epsilons: FloatArray) -> FloatArray:
        """Return the bound at epsilons >= 0, which is negative where nothing is known. Shape: (E,) -> (E,)."""
        above = np.append(np.cumsum(self.masses[::-1])[::-1], 0.0)
        shrunk = np.append(np.cumsum((self.masses * np.exp(-self.losses))[::-1])[::-1], 0.0)
        first = np.searchsorted(self.losses, epsilons)
        bound: FloatArray = above[first] - np.exp(epsilons) * shrunk[first] - self.slack
        return bound


@lru_cache(maxsize=32)
def lower_profiles(event: PoissonGaussian) -> tuple[LowerProfile, ...]:
    """Bound the privacy profiles of an event from below, in the directions of `pld.loss_grids`.

    The event costs something and has noise.
    """
    return tuple(_composed(cells, event.steps) for cells in _cells(event))


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """The outputs of one step in cells: masses under P and losses, rounded down. Shapes: (C,)."""

    masses: FloatArray
    losses: FloatArray
    width: float


def _composed(cells: _Cells, steps: int) -> LowerProfile:
    shift = _shift(cells)
    index = np.floor((cells.losses + shift) / cells.width).astype(np.int64)
    first = int(index.min())
    masses = np.bincount(index - first, weights=cells.masses).astype(np.float64)
    losses, composed = LossGrid(masses, first, cells.width, 0.0).composed(steps)
    losses = losses - steps * shift
    kept = (losses > 0.0) & (losses <= LARGEST_LOSS)
    composed = np.maximum(composed[kept], 0.0) * (1.0 - _ROUNDING) ** steps
    slack = delta_slack(steps) + TAIL + len(composed) * 2.0**-51
    return LowerProfile(losses[kept], composed, slack)


def _shift(cells: _Cells) -> float:
    """Return the shift of the grid, within a width, at which rounding down costs the least loss on average."""
    asked = np.sort(-cells.losses % cells.width)[:: max(1, len(cells.losses) // 128)]
    spare = (cells.losses[:, None] + asked) % cells.width
    return float(asked[np.argmin(cells.masses @ spare)])


def _cells(event: PoissonGaussian) -> Iterator[_Cells]:
    """Yield one step's cells for each direction in which neighbours may differ."""
    sigma, rate = event.noise_multiplier, event.sampling_rate
    line = np.linspace(-_REACH * sigma - 1.0, _REACH * sigma + 1.0, 2**14 + 1)
    loss = _loss(event, line)
    weights = np.exp(-0.5 * (line / sigma) ** 2)
    deviation = math.sqrt(np.cov(loss, aweights=weights))
    width = max(_FINENESS * deviation * event.steps**-0.25, (loss[-1] - loss[0]) / _MOST_CELLS)
    middles = np.arange(math.ceil(loss[0] / width), math.floor(loss[-1] / width)) + 0.5
    cuts = np.unique(np.interp(middles * width, loss, line))
    absent, present = _normal_masses(cuts, 0.0, sigma), _normal_masses(cuts, 1.0, sigma)
    match event.relation:
        case Relation.ADD_OR_REMOVE_ONE:
            opposite = absent
        case Relation.REPLACE_ONE:
            opposite = _normal_masses(cuts, -1.0, sigma)
        case _:
            assert_never(event.relation)
    under_p, under_q = (1.0 - rate) * absent + rate * present, (1.0 - rate) * absent + rate * opposite
    seen = (under_p > 1e-280) & (under_q > 1e-280)  # left out otherwise: nothing is gained by an output left out
    under_p, under_q, present, opposite = under_p[seen], under_q[seen], present[seen], opposite[seen]
    losses = np.log1p(rate * (present - opposite) / under_q)
    error = _ROUNDING * rate * (present / under_p + opposite / under_q)
    yield _Cells(under_p, losses - error, width)
    if event.relation is Relation.ADD_OR_REMOVE_ONE and rate < 1.0:
        yield _Cells(under_q, -losses - error, width)


def _loss(event: PoissonGaussian, line: FloatArray) -> FloatArray:
    """Return about the privacy loss of one step at outputs; cuts need no more, for any cuts are right."""
    sigma, rate = event.noise_multiplier, event.sampling_rate
    out = math.log1p(-rate) if rate < 1.0 else -math.inf

    def ratio(mean: float) -> FloatArray:
        return np.logaddexp(out, math.log(rate) + (mean * line - 0.5) / sigma**2)

    return ratio(1.0) - (ratio(-1.0) if event.relation is Relation.REPLACE_ONE else 0.0)


def _normal_masses(cuts: FloatArray, mean: float, sigma: float) -> FloatArray:
    """Return the masses of a normal distribution between cuts, with their relative accuracy in both tails."""
    ends = (np.concatenate(([-np.inf], cuts, [np.inf])) - mean) / sigma
    below, above = special.ndtr(ends), special.ndtr(-ends)
    masses: FloatArray = np.where(ends[1:] > 0.0, above[:-1] - above[1:], below[1:] - below[:-1])
    return masses
