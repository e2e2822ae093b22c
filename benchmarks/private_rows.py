"""What a wholly private table reaches: ways to choose a configuration, side by side, at one price.

    python benchmarks/private_rows.py measure ROWS.jsonl --data-dir FOLDER-OF-TABLES    # resumable
    python benchmarks/private_rows.py report ROWS.jsonl
    python benchmarks/private_rows.py expect    # rows -> how well a score is known, by the planned noise alone

Public tables are treated as wholly private; each way is the product itself on a spec of three lines and what makes the
way. Scores of the picked model and of the front are then computed exactly on the test rows, which a user with private
rows could not do. `report` shows, for each table, the test accuracy of each way and which share of the way it goes from
the median random configuration to rehearsals on public rows, hypervolumes by true scores, and how many of the shown
intervals contain the truth, for which the sampling error of the test rows is added to them.
"""

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from statistics import fmean, median
from typing import Any

import clipless
from clipless.privacy.accounting.calibration import noise_multiplier_for
from sweeper.driver.options import Options
from sweeper.driver.runner import run
from sweeper.pareto.dominance import hypervolume
from sweeper.privacy.evaluation.paid_scores import FINAL_SCORES
from sweeper.records import Point
from sweeper.results.estimates import share
from sweeper.specification.left_out import default_delta
from sweeper.specification.spec import Spec
from sweeper.specification.stages import SPARE_EPOCHS, early_scores

TABLES = (
    "breast_cancer",
    "german",
    "yeast",
    "nursery",
    "magic.gamma",
    "default-credit",
    "campaign",
    "adult",
    "shuttle",
    "aloi",
)
HELD_OUT = ("german", "magic.gamma", "shuttle")  # of the prior
EPSILONS = (1.0, 3.0)
RANDOM = "random"
WAYS: Mapping[str, Mapping[str, Any]] = {
    RANDOM: {"search": {"trials": 1, "prior": "none", "sampler": "random", "rehearse": False}},
    "prior": {"search": {"trials": 1, "rehearse": False}},
    "explorers": {"search": {"prior": "none", "rehearse": False}},
    "sketch": {"search": {"prior": "none"}},
    "default": {},
    "public rows": {"data": {"evaluation": "public"}, "search": {"prior": "none"}},
}
PUBLIC = "public rows"
RANDOM_SEEDS = 5  # for each seed of the others

Split = tuple[str, str]  # a table and the salt of its splits: each seed has its own


def spec_of(table: str, epsilon: float, way: str, seed: int, salt: str) -> Spec:
    """Return the spec of a way, with rows assigned by a salt."""
    own = WAYS[way]
    data = {"name": table, "evaluation": "private", "splits": {"salt": salt}}
    return Spec.from_mapping(
        {
            "name": f"{table.replace('.', '-').replace('_', '-')}-{way.replace(' ', '-')}",
            "data": data | dict(own.get("data", {})),
            "privacy": {"sweep_epsilon": epsilon, "audit": "none"},
            "search": {"seed": seed} | dict(own.get("search", {})),
        }
    )


def measure_one(table: str, epsilon: float, way: str, seed: int, salt: str, data_dir: Path) -> dict[str, Any]:
    """Run a sweep and score what it shows on the test rows."""
    data = clipless.datasets.load(
        table, data_dir=data_dir, evaluation="exploratory", splits=clipless.datasets.HashSplit(salt=salt)
    )
    with tempfile.TemporaryDirectory() as out:
        sweep = run(spec_of(table, epsilon, way, seed, salt), Options(out=Path(out), data_dir=data_dir))
        front, picked = sweep.front(), sweep.pick().point.key
        true = {
            point.key: clipless.evaluate(
                clipless.load(sweep.folder.path / str(point.model)), data.test, [], data.metadata.input_gain
            )["accuracy"]
            for point in front.front_points
        }
    exact = [replace(p, values={**p.values, "accuracy": true[p.key]}, noisy=None) for p in front.front_points]
    return {
        "key": [table, epsilon, way, seed],
        "salt": salt,
        "accuracy": true[picked],
        "hypervolume": hypervolume(exact, front.objectives),
        "price": None if front.price is None else front.price.epsilon,
        "covered": [c for p in front.front_points if (c := _covers(p, true[p.key], len(data.test))) is not None],
        "headline": _covers(next(p for p in front.front_points if p.key == picked), true[picked], len(data.test)),
    }


def _covers(point: Point, true: float, rows: int) -> bool | None:
    """Return whether an interval, widened by the sampling error of the rows that say the truth, contains it."""
    ends = point.interval("accuracy")
    if ends is None:
        return None
    deviation = sqrt(((ends[1] - ends[0]) / 3.92) ** 2 + true * (1.0 - true) / rows)
    return abs(point.values["accuracy"] - true) <= 1.96 * deviation


