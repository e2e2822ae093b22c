"""Estimates from noisy scores: what released scores say of the models, with intervals; all of it is post-processing.

A score of private rows is released with Gaussian noise of known deviation. Scores of one training lie on a curve, and
trainings of one stage are alike, so that each release says something of the others. For trial i after the share t of
its epochs, with s = log t,

    y_i(s) = m + b s + c s^2 + u_i + g_i(s) + e_i + noise,

where m, b and c are of the stage, u_i of the trial, and g_i is a Brownian motion from the end of the training
backwards, of covariance w^2 min(s^2, s'^2): curves are flat near their end. Given the deviations v of u_i and w of
g_i, all is linear and Gaussian, and the posterior exact; v and w are integrated over a grid with weights proportional
to the marginal likelihood. A score that was lucky is thereby drawn to the others (Efron and Morris 1975; for points
that were chosen as the best, Efron 2011, "Tweedie's formula and selection bias").

**The winner of a private selection** is seen alone, the best of a secret number K of candidates, of a geometric law
with public mean 1 / gamma. Given m, b, c, v and w that changes nothing: what the others scored says nothing of the
winner. But it tells of m. Seen is one curve that beat K - 1 others of its law, of likelihood

    p(y | m, v, w) sum_K K P(K) F^(K-1)  ~  p(y | m, v, w) / (1 - (1 - gamma) F)^2,

F the probability that a candidate's best score is below the winner's best: by simulation with fixed draws, along the
line on which the trend's posterior moves the curve at the winner's best epoch. So m lies below the winner, and the
winner is drawn to it by as much as its noise may have lifted it; nothing tells v, and the interval says so. Scores that
did not choose it have no luck of their own, but where a release has scores by class these share noise: of another score
that share of the chosen one's luck is taken off, by the correlation of both (`clipless.privacy.class_scores`).

Intervals are for new rows of the same kind, so that they hold the sampling error of the N rows that were scored,
a (1 - a) / N. Most of it is common to all models, which are scored on the same rows; e_i is the part that is not. A
share lies in [0, 1]: for the estimate the normal posterior is restricted to it, not cut off. Its interval is Wilson's
(1927) with noise, the shares a that are not rejected: (x - a)^2 <= z^2 (variance + a (1 - a) / N). So it reaches 0 or 1
where nothing speaks against that; where noise does not hide that a count is whole, half a row is added on both sides.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, groupby, product
from math import isfinite, sqrt
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from clipless.certificates.radii import parse_radius
from clipless.privacy.class_scores import NoiseSlopes
from sweeper.records import Interval, NoisyScores, Point, ReleasedCurves, ScorePlan, Trial, TrialPlan, trial_number
from sweeper.specification.objectives import AUROC, BALANCED, radius_text, recall_text

CONFIDENCE = 0.95

_MEAN = 0.5
_TREND_STDS = np.array([0.5, 0.15, 0.05])  # of m, b and c: hardly informative
_TRIAL_STDS = (0.003, 0.01, 0.03, 0.06, 0.1, 0.2, 0.35)  # v
_CURVE_STDS = (0.003, 0.01, 0.03, 0.08, 0.2)  # w
_OWN_SAMPLING = 0.3  # share of the sampling error that is a trial's own: models err on about the same rows
_LEAST_LEFT = 0.01  # of the variance of a score's noise, when that of another one is known
_OTHERS = 200  # candidates that are drawn to find how likely one is below the winner
_LEVELS = np.linspace(-5.0, 5.0, 41)  # of the trend, in deviations of its posterior
_FARTHEST = 3.0  # deviations outside [0, 1] at which a posterior mean counts at most

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Curve:
    """The releases of one trial: ``s`` are logarithms of the share of its epochs that were done."""

    s: Floats
    scores: Floats
    variance: float  # of the noise of each of them
    rows: float  # N, or as many as a share would need for the same sampling error

    @property
    def own_sampling(self) -> float:
        """The variance of the trial's own sampling, at about the size of its scores."""
        middle = round(float(np.clip(self.scores.mean(), 0.0, 1.0)), 1)
        return _OWN_SAMPLING * middle * (1.0 - middle) / self.rows


