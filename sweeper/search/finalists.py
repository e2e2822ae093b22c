"""Which configurations the next stage trains: those that add most to the front, by what explorers have shown.

Explorers train with far more noise than finals do. Their scores are only compared within a stage, and what is looked
for is a set: each finalist adds as much as possible to the hypervolume of those before it, over every objective but
epsilon, which the stage fixes. A constraint of the spec is a preference: outcomes that miss it count only where none
meets it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from sweeper.pareto.dominance import Box, Floats, volume
from sweeper.records import Direction, Objective
from sweeper.search.transfer import transferred
from sweeper.spec.fields.ranges import Scalar
from sweeper.spec.spec import Spec

Values = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """A trial of an earlier stage.

    Attributes:
        proposal: values of open dimensions by name.
        loudness: sampling rate * sqrt(steps) / noise multiplier of its training.
        stage: from 0.
        points: values by objective of its epochs, ``epsilon`` among them; none of a trial that failed.
    """

    proposal: Mapping[str, Scalar]
    loudness: float
    stage: int
    points: Sequence[Values]


def finalists(explored: Sequence[Explored], spec: Spec, *, count: int, loudness: float) -> list[dict[str, Scalar]]:
    """Return the proposals of the next stage, best first, each moved to its loudness.

    Those of the latest stage that has scores come first, then those of the stage before it, and so on: scores of
    different loudness are not compared. The same arguments give the same answer.

    Args:
        explored: trials of every earlier stage.
        spec: its objectives, constraints and ranges.
        count: how many are wanted.
        loudness: of the next stage.

    Returns:
        At most ``count`` proposals, no two of them equal; fewer where fewer trials have scores.
    """
    axes = tuple(objective for objective in spec.objectives if objective.name != "epsilon")
    chosen: list[dict[str, Scalar]] = []
    for stage in sorted({trial.stage for trial in explored}, reverse=True):
        ranked = _ranked([trial for trial in explored if trial.stage == stage], spec, axes)
        for trial in ranked:
            proposal = transferred(trial.proposal, spec, trial.loudness, loudness)
            if proposal not in chosen:
                chosen.append(proposal)
    return chosen[:count]


def _ranked(trials: Sequence[Explored], spec: Spec, axes: Sequence[Objective]) -> list[Explored]:
    """Return the trials that have scores, each adding most to those before it."""
    outcomes = [_outcome(trial, axes) for trial in trials]
    missed = [_missed(trial, spec) for trial in trials]
    left = [i for i, rows in enumerate(outcomes) if len(rows)]
    front: Floats = np.empty((0, len(axes)))
    ranked = []
    while left:
        best = min(left, key=lambda i: (missed[i], *(-v for v in _volume(front, outcomes[i])), i))
        front = np.concatenate([front, outcomes[best]])
        left.remove(best)
        ranked.append(trials[best])
    return ranked


def _volume(front: Floats, rows: Floats) -> tuple[float, float]:
    """Return the hypervolume with these rows, and what decides where one objective is still nothing: their bests."""
    return volume(np.concatenate([front, rows])), float((1.0 - rows.min(axis=0)).sum())


def _missed(trial: Explored, spec: Spec) -> float:
    """By how much the epoch that comes nearest misses the constraints on what is no price."""
    wanted = [one for one in spec.search.outcomes if one.name != "epsilon"]
    return min((sum(max(one.violation(v), 0.0) for one in wanted) for v in trial.points), default=0.0)


def _outcome(trial: Explored, axes: Sequence[Objective]) -> Floats:
    """Cost rows of its epochs, the ideal at 0 and the reference at 1; those that lack a number are left out."""
    rows = [[_cost(values, axis) for axis in axes] for values in trial.points]
    matrix = np.array(rows, dtype=np.float64).reshape(len(rows), len(axes))
    return np.unique(Box.default(axes).placed(matrix[np.isfinite(matrix).all(axis=1)], axes), axis=0)


def _cost(values: Values, axis: Objective) -> float:
    value = values.get(axis.name, float("nan"))
    return -value if axis.direction is Direction.MAXIMIZE and isfinite(value) else value
