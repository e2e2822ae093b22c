"""Base classes of layers, with their configuration and an optional bias. Shape letters: O outputs.

``bias_norm`` is None for a layer without a bias. Bound rules look at it, so that they do not know, and refuse, a
parameter called ``bias`` that was added from outside.
"""

from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from clipless.guards.guard import GuardedLayer
from clipless.guards.per_channel import along, guarded_bias


class Layer(nn.Module):
    """A layer that keeps each of its constructor's arguments as an attribute of that name."""

    def __init__(self) -> None:  # that of nn.Module takes any argument, and `config` reads the signature
        super().__init__()

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {name: getattr(self, name) for name in signature(type(self)).parameters}


class BiasedLayer(GuardedLayer):
    """A guarded layer that may have a bias in a ball of public radius."""

    bias: nn.Parameter | None
    bias_norm: float | None


def add_bias_parameter(layer: BiasedLayer, outputs: int, bias_norm: float | None) -> None:
    """Give ``layer`` a bias of zeros, or none for a ``bias_norm`` of None."""
    if bias_norm is not None and not 0 < bias_norm < float("inf"):
        raise ValueError(f"Expected 0 < bias_norm < inf, got bias_norm={bias_norm!r} ({type(layer).__name__})")
    layer.bias_norm = None if bias_norm is None else float(bias_norm)
    layer.register_parameter("bias", None if bias_norm is None else nn.Parameter(torch.zeros(outputs)))


def bias_config(layer: BiasedLayer) -> dict[str, Any]:
    """Return the constructor's arguments that a bias needs; none without one."""
    return {} if layer.bias_norm is None else {"bias": True, "bias_norm": layer.bias_norm}


def add_bias(layer: BiasedLayer, y: Tensor, axis: int) -> Tensor:
    """Add the bias along ``axis``; inside a private step its gradient passes the guard."""
    if layer.bias_norm is None or layer.bias is None:
        return y
    if layer.guards is None or not layer.bias.requires_grad:
        return y + along(layer.bias, axis, y)
    return guarded_bias(y, layer.bias, axis, layer.guards["bias"])


@torch.no_grad()
def project_bias(layer: BiasedLayer) -> None:
    """Put a trained bias back into its ball: the nearest point of it."""
    if layer.bias_norm is not None and layer.bias is not None and layer.bias.requires_grad:
        peak = layer.bias.abs().amax().clamp(min=1.0)  # squares of larger entries could overflow
        scaled = layer.bias / peak
        norm = torch.linalg.vector_norm(scaled).clamp(min=torch.finfo(scaled.dtype).tiny)
        layer.bias.copy_(scaled * torch.minimum(peak, layer.bias_norm / norm))
