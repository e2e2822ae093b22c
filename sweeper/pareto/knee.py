"""The knee of a front: the point from which going on in any direction costs most for what it gains.

Each objective is scaled to [0, 1] between its best and its worst value on the front, epsilon in its logarithm if the
front's box says so. The points that are best in one objective each span a hyperplane; the knee is the point of the
front that lies farthest from it on the side of the ideal (Das 1999, On characterizing the "knee" of the Pareto curve
based on normal-boundary intersection, https://doi.org/10.1007/BF01195985). In two dimensions that is the largest
distance from the line between the ends. Where the extremes span no hyperplane with a positive normal (one point is
best in two objectives, say), the normal weighs all scaled objectives equally.

A knee is a suggestion to look there, not a better point: every point of the front is best for somebody.
"""

from collections.abc import Sequence

import numpy as np

from sweeper.pareto.dominance import Box, Floats, costs, nondominated
from sweeper.records import Objective, Point

_FLAT = 1e-9  # less bulge than this, in units of the scaled front, is rounding


def knee(points: Sequence[Point], objectives: Sequence[Objective], box: Box | None = None) -> Point | None:
    """Return the knee of the front of ``points``.

    Points without a finite number for every objective do not count. Of equally far ones, the most private, then the
    first by name.

    Points off the front cannot be the knee; an objective that does not vary over the front is left out.

    Returns:
        None where the front has no knee: fewer than two objectives vary, or no point lies beyond the hyperplane.
    """
    box = Box.default(objectives) if box is None else box
    matrix = costs(points, objectives)
    usable = np.flatnonzero(np.isfinite(matrix).all(axis=1))
    front = usable[nondominated(matrix[usable])]
    if not len(front):
        return None
    rows = _scale(matrix[front], objectives, log_epsilon=box.log_epsilon)
    if rows.shape[1] < 2:
        return None
    normal, level = _hyperplane(rows)
    beyond = level - rows @ normal
    if not beyond.max() > _FLAT:
        return None
    farthest = [points[i] for i in front[beyond >= beyond.max() - _FLAT].tolist()]
    found: Point = min(farthest, key=lambda point: (point.values.get("epsilon", 0.0), point.key))
    return found


def _scale(matrix: Floats, objectives: Sequence[Objective], *, log_epsilon: bool) -> Floats:
    rows = matrix.copy()
    for i, objective in enumerate(objectives):
        if log_epsilon and objective.name == "epsilon":
            rows[:, i] = np.log(np.maximum(rows[:, i], np.finfo(np.float64).tiny))
    span = np.ptp(rows, axis=0)
    scaled: Floats = (rows[:, span > 0] - rows[:, span > 0].min(axis=0)) / span[span > 0]
    return scaled


def _hyperplane(rows: Floats) -> tuple[Floats, float]:
    """Return the unit normal and the level of the hyperplane through the extremes; points beyond have a smaller one."""
    size = rows.shape[1]
    # Of several points that are best in one objective, the one that is best in the others, whatever their order.
    extremes = rows[[np.lexsort((*rows.T, rows.sum(axis=1), rows[:, i]))[0] for i in range(size)]]
    equal = np.full(size, size**-0.5)
    if np.linalg.matrix_rank(extremes) < size:
        return equal, float((extremes @ equal).mean())
    normal = np.linalg.solve(extremes, np.ones(size)).astype(np.float64)
    if not (normal > _FLAT).all():
        return equal, float((extremes @ equal).mean())
    length = float(np.sqrt(normal @ normal))
    return normal / length, 1.0 / length
