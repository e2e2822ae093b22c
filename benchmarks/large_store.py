"""How long a large store takes to list, show and report: CPU seconds of each.

    python benchmarks/large_store.py [--trials 2000] [--epochs 20]

Writes an imagined sweep into a temporary folder through the same functions as a real one, and reads it back as the
commands do; then runs the commands themselves, start-up of the program included. Bytes are those of the page without
plotly.js.
"""

import argparse
import io
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from dashboards.data import read
from dashboards.figures import plotly_js, sweep_figures
from dashboards.pages.report import build_report
from sweeper.cli.tables import sweep_view, sweeps_table
from sweeper.privacy.claims import Claim
from sweeper.privacy.pricing import Price
from sweeper.records import Objective, Point, SweepStatus, Trial, TrialStatus
from sweeper.results.front import build_front
from sweeper.results.sweep import load
from sweeper.store.manifest import Manifest
from sweeper.store.sweep_folder import SweepFolder, list_sweeps

OBJECTIVES = tuple(map(Objective.named, ("epsilon", "accuracy", "certified@0.25")))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "large"
        print(f"{options.trials} trials x {options.epochs} epochs, {write(folder, options.trials, options.epochs)}\n")
        print("| what | CPU seconds |\n|---|---|")
        row("list", lambda: printed(sweeps_table(list_sweeps(parent))))
        row("show", lambda: printed(sweep_view(load(folder))))
        data = row("read for the report", lambda: read(folder))
        for name, kind in sweep_figures().items():
            row(f"figure {name}", partial(kind.draw, data))
        page = row("the report, all figures among it", lambda: build_report(data))
        command("list", "--out", parent)
        command("show", str(folder))
        command("front", str(folder), "--format", "html", "--output", f"{parent}/front.html")
    print(f"\nThe page has {(len(page) - len(plotly_js())) / 1e6:.1f} MB beside plotly.js.")


def row(what: str, work: Callable[[], Any]) -> Any:
    """Print how long it takes, and return what it makes."""
    started = time.process_time()
    made = work()
    print(f"| {what} | {time.process_time() - started:.2f} |", flush=True)
    return made


def command(*arguments: str) -> None:
    """Run a command as a process of its own, and print its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    main_ = "from sweeper.cli.main import main; main()"
    subprocess.run([sys.executable, "-c", main_, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"| sweeper {arguments[0]}, the whole process | {seconds:.2f} |", flush=True)


def printed(what: Any) -> str:
    """What a command prints."""
    screen = io.StringIO()
    Console(file=screen, width=200).print(what)
    return screen.getvalue()


def write(path: Path, count: int, epochs: int) -> str:
    """Write the sweep; say how large its front is."""
    path.mkdir()
    folder, generator = SweepFolder(path), np.random.default_rng(0)
    trials = [_trial(generator, number) for number in range(count)]
    points = [point for trial in trials for point in _points(generator, trial, epochs)]
    for trial in trials:
        folder.save_trial(trial)
    for point in points:
        folder.save_points([point])
        if point.epoch in (1, 3, 9):
            folder.save_decision({"trial": point.trial, "epoch": point.epoch, "goes_on": True, "rung": point.epoch})
    claim = Claim(
        data="imagined", population=1000, unit="row", evaluation="public", radius_unit="raw units", exploratory=False,
        secure_generator=True, public=(), conditions=(),
    )  # fmt: skip
    price = {name: Price(epsilon=9.0, delta=1e-4, events=count, statement=name) for name in ("winner", "everything")}
    front = build_front(
        sweep="large", objectives=OBJECTIVES, trials=trials, points=points, ledger=price, claim=claim
    )  # fmt: skip
    tested = [replace(p, test=p.values) if p.key in front.on_front else p for p in front.points]
    replace(front, points=tuple(tested)).write(folder.front)
    folder.write_manifest(Manifest(name="large", status=SweepStatus.COMPLETED, spec={}, source="spec.yaml"))
    return f"{len(front.on_front)} points on the front"


def _trial(generator: np.random.Generator, number: int) -> Trial:
    config = {
        "model": {"architecture": str(generator.choice(["mlp", "convnet"])), "width": int(generator.choice([64, 128]))},
        "training": {
            "batch_size": int(generator.integers(64, 512)),
            "learning_rate": float(10 ** generator.uniform(-3, 0)),
            "loss": {"name": "tau-cce", "temperature": float(10 ** generator.uniform(-1.3, 0.7))},
        },
        "privacy": {"epsilon": float(np.exp(generator.uniform(-0.7, 2.3))), "delta": 1e-4},
    }
    return Trial(id=f"t{number:04d}", config=config, status=TrialStatus.COMPLETED)


def _points(generator: np.random.Generator, trial: Trial, epochs: int) -> list[Point]:
    """A saturating curve; a hot temperature buys robustness with accuracy."""
    heat = np.log10(trial.config["training"]["loss"]["temperature"])
    points = []
    for epoch in range(1, epochs + 1):
        epsilon = trial.config["privacy"]["epsilon"] * (epoch / epochs) ** 0.55
        accuracy = 0.95 - 0.5 * np.exp(-epsilon) - 0.05 * max(heat, 0) + generator.normal(0, 0.006)
        certified = accuracy * np.exp(-1.1 * (1 - 0.55 * np.tanh(heat + 0.6)))
        values = {"epsilon": epsilon, "accuracy": float(accuracy), "certified@0.25": float(certified)}
        points.append(Point(trial=trial.id, epoch=epoch, values=values, accountants={"rdp": epsilon}))
    return points


if __name__ == "__main__":
    main()
