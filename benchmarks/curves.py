"""Curves of private rows: their error, what smoothing takes off it, and peers. Prints tables and draws a picture each.

    python benchmarks/curves.py --data-dir FOLDER [--images docs/images] [--runs 20] [--parts counts roc ...]

FOLDER holds `tabular/adult.csv.gz`, `tabular/default-credit.csv.gz` and ADBench's tables in `adbench/`. Models are
logistic regressions, trained without privacy on half of the rows; the curves are those of the other half, as in chapter
6 of the thesis "Enhancing differentially private machine learning". Neighbours differ by one row more. Peers are in
`_curve_peers.py`; OpenDP is measured where it can be imported.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
from _curve_peers import (
    Floats,
    algorithm_10,
    least_gaussian_variance,
    levels,
    opendp,
    opendp_counts,
    opendp_quantiles,
    thesis_noise,
)
from _measured_panels import FIGURE, Measured, Panel
from PIL import Image

from clipless.curves.classes import ClassCurves, release_classes
from clipless.curves.ecdf import PrivateEcdf, PublicSource, release_ecdf
from clipless.curves.grid import Grid
from clipless.curves.release import Gaussian, Laplace, Mechanism
from clipless.curves.smoothing import Way, smooth
from clipless.curves.toeplitz import SquareRoot
from clipless.curves.tree import Change, Tree, best_tree
from clipless.privacy.accounting.calibration import noise_multiplier_for
from clipless.privacy.events import Relation
from dashboards.export.pictures import render

EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
LENGTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)
TABLES = ("adult", "default-credit", "campaign", "magic.gamma", "shuttle", "celeba")
TARGETS = {"adult": "income-per-year", "default-credit": "Default"}
IDENTIFIERS = ["ID", "fnlwgt"]
WAYS: tuple[Way, ...] = ("isotonic", 1, 2)
CURVES = (1, 2, 10)  # released at one total epsilon
PLACES = 512  # thresholds of the smoothing experiment
ROC_GRID = np.linspace(0.0, 1.0, 1001)
ADDED, MOVED = Change.ADDED, Change.MOVED
Rows = list[list[str]]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows as Markdown."""
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
    print()


def counts_error(mechanism: Mechanism, leaves: int, change: Change, runs: int) -> float:
    """Mean squared error of counts."""
    source = PublicSource(leaves)
    return float(np.mean([mechanism.noise(leaves, change, source) ** 2 for _ in range(runs)]))


def peer_error(leaves: int, runs: int) -> float:
    """Mean squared error of OpenDP's counts at epsilon 1, with the branching factor that it chooses."""
    bins = np.random.default_rng(leaves).poisson(3.0, leaves).astype(np.float64)
    return float(np.mean((opendp_counts(bins, 1.0, runs) - np.cumsum(bins)) ** 2))


def counts(_data: Path, runs: int) -> list[Panel]:
    """Mean squared error of counts against the number of thresholds: Laplace noise, and Gaussian noise."""
    rows, lines = [], {name: [] for name in ("thesis", "tree", "hierarchy", "OpenDP")}
    for leaves in LENGTHS:
        draws = runs * (75 if leaves <= 64 else 20 if leaves <= 512 else 5)
        formula = 2.0 * (levels(leaves) + 1) ** 3
        thesis = counts_error(thesis_noise(1.0, leaves, MOVED), leaves, MOVED, draws)
        tree = best_tree(leaves, ADDED, gaussian=False).laplace_variance(ADDED)
        ours = counts_error(Laplace(1.0), leaves, ADDED, draws)
        kind = Laplace(1.0).kind_for(leaves, ADDED)
        peer = peer_error(leaves, min(draws, 100)) if opendp() else float("nan")
        for name, value in zip(lines, (thesis, tree, ours, peer), strict=True):
            lines[name].append(value)
        said, moved = f"{kind.base}, {kind.levels}", Laplace(1.0).kind_for(leaves, MOVED).laplace_variance(MOVED)
        shown = (
            f"{thesis:.4g}",
            f"{thesis / formula:.3f}",
            *(f"{v:.4g}" for v in (tree, ours, moved)),
            said,
            f"{peer:.4g}",
        )
        rows.append([str(leaves), f"{formula:.4g}", *shown])
    head = (
        "N",
        "2 (L+1)^3",
        "thesis",
        "ratio",
        "best tree",
        "ours",
        "ours, a row replaced",
        "blocks of, levels",
        "OpenDP's tree",
    )
    table(head, rows)
    panels = [_over_lengths("Laplace noise at epsilon 1", lines), gaussian()]
    which()
    return panels


