"""What noisy scores of trainings that are alike say of each of them: the posterior of a curve among others.

The model, and what is done for the winner of a private selection, stand in `sweeper.results.estimates`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import inf, log2, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MEAN = 0.5
_TREND_STDS = np.array([0.5, 0.15, 0.05])  # of m, b and c: hardly informative
_TRIAL_STDS = (0.003, 0.01, 0.03, 0.06, 0.1, 0.2, 0.35)  # v
_CURVE_STDS = (0.003, 0.01, 0.03, 0.08, 0.2)  # w
_FAR_STD = 0.2  # of u_i of a trial that is far from the others
_FAR_ODDS = 1.0 / 3.0  # that a trial is, before its scores are seen
_ROUNDS = 3  # of finding those trials and the trend of the others
_OTHERS = 200  # candidates that are drawn to find how likely one is below the winner
_GRID = 4  # shares per octave of which sampling errors are computed
_WILSON = 1.96  # deviations within which a share is taken to lie
_LEVELS = np.linspace(-5.0, 5.0, 41)  # of the trend, in deviations of its posterior

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Jumps:
    """How much a training may jump, as deviations at its end: over its course, and in its last epoch alone."""

    course: float
    last: float
    odds: float  # that it does, before its scores are seen


_NO_JUMP = Jumps(course=0.0, last=0.0, odds=1.0)
_JUMPS = (*(Jumps(std, 0.0, 1.0 / 3.0) for std in (0.03, 0.1, 0.3)), Jumps(0.0, 0.1, 1.0))


@dataclass(frozen=True, slots=True)
class Assumption:
    """What is assumed of scores, since nothing released tells.

    Attributes:
        common: at most this share of the variance of their sampling error is common to all models.
        trial: at most this share is a trial's own, after each of its epochs.
        epoch: at most this share is an epoch's own.
        may_jump: whether a training may get better or worse at any moment, and not along a curve that is flat at its
            end alone.
    """

    common: float
    trial: float
    epoch: float
    may_jump: bool = False

    def rows(self, count: float) -> float:
        """Return how many rows have the common error of so many."""
        return count / self.common if self.common else inf


# Models err on about the same rows, or each on rows of its own, as far as noise made it: nothing released tells which.
# Errors of a training that follow each other over some epochs are neither a trial's nor an epoch's, hence both in full.
# And a release that is far from the curve of its training was lucky, or the training has jumped there.
ASSUMPTIONS = (
    Assumption(common=0.7, trial=0.3, epoch=0.0),
    Assumption(common=0.0, trial=1.0, epoch=1.0),
    Assumption(common=0.7, trial=0.3, epoch=0.0, may_jump=True),
)


@dataclass(frozen=True, slots=True)
class TrialScores:
    """The releases of one trial: ``s`` are logarithms of the share of its epochs that were done."""

    s: Floats
    scores: Floats
    variance: float  # of the noise of each of them
    rows: float  # N, or as many as a share would need for the same sampling error
    assumed: Assumption = ASSUMPTIONS[0]

    @property
    def own_variances(self) -> tuple[float, float]:
        """The variances of what is an epoch's own, noise and sampling, and of sampling that is the trial's own.

        They are the largest that the mean of its scores allows (Wilson 1927, with noise), for that of the best of many
        is lucky; within a tenth, so that few different laws have to be computed.
        """
        mean = float(np.clip(self.scores.mean(), 0.0, 1.0))
        rarer = min(mean, 1.0 - mean)
        sampled, noise = _WILSON**2 / self.rows, _WILSON**2 * self.variance / len(self.scores)
        middle = rarer + sampled / 2.0
        largest = (middle + sqrt(middle**2 - (1.0 + sampled) * (rarer**2 - noise))) / (1.0 + sampled)
        largest = min(2.0 ** (round(_GRID * log2(largest)) / _GRID), 0.5)
        whole = largest * (1.0 - largest) / self.rows
        of_epoch = self.assumed.epoch if len(self.scores) > 1 else 0.0  # one score has one error
        return self.variance + of_epoch * whole, self.assumed.trial * whole

    @property
    def jumps(self) -> tuple[Jumps, ...]:
        """How much it may jump: not at all where it has one score, whose trial may be far from the others."""
        return (_NO_JUMP, *(_JUMPS if self.assumed.may_jump and len(self.scores) > 1 else ()))


def posterior(curves: Sequence[TrialScores]) -> tuple[Floats, Floats]:
    """Return posterior means and variances of the scores without noise and a trial's own sampling, curve by curve."""
    groups = _group(curves)
    solved = [_solve(groups, v, w) for v, w in product(_TRIAL_STDS, _CURVE_STDS)]
    logs = np.array([evidence for evidence, _, _ in solved])
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    means, variances = (np.stack([one[i] for one in solved]) for i in (1, 2))
    mean = weights @ means
    order = np.argsort(np.concatenate([group.places.ravel() for group in groups]))
    return mean[order], (weights @ (variances + (means - mean) ** 2))[order]


