"""What survives kill -9? A sweep whose driver, workers and tracking server are killed at random, and what it leaves.

    python benchmarks/kills.py [--kills 50] [--trials 30] [--epochs 120] [--seed 0] [--budget 3] [--out FOLDER]

Runs one sweep on scikit-learn's digits against an MLflow server, kills the driver, a training process or the server at
random moments, resumes or restarts what was killed, and goes on until the kills are used up and the sweep has ended;
one that ends before is extended, but not one with ``--budget``, whose kills end with it. Every draw of noise is
counted in a file that the sweep does not know of. At the end:

* every trial has ended, with every epoch that it planned or a reason, each point once;
* the front in front.json is the front of all points, and every model of it loads;
* the ledger charges what was drawn: no training is open, none has drawn more than its entries say, and what they say
  beyond what was drawn is at most the epochs that kills cut off;
* with a budget, no stage has drawn more than its slots and spare steps have, and the price of everything is what it was
  before the first kill;
* there is one MLflow run for each trial and one for the sweep, none of them RUNNING, with every point once.

Prints what was killed and a table of these checks; exits with 1 if one fails.
"""

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from _noise_log import drawn_steps
from mlflow import MlflowClient

import clipless
import sweeper
from sweeper.pareto.dominance import front_mask
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.spending.slots import Slots

SPEC = """\
name: {name}
data: {{name: digits}}
model: {{architecture: mlp, width: 32}}
training:
  epochs: {epochs}
  batch_size: 64
  learning_rate: {{log: [0.01, 0.1]}}
  sensitivity_fraction: 0.1
  averaging: 0.9
privacy: {{{budget}: {epsilon:g}, delta: 1e-4}}
search: {{objectives: [epsilon, accuracy, certified@0.25], trials: {trials}, sampler: tpe, scheduler: hyperband,
         grace: 4, rehearse: false}}
"""
HERE = Path(__file__).parent
PATIENCE_SECONDS = 120.0


VICTIMS = ("driver", "driver", "worker", "worker", "worker", "server")
WORKER = "sweeper.backend.workers.fork_server"  # in the command of training processes, and of who forks them


