"""Which way of ending trials early finds the better front with the same epochs? Learning curves, replayed.

    python benchmarks/search.py [--seeds 20]                          # simulated curves of private training
    python benchmarks/search.py --record FILE [--trials 400]          # train on digits, keep the curves
    python benchmarks/search.py --replay FILE [--seeds 20]            # the same comparison on recorded curves
    python benchmarks/search.py --train [--seeds 10]                  # the same on digits, trained as it goes
    python benchmarks/search.py --real FOLDER [--trials 16]           # two sweeps on digits, really run

Three workers train trials side by side; whoever ends one starts the next, until the epochs of the sweep are used up.
Every epoch is a point of the front. Prints, for each set of objectives and each sampler, the hypervolume after shares
of the epochs (mean and standard error over seeds; a star where an arm is better than hyperband by more than one
standard error of the difference, seed by seed) and the share of its epochs after which the mean hypervolume of an arm
passes that with which random search without stopping ends. Seeds from 1000 on were used to choose the scheduler's
constants, none below.
"""

import argparse
import heapq
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import sqrt
from pathlib import Path
from typing import Protocol

import numpy as np
import optuna
from _search_arms import ByChance, Foresight, Halving, by_accuracy, by_rank
from _search_curves import EPOCHS, Recorded, Simulated, Task, Trained, Trajectory, digits_spec, record

from sweeper.driver.options import Options
from sweeper.driver.runner import run
from sweeper.pareto.dominance import Floats, hypervolume_curve
from sweeper.records import Objective, Point
from sweeper.schedulers import make_scheduler
from sweeper.search.optuna_search import Search
from sweeper.specification.search import NO_SCHEDULER, Sampler, SearchSettings
from sweeper.store.sweep_folder import SweepFolder

AXES = tuple(Objective.named(name) for name in ("epsilon", "accuracy", "certified@0.25"))
OURS, REFERENCE = "hyperband", "none"
WORKERS = 3
SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)


class Stopper(Protocol):
    """What decides after each epoch of each trial."""

    def begin(self, trial: str, trajectory: Trajectory) -> None:
        """Take in a trial."""
        ...

    def goes_on(self, point: Point) -> bool:
        """Decide after an epoch."""
        ...


class Ours:
    """A scheduler of the package."""

    def __init__(self, scheduler: str, objectives: Sequence[Objective]) -> None:
        self._scheduler = make_scheduler(SearchSettings(scheduler=scheduler), objectives)

    def begin(self, trial: str, trajectory: Trajectory) -> None:
        """Take in a trial."""
        if self._scheduler is not None:
            self._scheduler.begin(trial, trajectory.curve)

    def goes_on(self, point: Point) -> bool:
        """Decide after an epoch."""
        decision = None if self._scheduler is None else self._scheduler.judge(point)
        return decision is None or decision.goes_on


Arm = Callable[[Sequence[Objective], int], Stopper]
ARMS: Mapping[str, Arm] = {
    "none": lambda axes, _: Ours(NO_SCHEDULER, axes),
    "random stop": lambda _, seed: ByChance(seed),
    "ASHA on accuracy": lambda _, __: Halving(by_accuracy),
    "MO-rank": lambda axes, _: Halving(by_rank(axes)),
    "asha": lambda axes, _: Ours("asha", axes),
    "hyperband": lambda axes, _: Ours("hyperband", axes),
}
FORESIGHT: Mapping[str, Arm] = {
    f"foresight {least:g}": lambda axes, _, least=least: Foresight(axes, least)  # type: ignore[misc]
    for least in (0.0, 1e-4, 2e-4, 5e-4)
}


def replay(task: Task, stopper: Stopper, search: Search, epochs: int, *, learns: bool = True) -> list[Point]:
    """Run a sweep of so many epochs in all, each as long as any other, and return its points in their order.

    Args:
        task: gives configurations and their curves.
        stopper: decides after each epoch.
        search: proposes.
        epochs: of all trials together.
        learns: whether the search is told of epochs; a random one has no use for them.
    """
    points: list[Point] = []
    queue: list[tuple[float, str, int]] = []  # when, whose, which epoch ends
    trials: dict[str, Trajectory] = {}

    def start(now: float) -> None:
        started = task.start(search)
        if started is not None:
            trial, trials[trial] = started
            stopper.begin(trial, trials[trial])
            heapq.heappush(queue, (now + 1.0, trial, 1))

    for worker in range(WORKERS):
        start(worker / WORKERS)
    while queue and len(points) < epochs:
        now, trial, epoch = heapq.heappop(queue)
        point = Point(trial=trial, epoch=epoch, values=next(trials[trial].rows))
        points.append(point)
        if learns:
            search.report(point)
        if stopper.goes_on(point) and epoch < len(trials[trial].curve):
            heapq.heappush(queue, (now + 1.0, trial, epoch + 1))
        else:
            search.finish(trial)
            del trials[trial]
            start(now)
    return points


def volumes(points: Sequence[Point], objectives: Sequence[Objective], epochs: int) -> list[float]:
    """Hypervolume after each epoch; a sweep that ran out of configurations keeps what it has."""
    found = hypervolume_curve(points, objectives, range(1, len(points) + 1))
    return [*found, *[found[-1]] * (epochs - len(found))]


