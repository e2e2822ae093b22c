"""Estimates from noisy scores: what released scores say of the models, with intervals; all of it is post-processing.

A score of private rows is released with Gaussian noise of known deviation. Scores of one training lie on a curve, and
trainings of one stage are alike, so that each release says something of the others. For trial i after the share t of
its epochs, with s = log t,

    y_i(s) = m + b s + c s^2 + u_i + g_i(s) + h_i(t) + e_i + noise,

where m, b and c are of the stage, u_i of the trial, and g_i is a Brownian motion from the end of the training
backwards, of covariance w^2 min(s^2, s'^2): curves are flat near their end. Given the deviations v of u_i and w of g_i,
all is linear and Gaussian, and the posterior exact; v and w are integrated over a grid with weights proportional to the
marginal likelihood. Some trainings never settle, or collapse at their end: h_i is a Brownian motion forwards, of
covariance x^2 min(t, t'), and x of each trial 0, 0.03, 0.1 or 0.3; or it is one jump of deviation 0.1 in the last
epoch, of which no later one says something: by the odds 3 to 1 to 1 to 1 to 3, and its likelihood. A score that was
lucky is thereby drawn to the others (Efron and Morris 1975; for points that were chosen as the best, Efron 2011,
"Tweedie's formula and selection bias"). One that is better is not drawn to many that are alike: a trial is far from the
others with probability 1/4, and u_i then has a deviation of 0.2 instead of v. Which trials are is found with the trend
of the others, and the posterior is the mixture's.

**The winner of a private selection** is seen alone, the best of a secret number K of candidates, of a geometric law
with public mean 1 / gamma. Given m, b, c, v and w that changes nothing: what the others scored says nothing of the
winner. But it tells of m. Seen is one curve that beat K - 1 others of its law, of likelihood

    p(y | m, v, w) sum_K K P(K) F^(K-1)  ~  p(y | m, v, w) / (1 - (1 - gamma) F)^2,

F the probability that a candidate's best score is below the winner's best: by simulation with fixed draws, along the
line on which the trend's posterior moves the curve at the winner's best epoch. So m lies below the winner, and the
winner is drawn to it by as much as its noise may have lifted it; nothing tells v, and the interval says so.

**Scores by class** share noise, so that who chooses by one of them chooses the noise of the others too, which those do
not show by themselves. The noise of accuracy, balanced accuracy and AUROC is estimated first. Of every other score, and
of each of these for the two others, what follows from it by their correlations is taken off
(`clipless.privacy.class_scores.NoiseSlopes`), and its error added. Of a winner it is that of the score that chose it.

Intervals are for new rows of the same kind, so that they hold the sampling error of the N rows that were scored, a (1 -
a) / N. Models err on about the same rows: most of it is common to them, and e_i is the 30 % that are not. Or noise made
each err on rows of its own, in part other ones after each epoch; then the luckiest of many looks better than it is, and
than chance where none has learnt anything. Nothing that is released tells which. Nor does it tell whether a release far
from its curve was lucky, or the training has jumped there: so a third assumption has h_i. An interval holds whichever
of the three is right; the estimate is their mean. A share lies in [0, 1]: for the estimate the normal posterior is
restricted to it, not cut off. Its interval is Wilson's (1927) with noise, the shares a that are not rejected: (x - a)^2
<= z^2 (variance + a (1 - a) / N). So it reaches 0 or 1 where nothing speaks against that; where noise does not hide
that a count is whole, half a row is added on both sides.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from math import isfinite, sqrt
from statistics import fmean

import numpy as np
from scipy.special import ndtr, ndtri

from clipless.certificates.radii import parse_radius
from clipless.privacy.class_scores import NoiseSlopes, least_rows, leaves_no_sizes
from sweeper.privacy.evaluation.posteriors import (
    ASSUMPTIONS,
    Assumption,
    Floats,
    TrialScores,
    posterior,
    posterior_of_best,
)
from sweeper.records import (
    Interval,
    NoisyScores,
    Point,
    PointKey,
    ReleasedCurves,
    ScorePlan,
    Trial,
    TrialPlan,
    trial_number,
)
from sweeper.specification.objectives import AUROC, BALANCED, is_share_of_rows, radius_text, recall_text

CONFIDENCE = 0.95

_CHOOSING = ("accuracy", BALANCED, AUROC)  # scores by class by which trials are chosen
_RIDGE = 1e-3  # beside correlations of 1: of two scores whose noise is the same either may be taken
_LEAST_LEFT = 0.01  # of the variance of a score's noise, when that of others is known
_SURE = 2.0  # times the noise of a size, above which a class is no noise
_FARTHEST = 3.0  # deviations outside [0, 1] at which a posterior mean counts at most

_Estimate = tuple[float, Interval]


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
    estimates: dict[PointKey, dict[str, _Estimate]] = {}
    stage_of = {one.trial: bisect_left(ends, trial_number(one.trial)) for one in found}
    found.sort(key=lambda one: (stage_of[one.trial], plans[one.trial].best_of is not None, one.trial, one.epoch))
    for _, group in groupby(found, key=lambda one: (stage_of[one.trial], plans[one.trial].best_of is not None)):
        for name, of_score in _estimate_all(list(group), trials).items():
            for key, estimate in of_score.items():
                estimates.setdefault(key, {})[name] = estimate
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


@dataclass(frozen=True, slots=True)
class _Luck:
    """What is known of the noise of one release of a score by which trials are chosen."""

    noise: float  # as it is estimated
    variance: float  # of that estimate
    mean: float  # of the score


def _estimate_all(points: Sequence[Point], trials: Mapping[str, Trial]) -> dict[str, dict[PointKey, _Estimate]]:
    """Return the estimates and intervals of each score of points of one stage, which are sorted by trial."""
    best_of = _paid(trials[points[0].trial]).best_of or {}
    named: dict[str, list[list[Point]]] = {}
    for _, group in groupby(points, key=lambda one: one.trial):
        own = list(group)
        for name in dict.fromkeys(name for one in own for name in _names(one, _paid(trials[one.trial]))):
            named.setdefault(name, []).append([one for one in own if isfinite(one.values.get(name, np.nan))])
    choosing = best_of or (_CHOOSING if any(one.errors for one in points) else ())
    under: list[dict[str, dict[PointKey, _Estimate]]] = []
    for assumed in ASSUMPTIONS:
        lucks = {name: _lucks(named[name], name, trials, best_of, assumed) for name in choosing if name in named}
        found: dict[str, dict[PointKey, _Estimate]] = {}
        for name, groups in named.items():
            if name in best_of:
                means = np.array([one.mean for one in lucks[name].values()])
                variances = np.array([one.variance for one in lucks[name].values()])
            else:
                means, variances = _without_luck(groups, name, trials, lucks, assumed)
            keys = [one.key for own in groups for one in own]
            rows: list[float] = []
            for own in groups:
                rows += [assumed.rows(_curve(own, name, trials[own[0].trial], assumed).rows)] * len(own)
            least = [_least_variance(name, own, trials[own[0].trial]) for own in groups for _ in own]
            known = zip(means.tolist(), np.maximum(variances, least).tolist(), rows, strict=True)
            found[name] = dict(zip(keys, (share(*one) for one in known), strict=True))
        under.append(found)
    return {name: {key: _any_of([one[name][key] for one in under]) for key in of} for name, of in under[0].items()}


def _least_variance(name: str, points: Sequence[Point], trial: Trial) -> float:
    """Return what is not known of a score by class however many releases say the same, as a variance.

    Each divides by noisy sizes of classes. Where these may be noise, all err alike: no more is known than by one.
    """
    plan = trial.plan
    if plan is None or plan.scores is None or name not in (points[-1].errors or {}) or is_share_of_rows(name):
        return 0.0
    noise, population = plan.scores.std["validation"], plan.scores.rows["validation"]
    deviation, rows = _errors(points, name, plan.scores, plan.repeats)
    is_lost = name == AUROC and rows < _SURE * least_rows(noise * population, 2)
    return plan.repeats * deviation**2 if is_lost or leaves_no_sizes(noise, 1) else 0.0


def _any_of(found: Sequence[_Estimate]) -> _Estimate:
    """Return the mean estimate, and the interval that holds whichever is right."""
    values, intervals = zip(*found, strict=True)
    lows, highs = zip(*intervals, strict=True)
    return fmean(values), (min(lows), max(highs))


def _paid(trial: Trial) -> ScorePlan:
    plan = _score_plan(trial.plan)
    assert plan is not None  # noqa: S101 - scores that are free have no estimates
    return plan


def _curve(points: Sequence[Point], name: str, trial: Trial, assumed: Assumption) -> TrialScores:
    plan = trial.plan
    assert plan is not None  # noqa: S101 - its scores were asked for
    s = np.log([one.epoch / plan.epochs for one in points])
    deviation, count = _errors(points, name, _paid(trial), plan.repeats)
    return TrialScores(s, np.array([one.values[name] for one in points]), deviation**2, count, assumed)


def _lucks(
    groups: Sequence[Sequence[Point]],
    name: str,
    trials: Mapping[str, Trial],
    best_of: Mapping[str, float],
    assumed: Assumption,
) -> dict[PointKey, _Luck]:
    curves = [_curve(own, name, trials[own[0].trial], assumed) for own in groups]
    means, variances = posterior_of_best(curves[0], best_of[name]) if name in best_of else posterior(curves)
    keys = [one.key for own in groups for one in own]
    scores = np.concatenate([one.scores for one in curves])
    known = zip((scores - means).tolist(), variances.tolist(), means.tolist(), strict=True)
    return {key: _Luck(*one) for key, one in zip(keys, known, strict=True)}


def _without_luck(
    groups: Sequence[Sequence[Point]],
    name: str,
    trials: Mapping[str, Trial],
    lucks: Mapping[str, Mapping[PointKey, _Luck]],
    assumed: Assumption,
) -> tuple[Floats, Floats]:
    """Return the posterior of a score, without the luck that it shares with those by which trials are chosen."""
    curves, more = [], []
    for own in groups:
        trial = trials[own[0].trial]
        curve = _curve(own, name, trial, assumed)
        others = [other for other, known in lucks.items() if other != name and all(one.key in known for one in own)]
        slopes, left = _shared_noise(own, name, others, _paid(trial))
        stds = np.array([sqrt(_curve(own, other, trial, assumed).variance) for other in others])
        slopes = slopes * sqrt(curve.variance) / stds
        known = [[lucks[other][one.key] for one in own] for other in others]
        noise, unsure = (
            np.array([[getattr(one, of) for one in each] for each in known]).reshape(len(others), len(own))
            for of in ("noise", "variance")
        )
        curves.append(replace(curve, scores=curve.scores - slopes @ noise, variance=left * curve.variance))
        more.append(slopes**2 @ unsure)
    means, variances = posterior(curves)
    return means, variances + np.concatenate(more)


def _shared_noise(points: Sequence[Point], name: str, others: Sequence[str], plan: ScorePlan) -> tuple[Floats, float]:
    """Return by how much the noise of a score follows that of others, in deviations, and the share that is its own."""
    known = _slopes_of(points, plan)
    if name not in known or not others:
        return np.zeros(len(others)), 1.0
    shared = [i for i, one in enumerate(others) if one in known]
    among = np.array([[known[others[i]].correlation(known[others[j]]) for j in shared] for i in shared])
    along = np.array([known[name].correlation(known[others[i]]) for i in shared])
    weights = np.linalg.solve(among + _RIDGE * np.eye(len(shared)), along)
    slopes = np.zeros(len(others))
    slopes[shared] = weights
    return slopes, max(1.0 - float(weights @ along), _LEAST_LEFT)


def _slopes_of(points: Sequence[Point], plan: ScorePlan) -> dict[str, NoiseSlopes]:
    """Return how the scores of a trial move with noise that they share, from what was released with them."""
    errors = points[-1].errors or {}
    recalls = [name for name in errors if recall_text(name) is not None]
    if not recalls:
        return {}  # releases without hits by class have noise of their own in each score
    population = plan.rows["validation"]
    least = least_rows(plan.std["validation"] * population, len(recalls))  # classes of unknown sizes count fewer
    rows = np.array([max(fmean((one.errors or errors)[name][1] for one in points), least) for name in recalls])
    values = {name: fmean(one.values[name] for one in points) for name in errors}
    found = np.array([values[name] for name in recalls])
    slopes = dict(zip(recalls, NoiseSlopes.of_recalls(found, rows), strict=True))
    slopes["accuracy"] = NoiseSlopes.of_accuracy(len(rows), population)
    slopes[BALANCED] = NoiseSlopes.of_balanced(found, rows)
    if AUROC in errors:
        slopes[AUROC] = NoiseSlopes.of_auroc(values[AUROC], rows, population)
    return slopes


def _errors(points: Sequence[Point], name: str, plan: ScorePlan, repeats: int) -> tuple[float, float]:
    """Return the deviation of the noise of a score of one trial, and the rows that its sampling error is that of.

    Where they depend on what was released, those of all epochs together: with two digits, as much as they are known.
    """
    found = [point.errors[name] for point in points if point.errors is not None and name in point.errors]
    if not found:
        return plan.std["validation"] / sqrt(repeats), plan.rows["validation"]
    std = sqrt(fmean(one**2 for one, _ in found))
    return float(f"{std:.2g}"), float(f"{fmean(rows for _, rows in found):.2g}")


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
