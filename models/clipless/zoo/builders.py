"""Architectures by name."""

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from clipless.errors import UnsupportedError
from clipless.network import Network
from clipless.zoo.convnet import convnet
from clipless.zoo.lenet import lenet
from clipless.zoo.mixer import mixer
from clipless.zoo.mlp import mlp
from clipless.zoo.patch_net import patch_net
from clipless.zoo.resnet import resnet, wide_resnet
from clipless.zoo.scattering_net import scattering
from clipless.zoo.vgg import vgg

Architecture = Callable[..., Network]

ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "convnet": convnet,
        "lenet": lenet,
        "mixer": mixer,
        "mlp": mlp,
        "patch-net": patch_net,
        "resnet": resnet,
        "scattering": scattering,
        "vgg": vgg,
        "wide-resnet": wide_resnet,
    }
)


def build(name: str, input_shape: Sequence[int], outputs: int, **options: Any) -> Network:
    """Build the architecture called ``name``.

    Args:
        name: a key of `ARCHITECTURES`.
        input_shape: shape of one example.
        outputs: number of logits.
        options: the architecture's own keywords.

    Raises:
        UnsupportedError: no such architecture, or an option that it does not take.
    """
    builder = ARCHITECTURES.get(name)
    if builder is None:
        near = difflib.get_close_matches(name, ARCHITECTURES, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UnsupportedError(f"Expected an architecture among {', '.join(ARCHITECTURES)}, got {name!r}{hint}")
    takes = [p.name for p in inspect.signature(builder).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for option in options:
        if option not in takes:
            raise UnsupportedError(f"Expected an option of {name} among {', '.join(takes)}, got {option!r}")
    return builder(input_shape, outputs, **options)