def measure(
    task: Task, arm: str, objectives: Sequence[Objective], sampler: Sampler, seeds: Sequence[int], epochs: int
) -> Floats:
    """Hypervolume by seed and epoch."""
    with multiprocessing.get_context("spawn").Pool() as pool:
        return np.array(pool.map(partial(_of_seed, task, arm, objectives, sampler, epochs), seeds, chunksize=1))


def _of_seed(
    task: Task, arm: str, objectives: Sequence[Objective], sampler: Sampler, epochs: int, seed: int
) -> list[float]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    fresh = task.fresh(seed)
    search = Search(fresh.space, objectives, sampler=sampler, seed=seed)
    learns = sampler is not Sampler.RANDOM
    points = replay(fresh, (ARMS | FORESIGHT)[arm](objectives, seed), search, epochs, learns=learns)
    return volumes(points, objectives, epochs)


def error(values: Floats) -> float:
    """Standard error of a mean."""
    return float(np.std(values, ddof=1)) / sqrt(len(values)) if len(values) > 1 else 0.0


def better(theirs: Floats, ours: Floats) -> bool:
    """Whether theirs is better on average by more than one standard error of the difference, seed by seed."""
    return float(np.mean(theirs - ours)) > error(theirs - ours)


def reached(found: Floats, target: float) -> float:
    """Share of the epochs after which the mean hypervolume has reached a target, infinite if it never does."""
    mean = found.mean(axis=0)
    return float(np.argmax(mean >= target) + 1) / len(mean) if mean[-1] >= target else float("inf")


def line(name: str, found: Floats, ours: Floats, target: float) -> str:
    """One arm's row of a table."""
    cells = []
    for share in SHARES:
        at = round(share * found.shape[1]) - 1
        star = "*" if better(found[:, at], ours[:, at]) else ""
        cells.append(f"{found[:, at].mean():.4f} ± {error(found[:, at]):.4f}{star}")
    return f"| {name} | {' | '.join(cells)} | {reached(found, target):.2f} |"


def compare(
    task: Task,
    arms: Sequence[str],
    objectives: Sequence[Objective],
    sampler: Sampler,
    seeds: Sequence[int],
    epochs: int,
) -> None:
    """Print one table."""
    names = ", ".join(objective.name for objective in objectives)
    print(f"\n{names}; sampler {sampler.value}; {len(seeds)} seeds from {seeds[0]}, {epochs} epochs each\n")
    heads = " | ".join(f"{round(share * epochs)} epochs" for share in SHARES)
    print(f"| arm | {heads} | share to random search's end |\n|---|{'---|' * (len(SHARES) + 1)}", flush=True)
    found = {name: measure(task, name, objectives, sampler, seeds, epochs) for name in arms}
    search = found[REFERENCE]
    if sampler is not Sampler.RANDOM:
        search = measure(task, REFERENCE, objectives, Sampler.RANDOM, seeds, epochs)
    for name in arms:
        print(line(name, found[name], found[OURS], float(search[:, -1].mean())), flush=True)


def real(folder: Path, trials: int, seed: int) -> None:
    """Run two sweeps on digits and print their hypervolumes at equal numbers of epochs."""
    points = {}
    for scheduler, count in ((NO_SCHEDULER, trials), ("hyperband", 12 * trials)):
        spec = digits_spec(trials=count, seed=seed, sampler="random", scheduler=scheduler.value)
        sweep = run(spec, Options(out=folder / scheduler.value))
        points[scheduler.value] = list(SweepFolder(sweep.directory).points().values())[: trials * EPOCHS]
    epochs = min(map(len, points.values()))
    print(f"two sweeps on digits, seed {seed}, {epochs} epochs each\n")
    print(f"| scheduler | {' | '.join(f'{round(share * epochs)} epochs' for share in SHARES)} |")
    print(f"|---|{'---|' * len(SHARES)}")
    for name, rows in points.items():
        found = hypervolume_curve(rows, AXES, [round(share * epochs) for share in SHARES])
        print(f"| {name} | {' | '.join(f'{volume:.4f}' for volume in found)} |")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=30 * EPOCHS, help="of one sweep, all trials together")
    parser.add_argument("--objectives", type=int, nargs="+", choices=(2, 3), default=[2, 3])
    parser.add_argument("--samplers", nargs="+", choices=("random", "tpe"), default=["random", "tpe"])
    parser.add_argument("--arms", nargs="+", choices=[*ARMS, *FORESIGHT], default=list(ARMS))
    parser.add_argument("--record", type=Path)
    parser.add_argument("--replay", type=Path)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--real", type=Path)
    parser.add_argument("--trials", type=int, default=16, help="of --record and --real")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if options.record:
        record(options.record, options.trials, options.first_seed)
    elif options.real:
        real(options.real, options.trials, options.first_seed)
    else:
        arms = list(dict.fromkeys([REFERENCE, *options.arms, OURS]))  # which the others are measured against
        task: Task = Recorded.read(options.replay) if options.replay else Trained() if options.train else Simulated()
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        for axes in options.objectives:
            for sampler in options.samplers:
                compare(task, arms, AXES[:axes], Sampler(sampler), seeds, options.epochs)


if __name__ == "__main__":
    main()
