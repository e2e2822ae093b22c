"""Which configurations do well on tables of what size, at which epsilon: makes `sweeper/planning/prior.json`.

    python benchmarks/prior.py measure ROWS.jsonl --data-dir FOLDER-OF-TABLES    # half an hour of a core; resumable
    python benchmarks/prior.py make ROWS.jsonl > sweeper/planning/prior.json
    python benchmarks/prior.py report ROWS.jsonl

`measure` trains quasi-random configurations, the same ones everywhere, on random rows of public tables, with the noise
of one training that has the whole epsilon; both epsilons as one stack. It records accuracy and, with two classes, AUROC
of the last epoch on rows held back. `make` ranks the configurations on each table by the mean of both ranks, and keeps
for each region of (N, epsilon) the one with the best average rank, followed by those that add most to it. `report`
shows what the first of them reaches on tables that are held out, and on each table when it is chosen on the others: the
share of the way from the median of the wide space to its best, and its rank there.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from math import isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import qmc, rankdata

import clipless
from clipless.datasets import Dataset, Split, load
from clipless.stacks import Member, fit_stack
from sweeper.planning.prior import PriorRegion, PriorSource, TablePrior
from sweeper.specification import left_out
from sweeper.specification.fields.nested import unflatten
from sweeper.specification.search import Prior
from sweeper.specification.trial_config import TrialConfig
from sweeper.trials.build import build_loss, build_model, build_optimizer, build_plan

HELD_OUT = ("german", "magic.gamma", "shuttle")
_ADBENCH = "Minqi824/ADBench (BSD 2-Clause)"
_UCI = "UCI, from {} ({})"
TABLES = {
    "breast_cancer": "UCI, from scikit-learn (BSD 3-Clause)",
    "german": _UCI.format("algofairness/fairness-comparison", "Apache-2.0"),
    "yeast": _ADBENCH,
    "nursery": _UCI.format("jtreglos/machine-learning_classification", "no licence stated"),
    "magic.gamma": _ADBENCH,
    "default-credit": _UCI.format("AlenMa/ML", "no licence stated"),
    "adult": _UCI.format("algofairness/fairness-comparison", "Apache-2.0"),
    "campaign": _ADBENCH,
    "shuttle": _ADBENCH,
    "aloi": _ADBENCH,
    "celeba": _ADBENCH,
    "skin": _ADBENCH,
    "donors": _ADBENCH,
}
SIZES = (500, 2_000, 8_000, 20_000)  # training rows
SMALL = 2_000  # tables below it are used up to three quarters too
DRAWS = {500: 3}  # random subsets of a size
EPSILONS = (1.0, 3.0)
HELD_BACK = 4_000  # rows, at most, that are scored
WIDE, NARROW = 32, 16  # configurations of each space
COUNT = WIDE + NARROW
KEPT = 4  # of a region
LEAST_TABLES = 3  # that a region is learned from
UP_TO = {500: 1_000, 2_000: 4_000, 8_000: 13_000, 20_000: None}  # training rows that a size stands for
BETWEEN = 3**0.5  # epsilons: the regions of both meet here

SPACE: Mapping[str, tuple[Any, ...]] = {
    "model.width": (32, 64, 128),
    "model.depth": (1, 2, 3),
    "model.constraint": ("orthogonal", "spectral_ball"),
    "model.standardise": (False, True),
    "sampling_rate": (1 / 16, 1 / 8, 1 / 4),
    "training.epochs": (10, 20, 40),
    "training.learning_rate": (0.003, 0.1, "log"),
    "training.loss.temperature": (0.02, 1.0, "log"),
    "training.sensitivity_fraction": (0.03, 1.0, "log"),
}
# Where those of the first space did well on tables that are not held out, up to 2,000 rows.
BETTER_SPACE: Mapping[str, tuple[Any, ...]] = {
    **SPACE,
    "model.width": (64, 128),
    "model.depth": (1, 2),
    "model.standardise": (False,),
    "sampling_rate": (1 / 8, 1 / 4, 1 / 2),
    "training.learning_rate": (0.004, 0.03, "log"),
    "training.loss.temperature": (0.03, 0.3, "log"),
    "training.sensitivity_fraction": (0.03, 0.3, "log"),
}
Ranks = NDArray[np.float64]


def configurations() -> list[dict[str, Any]]:
    """The configurations, by the keys of a trial's configuration; sampling rates stand for batch sizes."""
    return [*_sample(SPACE, WIDE, seed=0), *_sample(BETTER_SPACE, NARROW, seed=1)]


