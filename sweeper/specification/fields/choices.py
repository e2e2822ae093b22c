"""From the options that architectures and losses declare to the fields of a spec; nothing is listed here a second time.

Reading a declaration imports no torch.
"""

import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from types import MappingProxyType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt, MultipleOf

from clipless.losses import LOSSES
from clipless.option_types import OneOf, Probabilities
from clipless.zoo import ARCHITECTURES, Architecture, LayerOptions
from sweeper.records import Scalar
from sweeper.specification.fields.fields import PRIORS, FieldType, Flag, Name, Number

Options = Mapping[str, FieldType]

COUNT = Number(integer=True, at_least=1)
POSITIVE = Number(above=0)

_ENDS = {Gt: ("above", "gt"), Ge: ("at_least", "ge"), Lt: ("below", "lt"), Le: ("at_most", "le")}


def field_of(annotation: Any) -> FieldType:
    """Return the field that holds an option of an annotated type.

    Args:
        annotation: of `clipless.option_types`, ``int``, ``float``, ``bool``, an enumeration, or one of them or None.

    Raises:
        TypeError: any other.

    >>> found = field_of(Annotated[int, Ge(2), MultipleOf(2)])
    >>> found.integer, found.at_least, found.multiple_of
    (True, 2, 2)
    """
    if get_origin(annotation) in (Union, types.UnionType):
        annotation, *more = (one for one in get_args(annotation) if one is not type(None))
        if more:
            raise TypeError(f"Expected one type, or one type or None, for an option of a spec, got {annotation}")
    kind, *metadata = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    for known in metadata:
        if isinstance(known, OneOf):
            return Name(names=known.names)
        if isinstance(known, Probabilities):
            return PRIORS
    if kind is bool:
        return Flag()
    if isinstance(kind, type) and issubclass(kind, Enum):
        return Name(names=tuple(member.value for member in kind))
    if kind not in (int, float):
        raise TypeError(f"Expected a number, a flag or names for an option of a spec, got {annotation}")
    return Number(integer=kind is int, **_ends(metadata))


def _ends(metadata: list[Any]) -> dict[str, Any]:
    ends: dict[str, Any] = {}
    for one in metadata:
        if isinstance(one, MultipleOf):
            ends["multiple_of"] = one.multiple_of
        elif type(one) in _ENDS:
            name, attribute = _ENDS[type(one)]
            ends[name] = getattr(one, attribute)
        else:
            raise TypeError(f"Expected a range of `clipless.option_types` for an option of a spec, got {one}")
    return ends


def _fields_of(annotations: Mapping[str, object]) -> Options:
    return MappingProxyType({name: field_of(annotation) for name, annotation in annotations.items()})


def _annotations(declared: Any) -> dict[str, Any]:
    return get_type_hints(declared, include_extras=True)


def options_of(architecture: Architecture) -> Options:
    """Return the fields of the options that an architecture takes."""
    return MappingProxyType({**_fields_of(architecture.own_options), **LAYER_OPTIONS})


def _side_by_side(several: Iterable[Options]) -> Options:
    """Return the options of all architectures; of one that several declare, the field of the first."""
    merged: dict[str, FieldType] = {}
    for options in several:
        for name, field in options.items():
            merged.setdefault(name, field)
    return MappingProxyType(merged)


def _defaults(loss: Any) -> Mapping[str, Scalar]:
    given = {field.name: field.default for field in fields(loss) if field.default not in (MISSING, None)}
    return MappingProxyType({n: value.value if isinstance(value, Enum) else value for n, value in given.items()})


LAYER_OPTIONS = _fields_of(_annotations(LayerOptions))
ARCHITECTURE_OPTIONS: Mapping[str, Options] = MappingProxyType({n: options_of(a) for n, a in ARCHITECTURES.items()})
MODEL_OPTIONS: Options = _side_by_side(ARCHITECTURE_OPTIONS.values())
LOSS_OPTIONS: Mapping[str, Options] = MappingProxyType({n: _fields_of(_annotations(k)) for n, k in LOSSES.items()})
LOSS_DEFAULTS: Mapping[str, Mapping[str, Scalar]] = MappingProxyType({n: _defaults(kind) for n, kind in LOSSES.items()})