def estimate_points(points: Iterable[Point], trials: Mapping[str, Trial], stages: Sequence[int] = ()) -> list[Point]:
    """Return points with estimates in place of noisy scores, in the same order; others as they are.

    Args:
        points: as they were recorded.
        trials: with the plans that say how noisy scores are.
        stages: the number of trials of each stage of a budget, whose trainings have about the same noise.
    """
    ends = list(accumulate(stages))
    every = list(points)
    plans = {trial: scores for trial, one in trials.items() if (scores := _score_plan(one.plan)) is not None}
    found = [one for one in every if one.trial in plans and one.noisy is None and _names(one, plans[one.trial])]
    estimates: dict[tuple[str, int, str], dict[str, tuple[float, Interval]]] = {}
    stage_of = {one.trial: bisect_left(ends, trial_number(one.trial)) for one in found}
    found.sort(key=lambda one: (stage_of[one.trial], plans[one.trial].best_of is not None, one.trial, one.epoch))
    for _, group in groupby(found, key=lambda one: (stage_of[one.trial], plans[one.trial].best_of is not None)):
        alike = list(group)
        for name in dict.fromkeys(name for one in alike for name in _names(one, plans[one.trial])):
            named = [one for one in alike if name in one.values]
            for one, estimate in zip(named, _estimate(named, name, trials, plans), strict=True):
                estimates.setdefault(one.key, {})[name] = estimate
    return [
        _with_estimates(one, estimates[one.key], plans[one.trial], is_final=stage_of[one.trial] == len(ends) - 1)
        if one.key in estimates
        else one
        for one in every
    ]


def show_points(points: Iterable[Point], trials: Mapping[str, Trial], stages: Sequence[int] = ()) -> list[Point]:
    """Return the points that a front shows: with estimates, and of noisy scores only epochs that release some."""
    plans = {trial: _score_plan(one.plan) for trial, one in trials.items()}
    found = estimate_points(points, trials, stages)
    return [one for one in found if one.noisy is not None or plans.get(one.trial) is None]


def _score_plan(plan: TrialPlan | None) -> ScorePlan | None:
    return None if plan is None else plan.scores


def _names(point: Point, plan: ScorePlan) -> list[str]:
    return [
        name
        for name in {**dict.fromkeys(plan.names), **(point.errors or {})}
        if isfinite(point.values.get(name, np.nan))
    ]


def _estimate(
    points: Sequence[Point], name: str, trials: Mapping[str, Trial], plans: Mapping[str, ScorePlan]
) -> list[tuple[float, Interval]]:
    """Return the estimate and interval of a score of points of one stage, which are sorted by trial."""
    groups = [list(group) for _, group in groupby(points, key=lambda one: one.trial)]
    curves = [_curve(own, name, trials[own[0].trial]) for own in groups]
    best_of = plans[points[0].trial].best_of
    means, variances = _of_winner(groups[0], name, trials[points[0].trial], best_of) if best_of else posterior(curves)
    rows = [curve.rows / (1.0 - _OWN_SAMPLING) for curve in curves for _ in curve.s]
    return [share(mean, variance, count) for mean, variance, count in zip(means, variances, rows, strict=True)]


def _curve(points: Sequence[Point], name: str, trial: Trial) -> _Curve:
    plan = trial.plan
    assert plan is not None and plan.scores is not None  # noqa: S101, PT018 - its scores were asked for
    s = np.log([one.epoch / plan.epochs for one in points])
    deviation, count = _errors(points, name, plan.scores, plan.repeats)
    return _Curve(s, np.array([one.values[name] for one in points]), deviation**2, count)


def _of_winner(points: Sequence[Point], name: str, trial: Trial, best_of: Mapping[str, float]) -> tuple[Floats, Floats]:
    """Return the posterior of a score of a winner, without the luck that it shares with the one that chose it."""
    ((chosen_by, candidates),) = best_of.items()
    chosen = _curve(points, chosen_by, trial)
    means, variances = posterior_of_best(chosen, candidates)
    if name == chosen_by:
        return means, variances
    own, shared = _curve(points, name, trial), _shared_noise(points, chosen_by, name)
    slope = shared * sqrt(own.variance / chosen.variance)
    left = max(1.0 - shared**2, _LEAST_LEFT) * own.variance
    cleared = replace(own, scores=own.scores - slope * (chosen.scores - means), variance=left)
    own_means, own_variances = posterior([cleared])
    return own_means, own_variances + slope**2 * variances


