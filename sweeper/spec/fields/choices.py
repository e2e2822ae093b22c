"""Architectures and losses as a spec may name them, each with the options that it takes and their domains."""

from types import MappingProxyType

from clipless.projections import CONSTRAINTS
from clipless.zoo import ACTIVATIONS, POOLINGS
from sweeper.spec.fields.fields import FieldType, Flag, Name, Number, Priors

COUNT = Number(integer=True, at_least=1)
POSITIVE = Number(above=0)
EVEN = Number(integer=True, at_least=2, multiple_of=2)
_TEMPERATURE: MappingProxyType[str, FieldType] = MappingProxyType({"temperature": POSITIVE})
_REDUCTION: MappingProxyType[str, FieldType] = MappingProxyType({"reduction": Name(names=("sum", "mean"))})
_HINGE: MappingProxyType[str, FieldType] = MappingProxyType({"margin": POSITIVE, **_REDUCTION})
CONSTRAINT = Name(names=tuple(CONSTRAINTS))
ACTIVATION, POOLING = Name(names=tuple(ACTIVATIONS)), Name(names=tuple(POOLINGS))
SKIP = Number(at_least=0, below=1)
_COMMON: MappingProxyType[str, FieldType] = MappingProxyType(
    {"activation": ACTIVATION, "bias": Flag(), "bias_norm": POSITIVE, "constraint": CONSTRAINT}
)
_MLP: MappingProxyType[str, FieldType] = MappingProxyType({"width": EVEN, "depth": COUNT, **_COMMON})
_CONVNET: MappingProxyType[str, FieldType] = MappingProxyType({**_MLP, "hidden": EVEN, "pooling": POOLING})
_PATCH_NET: MappingProxyType[str, FieldType] = MappingProxyType(
    {"width": EVEN, "depth": COUNT, "hidden": EVEN, "patch": COUNT, "pooling": POOLING, **_COMMON}
)
_LENET: MappingProxyType[str, FieldType] = MappingProxyType(
    {"width": EVEN, "hidden": EVEN, "pooling": POOLING, **_COMMON}
)
_VGG: MappingProxyType[str, FieldType] = MappingProxyType({**_CONVNET, "convolutions": COUNT})
_RESNET: MappingProxyType[str, FieldType] = MappingProxyType(
    {**_MLP, "blocks": COUNT, "skip": SKIP, "learned_skip": Flag()}
)
_WIDE_RESNET: MappingProxyType[str, FieldType] = MappingProxyType({**_RESNET, "widening": COUNT})
_MIXER: MappingProxyType[str, FieldType] = MappingProxyType({"patch": COUNT, "depth": COUNT, "skip": SKIP, **_COMMON})
_SCATTERING: MappingProxyType[str, FieldType] = MappingProxyType(
    {
        "scales": Number(integer=True, at_least=1, at_most=4),
        "orientations": Number(integer=True, at_least=1, at_most=32),
        "order": Number(integer=True, at_least=1, at_most=2),
        "order0_gain": Number(at_least=0),
        "order2_gain": Number(at_least=0),
        "feature_clip": POSITIVE,
        "hidden": Number(integer=True, at_least=0, multiple_of=2),
        **_COMMON,
    }
)

ARCHITECTURES: MappingProxyType[str, MappingProxyType[str, FieldType]] = MappingProxyType(
    {
        "mlp": _MLP,
        "convnet": _CONVNET,
        "patch-net": _PATCH_NET,
        "lenet": _LENET,
        "vgg": _VGG,
        "resnet": _RESNET,
        "wide-resnet": _WIDE_RESNET,
        "mixer": _MIXER,
        "scattering": _SCATTERING,
    }
)
LOSSES: MappingProxyType[str, MappingProxyType[str, FieldType]] = MappingProxyType(
    {
        "tau-cce": _TEMPERATURE,
        "tau-bce": _TEMPERATURE,
        "multilabel-bce": MappingProxyType({**_TEMPERATURE, **_REDUCTION}),
        "hinge": _HINGE,
        "weston-watkins": _HINGE,
        "crammer-singer": MappingProxyType({"margin": POSITIVE}),
        "kr": MappingProxyType({"priors": Priors(), **_REDUCTION}),
        "hkr": MappingProxyType({"alpha": Number(at_least=0), "priors": Priors(), **_HINGE}),
        "k-cosine": MappingProxyType({"floor": POSITIVE}),
        "mae": _REDUCTION,
    }
)
DEFAULT_PARAMETERS: MappingProxyType[str, float | str] = MappingProxyType(
    {"temperature": 1.0, "margin": 1.0, "alpha": 10.0, "floor": 1.0, "reduction": "mean"}
)
