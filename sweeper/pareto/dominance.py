"""Dominance, fronts and hypervolume. Pure arithmetic; moocore does the counting.

A point dominates another when it is nowhere worse and somewhere better; equal points do not dominate each
other. moocore reports a NaN row as non-dominated and drops rows beyond the reference without a word, so rows
are checked here first: a row that lacks an objective, or holds a NaN or an impossible infinity, is not
comparable and never on a front. An infinite epsilon (no privacy) is comparable.

References:
    Guerreiro, Fonseca, Paquete (2021), The hypervolume indicator, https://arxiv.org/abs/2005.00515
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from math import log, nan
from statistics import NormalDist
from types import MappingProxyType

import moocore
import numpy as np
from numpy.typing import NDArray

from sweeper.records import Interval, Objective, Point, PointKey

Floats = NDArray[np.float64]

EPSILON_FLOOR = 0.01
EPSILON_CEILING = 100.0


def costs(points: Iterable[Point], objectives: Sequence[Objective]) -> Floats:
    """Return one row per point and one column per objective, smaller is better.

    A row that is not comparable is all NaN.
    """
    rows = [point.values for point in points]
    columns = [np.fromiter((row.get(o.name, nan) for row in rows), np.float64, len(rows)) for o in objectives]
    matrix = np.stack(columns, axis=1)
    matrix *= [-o.direction.sign for o in objectives]
    matrix += 0.0  # one zero only
    matrix[(np.isnan(matrix) | (matrix == -np.inf)).any(axis=1)] = nan
    return matrix


def dominates(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether cost row ``a`` is nowhere worse than ``b`` and somewhere better; never with a NaN."""
    pairs = list(zip(a, b, strict=True))
    return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)


def nondominated(matrix: Floats) -> NDArray[np.bool_]:
    """Return which cost rows no other row dominates; never a row with a NaN."""
    mask = np.zeros(len(matrix), dtype=np.bool_)
    comparable = np.flatnonzero(~np.isnan(matrix).any(axis=1))
    if len(comparable):
        mask[comparable] = moocore.is_nondominated(_finite(matrix[comparable]), keep_weakly=True)
    return mask


def _finite(matrix: Floats) -> Floats:
    """Return rows of the same order with finite numbers only: moocore's sweep uses infinity as a sentinel."""
    infinite = np.isposinf(matrix)
    largest = np.max(matrix, axis=0, where=~infinite, initial=0.0)
    return np.where(infinite, np.nextafter(largest, np.inf), matrix)


def front_mask(points: Sequence[Point], objectives: Sequence[Objective]) -> NDArray[np.bool_]:
    """Return which points are on the front: those that no other dominates.

    Where scores are noisy, finals are compared with each other by their estimates. An explorer, the luckiest of many,
    takes a final off the front only if it dominates it beyond the intervals of both.
    """
    rows = costs(points, objectives)
    mask = nondominated(rows)
    finals = np.fromiter((point.is_final for point in points), np.bool_, len(points))
    if finals.any():
        ends = [costs((_at_end(point, end) for point in points), objectives) for end in (0, 1)]
        best, worst = np.minimum(*ends), np.maximum(*ends)
        mask[finals] = nondominated(rows[finals]) & ~_dominated(best[finals], worst[~finals])
    return mask


def _at_end(point: Point, end: int, wider: float = 1.0) -> Point:
    """Return a point with the low or the high end of each interval, so much wider, in place of its estimate."""
    intervals = {} if point.noisy is None else point.noisy.intervals
    at_end = {name: (1.0 - wider) * point.values[name] + wider * ends[end] for name, ends in intervals.items()}
    return replace(point, values={**point.values, **at_end})


