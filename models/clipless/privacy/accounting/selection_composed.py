r"""The price of a private selection together with trainings that follow it: noisy candidates, a less noisy winner.

The best of a random number of candidates is chosen with much noise, and its configuration is then trained with less.
The composition is not the sum of two epsilons. ``selection_profile.py`` bounds the hockey-stick divergences of the
selection at every epsilon of either sign,

    H(epsilon) <= m delta_{Q||Q'}(epsilon - log r),        for the other direction likewise, and at epsilon < 0 also
    H(epsilon) = 1 - e^epsilon + e^epsilon H'(-epsilon)    by the bound of the other direction.

H is convex in e^epsilon, so it lies below the largest convex function below these bounds. That function is the profile
of a pair of distributions, found by connecting dots (Doroshenko et al. 2022). The pair dominates the selection and
composes with the trainings (Zhu, Dong and Wang 2022, theorem 10), whatever the selection has chosen for them. Renyi
divergences, 7 to 40 % more wherever we looked, are added up only where profiles have no finite price.
"""

import math
from functools import lru_cache

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from clipless.errors import AccountantsDisagreeError, AccountingError
from clipless.privacy.accounting.lower_bound import attack_epsilon, falls_below
from clipless.privacy.accounting.pld import (
    ComposedLosses,
    composed_pld,
    composed_profile,
    epsilon_of,
    grid_width,
    loss_grids,
    sample_profile,
)
from clipless.privacy.accounting.pld_grid import TAIL, FloatArray, lower_hull
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.accounting.selection_price import rdp_selection_epsilon, selection_epsilon
from clipless.privacy.accounting.selection_profile import log_ratio
from clipless.privacy.accounting.spending import MOST_STEPS, check_delta, costly_events, too_little_noise
from clipless.privacy.events import Event, Relation

_REACH = 60.0  # largest epsilon of a dot; the divergence there counts as mass at infinite loss
_MOST_DOTS = 2**18
_CANCELLATION = 2.0**-50  # relative error of a difference of numbers of about the same size
_ROUNDING = 1e-12  # of a divergence, for the arithmetic of this module


@lru_cache(maxsize=256)
def explored_epsilon(candidate: Event, repetitions: Repetitions, final: Event, delta: float) -> float:
    """Bound the epsilon of releasing the best of a random number of candidates, and trainings that follow from it.

    Args:
        candidate: what one candidate spends, the same for each.
        repetitions: distribution of their number, which is drawn from it and stays secret.
        final: what is spent after the selection. It is fixed beforehand; which configuration is trained is not.
        delta: the probability the guarantee may fail with.

    Guarantees:
        As `selection_epsilon`, for the winner and everything that the final releases together.

    Raises:
        AccountingError: delta is not in (0, 1), or candidate and final have different relations.
        AccountantsDisagreeError: a bound fell below what an attack on the final attains.
    """
    check_delta(delta)
    if candidate.relation is not final.relation:
        raise AccountingError(
            f"Expected one relation of candidate and final, got {candidate.relation.value} and {final.relation.value}"
        )
    both = (*costly_events(candidate), *costly_events(final))
    if too_little_noise(both):
        return math.inf
    if not costly_events(final):
        return selection_epsilon(candidate, repetitions, delta)
    attacked = attack_epsilon(final, delta)
    bounds = {"pld": composed_epsilon(candidate, repetitions, final, delta)}
    if final.relation is Relation.ADD_OR_REMOVE_ONE and bounds["pld"] == math.inf:
        bounds["rdp"] = rdp_selection_epsilon(candidate, repetitions, delta, final)
    for name, bound in bounds.items():
        if falls_below(bound, attacked):
            raise AccountantsDisagreeError(
                f"private selection and final claim epsilon={bound:.6g} by {name} at delta={delta:g}, but an attack on "
                f"the final alone attains {attacked:.6g}: {final}"
            )
    return min(bounds.values())


def composed_epsilon(candidate: Event, repetitions: Repetitions, final: Event, delta: float) -> float:
    """Bound it by privacy profiles; for events of finite cost."""
    if sum(part.steps for part in costly_events(final)) > MOST_STEPS:
        return math.inf
    explored = _explored_losses(candidate, repetitions, final)
    return epsilon_of(explored.distribution, delta - explored.slack)