def _shared_noise(points: Sequence[Point], *names: str) -> float:
    """Return the correlation of the noise of two scores of a trial, from what was released with them."""
    errors = points[-1].errors or {}
    recalls = [name for name in errors if recall_text(name) is not None]
    if not recalls:
        return 0.0  # releases without hits by class have noise of their own in each score
    rows = np.array([fmean((one.errors or errors)[name][1] for one in points) for name in recalls])
    values = {name: fmean(one.values[name] for one in points) for name in errors}
    found = np.array([values[name] for name in recalls])
    population = round(errors["accuracy"][1])
    slopes = dict(zip(recalls, NoiseSlopes.of_recalls(found, rows), strict=True))
    slopes["accuracy"] = NoiseSlopes.of_accuracy(len(rows), population)
    slopes[BALANCED] = NoiseSlopes.of_balanced(found, rows)
    if AUROC in errors:
        slopes[AUROC] = NoiseSlopes.of_auroc(values[AUROC], rows, population)
    first, other = (slopes.get(name) for name in names)
    return 0.0 if first is None or other is None else first.correlation(other)


def _errors(points: Sequence[Point], name: str, plan: ScorePlan, repeats: int) -> tuple[float, float]:
    """Return the deviation of the noise of a score of one trial, and the rows that its sampling error is that of.

    Where they depend on what was released, those of all epochs together: with two digits, as much as they are known.
    """
    found = [point.errors[name] for point in points if point.errors is not None and name in point.errors]
    if not found:
        return plan.std["validation"] / sqrt(repeats), plan.rows["validation"]
    std = sqrt(fmean(one**2 for one, _ in found))
    return float(f"{std:.2g}"), float(f"{fmean(rows for _, rows in found):.2g}")


def posterior(curves: Sequence[_Curve]) -> tuple[Floats, Floats]:
    """Return posterior means and variances of the scores without noise and a trial's own sampling, curve by curve."""
    settings = list(product(_TRIAL_STDS, _CURVE_STDS))
    solved = [_solve(curves, v, w) for v, w in settings]
    logs = np.array([evidence for evidence, _, _ in solved])
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    means, variances = (np.stack([one[i] for one in solved]) for i in (1, 2))
    mean = weights @ means
    return mean, weights @ (variances + (means - mean) ** 2)


def _solve(curves: Sequence[_Curve], trial_std: float, curve_std: float) -> tuple[float, Floats, Floats]:
    """Return log evidence, means and variances given the deviations of trials and curves."""
    precision = np.diag(_TREND_STDS**-2)
    pull, evidence, parts = np.zeros(len(_TREND_STDS)), 0.0, []
    for one in curves:
        law = _law(tuple(one.s.tolist()), trial_std, curve_std, one.variance, one.own_sampling)
        centred = one.scores - _MEAN
        weighed = law.inverse @ centred
        precision = precision + law.information
        pull = pull + law.design.T @ weighed
        evidence += 0.5 * float(law.log_precision - centred @ weighed)
        parts.append((law, centred))
    spread = np.linalg.inv(precision)
    common = spread @ pull
    evidence += 0.5 * float(np.linalg.slogdet(spread)[1] + pull @ common)
    means, variances = [], []
    for law, centred in parts:
        trend = law.design @ common
        means.append(_MEAN + trend + law.gain @ (centred - trend))
        variances.append(law.left_variance + np.einsum("ij,jk,ik->i", law.left_design, spread, law.left_design))
    return evidence, np.concatenate(means), np.maximum(np.concatenate(variances), 0.0)


def posterior_of_best(curve: _Curve, candidates: float) -> tuple[Floats, Floats]:
    """Return `posterior` of the winner of a private selection of so many candidates on average."""
    weights, means, variances = [], [], []
    for v, w in product(_TRIAL_STDS, _CURVE_STDS):
        evidence, level_means, variance, below = _at_levels(curve, v, w)
        density = np.exp(evidence - 0.5 * _LEVELS**2) / (1.0 - (1.0 - 1.0 / candidates) * below) ** 2
        weights.append(density)
        means.append(level_means)
        variances.append(np.broadcast_to(variance, level_means.shape))
    weight, mean, variance = np.concatenate(weights), np.concatenate(means), np.concatenate(variances)
    weight /= weight.sum()
    middle = weight @ mean
    return middle, weight @ (variance + (mean - middle) ** 2)