@dataclass
class Campaign:
    """One sweep and those who are killed.

    Attributes:
        folder: an empty one.
        trials: of the sweep.
        epochs: of a trial.
        random: of the moments.
        served: whether runs are tracked by a server, not in the sweep's own file.
        name: of the sweep.
        budget: epsilon of the whole sweep; without one each trial spends epsilon 3.
        killed: how often who was.
    """

    folder: Path
    trials: int
    epochs: int
    random: random.Random
    served: bool = True
    name: str = "kills"
    budget: float | None = None
    killed: Counter = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.noise.mkdir(parents=True, exist_ok=True)
        (self.folder / "spec.yaml").write_text(self.spec, encoding="utf-8")
        self.port = _free_port()
        self.server: subprocess.Popen | None = None
        self.driver: subprocess.Popen | None = None

    @property
    def spec(self) -> str:
        """The sweep's spec."""
        kind = "epsilon" if self.budget is None else "sweep_epsilon"
        limit = 3.0 if self.budget is None else self.budget
        return SPEC.format(name=self.name, trials=self.trials, epochs=self.epochs, budget=kind, epsilon=limit)

    @property
    def noise(self) -> Path:
        """The folder in which draws of noise are counted."""
        return self.folder / "noise"

    @property
    def tracking(self) -> str:
        """The store that is looked into at the end."""
        return f"sqlite:///{self.folder if self.served else self.folder / 'out'}/mlflow.db"

    @property
    def sweep(self) -> Path | None:
        """The sweep's folder, once it can be resumed."""
        found = list((self.folder / "out").glob("*/sweep.json"))
        return found[0].parent if found else None

    def run(self, victims: Sequence[str], latest: float = 6.0) -> None:
        """Kill these, each up to so many seconds after noise is drawn again, and let the sweep end."""
        if self.served:
            self._serve()
        begun = time.monotonic()
        for who in victims:
            before = self.killed[who]
            while self.killed[who] == before and not self._is_over():
                self._drive()
                self._wait(self.random.uniform(0.0, latest))
                if self.driver is not None and self.driver.poll() is None:
                    self._kill(who)
                    print(
                        f"{time.monotonic() - begun:5.0f} s: {who} killed, {sum(self.killed.values())} in all",
                        flush=True,
                    )
        if not self._is_over():
            self._drive()
        assert self.driver is not None
        code = self.driver.wait(1800)
        self.stop()
        if code:
            raise SystemExit(f"the last driver ended with {code}: see {self.folder / 'driver.log'}")

    def _is_over(self) -> bool:
        """Whether a sweep that cannot be extended has ended."""
        ended = self.driver is not None and self.driver.poll() == 0
        return self.budget is not None and ended

    def stop(self) -> None:
        """Stop the tracking server."""
        if self.server is not None:
            os.killpg(self.server.pid, signal.SIGTERM)
            self.server.wait(60)

    def _drive(self) -> None:
        """Start a driver: of a new sweep, of one that was killed, or of one that has ended, for more trials."""
        if self.driver is not None and self.driver.poll() is None:
            return
        arguments = ["run", str(self.folder / "spec.yaml"), str(self.folder / "out")]
        arguments += [f"http://127.0.0.1:{self.port}"] if self.served else []
        if self.sweep is not None:
            status = json.loads((self.sweep / "sweep.json").read_text(encoding="utf-8"))["status"]
            self.trials += 20 * (status == "completed" and self.budget is None)
            arguments = ["resume", str(self.sweep), *([str(self.trials)] if self.budget is None else [])]
        with (self.folder / "driver.log").open("a", encoding="utf-8") as log:
            command = [sys.executable, str(HERE / "_noise_log.py"), str(self.noise), *arguments]
            self.driver = subprocess.Popen(command, stdout=log, stderr=log)

    def _kill(self, who: str) -> None:
        assert self.driver is not None
        if who == "driver":
            self.driver.kill()
            self.driver.wait()
        elif who == "worker":
            processes = _descendants(self.driver.pid, WORKER)
            if not processes:
                return
            os.kill(self.random.choice(processes), signal.SIGKILL)
        elif self.server is not None:
            os.killpg(self.server.pid, signal.SIGKILL)
            self.server.wait()
            self._serve()
        self.killed[who] += 1

    def _serve(self) -> None:
        command = f"mlflow server --host 127.0.0.1 --port {self.port} --workers 1"
        stores = [f"--backend-store-uri=sqlite:///{self.folder}/mlflow.db"]
        stores += [f"--artifacts-destination={self.folder}/artifacts"]
        with (self.folder / "server.log").open("a", encoding="utf-8") as log:
            self.server = subprocess.Popen(
                [sys.executable, "-m", *command.split(), *stores], stdout=log, stderr=log, start_new_session=True
            )
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=1)
                return
            except OSError:
                time.sleep(0.2)
        raise SystemExit(f"the tracking server does not answer: see {self.folder / 'server.log'}")

    def _wait(self, seconds: float) -> None:
        """Wait so long after noise is drawn, or until the driver has ended."""
        assert self.driver is not None
        drawn, until = sum(drawn_steps(self.noise).values()), time.monotonic() + PATIENCE_SECONDS
        while (
            sum(drawn_steps(self.noise).values()) == drawn and self.driver.poll() is None and time.monotonic() < until
        ):
            time.sleep(0.05)
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.driver.poll() is None:
            time.sleep(0.02)

    def checks(self) -> dict[str, str]:
        """Return what does not hold, empty texts for what does."""
        assert self.sweep is not None
        return {
            "trials have ended and points are complete": self._check_trials(),
            "the front is that of all points, its models load": self._check_front(),
            "the ledger is what was drawn": self._check_ledger(),
            "no stage of the budget is overspent": self._check_budget(),
            "one ended run for each trial, each point once": self._check_tracking(),
        }

    def _check_trials(self) -> str:
        sweep = sweeper.load(self.sweep)
        trials, points = sweep.folder.trials(), sweep.folder.points()
        if len(trials) != self.trials:
            return f"{len(trials)} trials of {self.trials}"
        rows = (self.sweep / "points.jsonl").read_text(encoding="utf-8").splitlines()
        reported = defaultdict(set)
        for row in map(json.loads, rows):
            reported[row["trial"], row["epoch"], row.get("made_from")].add(row["values"]["accuracy"])
        twice = [key for key, found in reported.items() if len(found) > 1]
        if twice:
            return f"points with two outcomes: {twice}"
        for trial in trials.values():
            epochs = sorted(epoch for name, epoch, made_from in points if name == trial.id and not made_from)
            if epochs != list(range(1, len(epochs) + 1)):
                return f"{trial.id} has epochs {epochs}"
            whole = trial.plan is not None and len(epochs) == trial.plan.epochs
            if not (whole if trial.status.value == "completed" else trial.status.value == "stopped" and trial.reason):
                return f"{trial.id} is {trial.status.value} ({trial.reason}) with {len(epochs)} epochs"
        return ""

    def _check_front(self) -> str:
        front = sweeper.load(self.sweep).front()
        expected = {p.key for p, on in zip(front.points, front_mask(front.points, front.objectives), strict=True) if on}
        if expected != set(front.on_front) or len(front.points) != len(sweeper.load(self.sweep).folder.points()):
            return "front.json is not the front of points.jsonl"
        for point in front.front_points:
            if point.test is None:
                return f"{point.key} has no test scores"
            clipless.load(self.sweep / str(point.model))
        models = {f"models/{file.name}" for file in (self.sweep / "models").iterdir()}
        kept = {point.model for point in front.front_points}
        return "" if models == kept else f"models besides those of the front: {models - kept}"

    def _check_ledger(self) -> str:
        drawn = drawn_steps(self.noise)
        entries = Ledger(self.sweep / "ledger.jsonl").entries()
        trials = sweeper.load(self.sweep).folder.trials()
        for trial in trials.values():
            mine = [entry for entry in entries if entry.trial == trial.id]
            if any(entry.steps is None for entry in mine):
                return f"{trial.id} has an open training"
            said, charged = sum(entry.steps or 0 for entry in mine), sum(entry.charged.steps for entry in mine)
            slack = len(mine) * (0 if trial.plan is None else trial.plan.steps_per_epoch)
            if not said - slack <= drawn[trial.id] <= said <= charged:
                return f"{trial.id} drew {drawn[trial.id]}, entries say {said}, {charged} are charged"
        return ""

    def _check_budget(self) -> str:
        budget = Ledger(self.sweep / "ledger.jsonl").budget
        if self.budget is None:
            return "" if budget is None else "a budget that was not asked for"
        if not (isinstance(budget, Slots) and budget.price <= self.budget):
            return f"{budget} is no budget of {self.budget:g}"
        drawn: Counter[int] = Counter()
        for trial, steps in drawn_steps(self.noise).items():
            drawn[budget.stage_of(trial)] += steps
        spent = {index: (drawn[index], stage.pool.steps) for index, stage in enumerate(budget.stages)}
        price = sweeper.load(self.sweep).front().ledger["everything"].epsilon
        wrong = {index: steps for index, steps in spent.items() if steps[0] > steps[1]}
        return f"{wrong} were drawn of a pool" if wrong else "" if price == budget.price else f"the price is {price}"

    def _check_tracking(self) -> str:
        client = MlflowClient(tracking_uri=self.tracking)
        experiment = client.get_experiment_by_name(self.name)
        runs = client.search_runs([experiment.experiment_id], max_results=1000)
        names = Counter(run.data.tags.get("sweeper.trial") for run in runs)
        if set(names.values()) != {1} or len(names) != self.trials + 1:
            return f"{len(runs)} runs for {self.trials} trials: {names.most_common(3)}"
        running = [run.info.run_name for run in runs if run.info.status == "RUNNING"]
        if running:
            return f"still RUNNING: {running}"
        points = sweeper.load(self.sweep).folder.points()
        for run in runs:
            trial = run.data.tags.get("sweeper.trial")
            steps = {m.step for m in client.get_metric_history(run.info.run_id, "val/accuracy")} if trial else set()
            if trial and steps != {epoch for name, epoch, _ in points if name == trial}:
                return f"{trial} has metrics of epochs {sorted(steps)}"
        return ""


