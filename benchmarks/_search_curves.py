"""Learning curves that `search.py` replays: simulated ones of private training, and recorded ones.

A *task* proposes configurations through an Optuna study and knows, for each, the whole trajectory: epsilon, accuracy
and certified accuracy after every epoch. Whoever replays it sees one epoch at a time. One of them really trains, each
trial as far as it is asked for.
"""

import json
import multiprocessing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import exp, log, log10, sqrt
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import optuna
import torch

from clipless import datasets
from clipless.privacy.accounting.calibration import noise_multiplier_for
from clipless.privacy.accounting.claim import claims
from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.search.optuna_search import Search
from sweeper.search.space import sample
from sweeper.specification.fields.ranges import Choices, Range
from sweeper.specification.spec import Spec
from sweeper.trials.trial import TrialRun

DIGITS = Path(__file__).resolve().parents[1] / "sweeps" / "digits.yaml"
EPOCHS = 27

Values = Mapping[str, float]


class Task(Protocol):
    """Where configurations and their trajectories come from."""

    def fresh(self, seed: int) -> "Task":
        """The same for another seed, nothing of it tried yet."""
        ...

    def space(self, trial: optuna.Trial) -> dict[str, Any]:
        """Ask an Optuna trial for a configuration."""
        ...

    def start(self, search: Search) -> tuple[str, "Trajectory"] | None:
        """Have the search open a trial; return its id and its trajectory, None if all are tried."""
        ...


@dataclass
class Trajectory:
    """A trial: its epsilon after each epoch, known before the first, its values as they come, and all of them if known.

    Only ``foresight`` looks at the latter.
    """

    curve: Sequence[float]
    rows: Iterator[Values]
    known: tuple[Values, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[Values]) -> "Trajectory":
        """The trajectory of values that are known."""
        known = tuple(rows)
        return cls([row["epsilon"] for row in known], iter(known), known)


