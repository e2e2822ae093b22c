r"""Lower bounds of privacy profiles: a mechanism is at least as distinguishable.

``P`` and ``Q`` are the outputs of one step on two neighbours. Its line is cut into cells by the privacy loss
``log(dP/dQ)``, about one for each ``width`` of it. Which cell an output lies in is a function of the output, so the
cells' pair is nowhere more distinguishable than ``P`` and ``Q``, wherever the cuts are. The loss of a cell, the
logarithm of the ratio of its two masses, is then rounded down to a grid that is shifted by ``b``: to a multiple of the
width, less b. That enlarges its mass under ``Q``, and lowers every hockey-stick divergence again. Steps compose as in
``pld_grid``, whose errors are taken off.

Cuts are moved until the losses of nearly all cells are whole multiples of the width: then b is next to nothing, and all
that cells lose is their losses' spread, width^2 / 12 of the variance. Measured, noise of .6 to 200 at rates .001 to 1
and 50 to 5000 steps: 0.04 to 0.5 % of noise is lost to this and the event's rounding together; 2 to 13 % at noise 0.5,
where losses crowd at their lower end.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

import numpy as np
from scipy import special

from clipless.privacy.accounting.pld_grid import TAIL, FloatArray, LossGrid
from clipless.privacy.accounting.spending import LARGEST_LOSS
from clipless.privacy.events import PoissonGaussian, Relation

_FINENESS = 1 / 32  # of the mean deviation of one step's loss: the width
_MOST_CELLS = 2**17
_REACH = 8.5  # deviations of noise within which cuts are made: about 1e-17 lies outside
_POINTS = 2**14 + 1  # of outputs at which losses are computed; between them, cuts are interpolated
_CORRECTIONS = 30  # of cuts
_LEAST_MASS = 1e-17  # of a knot: less is noise of the transforms, and left out
_ROUNDING = 1e-11  # of a cell's mass and likelihood ratio: a hundred times what differences of normal tails were off


@dataclass(frozen=True, slots=True, eq=False)
class LowerProfile:
    """A convex, piecewise linear lower bound of a privacy profile, as a function of alpha = e^epsilon >= 1."""

    losses: FloatArray  # its knots, as epsilons: increasing. Shape: (K,)
    masses: FloatArray  # by how much mass the profile bends there. Shape: (K,)
    slack: float  # what is taken off everywhere

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
    return tuple(_compose(cells, event.steps) for cells in _cells(event))


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """The outputs of one step in cells: masses under P and losses, rounded down. Shapes: (C,)."""

    masses: FloatArray
    losses: FloatArray
    width: float


def _compose(cells: _Cells, steps: int) -> LowerProfile:
    shift = _shift(cells)
    index = np.floor((cells.losses + shift) / cells.width).astype(np.int64)
    first = int(index.min())
    masses = np.bincount(index - first, weights=cells.masses).astype(np.float64)
    losses, composed, slack = LossGrid(masses, first, cells.width, 0.0).compose(steps)
    losses = losses - steps * shift
    kept = (losses > 0.0) & (losses <= LARGEST_LOSS) & (composed > _LEAST_MASS)
    composed = composed[kept] * (1.0 - _ROUNDING) ** steps
    return LowerProfile(losses[kept], composed, slack + TAIL + len(composed) * 2.0**-51)


def _shift(cells: _Cells) -> float:
    """Return the shift of the grid, within a width, at which rounding down costs the least loss on average."""
    common = cells.masses > 1e-12
    masses, losses = cells.masses[common], cells.losses[common]
    asked = 0.5 * cells.width - (losses + 0.5 * cells.width) % cells.width  # least shift that moves a cell up
    order = np.argsort(asked)
    missed = np.cumsum(masses[order][::-1])[::-1]
    asked = asked[order][np.searchsorted(-missed, -np.geomspace(1.0, 1e-8, 32) * missed[0], "right") - 1]
    cost = [float(masses @ ((losses + shift) % cells.width)) for shift in asked]
    return float(asked[np.argmin(cost)])


def _cells(event: PoissonGaussian) -> Iterator[_Cells]:
    """Yield one step's cells for each direction in which neighbours may differ."""
    cuts, width = _cuts(event)
    under_p, under_q, losses, error = _pair(event, cuts)
    kept = (under_p > 1e-280) & (under_q > 1e-280) & np.isfinite(losses)  # leaving outputs out distinguishes no more
    under_p, under_q, losses, error = under_p[kept], under_q[kept], losses[kept], error[kept]
    yield _Cells(under_p, losses - error, width)
    if event.relation is Relation.ADD_OR_REMOVE_ONE and event.sampling_rate < 1.0:
        yield _Cells(under_q, -losses - error, width)


def _cuts(event: PoissonGaussian) -> tuple[FloatArray, float]:
    """Return where to cut outputs so that losses of cells are about whole multiples of a width, and the width."""
    sigma = event.noise_multiplier
    line = np.linspace(-_REACH * sigma - 1.0, _REACH * sigma + 1.0, _POINTS)
    loss = _loss(event, line)
    weights = np.exp(-0.5 * (line / sigma) ** 2)
    deviation = np.average(np.abs(loss - np.average(loss, weights=weights)), weights=weights)
    width = max(_FINENESS * deviation, (loss[-1] - loss[0]) / _MOST_CELLS)
    middles = np.arange(math.ceil(loss[0] / width), math.floor(loss[-1] / width)) + 0.5
    ends, span = middles * width, 0.45 * width
    for _ in range(_CORRECTIONS):
        _, _, losses, _ = _pair(event, np.interp(ends, loss, line))
        wrong = losses - width * np.append(middles - 0.5, middles[-1] + 0.5)
        moved = ends - np.nan_to_num(0.5 * (wrong[1:] + wrong[:-1]))
        ends = np.clip(moved, middles * width - span, middles * width + span)
    return np.unique(np.interp(ends, loss, line)), width


def _pair(event: PoissonGaussian, cuts: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return cells' masses under P and Q, their losses, and a bound of these losses' errors."""
    sigma, rate = event.noise_multiplier, event.sampling_rate
    absent, present = _normal_masses(cuts, 0.0, sigma), _normal_masses(cuts, 1.0, sigma)
    match event.relation:
        case Relation.ADD_OR_REMOVE_ONE:
            opposite = absent
        case Relation.REPLACE_ONE:
            opposite = _normal_masses(cuts, -1.0, sigma)
        case _:
            assert_never(event.relation)
    under_p, under_q = (1.0 - rate) * absent + rate * present, (1.0 - rate) * absent + rate * opposite
    with np.errstate(divide="ignore", invalid="ignore"):  # cells without mass
        losses = np.log1p(rate * (present - opposite) / under_q)
        return under_p, under_q, losses, _ROUNDING * rate * (present / under_p + opposite / under_q)


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
