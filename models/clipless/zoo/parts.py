"""Activations and pooling by the names that architectures take."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from torch import nn

from clipless.errors import UnsupportedError
from clipless.layers import Abs, AvgPool2d, GroupSort, Householder, L2Pool2d, MaxPool2d, ReLU, Sigmoid, Softplus, Tanh

ACTIVATIONS: Mapping[str, Callable[[int], nn.Module]] = MappingProxyType(
    {
        "groupsort": lambda features: GroupSort(None if features % 2 else 2),
        "fullsort": lambda _: GroupSort(None),
        "relu": lambda _: ReLU(),
        "abs": lambda _: Abs(),
        "householder": Householder,
        "tanh": lambda _: Tanh(),
        "sigmoid": lambda _: Sigmoid(),
        "softplus": lambda _: Softplus(),
    }
)
POOLINGS: Mapping[str, Callable[[int], nn.Module]] = MappingProxyType(
    {"l2": L2Pool2d, "max": MaxPool2d, "avg": lambda window: AvgPool2d(window, scaled=True)}
)


def activation(name: str, features: int) -> nn.Module:
    """Return a fresh activation along axis 1; `groupsort` sorts an odd number of features as one group.

    Args:
        name: a key of `ACTIVATIONS`.
        features: size of axis 1.

    Raises:
        UnsupportedError: no such activation.
    """
    if name not in ACTIVATIONS:
        raise UnsupportedError(f"Expected an activation among {', '.join(ACTIVATIONS)}, got {name!r}")
    return ACTIVATIONS[name](features)


def pooling(name: str, window: int) -> nn.Module:
    """Return a fresh pooling layer with stride = window and gain 1.

    Args:
        name: a key of `POOLINGS`; ``avg`` is the scaled one, of operator norm 1.
        window: side of the window.

    Raises:
        UnsupportedError: no such pooling.
    """
    if name not in POOLINGS:
        raise UnsupportedError(f"Expected a pooling among {', '.join(POOLINGS)}, got {name!r}")
    return POOLINGS[name](window)


def check_maps(input_shape: tuple[int, ...], least: int, why: str) -> None:
    """Refuse inputs that are no maps, or too small.

    Raises:
        ValueError: naming the smallest side and where it comes from.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < least:
        raise ValueError(f"Expected (C, H, W) maps of at least {least} for {why}, got {input_shape}")
