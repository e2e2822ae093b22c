"""Losses by name."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from clipless.errors import UnsupportedError
from clipless.losses._rules import Loss
from clipless.losses.absolute import MAE
from clipless.losses.binary import MultilabelBCE
from clipless.losses.cosine import KCosine
from clipless.losses.cross_entropy import TauBCE, TauCCE
from clipless.losses.hinge import MulticlassHinge
from clipless.losses.kantorovich import HKR, KR
from clipless.losses.margins import CrammerSinger, WestonWatkins
from clipless.losses.weighted import ClassWeighted

NamedLoss = TauCCE | TauBCE | MultilabelBCE | MulticlassHinge | WestonWatkins | CrammerSinger | KR | HKR | KCosine | MAE

_TYPES: Mapping[str, type[NamedLoss]] = MappingProxyType(
    {
        "tau-cce": TauCCE,
        "tau-bce": TauBCE,
        "multilabel-bce": MultilabelBCE,
        "hinge": MulticlassHinge,
        "weston-watkins": WestonWatkins,
        "crammer-singer": CrammerSinger,
        "kr": KR,
        "hkr": HKR,
        "k-cosine": KCosine,
        "mae": MAE,
    }
)


def build_loss(name: str, *, class_weights: Sequence[float] | None = None, **parameters: Any) -> Loss:
    """Build the loss called ``name``.

    Args:
        name: a key of `LOSSES`.
        class_weights: public weight of each class, see `ClassWeighted`; left out, none.
        parameters: the loss's own attributes.

    Raises:
        UnsupportedError: no such loss.
        ValueError: a parameter or weights out of range.
    """
    if name not in _TYPES:
        raise UnsupportedError(f"Expected a loss among {', '.join(_TYPES)}, got {name!r}")
    loss: Loss = _TYPES[name](**parameters)
    return loss if class_weights is None else ClassWeighted(loss, tuple(class_weights))


LOSSES: Mapping[str, Callable[..., Loss]] = MappingProxyType({name: partial(build_loss, name) for name in _TYPES})