def which() -> None:
    """Variance of a count of several curves at epsilon 1 and delta 1e-5 together: Laplace noise, Gaussian noise."""
    rows = []
    for leaves in LENGTHS:
        laplace = Laplace(1.0).kind_for(leaves, ADDED).laplace_variance(ADDED)
        normal = Gaussian(1.0).kind_for(leaves, ADDED).gaussian_variance(ADDED)
        cells = []
        for curves in CURVES:
            sigma = noise_multiplier_for(1.0, 1e-5, 1.0, curves)
            cells += [f"{laplace * curves**2:.4g}", f"{normal * sigma**2:.4g}"]
        rows.append([str(leaves), *cells])
    table(
        ("N", *(f"{who}, {curves} curve{'s' * (curves > 1)}" for curves in CURVES for who in ("Laplace", "Gaussian"))),
        rows,
    )


def gaussian() -> Panel:
    """Largest variance of counts at noise multiplier 1, against what no factorisation can go below."""
    rows, lines = [], {name: [] for name in ("tree", "square root", "lower bound")}
    for leaves in LENGTHS:
        tree = best_tree(leaves, ADDED, gaussian=True).gaussian_variance(ADDED)
        root, least = SquareRoot(leaves).gaussian_variance(ADDED), least_gaussian_variance(leaves)
        for name, value in zip(lines, (tree, root, least), strict=True):
            lines[name].append(value)
        rows.append([str(leaves), *(f"{value:.3f}" for value in (tree, root, least, min(tree, root) / least))])
    table(("N", "best tree", "square root", "no mechanism is below", "ours / bound"), rows)
    return _over_lengths("Gaussian noise, multiplier 1", lines, "largest variance of a count")


def _over_lengths(
    title: str, lines: Mapping[str, Sequence[float]], what: str = "mean squared error of a count"
) -> Panel:
    found = tuple(Measured(name, tuple(map(float, LENGTHS)), tuple(values)) for name, values in lines.items())
    shown = tuple(line for line in found if not np.isnan(line.y).any())
    return Panel(title, shown, "number of thresholds", what)


def smoothing(_data: Path, runs: int) -> list[Panel]:
    """What smoothing leaves of the squared error, as figures 6.6.1 and 6.6.2; rows per threshold are Poisson."""
    by_epsilon = {epsilon: _smoothed(3.0, epsilon, runs) for epsilon in EPSILONS}
    rates = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
    by_rate = {rate: _smoothed(rate, 1.0, runs) for rate in rates}
    names, panels = [*(f"tree, {_way(way)}" for way in WAYS), "blocks that agree, isotonic"], []
    for name, found in (("epsilon", by_epsilon), ("rows per threshold", by_rate)):
        table((name, *names), [[f"{key:g}", *(f"{v:.3f}" for v in row)] for key, row in found.items()])
        lines = (Measured(one, tuple(found), tuple(row[i] for row in found.values())) for i, one in enumerate(names))
        fixed = "3 rows per threshold" if name == "epsilon" else "epsilon 1"
        panels.append(Panel(fixed, tuple(lines), name, "error left, of the tree's unsmoothed one", log_y=False))
    return panels


def _way(way: Way) -> str:
    return way if isinstance(way, str) else f"p = {way}"


def _smoothed(rate: float, epsilon: float, runs: int) -> list[float]:
    """Squared errors after smoothing over that of the binary tree before it: way by way, then that of the default."""
    generator, errors = np.random.default_rng(7), []
    grid, tree = Grid(np.arange(float(PLACES + 1))), Laplace(epsilon, Tree.binary(PLACES))
    for run in range(runs):
        values = np.repeat(np.arange(PLACES + 1.0), generator.poisson(rate, PLACES + 1))
        rows, true = max(1, len(values)), grid.counts(values) / max(1, len(values))
        noisy, default = (
            release_ecdf(values, grid, mechanism, population=rows, source=PublicSource(run))
            for mechanism in (tree, Laplace(epsilon))
        )
        curves = [noisy, *(smooth(noisy, way) for way in WAYS), smooth(default)]
        errors.append([rows**2 * _error(curve, true) for curve in curves])
    before, *after = np.mean(errors, axis=0).tolist()
    return [error / before for error in after]


