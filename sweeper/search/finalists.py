"""Which configurations the next stage trains: those that add most to the front, by what explorers have shown.

Explorers train with far more noise than finals do. Their scores are only compared within a stage, and what is looked
for is a set: each finalist adds as much as possible to the hypervolume of those before it, over every objective but
epsilon, which the stage fixes. A constant prediction has every radius, and is there for nothing: what it dominates
recommends nobody. A constraint of the spec is a preference: outcomes that miss it count only where none meets it.

Rehearsals of few rows are noisy too, and synthetic rows are no real ones. So a configuration that did best on public
tables is preferred: another one comes before it only if it is better by more than the error of their difference.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, inf, isfinite, nan, sqrt
from typing import NamedTuple

import numpy as np

from sweeper.pareto.dominance import Box, Floats, volume
from sweeper.records import Objective, Scalar
from sweeper.specification.constraints import OutcomeConstraint
from sweeper.specification.fields.ranges import Range
from sweeper.specification.search_space import SearchSpace

Values = Mapping[str, float]

_TRAININGS = 2  # of a configuration that is rehearsed
_LEAST_DIFFERENCES = 3  # of them, for an error


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """A trial of an earlier stage."""

    proposal: Mapping[str, Scalar]  # values of open dimensions by name
    signal: float  # sampling rate * sqrt(steps) / noise multiplier of its training
    stage: int  # from 0
    points: Sequence[Values]  # values by objective of its epochs, ``epsilon`` among them; none of a trial that failed
    parts: Sequence[Sequence[Values]] = ()  # of a rehearsal: those of each of its trainings, whose means ``points`` are
    preferred: bool = False  # whether another one has to be better by more than the error of rehearsals


def choose_finalists(
    explored: Sequence[Explored],
    space: SearchSpace,
    objectives: Sequence[Objective],
    *,
    count: int,
    signal: float,
    constraints: Sequence[OutcomeConstraint] = (),
    constant: Values | None = None,
) -> list[dict[str, Scalar]]:
    """Return the proposals of the next stage, best first, each moved to its signal.

    Those of the latest stage that has scores come first, then those of the stage before it, and so on: scores of
    different signal are not compared. The same arguments give the same answer.

    Args:
        explored: trials of every earlier stage.
        space: its ranges.
        objectives: of the sweep.
        count: how many are wanted.
        signal: of the next stage.
        constraints: those of the spec, and where the search was steered.
        constant: what a constant prediction reaches, by objective; not in every objective where that is not known.

    Returns:
        At most ``count`` proposals, no two of them alike; fewer where fewer trials have scores.
    """
    chosen: dict[Hashable, dict[str, Scalar]] = {}
    for stage in sorted({trial.stage for trial in explored}, reverse=True):
        latest = [trial for trial in explored if trial.stage == stage]
        for trial in _ranked(latest, objectives, constraints, constant):
            proposal = transfer_proposal(trial.proposal, space, trial.signal, signal)
            chosen.setdefault(_likeness(proposal), proposal)
    return list(chosen.values())[:count]


class Merit(NamedTuple):
    """What recommends a configuration, the more the better; the first part that differs decides.

    The first of several finalists is one of the greatest merit, the others are those that add most to it.
    """

    nearness: float  # 0 where an epoch meets the constraints, else minus what the nearest one misses them by
    gain: float  # share of the box that its epochs dominate and a constant prediction does not
    volume: float  # share of the box that its epochs dominate, over every objective but epsilon
    best: float  # sum over objectives of the best value, as a share of the box
    volumes: tuple[float, ...] = ()  # the share of each of its trainings, where it had several

    def plus(self, error: float) -> "Merit":
        """Return the merit that counts where it is preferred: others have to be better by more than the error."""
        return self._replace(gain=self.gain + error, volume=inf)


def measure_merit(
    points: Sequence[Values],
    objectives: Sequence[Objective],
    constraints: Sequence[OutcomeConstraint] = (),
    parts: Sequence[Sequence[Values]] = (),
    constant: Values | None = None,
) -> Merit | None:
    """Return what recommends a configuration by the values of its epochs; ``None`` where none has every objective.

    ``parts`` are the values of each of its trainings, where ``points`` are their means; ``constant`` is as in
    `choose_finalists`.
    """
    axes, wanted = _judged(objectives, constraints)
    shown, nothing, free = _Shown.of(points, axes, wanted), np.empty((0, len(axes))), _free(constant, axes)
    if not len(shown.rows):
        return None
    gain = shown.adds_to(free)[0] - volume(free)
    volumes = tuple(_Shown.of(part, axes, wanted).adds_to(nothing)[0] for part in parts)
    return Merit(-shown.missed, gain, *shown.adds_to(nothing), volumes)


def measure_error(merits: Sequence[Merit]) -> float:
    """Return the standard error of the difference of two configurations' volumes, each the mean of two trainings.

    It comes from the two trainings of each configuration: what all of them have in common, such as a half that is
    easier than the other, is no error. Infinite where too few configurations had two trainings to say it.

    >>> round(measure_error([Merit(0.0, 0.0, 0.0, 0.0, pair) for pair in ((0.5, 0.7), (0.6, 0.6), (0.7, 0.5))]), 3)
    0.141
    """
    differences = [one.volumes[0] - one.volumes[1] for one in merits if len(one.volumes) == _TRAININGS]
    return sqrt(float(np.var(differences, ddof=1)) / 2.0) if len(differences) >= _LEAST_DIFFERENCES else inf


def _judged(
    objectives: Sequence[Objective], constraints: Sequence[OutcomeConstraint]
) -> tuple[list[Objective], list[OutcomeConstraint]]:
    """Return the objectives and constraints that count: those of epsilon do not, which the stage fixes."""
    axes = [objective for objective in objectives if objective.name != "epsilon"]
    return axes, [constraint for constraint in constraints if constraint.name != "epsilon"]


def _likeness(proposal: Mapping[str, Scalar]) -> Hashable:
    """Return what two proposals share that differ by rounding at most, as after a move in two steps and in one."""
    return frozenset((name, f"{v:.9g}" if isinstance(v, float) else v) for name, v in proposal.items())


def _ranked(
    trials: Sequence[Explored],
    objectives: Sequence[Objective],
    constraints: Sequence[OutcomeConstraint],
    constant: Values | None,
) -> list[Explored]:
    """Return the trials that have scores, each adding most to those before it and to a constant prediction."""
    axes, wanted = _judged(objectives, constraints)
    shown = [_Shown.of(trial.points, axes, wanted) for trial in trials]
    left = [i for i, one in enumerate(shown) if len(one.rows)]
    front = _free(constant, axes)
    ranked: list[Explored] = []
    while left:
        if ranked:
            best = max(left, key=lambda i: (-shown[i].missed, *shown[i].adds_to(front), -i))
        else:
            best = _first_of(trials, left, objectives, constraints, constant)
        front = np.concatenate([front, shown[best].rows])
        left.remove(best)
        ranked.append(trials[best])
    return ranked


def _first_of(
    trials: Sequence[Explored],
    left: Sequence[int],
    objectives: Sequence[Objective],
    constraints: Sequence[OutcomeConstraint],
    constant: Values | None,
) -> int:
    """Return the place of the first finalist: the one of the greatest merit, with the error for who is preferred."""
    measured = {i: measure_merit(trials[i].points, objectives, constraints, trials[i].parts, constant) for i in left}
    merits = {i: merit for i, merit in measured.items() if merit is not None}
    error = measure_error(list(merits.values()))
    return max(merits, key=lambda i: (merits[i].plus(error) if trials[i].preferred else merits[i], -i))


def _free(constant: Values | None, axes: Sequence[Objective]) -> Floats:
    """Return the cost row of a constant prediction, none where it is not known in every objective."""
    return _Shown.of([constant or {}], axes, ()).rows


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a trial has shown."""

    rows: Floats  # cost rows of the epochs that count, the ideal at 0 and the reference at 1
    missed: float  # by how much these epochs miss the constraints; epochs that miss them by more do not count

    @classmethod
    def of(cls, epochs: Sequence[Values], axes: Sequence[Objective], wanted: Sequence[OutcomeConstraint]) -> "_Shown":
        points = [values for values in epochs if all(isfinite(values.get(axis.name, nan)) for axis in axes)]
        misses = [sum(max(one.violation(values), 0.0) for one in wanted) for values in points]
        missed = min(misses, default=0.0)
        nearest = [values for values, miss in zip(points, misses, strict=True) if miss == missed]
        costs = [[_cost(values[axis.name], axis) for axis in axes] for values in nearest]
        matrix = np.array(costs, dtype=np.float64).reshape(len(costs), len(axes))
        return cls(np.unique(Box.default(axes).placed(matrix, axes), axis=0), missed)

    def adds_to(self, front: Floats) -> tuple[float, float]:
        """Return the hypervolume together, and what decides where an objective is still nothing: the best of each."""
        return volume(np.concatenate([front, self.rows])), float((1.0 - self.rows.min(axis=0)).sum())


