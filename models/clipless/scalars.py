"""Numbers that the host knows, and numbers that only a device knows.

What follows the weights of a model that lives on another device than the host (norms, sensitivities, deviations of the
noise) is a float64 tensor of one entry there, though it is typed as the number that it stands for: arithmetic is the
same, and no step waits for the device to tell it. What Python's own functions would have to look at, these compute.
"""

from collections.abc import Callable
from functools import reduce
from math import exp, floor, sqrt, tanh
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_HOST = "cpu"


def lies_on_host(tensor: "Tensor") -> bool:
    """Whether the host can look at a tensor without waiting."""
    return tensor.device.type == _HOST


def on_host(value: float) -> bool:
    """Whether a number is known to the host."""
    return isinstance(value, int | float)


def larger(*values: float) -> float:
    """Return the largest of some numbers; NaN of a device stays."""
    return max(values) if all(map(on_host, values)) else reduce(_larger, values)


def smaller(*values: float) -> float:
    """Return the smallest of some numbers; NaN of a device stays."""
    return min(values) if all(map(on_host, values)) else reduce(_smaller, values)


def root(value: float) -> float:
    """Return the square root."""
    return _applied(value, sqrt, "sqrt")


def exponential(value: float) -> float:
    """Return e to the power of a number."""
    return _applied(value, exp, "exp")


def hyperbolic_tangent(value: float) -> float:
    """Return tanh."""
    return _applied(value, tanh, "tanh")


def floored(value: float) -> float:
    """Return the largest whole number that is at most ``value``."""
    return _applied(value, floor, "floor")


def power_of_two_below(value: float) -> float:
    """Return the largest power of two that is at most a positive, normal number of a device: its bits of exponent."""
    import torch

    tensor: Any = value
    power: float = (tensor.view(torch.int64) & (0x7FF << 52)).view(torch.float64)
    return power


def known(value: float, otherwise: float) -> float:
    """Return a number of a device, or ``otherwise`` where it is not a number."""
    tensor: Any = value
    return value if on_host(value) else tensor.nan_to_num(nan=otherwise)


def entry(tensor: "Tensor") -> float:
    """Return the one entry of a tensor: to the host if it lies there, else a number of its device."""
    number: Any = tensor.item() if lies_on_host(tensor) else tensor.detach().double().view(())
    return number  # type: ignore[no-any-return]


def _applied(value: float, here: Callable[[float], float], there: str) -> float:
    if on_host(value):
        return here(value)
    result: float = getattr(value, there)()
    return result


def _larger(a: Any, b: Any) -> Any:
    if on_host(a) and on_host(b):
        return max(a, b)
    if on_host(a) or on_host(b):
        tensor, number = (b, a) if on_host(a) else (a, b)
        return tensor.clamp(min=number)
    return a.maximum(b)


def _smaller(a: Any, b: Any) -> Any:
    if on_host(a) and on_host(b):
        return min(a, b)
    if on_host(a) or on_host(b):
        tensor, number = (b, a) if on_host(a) else (a, b)
        return tensor.clamp(max=number)
    return a.minimum(b)