def _sample(space: Mapping[str, tuple[Any, ...]], count: int, seed: int) -> list[dict[str, Any]]:
    points = qmc.Sobol(len(space), scramble=True, rng=np.random.default_rng(seed)).random(count)
    return [{n: _at(v, u) for (n, v), u in zip(space.items(), point, strict=True)} for point in points.tolist()]


def _at(values: tuple[Any, ...], place: float) -> Any:
    if values[-1] == "log":
        low, high, _ = values
        return float(f"{low * (high / low) ** place:.3g}")
    return values[int(place * len(values))]


def trial_config(configuration: Mapping[str, Any], rows: int, classes: int, epsilon: float) -> TrialConfig:
    """The configuration of a trial on so many rows."""
    flat = dict(configuration)
    flat["training.batch_size"] = max(1, round(flat.pop("sampling_rate") * rows))
    flat |= {
        "model.architecture": "mlp",
        "training.method": "clipless",
        "training.optimizer": "adam",
        "training.loss.name": "tau-bce" if classes == 2 else "tau-cce",
        "privacy.epsilon": epsilon,
        "privacy.delta": left_out.default_delta(rows),
        "privacy.relation": "add-or-remove-one",
    }
    return TrialConfig.from_json(unflatten(flat))


def sizes_of(rows: int) -> list[int]:
    """The numbers of training rows that a table of so many rows is used with."""
    return [n for n in SIZES if n <= 0.8 * rows] + ([int(0.75 * rows)] if rows < SMALL else [])


def draw(data: Dataset, rows: int, seed: int) -> Dataset:
    """Random rows of all splits to train on, and others to score."""
    splits = (data.train, data.validation, data.test)
    x, y = torch.cat([one.x for one in splits]), torch.cat([one.y for one in splits])
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    train, held = order[:rows], order[rows : rows + HELD_BACK]
    scored = Split(x[held], y[held])
    return replace(data, train=Split(x[train], y[train]), validation=scored, test=scored)


def train(configuration: Mapping[str, Any], data: Dataset, seed: int) -> dict[float, dict[str, float]]:
    """Train a configuration at each epsilon, as one stack, and score the last epochs."""
    rows, classes = len(data.train), len(data.metadata.classes)
    members = []
    for epsilon in EPSILONS:
        config = trial_config(configuration, rows, classes, epsilon)
        loss = build_loss(config)
        model = build_model(config, data, loss, seed)
        plan = build_plan(config, model, loss, rows)
        members.append(Member(model=model, loss=loss, plan=plan, optimizer=build_optimizer(config)))
    for _ in fit_stack(members, data.train):
        pass
    return {e: clipless.evaluate(one.model, data.validation) for e, one in zip(EPSILONS, members, strict=True)}