def _dominated(rows: Floats, others: Floats) -> NDArray[np.bool_]:
    """Return which cost rows one of the others dominates; never a row with a NaN."""
    these, those = rows[:, None], others[None]
    mask: NDArray[np.bool_] = np.any(np.all(those <= these, axis=2) & np.any(those < these, axis=2), axis=1)
    return mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """The region that a hypervolume is measured in."""

    # by objective, the worst value that counts; a point worse in any objective adds nothing
    reference: Mapping[str, float]
    ideal: Mapping[str, float]  # by objective, the best value that counts; better ones are counted as equal to it
    log_epsilon: bool = True  # epsilon is measured in its logarithm, so that 0.5 -> 1 counts as much as 5 -> 10

    @classmethod
    def default(cls, objectives: Sequence[Objective], *, log_epsilon: bool = True) -> "Box":
        """Epsilon from 0.01 to 100, every other objective from 0 to 1; the same for every sweep."""
        names = [objective.name for objective in objectives]
        reference = {name: EPSILON_CEILING if name == "epsilon" else 0.0 for name in names}
        ideal = {name: EPSILON_FLOOR if name == "epsilon" else 1.0 for name in names}
        return cls(reference=MappingProxyType(reference), ideal=MappingProxyType(ideal), log_epsilon=log_epsilon)

    def scaled(self, matrix: Floats, objectives: Sequence[Objective]) -> Floats:
        """Return cost rows with the ideal at 0 and the reference at 1; rows not inside are left out."""
        scaled = self.placed(matrix, objectives)
        return scaled[(scaled < 1.0).all(axis=1)]  # NaN fails

    def placed(self, matrix: Floats, objectives: Sequence[Objective]) -> Floats:
        """Return every cost row with the ideal at 0, where better values stop, and the reference at 1."""
        columns = [self._scale(matrix[:, i], objective) for i, objective in enumerate(objectives)]
        return np.maximum(np.column_stack(columns) if columns else matrix, 0.0)

    def _scale(self, column: Floats, objective: Objective) -> Floats:
        sign = -objective.direction.sign
        best, worst = (sign * end[objective.name] for end in (self.ideal, self.reference))
        if self.log_epsilon and objective.name == "epsilon":
            column, best, worst = np.log(np.maximum(column, best)), log(best), log(worst)
        if not best < worst:
            raise ValueError(f"Expected the ideal of {objective.name} to be better than its reference, got {self}")
        scaled: Floats = (column - best) / (worst - best)
        return scaled


def hypervolume(points: Sequence[Point], objectives: Sequence[Objective], box: Box | None = None) -> float:
    """Return the share of the box that the points dominate, in [0, 1].

    Points off the front or beyond the reference add nothing. The box is ``Box.default`` if left out.
    """
    box = Box.default(objectives) if box is None else box
    rows = box.scaled(costs(points, objectives), objectives)
    if len(rows) and rows.shape[1] > 3:  # beyond three objectives, dominated rows cost time
        rows = rows[nondominated(rows)]
    return volume(rows)


def hypervolume_interval(
    points: Sequence[Point], objectives: Sequence[Objective], box: Box | None = None, *, among: int
) -> Interval | None:
    """Return the 95 % interval of what these points truly dominate of a box, None where none of their scores is noisy.

    Its ends are the hypervolumes at the ends of all scores, whose intervals, those of normal estimates, hold at once
    for every noisy objective of ``among`` points (Bonferroni): so for any that were chosen among them by their noise.
    """
    noisy = sum(any(point.interval(one.name) is not None for point in points) for one in objectives)
    if not noisy:
        return None
    normal = NormalDist()
    wider = normal.inv_cdf(1.0 - 0.025 / (among * noisy)) / normal.inv_cdf(0.975)
    low, high = (hypervolume([_at_end(point, end, wider) for point in points], objectives, box) for end in (0, 1))
    return low, high


def volume(rows: Floats) -> float:
    """Return the hypervolume of cost rows inside the unit box, against its corner at 1."""
    return float(moocore.hypervolume(rows, ref=np.ones(rows.shape[1]))) if len(rows) else 0.0


def hypervolume_curve(
    points: Sequence[Point], objectives: Sequence[Objective], ends: Iterable[int], box: Box | None = None
) -> tuple[float, ...]:
    """Return, for each of ``ends``, the hypervolume of that many points from the beginning.

    Only the front is carried from one end to the next, so the time grows with the number of ends, not with its square.

    The points count in their order; ``ends`` ascend. The box is ``Box.default`` if left out.
    """
    box = Box.default(objectives) if box is None else box
    rows = box.placed(costs(points, objectives), objectives)
    front, start, values = rows[:0], 0, [0.0]
    for end in ends:
        more = rows[start:end]
        candidates = np.concatenate([front, more[(more < 1.0).all(axis=1)]])  # NaN fails
        mask = nondominated(candidates)
        entered = bool(mask[len(front) :].any())
        front, start = candidates[mask], end
        values.append(volume(front) if entered else values[-1])
    return tuple(values[1:])


