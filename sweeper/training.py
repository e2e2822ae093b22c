"""One trial, from its configuration to its rows: what runs inside a worker, without Ray.

The first row is the plan, made before any noise is drawn; every later row is one epoch. What leaves a trial
is in these rows and in the saved models: public numbers, scores on rows declared for evaluation, and released
weights.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod, sqrt
from pathlib import Path
from typing import Any

import torch
from torch import nn

import clipless
from clipless.augmentation import Augmentation
from clipless.certificates import float64_features
from clipless.clipping import AdaptiveClipping, Clipping
from clipless.datasets import Dataset, Metadata, Split
from clipless.errors import CliplessError
from clipless.freezing import Freezing
from clipless.layers import ClipGradient, ScaleByQuantile, Standardise
from clipless.losses import LOSSES, Loss
from clipless.network import Network
from clipless.optimizers import Optimizer, Schedule
from clipless.plan import Plan
from clipless.privacy.allocation import NoiseAllocation
from clipless.privacy.randomness import RandomSource
from clipless.projections import build_constraint
from sweeper.config import TrialConfig
from sweeper.errors import SpecError
from sweeper.metrics import TrialMetrics
from sweeper.objectives import radii
from sweeper.pareto import FrontArchive
from sweeper.records import Objective, Point
from sweeper.settings import ADAPTIVE
from sweeper.settings import Optimizer as OptimizerKind
from sweeper.store import SweepFolder

# Standardisation divides by no less than this share of the deviation that entries of the largest norm would have.
_LEAST_DEVIATION = 0.02
# A quantile of norms is looked for from this share of the largest one on.
_LEAST_QUANTILE = 1e-3


class TrialRun:
    """One configuration on one data set.

    Args:
        trial: id, names the saved models.
        config: every value chosen.
        data: its training split is trained on, its validation split scored; the test split is not touched.
        objectives: axes of the front.
        metrics: computed beside them: certificates at every epoch, attacks at the last one and at those that no
            earlier epoch of this trial dominates.
        seed: fixes the initial weights, and which rows membership inference looks at; nothing else.
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
        metrics: Sequence[str] = (),
        seed: int,
        folder: Path | None = None,
        device: str = "cpu",
        source: RandomSource | None = None,
    ) -> None:
        self._trial, self._config, self._data = trial, config, data
        self._radii = radii([*objectives, *map(Objective.named, metrics)])
        self._archive = FrontArchive(objectives)
        self._folder, self._device, self._source = folder, device, source
        if device != "cpu":  # private training refuses it: its rounding is larger than the noise covers
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        self.loss = build_loss(config)
        self._metrics = TrialMetrics(metrics, data.metadata, self.loss, seed=seed)
        self.model = build_model(config, data, self.loss, seed).to(device)
        self._augmentation = build_augmentation(config, data)
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
            exact_norms=bool(training.exact_norms),
            augmentation=self._augmentation,
            source=self._source,
        )
        features = float64_features(self.model, validation.x)
        for epoch in epochs:
            scores = clipless.evaluate(
                self.model, validation, self._radii, self._data.metadata.input_gain, features=features
            )
            point = Point(trial=self._trial, epoch=epoch.epoch, values={"epsilon": epoch.epsilon, **scores})
            entered, _ = self._archive.add([point])
            last = epoch.epoch == self.plan.epochs
            attacked: dict[str, float] = {}
            if entered or last:
                attacked = self._metrics.compute(self.model, scores, train=train, validation=validation)
            yield {
                "kind": "epoch",
                "epoch": epoch.epoch,
                "values": {**point.values, **attacked},
                "model": self._save(point) if entered else None,
                "done": last,
            }

    def _save(self, point: Point) -> str | None:
        if self._folder is None:
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
    statistics, input_norm = build_statistics(config, declared)
    clip = input_norm if model.input_clip is None else min(model.input_clip, input_norm)
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
        behind = [] if config.training.gradient_clip is None else [ClipGradient(config.training.gradient_clip)]
        return Network([*statistics, *network.layers, *behind], network.input_shape)
    except (CliplessError, ValueError) as error:
        raise SpecError(f"{error} (model.architecture={model.architecture} on {declared.name})") from error


def build_statistics(config: TrialConfig, declared: Metadata) -> tuple[list[nn.Module], float]:
    """Return the layers whose constants are paid releases, and a bound of the norms behind them.

    Behind a standardisation that bound is no more than a convenient radius: 4 standard deviations in every feature.
    Behind a quantile it is 1, the quantile itself.
    """
    shape, norm = declared.input_shape, declared.input_norm
    layers: list[nn.Module] = []
    if config.model.standardise:
        layers.append(Standardise(shape[0], norm, floor=_LEAST_DEVIATION * norm / sqrt(prod(shape))))
        norm = 4.0 * sqrt(prod(shape))
    if config.model.input_quantile is not None:
        layers.append(ScaleByQuantile(_LEAST_QUANTILE * norm, norm, config.model.input_quantile))
        norm = 1.0
    return layers, norm


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
        clipping=build_clipping(config),
        freezing=build_freezing(config),
    )


def build_freezing(config: TrialConfig) -> Freezing | None:
    """Return which layers of a configuration rest, ``None`` for none."""
    training = config.training
    if training.freeze_after is None:
        return None
    return Freezing(layers=training.freeze_layers or 1, after=training.freeze_after)


def build_augmentation(config: TrialConfig, data: Dataset) -> Augmentation | None:
    """Return what makes the copies of a drawn row, ``None`` for the row itself.

    Raises:
        SpecError: the rows are no images.
    """
    training = config.training
    if not (training.flip or training.shift):
        return None
    if len(data.metadata.input_shape) != 3:
        raise SpecError(
            f"Expected images for training.flip and training.shift, got rows of shape {data.metadata.input_shape} "
            f"({data.metadata.name}); leave them out"
        )
    return Augmentation(copies=training.copies or 1, flip=bool(training.flip), shift=training.shift or 0)


def build_clipping(config: TrialConfig) -> Clipping:
    """Return how the clipping norm of a configuration moves."""
    training = config.training
    if training.gradient_clip_schedule != ADAPTIVE:
        return Schedule(training.gradient_clip_schedule or Schedule.CONSTANT)
    return AdaptiveClipping() if training.clip_quantile is None else AdaptiveClipping(quantile=training.clip_quantile)


def build_optimizer(config: TrialConfig) -> Optimizer:
    """Return the optimiser settings of a configuration."""
    training = config.training
    if training.optimizer is OptimizerKind.ADAM:
        return clipless.Adam(training.learning_rate)
    return clipless.SGD(training.learning_rate, training.momentum or 0.0)


def on_device(split: Split, device: str) -> Split:
    """Return the rows on ``device``."""
    return replace(split, x=split.x.to(device), y=split.y.to(device))
