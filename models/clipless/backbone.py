"""Features of a frozen backbone: a user's torch module in front, applied once to each example.

The module is public: it must have been trained without the private rows. Nothing is known about how far it
enlarges distances, so certificates hold in its feature space, and the card says so. A Lipschitz head is
trained on the features as on any other data set.

Shape letters: B batch.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from clipless.datasets import Dataset, Split
from clipless.errors import UnsupportedError
from clipless.layers import InputBall

_CHUNK = 256


def backbone_features(dataset: Dataset, backbone: nn.Module, *, name: str, feature_norm: float) -> Dataset:
    """Replace every example of ``dataset`` by its features.

    Args:
        dataset: on the device of the backbone.
        backbone: (B, *input_shape) to (B, *feature_shape), in evaluation mode; each row on its own.
        name: of the backbone and its weights, for the card.
        feature_norm: radius of the ball that features are projected onto; a public number, not computed from
            these features. Examples whose features are not finite become zero.

    Raises:
        UnsupportedError: a backbone in training mode, or one that mixes the rows of a batch.
        ValueError: a radius that is not positive and finite.

    Guarantees:
        Row i of each split depends on row i alone, as far as a search with noise in place of examples can tell, and
        its norm is at most ``feature_norm``.
    """
    ball = InputBall(feature_norm)
    _check_rows_are_apart(backbone, dataset)
    parts = [_features(backbone, ball, part) for part in (dataset.train, dataset.validation, dataset.test)]
    facts = dataset.metadata
    unit = f"features of {name}"
    metadata = replace(
        facts,
        input_shape=tuple(parts[0].x.shape[1:]),
        input_norm=feature_norm,
        input_gain=1.0,
        radius_unit=unit,
        public_facts=(
            *facts.public_facts,
            f"The weights of {name} are public: they were trained without the private rows.",
            f"Features are projected onto the ball of radius {feature_norm:g}, a declared number.",
        ),
        conditions=(
            *facts.conditions,
            f"Certified radii are in units of {unit}: they bound no distance between {facts.radius_unit}.",
        ),
    )
    return Dataset(metadata, *parts)


@torch.no_grad()
def _features(backbone: nn.Module, ball: InputBall, split: Split) -> Split:
    chunks = [ball(backbone(chunk).float()) for chunk in split.x.split(_CHUNK)]
    return replace(split, x=torch.cat(chunks))


@torch.no_grad()
def _check_rows_are_apart(backbone: nn.Module, dataset: Dataset) -> None:
    if any(module.training for module in backbone.modules()):
        raise UnsupportedError("Expected a backbone in evaluation mode, whose rows do not mix; call its eval()")
    device = dataset.train.x.device
    noise = torch.rand((4, *dataset.metadata.input_shape), generator=torch.Generator().manual_seed(0)).to(device)
    before: Tensor = backbone(noise)
    if before.dim() < 2 or len(before) != len(noise):
        raise UnsupportedError(f"Expected one row of features for each example, got shape {tuple(before.shape)}")
    for row in range(len(noise)):
        changed = noise.clone()
        changed[row] = 1.0 - changed[row]
        others = torch.arange(len(noise), device=device) != row
        if not torch.allclose(backbone(changed)[others], before[others], rtol=0.0, atol=0.0, equal_nan=True):
            raise UnsupportedError("Expected a backbone that treats each example alone, got one that mixes rows")