def measure(path: Path, data_dir: Path) -> None:
    """Append a row for each training that is not there yet, small sizes first."""
    done = {tuple(row["key"]) for row in _read(path)} if path.exists() else set()
    data = {name: load(name, data_dir=data_dir) for name in TABLES}
    totals = {name: sum(map(len, (one.train, one.validation, one.test))) for name, one in data.items()}
    planned = sorted((rows, name, seed) for name in TABLES for rows in sizes_of(totals[name]) for seed in _seeds(rows))
    with path.open("a") as file:
        for rows, name, seed in planned:
            left = [number for number in range(COUNT) if (name, rows, seed, number) not in done]
            part = draw(data[name], rows, seed) if left else data[name]
            facts = {"N": rows, "d": part.metadata.input_shape[0], "K": len(part.metadata.classes)}
            for number in left:
                chosen = configurations()[number]
                row = {"key": (name, rows, seed, number), **facts, "relative": chosen, "rows": totals[name]}
                print(json.dumps({**row, "scores": train(chosen, part, seed)}), file=file, flush=True)


def _seeds(rows: int) -> range:
    return range(DRAWS.get(rows, 2 if rows < SMALL else 1))


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A table at a size and an epsilon, and what all configurations reach there."""

    table: str
    rows: int
    epsilon: float
    scores: Mapping[str, Ranks]  # by name, one for each configuration

    @property
    def ranks(self) -> Ranks:
        """Mean rank over the scores, from 1/COUNT for the best to 1."""
        return np.mean([rankdata(-one) / COUNT for one in self.scores.values()], axis=0)


def read_cells(path: Path) -> list[Cell]:
    """The cells that are complete, scores averaged over subsets."""
    found: dict[tuple[str, int, float], dict[int, list[dict[str, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in _read(path):
        table, rows, _, number = row["key"]
        for epsilon, scores in row["scores"].items():
            found[table, rows, float(epsilon)][number].append(scores)
    cells = []
    for (table, rows, epsilon), by_number in sorted(found.items()):
        if len(by_number) == COUNT:
            means = {
                name: np.array([np.mean([one.get(name, nan) for one in by_number[i]]) for i in range(COUNT)])
                for name in ("accuracy", "auroc")
            }
            scores = {name: one for name, one in means.items() if isfinite(one.sum())}
            cells.append(Cell(table=table, rows=rows, epsilon=epsilon, scores=scores))
    return cells


def choose(cells: Sequence[Cell], rows: int, epsilon: float, kept: int = KEPT) -> list[int]:
    """The configurations of a region, by number: the best average rank first, then those that add most to it.

    A table counts once, by the mean over its cells of about that size at that epsilon.
    """
    by_table: dict[str, list[Ranks]] = defaultdict(list)
    for one in cells:
        if one.epsilon == epsilon and _nearest_size(one.rows) == rows:
            by_table[one.table].append(one.ranks)
    ranks = np.array([np.mean(of_table, axis=0) for of_table in by_table.values()])
    mean, allowed = ranks.mean(axis=0), [i for i, one in enumerate(configurations()) if _is_default(one)]
    chosen = [min(allowed, key=lambda number: mean[number])]
    while len(chosen) < kept:
        with_one_more = np.minimum(ranks, ranks[:, chosen].min(axis=1, keepdims=True)).mean(axis=0)
        left = [number for number in allowed if number not in chosen]
        chosen.append(min(left, key=lambda number: (with_one_more[number], mean[number])))
    return chosen


def _count_tables(cells: Sequence[Cell], rows: int) -> int:
    return len({one.table for one in cells if _nearest_size(one.rows) == rows})


def _is_default(configuration: Mapping[str, Any]) -> bool:
    """Whether a configuration lies in the space that is searched where a spec leaves it out."""
    ranges = {
        "training.learning_rate": left_out.LEARNING_RATES,
        "training.loss.temperature": left_out.TEMPERATURES,
        "training.sensitivity_fraction": left_out.FRACTIONS,
    }
    return all(low <= configuration[name] <= high for name, (low, high) in ranges.items())


def _nearest_size(rows: int) -> int:
    return next(size for size, most in UP_TO.items() if most is None or rows <= most)


def make(path: Path) -> TablePrior:
    """The prior of what was measured on tables that are not held out."""
    cells, known = [one for one in read_cells(path) if one.table not in HELD_OUT], configurations()
    facts = {row["key"][0]: row for row in _read(path)}
    known_sizes = [size for size in SIZES if _count_tables(cells, size) >= LEAST_TABLES]
    regions = [
        PriorRegion(
            rows=None if size == known_sizes[-1] else UP_TO[size],
            epsilon=BETWEEN if epsilon == EPSILONS[0] else None,
            configurations=tuple(known[number] for number in choose(cells, size, epsilon)),
        )
        for size in known_sizes
        for epsilon in EPSILONS
    ]
    return TablePrior(
        name=Prior.TABLES.value,
        made=datetime.now(UTC).date().isoformat(),
        command="python benchmarks/prior.py measure ROWS --data-dir FOLDER; python benchmarks/prior.py make ROWS",
        measured=(
            f"{WIDE} quasi-random configurations of a wide space and {NARROW} of its better part on each table, with "
            f"{', '.join(map(str, known_sizes))} training rows, at epsilon {' and '.join(map(str, EPSILONS))}; "
            f"ranked by accuracy and AUROC of the last epoch on up to {HELD_BACK} rows held back; first the best mean "
            "rank, then those that add most to it"
        ),
        sources=tuple(
            PriorSource(
                name=name,
                source=TABLES[name],
                rows=facts[name]["rows"],
                columns=facts[name]["d"],
                classes=facts[name]["K"],
                held_out=name in HELD_OUT,
            )
            for name in TABLES
        ),
        regions=tuple(regions),
    )


def report(path: Path) -> None:
    """Print what the first configuration reaches, on tables that it was not chosen on."""
    cells = read_cells(path)
    learned = [one for one in cells if one.table not in HELD_OUT]
    print("| table | rows | epsilon | score | median | first | best of 4 | best | way closed | rank of first |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    closed: dict[tuple[bool, int, float], list[tuple[float, float]]] = defaultdict(list)
    for cell in cells:
        others = [one for one in learned if one.table != cell.table]
        if _count_tables(others, _nearest_size(cell.rows)) < LEAST_TABLES:
            continue
        chosen = choose(others, _nearest_size(cell.rows), cell.epsilon)
        for name, scores in cell.scores.items():
            median, best, first = np.median(scores[:WIDE]), scores[:WIDE].max(), scores[chosen[0]]
            width = best - median if best > median + 0.01 else nan
            ways = [float((one - median) / width) for one in (first, scores[chosen].max())]
            way = ways[0]
            if isfinite(way):
                closed[cell.table in HELD_OUT, _nearest_size(cell.rows), cell.epsilon].append((ways[0], ways[1]))
            held = cell.table + " (held out)" * (cell.table in HELD_OUT)
            shown = " | ".join(f"{100 * one:.1f}" for one in (median, first, scores[chosen].max(), best))
            rank = 1 + int((scores[:WIDE] > first).sum())
            print(f"| {held} | {cell.rows} | {cell.epsilon:g} | {name} | {shown} | {way:.2f} | {rank} of {WIDE} |")
    print("\n| tables | rows | epsilon | way closed by the first | at least | by the best of 4 | scores |")
    print("|---|---|---|---|---|---|---|")
    for (is_held, rows, epsilon), both in sorted(closed.items()):
        kind, (firsts, bests) = "held out" if is_held else "chosen on the others", zip(*both, strict=True)
        means = f"{np.mean(firsts):.2f} | {min(firsts):.2f} | {np.mean(bests):.2f}"
        print(f"| {kind} | {rows} | {epsilon:g} | {means} | {len(both)} |")


def main() -> None:
    """Measure, make or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "make", "report"))
    parser.add_argument("rows", type=Path)
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    match options.what:
        case "measure":
            measure(options.rows, options.data_dir)
        case "make":
            json.dump(asdict(make(options.rows)), sys.stdout, indent=1)
            print()
        case _:
            report(options.rows)


if __name__ == "__main__":
    main()
