"""Numbers that the host knows, and numbers that only a device knows.

What follows the weights of a model that lives on another device than the host (norms, sensitivities, deviations of the
noise) is a float64 tensor of one entry there: a `Scalar` is either. Arithmetic is the same, and no step waits for the
device to tell a number. Where Python's own functions would have to look at a number, those of this module compute it.
"""

from collections.abc import Mapping
from functools import reduce
from math import exp, floor, sqrt, tanh
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

if TYPE_CHECKING:
    from torch import Tensor

Scalar: TypeAlias = "float | Tensor"
"""A number of the host, or a float64 tensor of one entry on another device."""

_HOST = "cpu"


def lies_on_host(tensor: "Tensor") -> bool:
    """Whether the host can look at a tensor without waiting."""
    return tensor.device.type == _HOST


def on_host(value: Scalar) -> TypeGuard[float]:
    """Whether a number is known to the host."""
    return isinstance(value, int | float)


def larger(*values: Scalar) -> Scalar:
    """Return the largest of some numbers; NaN of a device stays."""
    return reduce(_larger, values)


def smaller(*values: Scalar) -> Scalar:
    """Return the smallest of some numbers; NaN of a device stays."""
    return reduce(_smaller, values)


def modulus(value: Scalar) -> Scalar:
    """Return the absolute value."""
    return abs(value) if isinstance(value, int | float) else value.abs()


def root(value: Scalar) -> Scalar:
    """Return the square root."""
    return sqrt(value) if isinstance(value, int | float) else value.sqrt()


def exponential(value: Scalar) -> Scalar:
    """Return e to the power of a number."""
    return exp(value) if isinstance(value, int | float) else value.exp()


def hyperbolic_tangent(value: Scalar) -> Scalar:
    """Return tanh."""
    return tanh(value) if isinstance(value, int | float) else value.tanh()


def round_down(value: Scalar) -> Scalar:
    """Return the largest whole number that is at most ``value``."""
    return floor(value) if isinstance(value, int | float) else value.floor()


def power_of_two_below(value: "Tensor") -> "Tensor":
    """Return the largest power of two that is at most a positive, normal number of a device: its bits of exponent."""
    import torch

    return (value.view(torch.int64) & (0x7FF << 52)).view(torch.float64)


def replace_nan(value: Scalar, otherwise: float) -> Scalar:
    """Return a number; ``otherwise`` for a number of a device that is NaN."""
    return value if isinstance(value, int | float) else value.nan_to_num(nan=otherwise)


def entry(tensor: "Tensor") -> Scalar:
    """Return the one entry of a tensor: to the host if it lies there, else a number of its device."""
    return tensor.item() if lies_on_host(tensor) else tensor.detach().double().view(())


def to_host(values: Mapping[str, Scalar]) -> dict[str, float]:
    """Return numbers by name as the host knows them; waits for those of a device."""
    return {name: float(value) for name, value in values.items()}


def _larger(a: Scalar, b: Scalar) -> Scalar:
    if isinstance(a, int | float):
        return max(a, b) if isinstance(b, int | float) else b.clamp(min=a)
    return a.clamp(min=b) if isinstance(b, int | float) else a.maximum(b)


def _smaller(a: Scalar, b: Scalar) -> Scalar:
    if isinstance(a, int | float):
        return min(a, b) if isinstance(b, int | float) else b.clamp(max=a)
    return a.clamp(max=b) if isinstance(b, int | float) else a.minimum(b)