@dataclass(frozen=True, slots=True)
class _Alike:
    """Trials that are scored at the same moments with the same noise."""

    s: tuple[float, ...]
    variances: tuple[float, float]  # of what is an epoch's own, and a trial's own
    jumps: tuple[Jumps, ...]
    centred: Floats  # (T, E) scores
    places: NDArray[np.int64]  # (T, E) where each stands among all


def _group(curves: Sequence[TrialScores]) -> list[_Alike]:
    alike: dict[tuple[Any, ...], list[tuple[Floats, NDArray[np.int64]]]] = {}
    first = 0
    for one in curves:
        key = tuple(one.s.tolist()), one.own_variances, one.jumps
        alike.setdefault(key, []).append((one.scores - _MEAN, np.arange(first, first + len(one.s))))
        first += len(one.s)
    return [_Alike(*key, *(np.stack(each) for each in zip(*found, strict=True))) for key, found in alike.items()]


def _solve(groups: Sequence[_Alike], trial_std: float, curve_std: float) -> tuple[float, Floats, Floats]:
    """Return log evidence, means and variances given the deviations of trials and curves, group by group."""
    laws = [_kinds(one.s, trial_std, curve_std, one.jumps, *one.variances) for one in groups]
    # the probability of each trial that it is of each kind: at first all are near the others, and none jumps
    shares = [
        np.eye(len(law.odds))[:, :1].repeat(len(one.centred), axis=1) for law, one in zip(laws, groups, strict=True)
    ]
    for _ in range(_ROUNDS):
        precision, pull = np.diag(_TREND_STDS**-2), np.zeros(len(_TREND_STDS))
        for law, one, share in zip(laws, groups, shares, strict=True):
            precision = precision + (share.sum(axis=1)[:, None, None] * law.information).sum(axis=0)
            pull = pull + (law.inverse @ (share @ one.centred)[:, :, None]).sum(axis=0)[:, 0] @ law.design
        spread = np.linalg.inv(precision)
        common = spread @ pull
        logs = [law.log_densities(one.centred, common) for law, one in zip(laws, groups, strict=True)]
        wholes = [np.logaddexp.reduce(each, axis=0) for each in logs]
        shares = [np.exp(each - whole) for each, whole in zip(logs, wholes, strict=True)]
    evidence = sum(float(whole.sum()) for whole in wholes)
    evidence += 0.5 * float(np.linalg.slogdet(spread)[1] - common @ (common / _TREND_STDS**2))
    means, variances = [], []
    for law, one, share in zip(laws, groups, shares, strict=True):
        of_kinds, left = law.given(one.centred, common, spread)
        mean = (share[:, :, None] * of_kinds).sum(axis=0)
        apart = (of_kinds - mean) ** 2 + left[:, None, :]
        means.append((_MEAN + mean).ravel())
        variances.append((share[:, :, None] * apart).sum(axis=0).ravel())
    return evidence, np.concatenate(means), np.maximum(np.concatenate(variances), 0.0)


def posterior_of_best(curve: TrialScores, candidates: float) -> tuple[Floats, Floats]:
    """Return `posterior` of the winner of a private selection of so many candidates on average."""
    weights, means, variances = [], [], []
    for v, w, jumps in product(_TRIAL_STDS, _CURVE_STDS, curve.jumps):
        evidence, level_means, variance, below = _at_levels(curve, v, w, jumps)
        density = jumps.odds * np.exp(evidence - 0.5 * _LEVELS**2) / (1.0 - (1.0 - 1.0 / candidates) * below) ** 2
        weights.append(density)
        means.append(level_means)
        variances.append(np.broadcast_to(variance, level_means.shape))
    weight, mean, variance = np.concatenate(weights), np.concatenate(means), np.concatenate(variances)
    weight /= weight.sum()
    middle = weight @ mean
    return middle, weight @ (variance + (mean - middle) ** 2)


def _at_levels(
    curve: TrialScores, trial_std: float, curve_std: float, jumps: Jumps
) -> tuple[float, Floats, Floats, Floats]:
    """Return, given the deviations, log evidence, means by level, variances, and F by level."""
    law = _law(tuple(curve.s.tolist()), trial_std, curve_std, jumps, *curve.own_variances)
    spread = np.linalg.inv(np.diag(_TREND_STDS**-2) + law.information)
    centred = curve.scores - _MEAN
    weighed = law.inverse @ centred
    pull = law.design.T @ weighed
    common, best_one = spread @ pull, int(curve.scores.argmax())
    evidence = 0.5 * float(law.log_precision - centred @ weighed + np.linalg.slogdet(spread)[1] + pull @ common)
    way = spread @ law.design[best_one]
    way = way / sqrt(float(law.design[best_one] @ way))
    trends = law.design @ (common[:, None] + way[:, None] * _LEVELS)
    means = _MEAN + trends + law.gain @ (centred[:, None] - trends)
    left = spread - np.outer(way, way)
    variance = law.left_variance + np.einsum("ij,jk,ik->i", law.left_design, left, law.left_design)
    others = _draw_others(len(centred)) @ np.linalg.cholesky(np.linalg.inv(law.inverse)).T
    ahead = (trends[None] + others[:, :, None]).max(axis=1) < centred.max()
    return evidence, means.T, np.maximum(variance, 0.0), ahead.mean(axis=0)


