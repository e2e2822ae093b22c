r"""A lower bound of epsilon from simulated runs of a mechanism in two neighbouring worlds.

The adversary computes one score of everything released and says "present" where it exceeds a threshold. If the
mechanism is (epsilon, delta)-differentially private, P(present) <= e^epsilon Q(present) + delta for every threshold, in
both directions. Counts of independent runs bound both probabilities exactly (Clopper and Pearson 1934), each at half of
the error. One half of the runs chooses direction, delta and threshold; the other half decides, so that choosing costs
no confidence.

Shapes: R runs of each world, T thresholds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
CONFIDENCE = 0.95
_SURELY = 0.999  # while choosing: rare counts look better than they are
_THRESHOLDS = 400
_LEAST_CLAIM = 1e-9
_LEAST_P_VALUE = 1e-12


@dataclass(frozen=True, slots=True)
class RunScores:
    """The adversary's scores of independent runs: large ones speak for ``present``."""

    present: Floats
    absent: Floats

    def halves(self) -> tuple["RunScores", "RunScores"]:
        """Return two independent halves."""
        (p1, p2), (a1, a2) = (np.array_split(world, 2) for world in (self.present, self.absent))
        return RunScores(p1, a1), RunScores(p2, a2)

    def opposite(self) -> "RunScores":
        """Return what an adversary sees who looks for absence."""
        return RunScores(-self.absent, -self.present)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What an adversary attained.

    Attributes:
        epsilon: lower bound at `CONFIDENCE`.
        claim: epsilon that is claimed at delta.
        p_value: least error at which the lower bound exceeds the claim.
        hits: runs in which the adversary was right to say "present", and ``alarms`` in which not, of ``runs`` each.
    """

    epsilon: float
    claim: float
    delta: float
    p_value: float
    hits: int
    alarms: int
    runs: int


def attack(scores: Mapping[str, RunScores], claims: Mapping[float, float]) -> tuple[str, Attack]:
    """Return which scores attain most against the claims, epsilon by delta, and what they attain.

    All scores are of the same runs, and all claims of what these release; one half of the runs chooses.
    """
    halves = {name: one.halves() for name, one in scores.items()}
    choices = [
        (*_best_threshold(chosen.opposite() if opposite else chosen, delta, claim), opposite, delta, name)
        for name, (chosen, _) in halves.items()
        for opposite in (False, True)
        for delta, claim in claims.items()
    ]
    _, threshold, opposite, delta, name = max(choices)
    seen = halves[name][1].opposite() if opposite else halves[name][1]
    return name, _decide(seen, threshold, delta, claims[delta])


def _best_threshold(seen: RunScores, delta: float, claim: float) -> tuple[float, float]:
    """Return what share of a claim a threshold attains here, and which."""
    thresholds = _thresholds(seen)
    bounds = lower_bounds(*_counts(seen, thresholds), len(seen.present), delta, _SURELY)
    best = int(np.argmax(bounds))
    return float(bounds[best]) / max(claim, _LEAST_CLAIM), float(thresholds[best])


def _decide(seen: RunScores, threshold: float, delta: float, claim: float) -> Attack:
    (hits,), (alarms,) = _counts(seen, np.array([threshold]))
    runs = len(seen.present)
    return Attack(
        epsilon=lower_bound(int(hits), int(alarms), runs, delta),
        claim=claim,
        delta=delta,
        p_value=p_value(int(hits), int(alarms), runs, delta, claim),
        hits=int(hits),
        alarms=int(alarms),
        runs=runs,
    )


def lower_bound(hits: int, alarms: int, runs: int, delta: float, confidence: float = CONFIDENCE) -> float:
    """Return a lower bound of epsilon from counts of so many runs of each world.

    >>> round(lower_bound(900, 100, 1000, 0.0), 2), lower_bound(500, 500, 1000, 0.0)
    (1.99, 0.0)
    """
    return float(lower_bounds(np.array([hits]), np.array([alarms]), runs, delta, confidence)[0])


def lower_bounds(hits: Counts, alarms: Counts, runs: int, delta: float, confidence: float = CONFIDENCE) -> Floats:
    """Return `lower_bound` for each pair of counts. Shapes: (T,), (T,)."""
    error = (1.0 - confidence) / 2.0
    with np.errstate(divide="ignore", invalid="ignore"):
        present = np.where(hits > 0, stats.beta.ppf(error, hits, runs - hits + 1), 0.0)
        absent = np.where(alarms < runs, stats.beta.ppf(1.0 - error, alarms + 1, runs - alarms), 1.0)
        found = np.log(np.maximum(present - delta, 0.0)) - np.log(absent)
    bounds: Floats = np.maximum(np.nan_to_num(found, nan=0.0, neginf=0.0), 0.0)
    return bounds


def p_value(hits: int, alarms: int, runs: int, delta: float, claim: float) -> float:
    """Return the least error at which the lower bound exceeds the claim; 1 where none does."""

    def exceeds(error: float) -> bool:
        return lower_bound(hits, alarms, runs, delta, 1.0 - error) > claim

    if not exceeds(1.0 - _LEAST_P_VALUE):
        return 1.0
    low, high = math.log(_LEAST_P_VALUE), 0.0
    if exceeds(_LEAST_P_VALUE):
        return _LEAST_P_VALUE
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (low, middle) if exceeds(math.exp(middle)) else (middle, high)
    return math.exp(high)


def _thresholds(seen: RunScores) -> Floats:
    """Return thresholds that let ever fewer runs of absence through, closest together where they are rare."""
    ranked = np.sort(seen.absent)[::-1]
    places = np.unique(np.geomspace(1, len(ranked), _THRESHOLDS).astype(np.int64)) - 1
    return np.unique(np.append(ranked[places], np.quantile(seen.present, [0.5, 0.9, 0.99])))


def _counts(seen: RunScores, thresholds: Floats) -> tuple[Counts, Counts]:
    present, absent = (
        (len(world) - np.searchsorted(np.sort(world), thresholds, side="right")).astype(np.int64)
        for world in (seen.present, seen.absent)
    )
    return present, absent
