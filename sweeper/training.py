"""One trial, from its configuration to its rows: what runs inside a worker, without Ray.

The first row is the plan, made before any noise is drawn; every later row is one epoch. What leaves a trial
is in these rows and in the saved models: public numbers, scores on rows declared for evaluation, and released
weights.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import clipless
from clipless.certificates import float64_features
from clipless.datasets import Dataset, Split
from clipless.errors import CliplessError
from clipless.layers import ClipGradient
from clipless.losses import LOSSES, Loss
from clipless.network import Network
from clipless.optimizers import Optimizer
from clipless.plan import Plan
from clipless.privacy.allocation import NoiseAllocation
from clipless.privacy.randomness import RandomSource
from clipless.projections import build_constraint
from sweeper.config import TrialConfig
from sweeper.errors import SpecError
from sweeper.objectives import radii
from sweeper.pareto import FrontArchive
from sweeper.records import Objective, Point
from sweeper.settings import Optimizer as OptimizerKind
from sweeper.store import SweepFolder


class TrialRun:
    """One configuration on one data set.

    Args:
        trial: id, names the saved models.
        config: every value chosen.
        data: its training split is trained on, its validation split scored; the test split is not touched.
        objectives: axes of the front; radii of ``certified@R`` are taken from here.
        seed: fixes the initial weights, nothing else.
        folder: where models are saved, ``None`` to save none.
        device: where data and model live.
        source: randomness of batches and noise; tests inject one.

    Raises:
        SpecError: a configuration that cannot be trained.
        clipless.errors.CliplessError: one that cannot be planned.
    """

    def __init__(
        self,
        *,
        trial: str,
        config: TrialConfig,
        data: Dataset,
        objectives: Sequence[Objective],
        seed: int,
        folder: Path | None = None,
        device: str = "cpu",
        source: RandomSource | None = None,
    ) -> None:
        self._trial, self._config, self._data = trial, config, data
        self._radii = radii(objectives)
        self._archive = FrontArchive(objectives)
        self._folder, self._device, self._source = folder, device, source
        if device != "cpu":  # private training refuses it: its rounding is larger than the noise covers
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        self.loss = build_loss(config)
        self.model = build_model(config, data, self.loss, seed).to(device)
        self.plan = build_plan(config, self.model, self.loss, len(data.train))

    def plan_row(self) -> dict[str, Any]:
        """Return the plan and the upper bound of epsilon after each epoch."""
        plan = self.plan.to_json() | {"secure_generator": self._source is None or self._source.secure}
        return {"kind": "plan", "epoch": 0, "plan": plan, "epsilon_curve": self.plan.epsilon_curve()}

    def epoch_rows(self) -> Iterator[dict[str, Any]]:
        """Train, and yield the row of each epoch; its model is saved if no earlier epoch was better."""
        train, validation = (
            on_device(self._data.train, self._device),
            on_device(self._data.validation, self._device),
        )
        training = self._config.training
        epochs = clipless.fit(
            self.model,
            self.loss,
            train,
            self.plan,
            optimizer=build_optimizer(self._config),
            schedule=training.schedule,
            averaging=training.averaging,
            micro_batch_size=training.micro_batch_size,
            ghost_clipping=bool(training.ghost_clipping),
            source=self._source,
        )
        features = float64_features(self.model, validation.x)
        for epoch in epochs:
            scores = clipless.evaluate(
                self.model, validation, self._radii, self._data.metadata.input_gain, features=features
            )
            point = Point(trial=self._trial, epoch=epoch.epoch, values={"epsilon": epoch.epsilon, **scores})
            yield {
                "kind": "epoch",
                "epoch": epoch.epoch,
                "values": dict(point.values),
                "model": self._save(point),
                "done": epoch.epoch == self.plan.epochs,
            }

    def _save(self, point: Point) -> str | None:
        entered, _ = self._archive.add([point])
        if self._folder is None or not entered:
            return None
        name = SweepFolder.model_name(point.trial, point.epoch)
        clipless.save(self.model, self._folder / name)
        return name


def build_loss(config: TrialConfig) -> Loss:
    """Return the loss of a configuration."""
    chosen = config.training.loss
    return LOSSES[chosen.name](**chosen.parameters)


def build_model(config: TrialConfig, data: Dataset, loss: Loss, seed: int) -> Network:
    """Return the untrained model of a configuration.

    Raises:
        SpecError: the architecture does not fit the data or the loss.
    """
    declared, model = data.metadata, config.model
    clip = declared.input_norm if model.input_clip is None else min(model.input_clip, declared.input_norm)
    options = model.options
    try:
        if "constraint" in options:
            options["constraint"] = build_constraint(options["constraint"], model.weight_norm)
        network = clipless.zoo.build(
            model.architecture,
            declared.input_shape,
            loss.output_size(len(declared.classes)),
            input_norm=clip,
            generator=torch.Generator().manual_seed(seed),
            **options,
        )
        if config.training.gradient_clip is None:
            return network
        return Network([*network.layers, ClipGradient(config.training.gradient_clip)], network.input_shape)
    except (CliplessError, ValueError) as error:
        raise SpecError(f"{error} (model.architecture={model.architecture} on {declared.name})") from error


def build_plan(config: TrialConfig, model: Network, loss: Loss, population: int) -> Plan:
    """Return the plan of a configuration for ``population`` training rows."""
    training, privacy = config.training, config.privacy
    return clipless.make_plan(
        model,
        loss,
        population=population,
        batch_size=training.batch_size,
        delta=privacy.delta,
        epsilon=privacy.epsilon,
        noise_multiplier=privacy.noise_multiplier,
        epochs=training.epochs,
        sensitivity_fraction=training.sensitivity_fraction or 1.0,
        allocation=privacy.noise or NoiseAllocation.MIN_VARIANCE,
        relation=privacy.relation,
        accept_large_delta=privacy.accept_large_delta,
        method=training.method,
        clip_norm=training.clip_norm,
        follow_weights=bool(training.follow_weights),
    )


def build_optimizer(config: TrialConfig) -> Optimizer:
    """Return the optimiser settings of a configuration."""
    training = config.training
    if training.optimizer is OptimizerKind.ADAM:
        return clipless.Adam(training.learning_rate)
    return clipless.SGD(training.learning_rate, training.momentum or 0.0)


def on_device(split: Split, device: str) -> Split:
    """Return the rows on ``device``."""
    return replace(split, x=split.x.to(device), y=split.y.to(device))
