"""What points made from iterates add to a front, and what scoring them takes: the same trainings with and without.

    python benchmarks/free_points.py [--spec sweeps/digits.yaml] [--trials 24] [--seeds 5] [--data-dir FOLDER]

Configurations are drawn at random; noise is seeded, so that both arms train the same weights. They take turns.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

import torch

import clipless
from clipless.testing import SeededSource
from sweeper.pareto.dominance import hypervolume
from sweeper.privacy.selection import IndependentProposer
from sweeper.records import MADE_FROM, Point
from sweeper.specification.spec import Spec
from sweeper.trials.trial import TrialRun


def main() -> None:
    """Print a line for each seed, and means."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--spec", type=Path, default=Path("sweeps/digits.yaml"))
    arguments.add_argument("--trials", type=int, default=24)
    arguments.add_argument("--seeds", type=int, default=5)
    arguments.add_argument("--data-dir", type=Path)
    given = arguments.parse_args()
    torch.set_num_threads(1)
    spec = without_budget(Spec.from_yaml(given.spec))
    gains, ratios = [], []
    for seed in range(given.seeds):
        points, seconds = sweep(spec, clipless.datasets.load(**spec.data_options(given.data_dir)), given.trials, seed)
        plain = hypervolume([p for p in points if not p.made_from], spec.objectives)
        whole = hypervolume(points, spec.objectives)
        gains.append(whole / plain - 1)
        ratios.append(seconds[True] / seconds[False])
        counts = ", ".join(f"{sum(p.made_from == name for p in points)} {name}" for name in MADE_FROM)
        print(
            f"seed {seed}: hypervolume {plain:.4f} -> {whole:.4f} ({gains[-1]:+.1%}), {best(spec, points)}, {counts}, "
            f"CPU seconds a trial {seconds[False] / given.trials:.2f} -> {seconds[True] / given.trials:.2f}",
            flush=True,
        )
    spread = stdev(gains) if len(gains) > 1 else 0.0
    print(f"hypervolume {fmean(gains):+.1%} (standard deviation {spread:.1%}), CPU time x {fmean(ratios):.2f}")


def without_budget(spec: Spec) -> Spec:
    """Return a spec whose trials have an epsilon of their own, for here each trains alone."""
    if spec.privacy.sweep_epsilon is None:
        return spec
    own = {"epsilon": {"log": [0.5, 10]}, "delta": spec.privacy.delta}
    return Spec.from_mapping(spec.to_plain() | {"privacy": own}, spec.source)


def sweep(
    spec: Spec, data: clipless.datasets.Dataset, trials: int, seed: int
) -> tuple[list[Point], Mapping[bool, float]]:
    """Train every configuration in both arms; return all points, and the CPU seconds of each arm."""
    points: list[Point] = []
    seconds = {True: 0.0, False: 0.0}
    for number in range(trials):
        config = spec.space.resolve(spec.space.suggest(IndependentProposer(SeededSource(seed * 1000 + number))))
        for free in (True, False) if number % 2 else (False, True):
            started = time.process_time()
            run = TrialRun(
                trial=f"t{number:04d}",
                config=config,
                data=data,
                objectives=spec.objectives,
                seed=seed * 1000 + number,
                source=SeededSource(seed * 1000 + number),
                free=free,
            )
            rows = list(run.epoch_rows())
            seconds[free] += time.process_time() - started
            for row in rows if free else ():
                epsilon = {"epsilon": row.values["epsilon"]}
                points.append(Point(trial=f"t{number:04d}", epoch=row.epoch, values=row.values))
                points += [
                    Point(
                        trial=f"t{number:04d}", epoch=row.epoch, made_from=f.made_from, values={**f.values, **epsilon}
                    )
                    for f in row.free
                ]
    return points, seconds


def best(spec: Spec, points: Sequence[Point], budgets: Sequence[float] = (0.5, 1.0, 3.0, 8.0)) -> str:
    """Return in words the best first utility within each budget, of iterates and of all points."""
    name = next(objective.name for objective in spec.objectives if objective.name != "epsilon")

    def within(budget: float, *, iterates: bool) -> float:
        some = (p for p in points if p.values["epsilon"] <= budget and not (iterates and p.made_from))
        return max((p.values[name] for p in some), default=0.0)

    told = (f"{within(e, iterates=True):.3f} -> {within(e, iterates=False):.3f} at {e:g}" for e in budgets)
    return f"{name} {', '.join(told)}"


if __name__ == "__main__":
    main()