@lru_cache(maxsize=8)
def _draw_others(count: int) -> Floats:
    return np.random.default_rng(0).normal(size=(_OTHERS, count))


@dataclass(frozen=True, slots=True)
class _Law:
    """What follows from the moments of a trial's scores and the deviations, whatever the scores are."""

    design: Floats  # powers of s, by which the trend of the stage is multiplied
    inverse: Floats  # of the covariance of the scores around the trend
    gain: Floats  # from scores to the shares behind them
    information: Floats  # of the scores about the trend
    log_precision: float  # the logarithm of the determinant of the inverse
    left_variance: Floats  # of the shares, given scores and trend
    left_design: Floats  # by which an error of the trend moves the shares


@dataclass(frozen=True, slots=True)
class _Kinds:
    """The laws of trials of each kind, K of them: near the others or far from them, and jumping or not; as `_Law`."""

    odds: Floats  # (K,) logarithms of the odds of each, before scores are seen
    design: Floats  # of all kinds
    inverse: Floats
    gain: Floats
    information: Floats
    log_precision: Floats
    left_variance: Floats
    left_design: Floats

    def log_densities(self, centred: Floats, common: Floats) -> Floats:
        """Return those of kinds and scores of trials, (T, E), given the trend, but for a constant: (K, T)."""
        apart = centred - self.design @ common
        squares = ((apart @ self.inverse) * apart).sum(axis=2)
        found: Floats = 0.5 * (self.log_precision[:, None] - squares) + self.odds[:, None]
        return found

    def given(self, centred: Floats, common: Floats, spread: Floats) -> tuple[Floats, Floats]:
        """Return means, (K, T, E), and variances, (K, E), of the shares given scores and the posterior of the trend."""
        trend = self.design @ common
        unsure = ((self.left_design @ spread) * self.left_design).sum(axis=2)
        return trend + (centred - trend) @ self.gain.swapaxes(1, 2), self.left_variance + unsure


@lru_cache(maxsize=512)
def _kinds(
    s: tuple[float, ...],
    trial_std: float,
    curve_std: float,
    jumps: tuple[Jumps, ...],
    variance: float,
    own_sampling: float,
) -> _Kinds:
    """Return the laws of trials that are scored at these moments, those that are near the others first."""
    kinds = [(v, of_far, one) for v, of_far in ((trial_std, 1.0), (_FAR_STD, _FAR_ODDS)) for one in jumps]
    laws = [_law(s, v, curve_std, one, variance, own_sampling) for v, _, one in kinds]
    return _Kinds(
        odds=np.log([of_far * one.odds for _, of_far, one in kinds]),
        design=laws[0].design,
        inverse=np.stack([law.inverse for law in laws]),
        gain=np.stack([law.gain for law in laws]),
        information=np.stack([law.information for law in laws]),
        log_precision=np.array([law.log_precision for law in laws]),
        left_variance=np.stack([law.left_variance for law in laws]),
        left_design=np.stack([law.left_design for law in laws]),
    )


@lru_cache(maxsize=4096)
def _law(
    s: tuple[float, ...], trial_std: float, curve_std: float, jumps: Jumps, variance: float, own_sampling: float
) -> _Law:
    """Return the law of trials that are scored at these moments: the same for all of them."""
    moments = np.array(s)
    design = np.column_stack([moments**power for power in range(len(_TREND_STDS))])
    squares = moments**2
    flat, jumping = (np.minimum(one[:, None], one[None, :]) for one in (squares, np.exp(moments)))
    is_last = moments == moments.max()
    signal = trial_std**2 + curve_std**2 * flat + jumps.course**2 * jumping + jumps.last**2 * np.outer(is_last, is_last)
    inverse = np.linalg.inv(signal + variance * np.eye(len(s)) + own_sampling)
    gain = signal @ inverse
    return _Law(
        design=design,
        inverse=inverse,
        gain=gain,
        information=design.T @ inverse @ design,
        log_precision=float(np.linalg.slogdet(inverse)[1]),
        left_variance=np.diag(signal - gain @ signal),
        left_design=design - gain @ design,
    )
