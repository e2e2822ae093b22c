"""What a sweep is worth at a price of everything: one budget in stages against the other ways to spend it.

    python benchmarks/price.py --data-dir FOLDER --cache FOLDER [--tasks digits ...] [--prices 1 3 8] [--seeds 5]

Prints, for each task and price, the mean over seeds of best accuracy, best certified accuracy and the hypervolume of
(accuracy, certified accuracy) over every point that may leave, for each way of `_price_arms.py`: on validation rows,
which choose, and on test rows of what they chose. Behind each stand its standard error over seeds, by the jackknife,
and its share of "each P", the sweep whose every trial spends P and which costs several times that. Then Kendall's tau
of the explorers' order against that of the same configurations trained at P, and the price ratio: everything over the
largest epsilon of a released model. `--table` also writes the rows to a file; `price_report.py` draws it.

Every training is kept in the cache; a run that was interrupted goes on there. Seeds from 100 on were used to choose
stages and rules, none below. A seed is a set of configurations, initial weights and noise; the split is one.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _price_arms import Stages, Sweep, Ways, compare, pools, trials_of
from _price_table import Note, Row, Table
from _price_tasks import TASKS, task_of
from _price_training import Trainings

from sweeper.pareto.dominance import Floats
from sweeper.specification.default_stages import default_stages

TRIALS = 16
THREE_FINALS: Stages = ((13, 0.2), (3, 0.8))


def parsed_stages(text: str) -> Stages:
    """Stages as ``12:0.1,3:0.3,1:0.6``."""
    pairs = [part.split(":") for part in text.split(",")]
    return tuple((int(trials), float(share)) for trials, share in pairs)


def rows(name: str, price: float, ways: Ways, seeds: int) -> list[Row]:
    """The rows of a task and price."""
    return [
        Row(
            task=name,
            price=price,
            way=way,
            seeds=seeds,
            validation=rounded(mean.validation),
            test=rounded(mean.test),
            validation_errors=None if ways.errors is None else rounded(ways.errors[way].validation),
            test_errors=None if ways.errors is None else rounded(ways.errors[way].test),
        )
        for way, mean in ways.found.items()
    ]


def rounded(values: Floats) -> Any:
    """As a tuple of few digits."""
    return tuple(round(float(value), 5) for value in values)


def note(name: str, price: float, ways: Ways, sweeps: Sequence[Sweep], seconds: float) -> Note:
    """Agreement and price ratios of a task and price."""
    ratios = [statistics.mean(sweep.ratio(stages) for sweep in sweeps) for stages in (sweeps[0].stages, THREE_FINALS)]
    return Note(
        task=name,
        price=price,
        date=date.today().isoformat(),
        taus=rounded(ways.taus),
        rehearsal_taus=rounded(ways.rehearsal_taus),
        ratios=rounded(np.array(ratios)),
        seconds=round(seconds),
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="without it, digits alone, which come with scikit-learn")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--prices", nargs="+", type=float, default=(1.0, 3.0, 8.0))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--table", type=Path, help="a file that takes the rows, such as benchmarks/price.json")
    parser.add_argument("--stages", type=parsed_stages, help="12:0.1,3:0.3,1:0.6, for example")
    options = parser.parse_args()
    torch.set_num_threads(1)
    stages = options.stages or default_stages(options.trials)
    trainings = Trainings(options.cache)
    print(f"{options.seeds} seeds; stages {stages}\n", flush=True)
    measured = Table()
    for name in options.tasks if options.data_dir else ("digits",):
        task = task_of(name, options.data_dir)
        for price in options.prices:
            start = time.perf_counter()
            seeds = range(options.first_seed, options.first_seed + options.seeds)
            pooled = pools(len(seeds), trials_of(stages))
            sweeps = [Sweep(task, trainings, seed, price, stages, pooled) for seed in seeds]
            ways = compare(sweeps)
            found = rows(name, price, ways, len(sweeps)), note(name, price, ways, sweeps, time.perf_counter() - start)
            measured = measured.with_(*found)
            if options.table:
                Table.read(options.table).with_(*found).write(options.table)
    print(measured.markdown())


if __name__ == "__main__":
    main()