def measure(path: Path, data_dir: Path, seeds: int, tables: Sequence[str], ways: Sequence[str]) -> None:
    """Append a row for each sweep that is not there yet."""
    done = {tuple(row["key"]) for row in _read(path)} if path.exists() else set()
    with path.open("a", encoding="utf-8") as file:
        for seed in range(seeds):
            for table in tables:
                for epsilon in EPSILONS:
                    for way in ways:
                        count = RANDOM_SEEDS if way == RANDOM else 1
                        for own in range(seed * count, (seed + 1) * count):
                            if (table, epsilon, way, own) not in done:
                                row = measure_one(table, epsilon, way, own, str(seed), data_dir)
                                print(json.dumps(row), file=file, flush=True)


def report(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the tables."""
    found: dict[tuple[str, float], dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        table, epsilon, way, _ = row["key"]
        found[table, epsilon][way].append(row)
    print("| table | epsilon | " + " | ".join(WAYS) + " | gap closed |\n|" + "---|" * (len(WAYS) + 3))
    closed, ratios = [], []
    for (table, epsilon), ways in sorted(found.items()):
        middle = {way: median(one["accuracy"] for one in ones) for way, ones in ways.items()}
        shown = [f"{100 * middle[way]:.1f}" if way in middle else "" for way in WAYS]
        gap = middle[PUBLIC] - middle[RANDOM] if {PUBLIC, RANDOM, "default"} <= middle.keys() else 0.0
        share = (middle["default"] - middle[RANDOM]) / gap if gap > 0.005 else None
        closed += [] if share is None else [share]
        ratios += [middle["default"] / middle[PUBLIC]] if {PUBLIC, "default"} <= middle.keys() else []
        mark = " (held out)" if table in HELD_OUT else ""
        print(f"| {table}{mark} | {epsilon:g} | {' | '.join(shown)} | {'' if share is None else f'{share:.2f}'} |")
    for way in WAYS:
        volumes = [one["hypervolume"] for ways in found.values() for one in ways.get(way, ())]
        if volumes:
            print(f"{way}: mean hypervolume by true scores {fmean(volumes):.3f} of {len(volumes)} sweeps")
    if closed:
        cut = fmean(min(one, 1.0) for one in closed)
        cells = f"{len(closed)} cells in which it is above half a point"
        print(f"gap closed by default: mean {cut:.2f} of {cells}, those above 1 as 1; not cut {fmean(closed):.2f}")
    if ratios:
        print(f"default over public rows: {min(ratios):.3f} to {max(ratios):.3f}")
    points, headlines = defaultdict[Split, list[bool]](list), defaultdict[Split, list[bool]](list)
    for row in rows:
        split = row["key"][0], row["salt"]
        points[split] += row["covered"]
        headlines[split] += [] if row["headline"] is None else [row["headline"]]
    if any(points.values()):
        print(
            f"intervals that contain the truth: {_coverage(points)} points of fronts, {_coverage(headlines)} headlines"
        )


def _coverage(found: Mapping[Split, Sequence[bool]]) -> str:
    """Return the mean with its standard error over splits: the sweeps of one share validation and test rows.

    References:
        Cochran (1977), Sampling Techniques, section 9A.2: a ratio of clusters of unequal size.
    """
    count = sum(map(len, found.values()))
    mean = sum(map(sum, found.values())) / count
    spread = sum((sum(ones) - len(ones) * mean) ** 2 for ones in found.values())
    error = sqrt(spread * len(found) / max(len(found) - 1, 1)) / count
    return f"{mean:.3f} +- {error:.3f} of {count}"


def expect() -> None:
    """Print how well an accuracy of 80 % is known by one release, by the rows of a table; no row is needed."""
    print("| rows | delta | epsilon 0.5 | epsilon 1 | epsilon 3 | with free scores |\n|---|---|---|---|---|---|")
    for rows in (500, 1_000, 2_000, 5_000, 20_000, 50_000):
        delta, held = default_delta(round(0.7 * rows)), round(0.15 * rows)
        widths = []
        for epsilon in (0.5, 1.0, 3.0):
            releases = FINAL_SCORES + early_scores(1) + 2 * SPARE_EPOCHS  # of the final, the low end and spare ones
            sigma = noise_multiplier_for(epsilon, delta, 1.0, releases)
            _, (low, high) = share(0.8, (sigma / 2 / held) ** 2, held)
            widths.append(f"+-{50 * (high - low):.1f}")
        _, (low, high) = share(0.8, 0.0, held)
        print(f"| {rows} | {delta:g} | {' | '.join(widths)} | +-{50 * (high - low):.1f} |")


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "report", "expect"])
    parser.add_argument("rows", type=Path, nargs="?")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--table", action="append", choices=TABLES)
    parser.add_argument("--way", action="append", choices=list(WAYS))
    args = parser.parse_args()
    if args.what == "measure":
        measure(args.rows, args.data_dir, args.seeds, args.table or TABLES, args.way or list(WAYS))
    elif args.what == "report":
        report(_read(args.rows))
    else:
        expect()


if __name__ == "__main__":
    main()
