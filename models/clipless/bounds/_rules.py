"""The table of bound rules: one rule for each layer type, found by exact type.

A rule bounds, for one example of a batch, the output of a layer and how much the layer can enlarge a
cotangent on its way to the input and to each parameter. Norms are Euclidean, over every axis but the batch
axis.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite, isnan
from typing import Any, TypeVar

from torch import nn

from clipless.errors import InvalidBoundError, UnsupportedError


class WeightNorms(enum.Enum):
    """Where a rule takes the operator norm of a weight from.

    CONSTRAINED: the constraint set that the weight is projected onto; holds throughout training, for plans.
    MEASURED: a rigorous norm of the weight as it is now; for certificates.
    """

    CONSTRAINED = "constrained"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True)
class Signal:
    """What a rule may assume of its input: the shape of one example and a bound on its norm.

    The norm is inf before an input ball.
    """

    shape: tuple[int, ...]
    norm: float = inf

    def __post_init__(self) -> None:
        if isnan(self.norm) or self.norm < 0.0:
            raise InvalidBoundError(f"Expected a norm >= 0, got norm={self.norm!r} (Signal)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBound:
    """Upper bounds for one layer.

    Attributes:
        output: shape and norm bound of the output.
        input_gain: factor by which the norm of a cotangent, or of a perturbation, may grow through the layer.
        parameter_gains: bound of the norm of a parameter's gradient per unit of cotangent norm.
    """

    output: Signal
    input_gain: float
    parameter_gains: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in {"input_gain": self.input_gain, **self.parameter_gains}.items():
            if not (isfinite(value) and value >= 0.0):
                raise InvalidBoundError(
                    f"Expected a finite {name} >= 0, got {name}={value!r}: put an InputBall before the first "
                    f"layer with parameters, and keep weights finite"
                )


Rule = Callable[[Any, Signal, WeightNorms], LayerBound]
R = TypeVar("R", bound=Rule)
_RULES: dict[type[nn.Module], Rule] = {}


def bound_rule(layer_type: type[nn.Module]) -> Callable[[R], R]:
    """Enter the decorated rule in the table; a second entry is an error."""

    def register(rule: R) -> R:
        if layer_type in _RULES:
            raise ValueError(f"{layer_type.__name__} already has a bound rule")
        _RULES[layer_type] = rule
        return rule

    return register


def bounded_types() -> tuple[type[nn.Module], ...]:
    """Return every layer type that has a rule."""
    return tuple(_RULES)


def bound_layer(layer: nn.Module, signal: Signal, weights: WeightNorms = WeightNorms.CONSTRAINED) -> LayerBound:
    """Bound ``layer`` over every input that ``signal`` allows.

    Raises:
        UnsupportedError: no rule for exactly this type (a subclass may change ``forward`` and with it the
            bound), or an instance whose ``forward`` was replaced, or that carries hooks.
        InvalidBoundError: a bound that is not finite, or a shape that the layer cannot take.
    """
    rule = _RULES.get(type(layer))
    if rule is None:
        known = ", ".join(sorted(t.__name__ for t in _RULES))
        raise UnsupportedError(f"No bound rule for layer {type(layer).__name__}; layers with a rule: {known}")
    if "forward" in vars(layer):
        raise UnsupportedError(f"The forward of this {type(layer).__name__} was replaced; use the layer's own")
    return rule(layer, signal, weights)
