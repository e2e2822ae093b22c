"""Outputs of the models of a stack on rows that are scored after each epoch, computed in one pass.

Each member shows a model for every average that it follows beside the one of its epoch. Weights and bounds are taken
from it while it holds them, as they are of a training alone; the logits of all of them are then computed together.

Shape letters: N shown models, R rows of all of them, B rows, D all trainable entries, K logits.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import Tensor

from clipless.certificates.certify import Measured, float64_features, several_certified_radii
from clipless.certificates.outputs import Outputs, encoding_error
from clipless.datasets import Split
from clipless.errors import CliplessError
from clipless.network import prefix_depth, split_fixed_prefix
from clipless.stacks.forward import StackedLayer, by_parameter, stack_layers
from clipless.stacks.member_training import MemberTraining, description

_CHUNK = 4096  # rows of all models in one pass

OfMember = Mapping[str, Outputs]
"""By the name of an average; the model of the epoch itself is called by the empty text."""


@dataclass(frozen=True, slots=True, eq=False)
class _EvaluatedModel:
    """One model of one member, with its weights (D,) as they were; ``name`` is that of the average, or nothing."""

    training: MemberTraining
    name: str
    weights: Tensor
    measured: Measured


class StackEvaluator:
    """Looks at members after each epoch.

    Args:
        rows: that are scored. What is computed of private ones is as secret as they are.
    """

    def __init__(self, rows: Split) -> None:
        self._rows = rows
        self._known: WeakValueDictionary[str, Tensor] = WeakValueDictionary()  # features of one prefix, for all with it
        self._features: WeakKeyDictionary[MemberTraining, Tensor] = WeakKeyDictionary()

    @torch.no_grad()
    def evaluate(self, trainings: Sequence[MemberTraining]) -> list[OfMember]:
        """Return the outputs of all models that each member shows after an epoch.

        There are none of a member whose weights have no bounds, and none at all where layers cannot be applied
        together: such a model is to be scored by itself, which says what is wrong with it.

        Guarantees:
            Outputs depend on the model's own weights and on the rows alone; nothing of another member enters.
        """
        shown = [one for training in trainings for one in self._models_of(training)] if len(self._rows) else []
        layers = _stack_models(shown) if shown else None
        if layers is None:
            return [{} for _ in trainings]
        logits_NBK = _logits(layers, [self._features_of(one.training) for one in shown])
        radius_NB = several_certified_radii(logits_NBK, self._rows.y, [one.measured for one in shown])
        radius_NB = radius_NB - encoding_error(self._rows.x, radius_NB)
        found: dict[MemberTraining, dict[str, Outputs]] = {training: {} for training in trainings}
        for one, logits_BK, radius_B in zip(shown, logits_NBK, radius_NB, strict=True):
            found[one.training][one.name] = Outputs(logits_BK, radius_B, one.measured)
        return [found[training] for training in trainings]

    def _models_of(self, training: MemberTraining) -> list[_EvaluatedModel]:
        found = []
        with closing(training.each_shown()) as names:
            for name in names:
                weights_D = torch.cat([p.detach().flatten() for p in training.parameters.values()])
                try:
                    measured = Measured.of(training.member.model, self._rows.x.device)
                except CliplessError:
                    return []
                found.append(_EvaluatedModel(training, name, weights_D, measured))
        return found

    def _features_of(self, training: MemberTraining) -> Tensor:
        features = self._features.get(training)
        if features is None:
            model = training.member.model
            key = description(split_fixed_prefix(model)[0])
            features = None if key is None else self._known.get(key)
            features = float64_features(model, self._rows.x) if features is None else features
            self._features[training] = features
            if key is not None:
                self._known[key] = features
        return features


def _stack_models(shown: Sequence[_EvaluatedModel]) -> Sequence[StackedLayer] | None:
    """Return the layers of all models behind their fixed prefixes, in float64."""
    networks = [one.training.member.model for one in shown]
    weights_ND = torch.stack([one.weights for one in shown]).double()
    weights = by_parameter(weights_ND, shown[0].training.parameters)
    return stack_layers(networks, weights, prefix_depth(networks[0]))


def _logits(layers: Sequence[StackedLayer], features: Sequence[Tensor]) -> Tensor:
    """Return the logits (N, B, K) of every model on its own features of the rows."""
    size = max(1, _CHUNK // len(features))
    parts = []
    for chunks in zip(*(one.split(size) for one in features), strict=True):
        x = torch.cat(chunks)
        for layer in layers:
            x = layer(x)
        parts.append(x.unflatten(0, (len(features), -1)))
    return torch.cat(parts, dim=1)
