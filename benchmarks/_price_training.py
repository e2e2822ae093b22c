"""Trainings that `price.py` looks up: each is done once, and its scores stay in a folder.

What a trial of the product does, without Ray and without the price of each epoch: the same plan, steps and scores on
validation rows. Beside the weights of an epoch, moving averages of them are scored, which cost nothing.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import clipless
from clipless.certificates.certify import float64_features
from clipless.datasets import Dataset, load
from clipless.privacy.sampling import PoissonSampler
from clipless.testing import SeededSource
from clipless.training.optimizers import MovingAverage
from clipless.training.trainer import PrivateTrainer
from sweeper.search.space import resolve
from sweeper.spec.fields.ranges import Scalar
from sweeper.spec.spec import Spec
from sweeper.spec.trial_config import TrialConfig
from sweeper.trials.build import build_loss, build_model, build_optimizer, build_plan

DECAYS = (0.9, 0.97)
_VERSION = 1

Scores = dict[str, float]


@dataclass
class Task:
    """A data set with a space of configurations; the noise multiplier of each training is given with it.

    Attributes:
        spec: without a price: its ``privacy.noise_multiplier`` is replaced for each training.
        radius: of the certified accuracy that is one of both objectives.
    """

    name: str
    content: Mapping[str, Any]
    radius: str
    source: str
    data_dir: Path | None = None
    _data: dict[int, Dataset] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, str]:
        """The objectives beside epsilon."""
        return "accuracy", f"certified@{self.radius}"

    def spec(self, noise: float = 1.0) -> Spec:
        """The spec of trainings with a noise multiplier."""
        content = json.loads(json.dumps(self.content))
        content["privacy"] = {"noise_multiplier": noise, "delta": content["privacy"]["delta"]}
        content["search"] = {"objectives": ["epsilon", *self.names], "trials": 1}
        return Spec.from_mapping(content, self.source)

    @property
    def delta(self) -> float:
        """Of every price."""
        return float(self.content["privacy"]["delta"])

    def data(self) -> Dataset:
        """The rows, loaded once."""
        if 0 not in self._data:
            self._data[0] = load(**self.spec().data_options(self.data_dir))
        return self._data[0]

    def rate_and_steps(self, proposal: Mapping[str, Scalar]) -> tuple[float, int]:
        """The sampling rate and the number of steps of a training."""
        training = resolve(self.spec(), proposal).training
        population = len(self.data().train)
        rate = training.batch_size / population
        return rate, (training.epochs or 0) * -(-population // training.batch_size)


class Trainings:
    """The cache."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._known: dict[str, list[dict[str, Scores]]] = {}
        self.done = 0

    def epochs(self, task: Task, proposal: Mapping[str, Scalar], noise: float, seed: int) -> list[dict[str, Scores]]:
        """Scores after each epoch, of the weights ("last") and of their averages."""
        noise = float(f"{noise:.4g}")
        key = json.dumps([_VERSION, task.name, sorted(proposal.items()), noise, seed])
        name = hashlib.sha256(key.encode()).hexdigest()[:24]
        if name not in self._known:
            path = self._folder / f"{name}.json"
            if not path.exists():
                rows = list(_train(task, proposal, noise, int(name[:12], 16)))
                path.write_text(json.dumps({"key": key, "rows": rows}), encoding="utf-8")
                self.done += 1
            self._known[name] = json.loads(path.read_text(encoding="utf-8"))["rows"]
        return self._known[name]


def _train(task: Task, proposal: Mapping[str, Scalar], noise: float, seed: int) -> Iterator[dict[str, Scores]]:
    data = task.data()
    config: TrialConfig = resolve(task.spec(noise), proposal)
    loss = build_loss(config)
    model = build_model(config, data, loss, seed % 2**32)
    plan = build_plan(config, model, loss, len(data.train))
    source = SeededSource(seed)
    trainer = PrivateTrainer(
        model, loss, data.train, plan, build_optimizer(config), 512, source, schedule=config.training.schedule
    )
    averages = {decay: MovingAverage(list(model.parameters()), decay) for decay in DECAYS}
    features = float64_features(model, data.validation.x)
    sampler = PoissonSampler(plan.population, plan.sampling_rate, source)
    gain = data.metadata.input_gain

    def scores() -> Scores:
        found = clipless.evaluate(model, data.validation, [task.radius], gain, features=features)
        return {name: round(found[name], 5) for name in task.names}

    for _ in range(plan.epochs):
        for rows in sampler.batches(plan.steps_per_epoch):
            trainer.step(torch.from_numpy(rows))
            for average in averages.values():
                average.update()
        row = {"last": scores()}
        for decay, average in averages.items():
            with average.applied():
                row[f"{decay:g}"] = scores()
        yield row