def _descendants(pid: int, part: str) -> list[int]:
    """Return the descendants of a process that have this in their command."""
    children = defaultdict(list)
    commands = {}
    for entry in Path("/proc").iterdir():
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children[parent].append(int(entry.name))
            commands[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace")
        except (OSError, ValueError):
            continue
    found, left = [], [pid]
    while left:
        one = left.pop()
        left += children[one]
        found += [one] if part in commands.get(one, "") and one != pid else []
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Run the campaign and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, help="epsilon of the whole sweep; none by default")
    parser.add_argument("--out", type=Path, help="an empty folder; a temporary one by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        chance = random.Random(options.seed)
        folder = options.out or Path(temporary)
        campaign = Campaign(folder, options.trials, options.epochs, chance, budget=options.budget)
        start = time.monotonic()
        try:
            campaign.run([chance.choice(VICTIMS) for _ in range(options.kills)])
        finally:
            if campaign.driver is not None:
                campaign.driver.kill()
        found = campaign.checks()
        attempts = len(Ledger(campaign.sweep / "ledger.jsonl").entries())
        print(f"killed: {dict(campaign.killed)}; {campaign.trials} trials, {attempts} trainings entered, ", end="")
        print(f"{time.monotonic() - start:.0f} s\n\n| | |\n|---|---|")
        for what, wrong in found.items():
            print(f"| {what} | {wrong or 'holds'} |")
        sys.exit(any(found.values()))


if __name__ == "__main__":
    main()
