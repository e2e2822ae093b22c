"""What does the machinery cost? A sweep of many short trials against the same trainings in a bare two-process loop.

    python benchmarks/overhead.py [--trials 64] [--epochs 20] [--width 64] [--rounds 2]
    python benchmarks/overhead.py --quick [--rounds 2]                     # the quick start, from command to report
    python benchmarks/overhead.py --empty [--trials 64] [--epochs 20]      # what Ray Tune alone costs

All train the same configurations on scikit-learn's digits, one thread each, and score every epoch and what is made from
its iterates. The bare loop trains one at a time in either process and keeps nothing; the sweep proposes, decides, keeps
models, states and records, prices by two accountants and tracks in MLflow. It runs once with one trial at a time in
either process, and once in stacks, of a size that it measures itself. Prints the wall time of each in turn, from the
first training to the end of the last, and apart from it what comes before and after: starting workers, reading data,
pricing, test scores, the report. A last loop is bare too, but keeps what a sweep keeps: the state of every epoch, the
models, and each trial's scores in MLflow, told at its end in three calls. On a machine that others use wall times mean
little: processor seconds of all of them stand beside them, everything before and after included.

``--empty`` runs as many trials, with as many results each, that do nothing, on Ray Tune without anything of this
package, and prints the processor time of the whole machine meanwhile: less than that no sweep on it can add.
"""

import argparse
import itertools
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
import torch
from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from ray import tune

import clipless
from clipless.datasets import Dataset
from sweeper.backend.environment import environment
from sweeper.backend.on_ray.tune import TUNE_ENVIRONMENT
from sweeper.driver.options import Options
from sweeper.driver.recording.recorder import Recorder
from sweeper.driver.runner import run_sweep
from sweeper.specification.spec import Spec
from sweeper.specification.trial_config import TrialConfig
from sweeper.tracking.names import metric_names, mlflow_params
from sweeper.tracking.store import prepare_mlflow
from sweeper.trials.build import initial_seed
from sweeper.trials.stream import EpochRow
from sweeper.trials.trial import TrialRun

PROCESSES = 2
QUICK_START = Path(__file__).resolve().parents[1] / "sweeps" / "digits.yaml"


def spec(trials: int, epochs: int, width: int, stack: int | str = "auto") -> Spec:
    """Return a sweep of short trials."""
    return Spec.from_mapping(
        {
            "name": "overhead",
            "data": {"name": "digits"},
            "model": {"architecture": "mlp", "width": width},
            "training": {"epochs": epochs, "batch_size": 128, "learning_rate": {"log": [0.005, 0.2]}},
            "privacy": {"epsilon": 3.0, "delta": 1e-4},
            "search": {"objectives": ["epsilon", "accuracy", "certified@0.25"], "trials": trials, "sampler": "tpe"},
            "resources": {"concurrent": PROCESSES, "stack": stack},
        }
    )


class Clock:
    """Notes when the first trial had its plan and when the last one had ended."""

    def __init__(self) -> None:
        self.first = self.last = 0.0
        on_plan, on_end = Recorder.on_plan, Recorder.on_end

        def planned(recorder: Recorder, *told: Any) -> str | None:
            self.first = self.first or time.monotonic()
            return on_plan(recorder, *told)

        def ended(recorder: Recorder, *told: Any) -> None:
            on_end(recorder, *told)
            self.last = time.monotonic()

        Recorder.on_plan, Recorder.on_end = planned, ended  # type: ignore[method-assign]


def swept(settings: Spec, out: Path, clock: Clock) -> tuple[float, float, dict[str, TrialConfig]]:
    """Run the sweep; return the seconds of its trials, those before and after them, and the configurations."""
    clock.first, start = 0.0, time.monotonic()
    ended = run_sweep(settings, Options(out=out))
    rest = time.monotonic() - start - (clock.last - clock.first)
    trials = ended.sweep.folder.trials().values()
    return clock.last - clock.first, rest, {trial.id: TrialConfig.from_json(trial.config) for trial in trials}


def bare(settings: Spec, configs: dict[str, TrialConfig], kept: Path | None = None) -> float:
    """Train the same configurations in a loop of two processes, which may keep all; return the seconds."""
    spawning = multiprocessing.get_context("spawn")
    ready, left = spawning.Barrier(PROCESSES + 1), spawning.Queue()
    warm = next(iter(configs.values()))
    for one in configs.items():
        left.put(one)
    if kept is not None:
        (kept / "models").mkdir(parents=True)
        client(kept).create_experiment("overhead")
    processes = [spawning.Process(target=train, args=(settings, left, ready, warm, kept)) for _ in range(PROCESSES)]
    for process in processes:
        left.put(None)
        process.start()
    ready.wait()
    start = time.monotonic()
    ready.wait()
    took = time.monotonic() - start
    for process in processes:
        process.join()
    return took


def client(folder: Path) -> MlflowClient:
    """Return a client of the store in a folder, which is made if there is none."""
    prepare_mlflow()
    return MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")


def train(settings: Spec, left: Any, ready: Any, warm: TrialConfig, kept: Path | None) -> None:
    """Train one configuration after the other, and score every epoch; before that what torch imports for its first."""
    torch.set_num_threads(1)
    data = clipless.datasets.load(**settings.data_options())
    store = None if kept is None else client(kept)
    experiment = None if store is None else store.get_experiment_by_name("overhead")
    next(run_of(settings, data, "t0000", warm, None).epoch_rows())
    ready.wait()
    for trial, config in iter(left.get, None):
        rows = list(run_of(settings, data, trial, config, kept).epoch_rows())
        if store is not None and experiment is not None:
            tell(store, experiment.experiment_id, trial, config, rows)
    ready.wait()


