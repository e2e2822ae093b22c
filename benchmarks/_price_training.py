"""Trainings that `price.py` looks up: each is done once, and its scores stay in a folder.

What a trial of the product does, without Ray and without the price of each epoch: the same plan, steps and scores.
Beside the weights of an epoch, moving averages of them are scored, which cost nothing. Randomness is seeded, so that a
table can be repeated: none of these models has a guarantee.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from clipless.certificates.certify import certified_radii, decisions, float64_features, float64_logits
from clipless.certificates.radii import parse_radius
from clipless.datasets import Dataset, load
from clipless.fixed_prefix import precompute
from clipless.network import Network
from clipless.privacy.events import PoissonGaussian, Relation
from clipless.privacy.sampling import PoissonSampler
from clipless.testing import SeededSource
from clipless.training import trainer
from clipless.training.averaging import ExponentialAverage, RunningAverage
from sweeper.pareto.dominance import Floats
from sweeper.specification.fields.ranges import Scalar
from sweeper.specification.spec import Spec
from sweeper.specification.trial_config import TrialConfig
from sweeper.trials.build import build_loss, build_model, build_optimizer, build_plan
from sweeper.trials.rehearsal import rehearsal_config, rehearsal_halves

MICRO_BATCH = 4096  # rows of a pass; sums are exact, whatever it is
DECAYS = (0.9, 0.97)  # of the moving averages
_VERSION = 2

Proposal = Mapping[str, Scalar]
Rows = list[list[list[float]]]  # points, splits, objectives


@dataclass(frozen=True)
class Scored:
    """Every point of one or more trainings: rows are points, columns accuracy and certified accuracy."""

    validation: Floats
    test: Floats

    @classmethod
    def joined(cls, several: Sequence["Scored"]) -> "Scored":
        """The points of all of them."""
        return cls(np.concatenate([one.validation for one in several]), np.concatenate([one.test for one in several]))


@dataclass
class Task:
    """A data set with a space of configurations; the noise multiplier of a training is given with it.

    Attributes:
        content: a spec, whose section ``privacy`` says delta alone.
        radius: of the certified accuracy that is one of both objectives.
        path: of the spec.
    """

    name: str
    content: Mapping[str, Any]
    radius: str
    path: Path
    data_dir: Path | None = None

    @property
    def names(self) -> tuple[str, str]:
        """The objectives beside epsilon."""
        return "accuracy", f"certified@{self.radius}"

    @property
    def delta(self) -> float:
        """Of every price."""
        return float(self.content["privacy"]["delta"])

    def spec(self, noise: float = 1.0, **search: Any) -> Spec:
        """The spec of trainings with a noise multiplier."""
        content = json.loads(json.dumps(self.content))
        content["privacy"] = {"noise_multiplier": noise, "delta": self.delta}
        content["search"] = {"objectives": ["epsilon", *self.names], "trials": 1, **search}
        return Spec.from_mapping(content, str(self.path))

    @cached_property
    def data(self) -> Dataset:
        """The rows."""
        return load(**self.spec().data_options(self.data_dir))

    def event(self, proposal: Proposal, noise: float) -> PoissonGaussian:
        """What a training of the configuration spends."""
        training, population = self.spec().space.resolve(proposal).training, len(self.data.train)
        return PoissonGaussian(
            noise_multiplier=noise,
            sampling_rate=training.batch_size / population,
            steps=training.epochs * -(-population // training.batch_size),
            relation=Relation.ADD_OR_REMOVE_ONE,
        )


class Trainings:
    """The trainings that were done, as files of a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._known: dict[str, Scored] = {}

    def scores(self, task: Task, proposal: Proposal, noise: float, seed: int) -> Scored:
        """Scores of all epochs and their averages; trained unless it was before."""
        key = [_VERSION, task.name, task.radius, sorted(proposal.items()), noise, seed]
        return self._found(key, lambda seed: _train(task, task.data, task.spec(noise).space.resolve(proposal), seed))

    def rehearsed(self, task: Task, proposal: Proposal, noise: float, seed: int) -> Scored:
        """Scores of a training on one half of the validation rows, on the other half; the mean of both ways.

        A mean over the batch carries the noise that it would carry on the training rows, at their sampling rate.
        """
        key = [_VERSION, "rehearsal", task.name, task.radius, sorted(proposal.items()), noise, seed]
        return self._found(key, lambda seed: _rehearse(task, proposal, noise, seed))

    def _found(self, key: Sequence[Any], train: Callable[[int], Rows]) -> Scored:
        text = json.dumps(key)
        name = hashlib.sha256(text.encode()).hexdigest()[:24]
        if name not in self._known:
            path = self._folder / f"{name}.json"
            if not path.exists():
                path.write_text(json.dumps({"key": text, "rows": train(int(name[:8], 16))}), encoding="utf-8")
            rows_PSO = np.array(json.loads(path.read_text(encoding="utf-8"))["rows"])
            self._known[name] = Scored(rows_PSO[:, 0], rows_PSO[:, 1])
        return self._known[name]