def explored_profile(candidate: Event, repetitions: Repetitions, final: Event) -> tuple[FloatArray, FloatArray]:
    """Return increasing epsilons of either sign, and bounds of both directions' divergences of selection and final.

    For events of finite cost, and at most `MOST_STEPS` steps.
    """
    return sample_profile(_explored_losses(candidate, repetitions, final))


def _explored_losses(candidate: Event, repetitions: Repetitions, final: Event) -> ComposedLosses:
    width = grid_width(costly_events(final), pessimistic=True)
    selection = PrivacyLossDistribution(*(_pmf(*dots, width) for dots in selection_profiles(candidate, repetitions)))
    return ComposedLosses(selection, 0.0).compose(composed_pld(final, width, pessimistic=True))


def selection_profiles(candidate: Event, repetitions: Repetitions) -> tuple[tuple[FloatArray, FloatArray], ...]:
    """Return, for both directions, increasing alphas = e^epsilon from 0 on and upper bounds of the divergences there.

    The bounds are convex and 1 at alpha = 0. Shapes: (A,), (A,).
    """
    profiles = _candidate_profiles(candidate)
    bounds = [
        _Bound(*profile, log_ratio(*opposite, repetitions), repetitions.mean)
        for profile, opposite in zip(profiles, reversed(profiles), strict=True)
    ]
    return tuple(
        lower_hull(bound.alphas(other), bound.at(bound.alphas(other), other))
        for bound, other in zip(bounds, reversed(bounds), strict=True)
    )


class _Bound:
    """m delta(epsilon - log r) for one direction, as a function of alpha = e^epsilon.

    The profile between two of its points is below the line through them, for it is convex in alpha.
    """

    def __init__(self, epsilons: FloatArray, deltas: FloatArray, log_r: float, mean: float) -> None:
        self._alphas = np.concatenate(([0.0], np.exp(epsilons + log_r)))
        self._deltas = np.concatenate(([1.0], deltas))
        self._mean = mean

    def alphas(self, other: "_Bound") -> FloatArray:
        """Return where the bounds of both directions bend."""
        mirrored = 1.0 / other._alphas[1:]
        found = np.unique(np.concatenate(([0.0], self._alphas, mirrored)))
        return found[found <= math.exp(_REACH)]

    def alone(self, alphas: FloatArray) -> FloatArray:
        """Return the bound of this direction alone."""
        return np.minimum(1.0, self._mean * np.interp(alphas, self._alphas, self._deltas))

    def at(self, alphas: FloatArray, other: "_Bound") -> FloatArray:
        """Return the smaller of it and what the bound of the other direction says."""
        with np.errstate(divide="ignore"):
            mirrored = 1.0 - alphas + alphas * other.alone(1.0 / alphas)
        mirrored[0] = 1.0
        mirrored += _CANCELLATION * (1.0 + alphas)
        return np.clip(np.minimum(self.alone(alphas), mirrored), 0.0, 1.0)


def _candidate_profiles(candidate: Event) -> tuple[tuple[FloatArray, FloatArray], ...]:
    parts = costly_events(candidate)
    if len(parts) == 1 and parts[0].steps <= MOST_STEPS:
        (part,) = parts
        grids = loss_grids(part.noise_multiplier, part.sampling_rate, part.relation)
        return tuple(grid.profile(part.steps) for grid in grids)
    return (composed_profile(candidate),)


def _pmf(alphas: FloatArray, deltas: FloatArray, width: float) -> pld_pmf.PLDPmf:
    """Connect dots on the grid: every one of its losses, up to where the bound hardly falls any more."""
    falls = np.flatnonzero(deltas > deltas[-1] + TAIL)
    highest = math.log(alphas[min(int(falls[-1]) + 1, len(alphas) - 1)]) if len(falls) else width
    rises = np.flatnonzero(deltas < 1.0 - alphas + TAIL)
    lowest = math.log(max(alphas[int(rises[-1])], math.exp(-_REACH))) if len(rises) else -_REACH
    points = np.arange(math.floor(lowest / width), math.ceil(highest / width) + 1)
    if len(points) > _MOST_DOTS:
        points = np.unique(np.round(np.linspace(points[0], points[-1], _MOST_DOTS)).astype(np.int64))
    dots = np.interp(np.exp(points * width), alphas, deltas) * (1.0 + _ROUNDING)
    dots = np.minimum.accumulate(np.clip(dots, 0.0, 1.0))
    return pld_pmf.create_pmf_pessimistic_connect_dots(width, points, dots).to_dense_pmf()