def _cost(value: float, axis: Objective) -> float:
    return -axis.direction.sign * value


# By the end of a dimension's name: the power of the ratio of signal that its value is multiplied by.
POWERS: Mapping[str, float] = {"sensitivity_fraction": -0.2}


def transfer_proposal(
    proposal: Mapping[str, Scalar], space: SearchSpace, from_signal: float, to_signal: float
) -> dict[str, Scalar]:
    """Return the proposal for a training of another signal, within the ranges of the space.

    Choices and fixed values stay as they are, and so does everything where a signal is not positive.
    """
    spaces = {dimension.name: dimension.space for dimension in space.dimensions}
    ratio = to_signal / from_signal if from_signal > 0.0 and to_signal > 0.0 else 1.0
    return {name: _moved(value, spaces.get(name), ratio ** _power(name)) for name, value in proposal.items()}


def _power(name: str) -> float:
    return POWERS.get(name.rpartition(".")[2], 0.0)


def _moved(value: Scalar, space: object, factor: float) -> Scalar:
    if factor == 1.0 or not isinstance(space, Range) or isinstance(value, bool | str):
        return value
    return nearest(space, value * factor)


def nearest(space: Range, value: float) -> float | int:
    """Return the value of a range that is nearest."""
    inside = min(max(value, space.low), space.high)
    step = 1.0 if space.integer and space.step is None else space.step
    if step is not None:
        count = min(round((inside - space.low) / step), floor((space.high - space.low) / step + 1e-9))
        inside = space.low + count * step
    return round(inside) if space.integer else inside