def _rehearse(task: Task, proposal: Proposal, noise: float, seed: int) -> Rows:
    config, found = task.spec(noise).space.resolve(proposal), []
    for number, half in enumerate(rehearsal_halves(task.data)):
        smaller = rehearsal_config(config, len(half.train), len(task.data.train))
        found.append(_train(task, half, smaller, seed + number, f"half {number}"))
    return np.mean(found, axis=0).tolist()  # type: ignore[no-any-return]


class _Features:
    """What fixed prefixes make of rows: several configurations may share it; the latest few are kept."""

    MOST = 32

    def __init__(self) -> None:
        self._held: dict[Any, Any] = {}

    def of(self, key: Any, make: Callable[[], Any]) -> Any:
        """The features under a key."""
        if key not in self._held:
            self._held[key] = make()
            if len(self._held) > self.MOST:
                del self._held[next(iter(self._held))]
        return self._held[key]


_FEATURES = _Features()


def _train(task: Task, data: Dataset, config: TrialConfig, seed: int, rows_of: str = "") -> Rows:
    """Return the scores after each epoch, of the weights and of each average, on both splits."""
    loss = build_loss(config)
    model = build_model(config, data, loss, seed % 2**32)
    plan = build_plan(config, model, loss, len(data.train))
    source, prefix = SeededSource(seed), (task.name, json.dumps(config.to_json()["model"]), rows_of)
    kept = lambda layers, split: _FEATURES.of((*prefix, "train"), lambda: precompute(layers, split))  # noqa: E731
    with patch.object(trainer, "precompute", kept):
        training = trainer.PrivateTrainer(
            model,
            loss,
            data.train,
            plan,
            build_optimizer(config),
            MICRO_BATCH,
            source,
            schedule=config.training.schedule,
        )
    averages = [RunningAverage(model.parameters(), ExponentialAverage(decay)) for decay in DECAYS]
    sampler = PoissonSampler(plan.population, plan.sampling_rate, source)
    found: Rows = []
    step = 0
    for _ in range(plan.epochs):
        for rows in sampler.batches(plan.steps_per_epoch):
            training.step(rows)
            step += 1
            for average in averages:
                average.update(step)
        found.append(_scores(task, data, model, prefix))
        for average in averages:
            with average.applied():
                found.append(_scores(task, data, model, prefix))
    return found


def _scores(task: Task, data: Dataset, model: Network, prefix: tuple[str, ...]) -> list[list[float]]:
    """Both objectives on both splits, as `clipless.evaluate` has them, without what a spec does not ask for."""
    splits = [data.validation] if data.test is data.validation else [data.validation, data.test]
    y = torch.cat([split.y for split in splits])
    features = _FEATURES.of(
        (*prefix, "scored"), lambda: torch.cat([float64_features(model, split.x) for split in splits])
    )
    logits_BK = float64_logits(model, splits[0].x, features=features)
    radius_B = certified_radii(model, logits_BK, y) / data.metadata.input_gain
    hits_BO = torch.stack([decisions(logits_BK) == y, radius_B > parse_radius(task.radius)], dim=1).double()
    rows = [[round(float(share), 5) for share in hits.mean(dim=0)] for hits in hits_BO.split([len(s) for s in splits])]
    return rows if len(rows) == 2 else 2 * rows