def run_of(settings: Spec, data: Dataset, trial: str, config: TrialConfig, kept: Path | None) -> TrialRun:
    """Return the training of a configuration."""
    return TrialRun(
        trial=trial,
        config=config,
        data=data,
        objectives=settings.objectives,
        seed=initial_seed(settings.search.seed, trial),
        free=settings.search.free_points,
        folder=kept,
    )


def tell(store: MlflowClient, experiment: str, trial: str, config: TrialConfig, rows: list[EpochRow]) -> None:
    """Write a trial into a store of MLflow."""
    at = time.time_ns() // 1_000_000
    named = [(row.epoch, name, value) for row in rows for name, value in metric_names(row.values).items()]
    named += [
        (row.epoch, f"{free.made_from}/{name}", value)
        for row in rows
        for free in row.free
        for name, value in metric_names(free.values).items()
    ]
    metrics = [Metric(name, value, at, epoch) for epoch, name, value in named]
    run = store.create_run(experiment, at, run_name=trial).info.run_id
    store.log_batch(run, metrics, [Param(*one) for one in mlflow_params(config.to_json()).items()])
    store.set_terminated(run)


class Nothing(tune.Trainable):
    """A trial that reports results of the size of ours and does nothing."""

    def setup(self, config: dict[str, Any]) -> None:
        """Begin."""
        self._results, self._left = int(config["results"]), int(config["results"])

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin again."""
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Return the next result."""
        self._left -= 1
        return {"row": "x" * 400, "done": not self._left}

    def get_auto_filled_metrics(self, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
        """Leave out the configuration, as a sweep does."""
        return {}


class FirstResult(tune.Callback):
    """Notes the time and the processor time of the machine at the first result."""

    def __init__(self) -> None:
        self.at: tuple[float, float] | None = None

    def on_trial_result(self, **_info: Any) -> None:
        """Note them once."""
        self.at = self.at or (time.monotonic(), busy_seconds())


def busy_seconds() -> float:
    """Processor time of all processes of the machine since it started (Linux)."""
    times = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:]
    return sum(float(times[i]) for i in (0, 1, 2, 5, 6)) / os.sysconf("SC_CLK_TCK")


def empty(trials: int, epochs: int) -> None:
    """Print what trials cost that do nothing; a plan is a result too."""
    first, results = FirstResult(), epochs + 1
    with tempfile.TemporaryDirectory() as folder, environment(TUNE_ENVIRONMENT):
        ray.init("local", num_cpus=PROCESSES, include_dashboard=False, log_to_driver=False)
        tune.run(
            Nothing,
            name="empty",
            storage_path=folder,
            config={"results": results},
            num_samples=trials,
            callbacks=[first],
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            reuse_actors=True,
            verbose=0,
        )
        assert first.at is not None
        seconds, busy = time.monotonic() - first.at[0], busy_seconds() - first.at[1]
    count = trials * results
    print(f"{count} results that are empty: {seconds:.1f} s, processor {busy:.1f} s, {1000 * busy / count:.1f} ms each")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--width", type=int, default=64, help="of the network: the wider, the longer an epoch takes")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--empty", action="store_true")
    options = parser.parse_args()
    if options.empty:
        empty(options.trials, options.epochs)
        return
    if options.quick:
        quick(options.rounds)
        return
    clock = Clock()
    alone, stacked = (spec(options.trials, options.epochs, options.width, stack) for stack in (1, "auto"))
    print(f"{options.trials} trials of {options.epochs} epochs, width {options.width}, {PROCESSES} at a time\n")
    print(
        "| round | bare loop (s) | one at a time (s) | ratio | in stacks (s) | throughput | outside (s) | processor "
        "| loop that keeps as much (s) | one at a time / it |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, options.rounds + 1):
            used = [own_seconds()]
            trials, rest, configs = swept(alone, Path(folder), clock)
            used.append(own_seconds())
            loop = bare(alone, configs)
            used.append(own_seconds())
            together, other, _ = swept(stacked, Path(folder), clock)
            used.append(own_seconds())
            keeping = bare(alone, configs, Path(folder) / f"kept-{number}")
            first, second, third = (after - before for before, after in itertools.pairwise(used))
            print(
                f"| {number} | {loop:.1f} | {trials:.1f} | {trials / loop:.2f} | {together:.1f} | "
                f"{loop / together:.2f} | {rest:.1f}, {other:.1f} | {second:.1f}, {first:.1f}, {third:.1f} | "
                f"{keeping:.1f} | {trials / keeping:.2f} |",
                flush=True,
            )


def own_seconds() -> float:
    """Processor time of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def quick(rounds: int) -> None:
    """Print how long the quick start takes, and how much of the processors it uses meanwhile."""
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            start, busy = time.monotonic(), os.times()
            command = [sys.executable, "-c", "from sweeper.cli.main import main; main()", "run", str(QUICK_START)]
            subprocess.run([*command, "--out", folder], check=True, stdout=subprocess.DEVNULL)
            now = os.times()
            used = now.children_user + now.children_system - busy.children_user - busy.children_system
            print(f"quick start: {time.monotonic() - start:.1f} s, processor {used:.1f} s", flush=True)


if __name__ == "__main__":
    main()
