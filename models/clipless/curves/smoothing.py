r"""Make a released distribution function increase, within [0, 1]: post-processing, which costs nothing.

* ``isotonic``: the closest increasing values, all thresholds alike. O(N).
* ``p = 2``: the most likely noise of the nodes that leaves increasing shares, for Gaussian noise
  (thesis, equation 6.3.6): a quadratic program, by Clarabel.
* ``p = 1``: the same for Laplace noise: a linear program, by HiGHS.

The programs know that neighbouring thresholds share noise, and which ones; they need the noise of a tree.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from scipy import sparse

from clipless.curves.ecdf import PrivateEcdf
from clipless.curves.release import change_of
from clipless.curves.tree import Floats, Tree
from clipless.errors import DataError

Way = Literal["isotonic", 1, 2]


def smooth(curve: PrivateEcdf, way: Way = "isotonic", at: Sequence[int] | None = None) -> PrivateEcdf:
    """Return the curve with increasing shares in [0, 1].

    Args:
        curve: a released one.
        way: see the module.
        at: positions of thresholds that the programs look at; by default all. Between them the nearest one before
            holds.

    Raises:
        DataError: a program for a curve whose noise is not that of a tree, or that the solver does not solve.
    """
    free = curve.shares[:-1]
    if way == "isotonic":
        return replace(curve, shares=np.append(isotonic(free), 1.0))
    places = np.arange(len(free)) if at is None else np.unique(np.asarray(at))
    unit = curve.deviation  # solvers stop at absolute errors
    solved = unit * _likely(free[places] / unit, 1.0 / unit, _nodes_above(_tree_of(curve), places), way)
    filled = np.concatenate([[0.0], solved])[np.searchsorted(places, np.arange(len(free)), side="right")]
    return replace(curve, shares=np.append(filled, 1.0))


def isotonic(values: Floats, high: float | None = 1.0) -> Floats:
    """Return the closest increasing values from 0 to ``high``."""
    from sklearn.isotonic import isotonic_regression

    found: Floats = isotonic_regression(values, y_min=0.0, y_max=high)
    return found


def _tree_of(curve: PrivateEcdf) -> Tree:
    tree = curve.mechanism.kind_for(len(curve.grid) - 1, change_of(curve.relation))
    if not isinstance(tree, Tree):
        raise DataError("Expected noise of a tree for this way of smoothing, got the square root's; use 'isotonic'")
    return tree


def _nodes_above(tree: Tree, places: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> sparse.csr_array:
    """Z: which nodes lie above each of the places, (places, nodes that lie above some)."""
    columns, offset = [], 0
    for level, size in enumerate(tree.sizes()):
        columns.append(places // tree.base**level + offset)
        offset += size
    rows = np.tile(np.arange(len(places)), len(columns))
    used, numbers = np.unique(np.concatenate(columns), return_inverse=True)
    return sparse.csr_array((np.ones(len(rows)), (rows, numbers)), shape=(len(places), len(used)))


def _likely(shares: Floats, whole: float, above: sparse.csr_array, way: Way) -> Floats:
    """The shares plus the smallest change of the nodes that makes them increase from 0 to ``whole``."""
    count = len(shares)
    steps = sparse.diags_array([-np.ones(count - 1), np.ones(count - 1)], offsets=[0, 1], shape=(count - 1, count))
    ends = sparse.csr_array((np.array([1.0, -1.0]), ([0, 1], [0, count - 1])), shape=(2, count))
    increase = sparse.vstack([steps, ends]).tocsr() @ above  # increase @ nu >= least
    least = -np.concatenate([np.diff(shares), [shares[0], whole - shares[-1]]])
    change = _least_absolute(increase, least) if way == 1 else _least_squares(increase, least)
    return np.clip(np.maximum.accumulate(shares + above @ change), 0.0, whole)


def _least_absolute(increase: sparse.csr_array, least: Floats) -> Floats:
    from scipy.optimize import linprog

    nodes = increase.shape[1]
    found = linprog(np.ones(2 * nodes), A_ub=sparse.hstack([-increase, increase]), b_ub=-least, method="highs")
    if not found.success:
        raise DataError(f"The linear program of smoothing was not solved: {found.message}; use 'isotonic'")
    positive, negative = np.split(found.x, 2)
    change: Floats = positive - negative
    return change


def _least_squares(increase: sparse.csr_array, least: Floats) -> Floats:
    import clarabel

    nodes = increase.shape[1]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.NonnegativeConeT(len(least))]
    square = sparse.csc_matrix(sparse.eye_array(nodes))
    solver = clarabel.DefaultSolver(square, np.zeros(nodes), sparse.csc_matrix(-increase), -least, cones, settings)
    solution = solver.solve()
    if solution.status not in (clarabel.SolverStatus.Solved, clarabel.SolverStatus.AlmostSolved):
        raise DataError(f"The quadratic program of smoothing was not solved: {solution.status}; use 'isotonic'")
    return np.array(solution.x)