@dataclass
class Simulated:
    """Parametric curves: a signal that saturates, and noise that grows beside it, at epsilons of the accountant.

    After T steps at learning rate r the signal is ``S = 1 - exp(-r c T)`` and the noise that the weights carry
    ``N = r s f / b sqrt(min(T, 1 / (2 r)))``, with noise multiplier s, sensitivity fraction f and batch size b;
    accuracy is ``chance + (ceiling - chance) S^3 / (S^2 + N^2)``, the certified share of it ``exp(-m / margin)``. Rate,
    ceiling and margin differ by configuration, in part by luck; scores carry the noise of 400 validation rows.
    """

    seed: int = 0
    tried: int = 0

    ROWS, DELTA, VALIDATION = 10_000, 1e-5, 400

    def fresh(self, seed: int) -> "Simulated":
        """The same space, other luck."""
        return Simulated(seed)

    def space(self, trial: optuna.Trial) -> dict[str, Any]:
        """Five hyperparameters, most of whose range is bad."""
        return {
            "epsilon": trial.suggest_float("epsilon", 0.5, 20.0, log=True),
            "batch": trial.suggest_categorical("batch", [256, 512, 1024, 2048]),
            "rate": trial.suggest_float("rate", 1e-3, 1.0, log=True),
            "fraction": trial.suggest_float("fraction", 0.02, 1.0, log=True),
            "temperature": trial.suggest_float("temperature", 0.05, 5.0, log=True),
        }

    def start(self, search: Search) -> tuple[str, Trajectory]:
        """Simulate what the search proposes; the n-th trial of a seed has the same luck whoever asks for it."""
        name = search.ask()
        self.tried += 1
        return name, Trajectory.of(self._rows(search.open[name], np.random.default_rng([self.seed, self.tried])))

    def _rows(self, params: Mapping[str, Any], luck: np.random.Generator) -> Iterator[Values]:
        batch, rate, fraction = params["batch"], params["rate"], params["fraction"]
        sigma, curve = _accounted(round(8 * log(params["epsilon"])) / 8, batch / self.ROWS, self.ROWS // batch)
        heat = log10(params["temperature"])
        speed = 0.5 * rate * fraction / (fraction + 0.15) * exp(0.3 * luck.normal())
        ceiling = 0.96 - 0.05 * (heat + 0.6) ** 2 - 0.03 * abs(luck.normal())
        margin = exp(0.8 * heat + 0.2 * luck.normal()) * (0.3 + fraction)
        for epoch, epsilon in enumerate(curve, start=1):
            steps = epoch * (self.ROWS // batch)
            signal = 1.0 - exp(-speed * steps)
            noise = 400.0 * rate * sigma * fraction / batch * sqrt(min(steps, 0.5 / rate))
            accuracy = 0.1 + (ceiling - 0.1) * signal**3 / (signal**2 + noise**2)
            certified = accuracy * exp(-0.15 / (margin * signal + 1e-3))
            yield {
                "epsilon": epsilon,
                "accuracy": luck.binomial(self.VALIDATION, accuracy) / self.VALIDATION,
                "certified@0.25": luck.binomial(self.VALIDATION, certified) / self.VALIDATION,
            }


@cache
def _accounted(log_epsilon: float, sampling_rate: float, steps: int) -> tuple[float, list[float]]:
    """Noise multiplier that ends at an epsilon, and epsilon after each epoch."""
    relation = Relation.ADD_OR_REMOVE_ONE
    sigma = noise_multiplier_for(exp(log_epsilon), Simulated.DELTA, sampling_rate, EPOCHS * steps, relation)
    event = PoissonGaussian(noise_multiplier=sigma, sampling_rate=sampling_rate, steps=1, relation=relation)
    ends = tuple(steps * epoch for epoch in range(1, EPOCHS + 1))
    return sigma, [one.epsilon for one in claims(event, ends, Simulated.DELTA)]


class Recorded:
    """Curves of real trainings: what the sampler proposes becomes the nearest configuration that was not tried yet.

    Args:
        trials: ``{"params": ..., "rows": ...}`` of each.
        seed: fixes the order in which a random search meets them.
    """

    def __init__(self, trials: Sequence[Mapping[str, Any]], seed: int = 0) -> None:
        self._trials, self._spec = trials, digits_spec()
        self._left = np.random.default_rng(seed).permutation(len(trials))
        spaces = {dimension.name: dimension.space for dimension in self._spec.dimensions if dimension.space is not None}
        self._places = np.array([_place(trial["params"], spaces) for trial in trials])
        self._spaces = spaces

    @classmethod
    def read(cls, path: Path) -> "Recorded":
        """Read what ``record`` wrote."""
        return cls(json.loads(path.read_text(encoding="utf-8")))

    def fresh(self, seed: int) -> "Recorded":
        """The same curves, none of them tried yet."""
        return Recorded(self._trials, seed)

    def space(self, trial: optuna.Trial) -> dict[str, Any]:
        """The space that the configurations were drawn from."""
        return self._spec.space.suggest(trial)

    def start(self, search: Search) -> tuple[str, Trajectory] | None:
        """Open the recorded configuration that is nearest to what the search proposes."""
        if not len(self._left):
            return None
        proposal = search.ask()
        asked = _place(search.open[proposal], self._spaces)
        search.finish(proposal, failed=True)
        nearest = int(np.argmin(((self._places[self._left] - asked) ** 2).sum(axis=1)))
        chosen, self._left = self._trials[self._left[nearest]], np.delete(self._left, nearest)
        search.enqueue(chosen["params"])
        return search.ask(), Trajectory.of(chosen["rows"])


@dataclass
class Trained:
    """Trainings on digits, of what the search proposes."""

    seed: int = 0
    tried: int = 0

    def __post_init__(self) -> None:
        self._spec = digits_spec()
        self._data = datasets.load(**self._spec.data_options())

    def fresh(self, seed: int) -> "Trained":
        """The same space, other initial weights."""
        return Trained(seed)

    def space(self, trial: optuna.Trial) -> dict[str, Any]:
        """The space of ``digits_spec``."""
        return self._spec.space.suggest(trial)

    def start(self, search: Search) -> tuple[str, Trajectory]:
        """Begin to train what the search proposes."""
        name = search.ask()
        self.tried += 1
        run = _run(self._spec, self._data, name, search.open[name], 1000 * self.seed + self.tried)
        return name, Trajectory(run.plan.epsilon_curve(), (row.values for row in run.epoch_rows()))


def _run(spec: Spec, data: datasets.Dataset, name: str, proposal: Mapping[str, Any], seed: int) -> TrialRun:
    torch.set_num_threads(1)
    config = spec.space.resolve(proposal)
    return TrialRun(trial=name, config=config, data=data, objectives=spec.objectives, seed=seed)


def _place(params: Mapping[str, Any], spaces: Mapping[str, Range | Choices]) -> list[float]:
    """Coordinates from 0 to 1, logarithmic where the space is; each choice has its own axis."""
    place: list[float] = []
    for name, space in spaces.items():
        if isinstance(space, Range):
            scale = log if space.log else float
            place.append((scale(params[name]) - scale(space.low)) / (scale(space.high) - scale(space.low)))
        else:
            place += [float(params[name] == choice) for choice in space.values]
    return place


def digits_spec(**search: Any) -> Spec:
    """The quick start's space, wider: most of its configurations are bad, as in a first sweep of something new."""
    content = Spec.from_yaml(DIGITS).to_plain()
    content["model"]["input_clip"] = {"uniform": [2, 8]}
    content["training"] |= {
        "epochs": EPOCHS,
        "schedule": "constant",
        "batch_size": [128, 256, 512],
        "learning_rate": {"log": [0.001, 0.3]},
        "loss": {"name": "tau-cce", "temperature": {"log": [0.05, 5]}},
        "sensitivity_fraction": {"log": [0.02, 1.0]},
    }
    content["privacy"] = {"epsilon": {"log": [0.5, 20]}, "delta": content["privacy"]["delta"]}
    content["search"].pop("first")
    content["search"] |= search
    return Spec.from_mapping(content, str(DIGITS))


def record(path: Path, trials: int, seed: int) -> None:
    """Train random configurations of ``digits_spec`` to their end, one on each core, and write their curves."""
    spec = digits_spec(trials=trials, seed=seed)
    tasks = list(enumerate(sample(spec.space, trials)))
    with multiprocessing.get_context("spawn").Pool() as pool:
        recorded = pool.map(partial(_recorded, spec), tasks, chunksize=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(recorded), encoding="utf-8")


def _recorded(spec: Spec, task: tuple[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Train one configuration."""
    number, proposal = task
    run = _run(spec, datasets.load(**spec.data_options()), f"t{number}", proposal, number)
    return {"params": proposal, "rows": [row.values for row in run.epoch_rows()]}
