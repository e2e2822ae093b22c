"""What several runs of one spec attain: the best, the median and the worst front, as bands in epsilon and one value.

A run attains (epsilon, value) if one of its points has at most this epsilon and at least this value. The best surface
is what at least one run attains, the worst what all of them do, the median what at least half of them do: the
empirical attainment function of Grunert da Fonseca, Fonseca and Hall (2001, https://doi.org/10.1007/3-540-44719-9_15).
Nothing is averaged, so every surface consists of values that runs reached, and no scale matters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, nan

import numpy as np

from sweeper.pareto.dominance import attained, costs
from sweeper.records import Objective, Point

EPSILON = Objective.named("epsilon")
_LEAST_FOR_MEDIAN = 3  # runs; of two it would be the best


@dataclass(frozen=True, slots=True)
class Surface:
    """What at least ``count`` runs attain, by epsilon: from ``steps[i][0]`` on, ``steps[i][1]``."""

    name: str
    count: int
    steps: tuple[tuple[float, float], ...]

    def at(self, epsilon: float) -> float | None:
        """Return the value attained at this epsilon, None where too few runs have a point."""
        below = [value for found, value in self.steps if found <= epsilon]
        return below[-1] if below else None


def attainment(runs: Sequence[Sequence[Point]], value: Objective) -> tuple[Surface, ...]:
    """Return the best, the median and the worst surface.

    Points without a finite epsilon and value do not count.

    Returns:
        No surface with fewer than two runs, no median with fewer than three, and none that has no point: what every run
        attains is nothing where a run has no point.
    """
    kept = [[p for p in run if _is_finite(p, value.name)] for run in runs]
    if len(runs) < 2 or not any(kept):
        return ()
    matrix = np.concatenate([costs(run, (EPSILON, value)) for run in kept])
    owners = [i for i, run in enumerate(kept) for _ in run]
    sign = -value.direction.sign
    counts = {"best": 1, "median": (len(runs) + 1) // 2, "worst": len(runs)}
    surfaces = []
    for name, count in counts.items():
        if count > len(set(owners)) or (name == "median" and len(runs) < _LEAST_FOR_MEDIAN):
            continue
        rows = attained(matrix, owners, count)
        rows = rows[np.argsort(rows[:, 0])]
        surfaces.append(Surface(name, count, tuple((float(e), float(sign * v)) for e, v in rows)))
    return tuple(surfaces)


def _is_finite(point: Point, name: str) -> bool:
    return all(isfinite(point.values.get(key, nan)) for key in ("epsilon", name))