def _error(curve: PrivateEcdf, true_N: Floats) -> float:
    return float(np.sum((curve.shares - true_N) ** 2))


@cache
def scored(folder: Path, name: str) -> tuple[Floats, "np.ndarray[tuple[int], np.dtype[np.bool_]]"]:
    """Predicted probabilities of half of a table, and whether they are of the rarer class."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if name in TARGETS:
        read = pd.read_csv(folder / "tabular" / f"{name}.csv.gz").drop(columns=IDENTIFIERS, errors="ignore")
        label = read.pop(TARGETS[name])
        x, y = pd.get_dummies(read).to_numpy(dtype=np.float64), (label == label.value_counts().index[-1]).to_numpy()
    else:
        with np.load(folder / "adbench" / f"{name}.npz") as file:
            x, y = file["X"].astype(np.float64), file["y"] == 1
    train_x, test_x, train_y, test_y = train_test_split(x, y, test_size=0.5, random_state=0)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(train_x, train_y)
    return model.predict_proba(test_x)[:, 1], test_y


def probabilities(count: int = 128) -> Grid:
    """Thresholds at equal distances in the logarithm of odds."""
    return Grid(np.append(1.0 / (1.0 + np.exp(-np.linspace(-7.0, 7.0, count - 1))), 1.0))


def roc(data: Path, runs: int) -> list[Panel]:
    """Area between the private ROC curve and the true one, as figure 6.6.4."""

    def error(curves: ClassCurves, truth: ClassCurves) -> float:
        first, second = (np.interp(ROC_GRID, *(part[::-1] for part in one.roc())) for one in (curves.smoothed(), truth))
        return float(np.mean(np.abs(first - second)))

    return _over_tables(data, runs, error, "area between ROC curves")


def hosmer_lemeshow(data: Path, runs: int) -> list[Panel]:
    """Relative squared error of the Hosmer-Lemeshow statistic, as figure 6.6.5; the thesis' is its Algorithm 10."""

    def error(curves: ClassCurves, truth: ClassCurves) -> float:
        true = truth.calibration().hosmer_lemeshow()
        return (curves.calibration().hosmer_lemeshow() / true - 1.0) ** 2

    return _over_tables(data, runs, error, "relative squared error of H", statistic=True)


def _over_tables(
    data: Path, runs: int, error: Callable[[ClassCurves, ClassCurves], float], what: str, *, statistic: bool = False
) -> list[Panel]:
    found: dict[str, dict[str, list[float]]] = {"ours": {}, "thesis": {}}
    for name in TABLES:
        scores, positive = scored(data, name)
        truth, grid = _truth(scores, positive), probabilities()
        for epsilon in EPSILONS:
            ours = [error(_released(scores, positive, Laplace(epsilon), run), truth) for run in range(runs)]
            if statistic:
                peer, true = _algorithm_10(scores, positive, grid, epsilon, runs), _exact_statistic(scores, positive)
                theirs = [(value / true - 1.0) ** 2 for value in peer]
            else:  # both curves are paid for, with noise for a row that moves
                noise = thesis_noise(epsilon / 2.0, len(grid), ADDED)
                theirs = [error(_released(scores, positive, noise, run), truth) for run in range(runs)]
            for who, values in (("ours", ours), ("thesis", theirs)):
                found[who].setdefault(name, []).append(float(np.mean(values)))
    head = ("table", "rows", "positives", "", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS))
    table(head, [_row(data, name, who, found[who][name]) for name in TABLES for who in found])
    return [
        Panel(who, tuple(Measured(name, EPSILONS, tuple(values)) for name, values in lines.items()), "epsilon", what)
        for who, lines in found.items()
    ]


def _row(data: Path, name: str, who: str, values: Sequence[float]) -> list[str]:
    positive = scored(data, name)[1]
    return [name, str(len(positive)), f"{positive.mean():.3f}", who, *(f"{value:.2g}" for value in values)]


