"""Layers with bound rules; no bounds in here.

A final class of a module of this folder is a layer, found without being listed; the names below are for type checkers
and readers. Layers are imported when they are first used: reading what an architecture declares imports no torch.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from clipless.imports import import_modules

if TYPE_CHECKING:
    from torch import nn

    from clipless.layers.activation import Abs, GroupSort, Householder, ReLU, Sigmoid, Softplus, Tanh
    from clipless.layers.clipping import ClipGradient
    from clipless.layers.conv import Conv1d, Conv2d
    from clipless.layers.linear import Dense
    from clipless.layers.normalization import GroupNorm, InputBall, LayerCentering
    from clipless.layers.pooling import AvgPool2d, GlobalL2Pool2d, L2Pool2d, MaxPool2d
    from clipless.layers.potential import ConvexPotential
    from clipless.layers.residual import Residual
    from clipless.layers.scattering import Scattering2d
    from clipless.layers.shape import Flatten, Shift, SpaceToDepth, SwapAxes, Tokens
    from clipless.layers.statistics import ScaleByQuantile, Standardise

__all__ = [
    "Abs",
    "AvgPool2d",
    "ClipGradient",
    "Conv1d",
    "Conv2d",
    "ConvexPotential",
    "Dense",
    "Flatten",
    "GlobalL2Pool2d",
    "GroupNorm",
    "GroupSort",
    "Householder",
    "InputBall",
    "L2Pool2d",
    "LayerCentering",
    "MaxPool2d",
    "ReLU",
    "Residual",
    "ScaleByQuantile",
    "Scattering2d",
    "Shift",
    "Sigmoid",
    "Softplus",
    "SpaceToDepth",
    "Standardise",
    "SwapAxes",
    "Tanh",
    "Tokens",
    "every_layer",
]


@cache
def every_layer() -> "Mapping[str, type[nn.Module]]":
    """Return the layers of this folder by name."""
    from torch import nn

    return MappingProxyType(
        {
            name: kind
            for module in import_modules(__name__, __path__)
            for name, kind in vars(module).items()
            if isinstance(kind, type) and issubclass(kind, nn.Module) and kind.__module__ == module.__name__
            if getattr(kind, "__final__", False) and not name.startswith("_")
        }
    )


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name.startswith("_") or name not in every_layer():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return every_layer()[name]