def _at_levels(curve: _Curve, trial_std: float, curve_std: float) -> tuple[float, Floats, Floats, Floats]:
    """Return, given both deviations, log evidence, means by level, variances, and F by level."""
    law = _law(tuple(curve.s.tolist()), trial_std, curve_std, curve.variance, curve.own_sampling)
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


@lru_cache(maxsize=256)
def _law(s: tuple[float, ...], trial_std: float, curve_std: float, variance: float, own_sampling: float) -> _Law:
    """Return the law of trials that are scored at these moments: the same for all of them."""
    moments = np.array(s)
    design = np.column_stack([moments**power for power in range(len(_TREND_STDS))])
    squares = moments**2
    signal = trial_std**2 + curve_std**2 * np.minimum(squares[:, None], squares[None, :])
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


def share(mean: float, variance: float, rows: float) -> tuple[float, Interval]:
    """Return estimate and interval of a share of new rows, by a normal posterior of the share of ``rows`` rows.

    >>> value, (low, high) = share(0.9, 0.02**2, 500)
    >>> round(value, 3), round(low, 3), round(high, 3)
    (0.9, 0.85, 0.944)
    """
    inside = min(max(mean, 0.0), 1.0)
    deviation = sqrt(variance + inside * (1.0 - inside) / rows) or 1.0 / rows
    centre = min(max(mean, -_FARTHEST * deviation), 1.0 + _FARTHEST * deviation)
    low, high = ((end - centre) / deviation for end in (0.0, 1.0))
    shift = (_density(low) - _density(high)) / (ndtr(high) - ndtr(low))
    half_row = max(0.5 / rows - sqrt(variance), 0.0)
    first, last = (_end(min(max(inside + side * half_row, 0.0), 1.0), variance, rows, side) for side in (-1, 1))
    return centre + deviation * float(shift), (first, last)


def _end(seen: float, variance: float, rows: float, side: int) -> float:
    """Return the least or the largest share that one that is seen does not reject."""
    square = float(ndtri(0.5 + CONFIDENCE / 2)) ** 2
    a, b, c = 1.0 + square / rows, 2.0 * seen + square / rows, seen**2 - square * variance
    return min(max((b + side * sqrt(max(b**2 - 4.0 * a * c, 0.0))) / (2.0 * a), 0.0), 1.0)


def _density(z: float) -> float:
    return float(np.exp(-0.5 * z * z) / sqrt(2.0 * np.pi))


def _with_estimates(
    point: Point, found: Mapping[str, tuple[float, Interval]], plan: ScorePlan, *, is_final: bool
) -> Point:
    values = {name: found[name][0] if name in found else value for name, value in point.values.items()}
    released = {name: point.values[name] for name in found}
    test, test_intervals = _estimate_test(point, plan)
    noisy = NoisyScores(
        is_final=is_final,
        released=released,
        intervals={name: interval for name, (_, interval) in found.items()},
        test_released={} if point.curves is not None else dict(point.test or {}),
        test_intervals=test_intervals,
    )
    return replace(point, values=values, test=test, noisy=noisy)


def _estimate_test(point: Point, plan: ScorePlan) -> tuple[dict[str, float] | None, dict[str, Interval]]:
    """Return test numbers with their intervals: of one release for a point, or as the bands of its curves say."""
    if point.test is None:
        return None, {}
    if point.curves is not None:
        return dict(point.test), _intervals_of_curves(point.test, point.curves)
    errors = dict.fromkeys(point.test, (plan.std["test"], plan.rows["test"])) | dict(point.test_errors or {})
    found = {name: share(value, errors[name][0] ** 2, errors[name][1]) for name, value in point.test.items()}
    return {name: value for name, (value, _) in found.items()}, {name: ends for name, (_, ends) in found.items()}


def _intervals_of_curves(test: Mapping[str, float], curves: ReleasedCurves) -> dict[str, Interval]:
    """Return the bands of released curves where test numbers are read off them."""
    found = {} if curves.scores is None else {"auroc": (curves.scores.auroc[0], curves.scores.auroc[2])}
    for name in test.keys() - found.keys():
        text = radius_text(name)
        at = curves.radii.index(0.0 if text is None else parse_radius(text))
        found[name] = (curves.certified_low[at], curves.certified_high[at])
    return found