def attained(matrix: Floats, runs: Sequence[int], count: int) -> Floats:
    """Return the boundary of what at least ``count`` of the runs attain, as mutually non-dominated cost rows.

    A run attains a vector of costs if one of its points is nowhere worse; the empirical attainment function counts
    such runs (Fonseca et al. 2011, https://doi.org/10.1007/978-3-642-19893-9_8).

    Args:
        matrix: finite cost rows of all runs.
        runs: for each row, the run that it belongs to.
        count: from 1 (the best of all runs) to the number of runs (what every run attains).

    Raises:
        ValueError: a row that is not finite, or a count of no run.
    """
    total = len(set(runs))
    if not (np.isfinite(matrix).all() and 1 <= count <= total):
        raise ValueError(f"Expected finite rows and 1 <= count <= {total} runs, got count={count}")
    share = 100.0 * (count - 0.5) / total  # moocore rounds a share up to whole runs
    found: Floats = moocore.eaf(matrix, np.asarray(runs), percentiles=[share])
    return found[:, :-1]


def exclusive(rows: Floats) -> Floats:
    """Return what each row adds to the hypervolume of all, in the unit box; rows none of which dominates another.

    A row beyond the reference adds nothing, and neither does one of several equal ones.
    """
    added = np.zeros(len(rows))
    inside = np.flatnonzero((rows < 1.0).all(axis=1))
    if len(inside):
        missing = max(0, 2 - rows.shape[1])  # moocore takes two columns or more; one of zeros changes no volume
        padded = np.pad(rows[inside], ((0, 0), (0, missing)))
        added[inside] = moocore.hv_contributions(padded, ref=np.ones(padded.shape[1]))
    return added


class FrontArchive:
    """The front of all points seen so far, kept up to date point by point.

    A point added again under its key replaces the earlier one. Its epsilon may only have fallen, as it does
    when a second accountant reports; a replacement that got worse would not bring back the points that it
    pushed out.
    """

    def __init__(self, objectives: Sequence[Objective]) -> None:
        self._objectives = tuple(objectives)
        self._front: dict[PointKey, Point] = {}
        self._rows = np.empty((0, len(self._objectives)))  # the costs of the front, in its order

    def __contains__(self, key: PointKey) -> bool:
        """Whether the point of this key is on the front."""
        return key in self._front

    @classmethod
    def holding(cls, front: Iterable[Point], objectives: Sequence[Objective]) -> "FrontArchive":
        """Return an archive of points that are known to be the front."""
        archive = cls(objectives)
        archive._front = {point.key: point for point in front}
        archive._rows = costs(archive._front.values(), archive._objectives)
        return archive

    @property
    def points(self) -> tuple[Point, ...]:
        """The front."""
        return tuple(self._front.values())

    def add(self, points: Iterable[Point]) -> tuple[tuple[Point, ...], tuple[Point, ...]]:
        """Take points in.

        Returns:
            The points of this call that are on the front now and whose key was not before, and the points
            that were on the front and whose key no longer is.
        """
        before, new = self._front, {point.key: point for point in points}
        rows = costs(new.values(), self._objectives)
        others = [key not in new for key in before]
        if all(others) and self._are_dominated(rows):
            return (), ()
        matrix = np.concatenate([self._rows[others], rows])
        mask = nondominated(matrix)
        named = (*compress(before.items(), others), *new.items())
        self._front, self._rows = dict(compress(named, mask)), matrix[mask]
        entered = tuple(point for key, point in new.items() if key in self._front and key not in before)
        left = tuple(point for key, point in before.items() if key not in self._front)
        return entered, left

    def _are_dominated(self, rows: Floats) -> bool:
        """Whether rows of the front dominate these, as most that arrive; a row with a NaN counts as dominated."""
        return bool(np.all(_dominated(rows, self._rows) | np.any(np.isnan(rows), axis=1)))

    def hypervolume(self, box: Box | None = None) -> float:
        """Return the share of the box that the front dominates."""
        return hypervolume(self.points, self._objectives, box)
