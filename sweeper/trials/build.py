"""From a configuration to what is trained and how: loss, model, plan, optimiser. Pure, but for initial weights."""

from dataclasses import replace
from math import prod, sqrt

import torch
from torch import nn

import clipless
from clipless import losses, saving
from clipless.datasets import Dataset, Metadata, Split
from clipless.errors import CliplessError
from clipless.layers import ClipGradient, ScaleByQuantile, Standardise
from clipless.losses import Loss
from clipless.network import Network
from clipless.plans.clipping import AdaptiveClipping, Clipping
from clipless.plans.freezing import Freezing
from clipless.plans.method import Schedule
from clipless.plans.plan import Plan
from clipless.privacy.accounting.domination import dominated_noise_multiplier
from clipless.privacy.allocation import NoiseAllocation
from clipless.privacy.events import PoissonGaussian
from clipless.projections import build_constraint
from clipless.training.augmentation import Augmentation
from clipless.training.optimizers import Optimizer
from sweeper.errors import SpecError
from sweeper.records import trial_number
from sweeper.specification.architectures import find_architecture
from sweeper.specification.trial_config import ADAPTIVE, TrialConfig
from sweeper.specification.trial_config import Optimizer as OptimizerKind

# Standardisation divides by no less than this share of the deviation that entries of the largest norm would have.
_LEAST_DEVIATION = 0.02
# A quantile of norms is looked for from this share of the largest one on.
_LEAST_QUANTILE = 1e-3


def build_loss(config: TrialConfig) -> Loss:
    """Return the loss of a configuration."""
    chosen = config.training.loss
    return losses.build_loss(chosen.name, **chosen.options)


def initial_seed(seed: int, trial: str) -> int:
    """Return the seed of a trial's initial weights: another one for each trial, the same in each run of a sweep."""
    return seed * 1_000_003 + trial_number(trial)


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
        network = find_architecture(model.architecture).build(
            declared.input_shape,
            loss.output_size(len(declared.classes)),
            input_norm=clip,
            generator=torch.Generator().manual_seed(seed),
            **options,
        )
        saving.architecture(network)  # a plug-in's layers are those of clipless, by exact type
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


def build_plan(
    config: TrialConfig,
    model: Network,
    loss: Loss,
    population: int,
    slot: PoissonGaussian | None = None,
    *,
    repeats: int = 1,
) -> Plan:
    """Return the plan of a configuration for ``population`` training rows.

    Where the configuration fills a ``slot`` of the sweep's budget, its noise is the least for which the slot dominates
    all ``repeats`` of its training.

    Raises:
        clipless.errors.CliplessError: a configuration that cannot be planned, or for which no noise is enough.
    """
    if slot is None:
        return _planned(config, model, loss, population)
    plan = _planned(config, model, loss, population, noise_multiplier=1.0)
    steps = repeats * plan.event().steps
    noise = dominated_noise_multiplier(slot, plan.sampling_rate, steps, config.privacy.delta)
    return replace(plan, noise_multiplier=noise)


def with_noise_of(slot: PoissonGaussian, config: TrialConfig, data: Dataset, *, repeats: int = 1) -> TrialConfig:
    """Return a configuration with the noise multiplier that it has in a slot; see `build_plan`."""
    loss = build_loss(config)
    plan = build_plan(config, build_model(config, data, loss, 0), loss, len(data.train), slot, repeats=repeats)
    privacy = config.privacy.model_copy(update={"noise_multiplier": plan.noise_multiplier})
    return config.model_copy(update={"privacy": privacy})


def event_without_noise(config: TrialConfig, data: Dataset, seed: int) -> PoissonGaussian:
    """Return what one training of a configuration spends but for its noise, which the budget of the sweep gives."""
    loss = build_loss(config)
    plan = _planned(config, build_model(config, data, loss, seed), loss, len(data.train), noise_multiplier=1.0)
    return replace(plan.event(), noise_multiplier=0.0)


def _planned(
    config: TrialConfig, model: Network, loss: Loss, population: int, *, noise_multiplier: float | None = None
) -> Plan:
    training, privacy = config.training, config.privacy
    return clipless.make_plan(
        model,
        loss,
        population=population,
        batch_size=training.batch_size,
        delta=privacy.delta,
        epsilon=privacy.epsilon,
        noise_multiplier=noise_multiplier or privacy.noise_multiplier,
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
    if not (training.flip or training.shift or training.input_noise):
        return None
    if (training.flip or training.shift) and len(data.metadata.input_shape) != 3:
        raise SpecError(
            f"Expected images for training.flip and training.shift, got rows of shape {data.metadata.input_shape} "
            f"({data.metadata.name}); leave them out"
        )
    return Augmentation(
        copies=training.copies or 1,
        flip=bool(training.flip),
        shift=training.shift or 0,
        noise=(training.input_noise or 0.0) * data.metadata.input_gain,
        input_norm=data.metadata.input_norm,
    )


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
    return split.to(device)