def _truth(scores_R: Floats, positive_R: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> ClassCurves:
    grid = probabilities()
    both = [grid.counts(scores_R[rows]) for rows in (positive_R, ~positive_R)]
    return ClassCurves(grid, *both, Laplace(1.0), Relation.ADD_OR_REMOVE_ONE)


def _released(
    scores_R: Floats, positive_R: "np.ndarray[tuple[int], np.dtype[np.bool_]]", mechanism: Mechanism, run: int
) -> ClassCurves:
    made = release_classes(scores_R, positive_R, probabilities(), mechanism, source=PublicSource(run))
    return replace(made)


def _algorithm_10(
    scores_R: Floats, positive_R: "np.ndarray[tuple[int], np.dtype[np.bool_]]", grid: Grid, epsilon: float, runs: int
) -> list[float]:
    generator = np.random.default_rng(3)
    return [algorithm_10(scores_R, positive_R, grid, epsilon, generator) for _ in range(runs)]


def _exact_statistic(scores_R: Floats, positive_R: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> float:
    """Algorithm 10 without noise."""
    return algorithm_10(scores_R, positive_R, probabilities(), 1e9, np.random.default_rng(0))


def quantiles(data: Path, runs: int) -> list[Panel]:
    """Rank error of the nine deciles of predicted probabilities: ours by one curve, OpenDP's one by one."""
    shares, grid = np.arange(1, 10) / 10, probabilities(1024)
    rows, lines = [], {"ours": [], "thesis": [], "OpenDP": []}
    scores, _ = scored(data, "adult")
    for epsilon in EPSILONS:
        found = {
            "ours": [_nearest(scores, grid, Laplace(epsilon), run, shares) for run in range(runs)],
            "thesis": [
                _nearest(scores, grid, thesis_noise(epsilon, len(grid) - 1, MOVED), run, shares) for run in range(runs)
            ],
            "OpenDP": [opendp_quantiles(scores, grid, shares, epsilon) for _ in range(min(runs, 10))]
            if opendp()
            else [],
        }
        errors = {name: _rank_error(scores, grid, values, shares) for name, values in found.items()}
        for name, value in errors.items():
            lines[name].append(value)
        rows.append([f"{epsilon:g}", *(f"{value:.2g}" for value in errors.values())])
    table(("epsilon", *lines), rows)
    drawn = tuple(Measured(name, EPSILONS, tuple(v)) for name, v in lines.items() if not np.isnan(v).any())
    return [Panel("deciles of predicted probabilities on adult", drawn, "epsilon", "mean error of a rank")]


def _nearest(values_R: Floats, grid: Grid, mechanism: Mechanism, run: int, shares_Q: Floats) -> Floats:
    """The thresholds whose released shares are nearest to those asked for."""
    released = release_ecdf(values_R, grid, mechanism, population=len(values_R), source=PublicSource(run))
    found = smooth(released).shares
    return grid.thresholds[np.abs(found[None, :] - shares_Q[:, None]).argmin(axis=1)]


def _rank_error(values_R: Floats, grid: Grid, found: Sequence[Floats], shares: Floats) -> float:
    """How far the share of rows up to a found quantile is from that which was asked for."""
    if not found:
        return float("nan")
    true = grid.counts(values_R) / len(values_R)
    reached = [true[np.searchsorted(grid.thresholds, one)] for one in found]
    return float(np.mean(np.abs(np.array(reached) - shares)))


PARTS: Mapping[str, Callable[[Path, int], list[Panel]]] = {
    "counts": counts,
    "smoothing": smoothing,
    "roc": roc,
    "hosmer-lemeshow": hosmer_lemeshow,
    "quantiles": quantiles,
}


def main() -> None:
    """Print the tables, and draw the pictures where a folder for them is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    for part in options.parts:
        print(f"{part}\n", flush=True)
        panels = PARTS[part](options.data_dir, options.runs)
        if options.images is not None:
            with Image.open(BytesIO(render(FIGURE.draw(panels), "png"))) as picture:
                picture.convert("RGB").quantize(48).save(options.images / f"curves-{part}.png", optimize=True)


if __name__ == "__main__":
    main()
