"""The table of bound rules: one rule for each layer type, found by exact type.

A rule bounds, for one example of a batch, the output of a layer and how much the layer can enlarge a
cotangent on its way to the input and to each parameter. Norms are Euclidean, over every axis but the batch
axis.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf, isfinite, isnan, prod, sqrt
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from clipless.errors import InvalidBoundError, UnsupportedError
from clipless.scalars import Scalar, entry, on_host


class WeightNorms(enum.Enum):
    """The source of the operator norms that a rule uses.

    CONSTRAINED: the constraint set that the weight is projected onto; holds throughout training, for plans.
    CURRENT: a quick rigorous norm of the weight as it is now, no larger than the constraint's; for sensitivities that
        follow the weights, which are public.
    MEASURED: the tightest rigorous norm of the weight as it is now; for certificates.
    """

    CONSTRAINED = "constrained"
    CURRENT = "current"
    MEASURED = "measured"


class Rounding(enum.Enum):
    """The error of a layer's float64 forward pass while its input has no bound, in front of an input ball.

    EXACT: nothing; entries are moved, compared, negated or dropped.
    RELATIVE: each entry of the output by a small part of itself, also where those of the input are already.
    RELATIVE_IF_EXACT: likewise, but what the input is off by may grow without bound.
    CANCELLING: a small part of the input, of which sums may leave little: certificates have no bound to go by.
    """

    EXACT = "exact"
    RELATIVE = "relative"
    RELATIVE_IF_EXACT = "relative if exact"
    CANCELLING = "cancelling"


@dataclass(frozen=True, slots=True)
class Signal:
    """A rule's assumption on its input: the shape of one example and a bound on its norm.

    The norm is inf before an input ball.
    """

    shape: tuple[int, ...]
    norm: Scalar = inf

    def __post_init__(self) -> None:
        if on_host(self.norm) and (isnan(self.norm) or self.norm < 0.0):
            raise InvalidBoundError(f"Expected a norm >= 0, got norm={self.norm!r} (Signal)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBound:
    """Upper bounds for one layer.

    Attributes:
        output: shape and norm bound of the output.
        input_gain: factor by which the norm of a cotangent, or of a perturbation, may grow through the layer.
        parameter_gains: bound of the norm of a parameter's gradient per unit of cotangent norm.
        normalised_gains: likewise, where the gradient is divided by the norm of the example's own input; a
            parameter that is left out cannot be trained so.
        cotangent_bound: absolute bound of the cotangent that the layer passes on; None where there is none.
        depth: layers in sequence inside, each of which adds its rounding.
        error: distance of a float64 forward pass through the layer from the exact output, inf where neither the input
            nor the output has a bound; left to `bound_layer` by the rules of layers that have no layers inside.
    """

    output: Signal
    input_gain: Scalar
    parameter_gains: Mapping[str, Scalar] = field(default_factory=dict)
    normalised_gains: Mapping[str, Scalar] = field(default_factory=dict)
    cotangent_bound: "Scalar | None" = None
    depth: int = 1
    error: "Scalar | None" = None

    def __post_init__(self) -> None:
        gains = [("input_gain", self.input_gain), *self.parameter_gains.items(), *self.normalised_gains.items()]
        if self.cotangent_bound is not None:
            gains.append(("cotangent_bound", self.cotangent_bound))
        for name, value in gains:
            if on_host(value) and not (isfinite(value) and value >= 0.0):
                raise InvalidBoundError(
                    f"Expected a finite {name} >= 0, got {name}={value!r}: put an InputBall before the first "
                    f"layer with parameters, constrain the weights and keep them finite"
                )


_SMALLEST, _LARGEST = 1e-130, 1e150  # sizes of signals between which no square of float64 underflows or overflows

Rule = Callable[[Any, Signal, WeightNorms], LayerBound]
R = TypeVar("R", bound=Rule)
_RULES: dict[type[nn.Module], Rule] = {}
_ROUNDING: dict[type[nn.Module], Rounding] = {}


def bound_rule(layer_type: type[nn.Module], unbounded: Rounding = Rounding.CANCELLING) -> Callable[[R], R]:
    """Enter the decorated rule in the table, and how the layer rounds unbounded inputs; a second entry is an error."""

    def register(rule: R) -> R:
        if layer_type in _RULES:
            raise ValueError(f"{layer_type.__name__} already has a bound rule")
        _RULES[layer_type], _ROUNDING[layer_type] = rule, unbounded
        return rule

    return register


def bounded_types() -> tuple[type[nn.Module], ...]:
    """Return every layer type that has a rule."""
    return tuple(_RULES)


def rounding_of_unbounded(layer: nn.Module) -> Rounding:
    """Return how ``layer`` rounds an input that has no bound."""
    return _ROUNDING.get(type(layer), Rounding.CANCELLING)


def learned_number(value: Tensor, weights: WeightNorms) -> Scalar:
    """Return a learned number; for sensitivities that follow it, it may stay on its device (`clipless.scalars`)."""
    return entry(value) if weights is WeightNorms.CURRENT else value.item()


def replaced_method(layer: nn.Module) -> str | None:
    """Return the name of a method that this instance does not take from its class, if there is one."""
    return next((name for name in vars(layer) if callable(getattr(type(layer), name, None))), None)


def bound_layer(layer: nn.Module, signal: Signal, weights: WeightNorms = WeightNorms.CONSTRAINED) -> LayerBound:
    """Bound ``layer`` over every input that ``signal`` allows.

    Raises:
        UnsupportedError: no rule for exactly this type (a subclass may change ``forward`` and with it the
            bound), or an instance with a method, such as ``forward``, that is not its class's.
        InvalidBoundError: a bound that is not finite, or a shape that the layer cannot take.
    """
    rule = _RULES.get(type(layer))
    if rule is None:
        known = ", ".join(sorted(t.__name__ for t in _RULES))
        raise UnsupportedError(f"No bound rule for layer {type(layer).__name__}; layers with a rule: {known}")
    replaced = replaced_method(layer)
    if replaced is not None:
        raise UnsupportedError(f"The {replaced} of this {type(layer).__name__} was replaced; use the layer's own")
    bound = rule(layer, signal, weights)
    if bound.error is not None or weights is WeightNorms.CURRENT:  # for sensitivities, which need no error
        return bound
    if signal.norm == inf:
        largest = inf if rounding_of_unbounded(layer) is Rounding.CANCELLING else bound.output.norm
    else:
        largest = max(bound.output.norm, bound.input_gain * signal.norm)
    return replace(bound, error=rounding(layer, signal.shape, bound.output.shape, largest))


def rounding(layer: nn.Module, entered: tuple[int, ...], left: tuple[int, ...], norm: Scalar) -> float:
    """Bound the rounding of one layer in a float64 forward pass that computes with signals of at most ``norm``.

    Underflow is covered too: signals below 1e-130 are taken to be of that size, so that squares that underflow (below
    1e-154) weigh far less than what is allowed for. Where squares could overflow there is no bound.
    """
    if not (on_host(norm) and norm < _LARGEST):
        return inf
    return relative_error(layer, entered, left) * max(norm, _SMALLEST)


def relative_error(layer: nn.Module, entered: tuple[int, ...], left: tuple[int, ...]) -> float:
    """Bound the rounding of one layer in a float64 forward pass, per unit of the norms that it computes with.

    A sum of n products of entries of W and x, in any order, is off by at most ``n eps |W| |x|`` entry by entry, and
    the matrix of moduli has a norm of at most ``sqrt(n)`` that of W (Higham 2002, Accuracy and Stability of Numerical
    Algorithms, section 3.5). So a layer whose input, output and parameters have at most n elements is off by at most
    ``4 n sqrt(n) eps`` times the bound of its output, 64 added to n for pointwise steps. The bound of a signal
    counts, not a logit's own size: cancellation may leave a small logit with a large error.
    """
    terms = max(prod(entered), prod(left), sum(p.numel() for p in layer.parameters())) + 64
    return 4.0 * terms * sqrt(terms) * torch.finfo(torch.float64).eps
