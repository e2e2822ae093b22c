"""Ready architectures: Lipschitz networks whose every layer has a bound rule.

A module of this folder that declares an `architecture` is found without being listed; the names below are for type
checkers and readers. Torch is imported when the first network is built.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from clipless.errors import UnsupportedError
from clipless.imports import find_declared, import_modules
from clipless.spelling import did_you_mean
from clipless.zoo._base import Architecture, architecture
from clipless.zoo._options import ACTIVATIONS, POOLINGS, LayerMaker, LayerOptions, Pooling, check_maps, pool
from clipless.zoo.convnet import convnet, lenet, vgg
from clipless.zoo.mixer import mixer
from clipless.zoo.mlp import mlp
from clipless.zoo.patch_net import patch_net
from clipless.zoo.potentials import cpl, shift_net
from clipless.zoo.resnet import resnet, wide_resnet
from clipless.zoo.scattering import scattering

if TYPE_CHECKING:
    from clipless.network import Network

_FOUND = [found for module in import_modules(__name__, __path__) for found in find_declared(module, Architecture)]
ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {found.name: found for found in sorted(_FOUND, key=attrgetter("name"))}
)


def build(name: str, input_shape: Sequence[int], outputs: int, *, input_norm: float, **options: Any) -> "Network":
    """Build the architecture called ``name``.

    ``options`` are the attributes of `LayerOptions`, the architecture's own options, and ``generator``, side by side.

    Raises:
        UnsupportedError: no such architecture, or an option that it does not take.
    """
    if name not in ARCHITECTURES:
        hint = did_you_mean(name, ARCHITECTURES, before="; ")
        raise UnsupportedError(f"Expected an architecture among {', '.join(ARCHITECTURES)}, got {name!r}{hint}")
    return ARCHITECTURES[name].build(input_shape, outputs, input_norm=input_norm, **options)


__all__ = [
    "ACTIVATIONS",
    "ARCHITECTURES",
    "POOLINGS",
    "Architecture",
    "LayerMaker",
    "LayerOptions",
    "Pooling",
    "architecture",
    "build",
    "check_maps",
    "convnet",
    "cpl",
    "lenet",
    "mixer",
    "mlp",
    "patch_net",
    "pool",
    "resnet",
    "scattering",
    "shift_net",
    "vgg",
    "wide_resnet",
]
