"""Options of every architecture: activation, biases and constraint; poolings by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from clipless import layers
from clipless.errors import UnsupportedError
from clipless.option_types import OneOf, Positive
from clipless.projections import CONSTRAINTS, Constraint
from clipless.spelling import did_you_mean

if TYPE_CHECKING:
    from torch import Generator, nn

ACTIVATIONS: "Mapping[str, Callable[[int], nn.Module]]" = MappingProxyType(
    {
        "groupsort": lambda features: layers.GroupSort(None if features % 2 else 2),
        "fullsort": lambda _: layers.GroupSort(None),
        "relu": lambda _: layers.ReLU(),
        "abs": lambda _: layers.Abs(),
        "householder": lambda features: layers.Householder(features),
        "tanh": lambda _: layers.Tanh(),
        "sigmoid": lambda _: layers.Sigmoid(),
        "softplus": lambda _: layers.Softplus(),
    }
)
POOLINGS: "Mapping[str, Callable[[int], nn.Module]]" = MappingProxyType(
    {
        "l2": lambda window: layers.L2Pool2d(window),
        "max": lambda window: layers.MaxPool2d(window),
        "avg": lambda window: layers.AvgPool2d(window, scaled=True),
    }
)
Pooling = Annotated[str, OneOf(POOLINGS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOptions:
    """Options of the layers of a network, the same for every architecture.

    Attributes:
        activation: a key of `ACTIVATIONS`; ``groupsort`` sorts an odd number of features as one group.
        bias: whether convolutions and dense layers have one.
        bias_norm: radius of the ball that each bias is kept in. A public number.
        constraint: of every weight; left out, `Orthogonal`.

    Raises:
        UnsupportedError: no such activation.
    """

    activation: Annotated[str, OneOf(ACTIVATIONS)] = "groupsort"
    bias: bool = False
    bias_norm: Positive = 1.0
    constraint: Annotated[Constraint | None, OneOf(CONSTRAINTS)] = None

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            hint = did_you_mean(self.activation, ACTIVATIONS, before="; ")
            known = ", ".join(ACTIVATIONS)
            raise UnsupportedError(f"Expected an activation among {known}, got {self.activation!r}{hint}")


DEFAULT_OPTIONS = LayerOptions()


class LayerMaker:
    """Makes the layers of one network, by its options and its generator of initial weights."""

    def __init__(self, options: LayerOptions, generator: "Generator | None") -> None:
        self._options = options
        self._weights: dict[str, Any] = {"constraint": options.constraint, "generator": generator}
        self._weights |= {"bias": options.bias, "bias_norm": options.bias_norm}

    def dense(self, features: int, out: int) -> "nn.Module":
        """Return a dense layer."""
        return layers.Dense(features, out, **self._weights)

    def convolution(self, channels: int, out: int, kernel: int, *, stride: int = 1, padding: int = 0) -> "nn.Module":
        """Return a convolution with a square kernel."""
        return layers.Conv2d(channels, out, kernel, stride, padding, **self._weights)

    def potential(self, features: int) -> "nn.Module":
        """Return a convex potential layer with as many hidden features."""
        return layers.ConvexPotential(features, **self._weights)

    def activation(self, features: int) -> "nn.Module":
        """Return a fresh activation along axis 1, of that many features."""
        return ACTIVATIONS[self._options.activation](features)


def pool(name: str, window: int) -> "nn.Module":
    """Return a fresh pooling layer with stride = window and gain 1.

    ``name`` is a key of `POOLINGS`; ``avg`` is the scaled one, of operator norm 1.

    Raises:
        UnsupportedError: no such pooling.
    """
    if name not in POOLINGS:
        hint = did_you_mean(name, POOLINGS, before="; ")
        raise UnsupportedError(f"Expected a pooling among {', '.join(POOLINGS)}, got {name!r}{hint}")
    return POOLINGS[name](window)


def check_maps(input_shape: Sequence[int], least: int, why: str) -> None:
    """Refuse inputs that are no maps, or too small.

    Raises:
        ValueError: naming the smallest side and where it comes from.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < least:
        remedy = "; a row of a table takes an architecture such as mlp" if len(input_shape) == 1 else ""
        raise ValueError(f"Expected (C, H, W) maps of at least {least} for {why}, got {tuple(input_shape)}{remedy}")
