"""What a sweep is worth at a price of everything: one budget in stages against the other ways to spend it.

    python benchmarks/price.py --data-dir FOLDER --cache FOLDER [--tasks digits ...] [--prices 1 3 8] [--seeds 5]

Prints, for each task and price, the mean over seeds of best accuracy, best certified accuracy and the hypervolume of
(accuracy, certified accuracy) over every point that may leave, for each way of `_price_arms.py`: on validation rows,
which choose, and on test rows of what they chose. Behind each stands its share of "each P", the sweep whose every
trial spends P and which costs several times that. Then Kendall's tau of the explorers' order against that of the same
configurations trained at P, and the price ratio: everything over the largest epsilon of a released model.

Every training is kept in the cache; a run that was interrupted goes on there. Seeds from 100 on were used to choose
stages and rules, none below. A seed is a set of configurations, initial weights and noise; the split is one.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from _price_arms import FIGURES, Stages, Sweep, Ways, compare
from _price_tasks import TASKS, task_of
from _price_training import Trainings

from sweeper.spec.default_stages import default_stages

TRIALS = 16
THREE_FINALS: Stages = ((13, 0.2), (3, 0.8))


def parsed_stages(text: str) -> Stages:
    """Stages as ``12:0.1,3:0.3,1:0.6``."""
    pairs = [part.split(":") for part in text.split(",")]
    return tuple((int(trials), float(share)) for trials, share in pairs)


def rows(name: str, price: float, ways: Ways) -> list[str]:
    """The lines of a task and price."""
    lines = []
    for way, mean in ways.found.items():
        cells = []
        for split in ("validation", "test"):
            values, bar = getattr(mean, split), getattr(ways.found["each P"], split)
            cells += [f"{100 * value:.1f} ({share:.2f})" for value, share in zip(values, values / bar, strict=True)]
        lines.append(f"| {name} | {price:g} | {way} | {' | '.join(cells)} |")
    return lines


def note(name: str, price: float, ways: Ways, sweeps: Sequence[Sweep], seconds: float) -> str:
    """Errors, agreement and price ratios of a task and price."""
    errors = " | ".join(f"{100 * error:.1f}" for error in ways.errors)
    taus = " | ".join(f"{tau:.2f}" for tau in (*ways.taus, *ways.rehearsal_taus))
    ratios = [statistics.mean(sweep.ratio(stages) for sweep in sweeps) for stages in (sweeps[0].stages, THREE_FINALS)]
    return f"| {name} | {price:g} | {errors} | {taus} | {ratios[0]:.2f} | {ratios[1]:.2f} | {seconds:.0f} |"


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
    parser.add_argument("--stages", type=parsed_stages, help="12:0.1,3:0.3,1:0.6, for example")
    options = parser.parse_args()
    torch.set_num_threads(1)
    stages = options.stages or default_stages(options.trials)
    trainings = Trainings(options.cache)
    print(f"{options.seeds} seeds; stages {stages}\n")
    heads = ["task", "P", "way", *FIGURES, *(f"{name}, test" for name in FIGURES)]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
    notes = []
    for name in options.tasks if options.data_dir else ("digits",):
        task = task_of(name, options.data_dir)
        for price in options.prices:
            start = time.perf_counter()
            seeds = range(options.first_seed, options.first_seed + options.seeds)
            sweeps = [Sweep(task, trainings, seed, price, stages) for seed in seeds]
            ways = compare(sweeps)
            print("\n".join(rows(name, price, ways)), flush=True)
            notes.append(note(name, price, ways, sweeps, time.perf_counter() - start))
    heads = ["task", "P", *(f"error of {name}" for name in FIGURES), "tau of accuracy", "tau of certified"]
    heads += ["the same, rehearsed", "certified, rehearsed"]
    heads += ["price ratio, one final", "three finals", "seconds"]
    print(f"\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    print("\n".join(notes))


if __name__ == "__main__":
    main()
