"""What an architecture is: a function that returns layers, whose keywords are its options.

The function declares each option once, by a keyword with a default and an annotation of `clipless.option_types`; specs,
their schema and messages read it there. A module of this folder that declares an architecture, or the entry point
of a package of one's own, needs no line elsewhere.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import update_wrapper
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, get_type_hints

from clipless.errors import UnsupportedError
from clipless.zoo._options import LayerOptions

if TYPE_CHECKING:
    from torch import Generator, nn

    from clipless.network import Network

P = ParamSpec("P")
# What every architecture takes: from the data, from the trial's seed, and as `LayerOptions`.
_SHARED = ("input_norm", "options", "generator")
_LAYER_OPTIONS = tuple(field.name for field in fields(LayerOptions))


class Architecture(Generic[P]):
    """A family of networks: call it for one of them.

    Attributes:
        name: by which a spec chooses it: that of the function, with hyphens.
        own_options: the annotation of each keyword of its own.
    """

    def __init__(self, builder: "Callable[Concatenate[Sequence[int], int, P], list[nn.Module]]") -> None:
        update_wrapper(self, builder)
        self._builder = builder
        self.name = builder.__name__.replace("_", "-")
        self.own_options = _own_options(builder)

    def __call__(self, input_shape: Sequence[int], outputs: int, *args: P.args, **kwargs: P.kwargs) -> "Network":
        """Return a network.

        Args:
            input_shape: shape of one example.
            outputs: number of logits.
            args: none.
            kwargs: ``input_norm``, radius of the input ball; ``options``, a `LayerOptions`; ``generator``, which draws
                the initial weights; and the architecture's own options.
        """
        from torch import nn

        from clipless.network import Network

        layers = self._builder(input_shape, outputs, *args, **kwargs)
        if not (isinstance(layers, list) and all(isinstance(layer, nn.Module) for layer in layers)):
            raise UnsupportedError(f"Expected a list of layers from the architecture {self.name}, got {layers!r:.80}")
        return Network(layers, input_shape)

    def build(
        self,
        input_shape: Sequence[int],
        outputs: int,
        *,
        input_norm: float,
        generator: "Generator | None" = None,
        **options: Any,
    ) -> "Network":
        """Return a network; ``options`` are the attributes of `LayerOptions` and the architecture's own, side by side.

        Raises:
            UnsupportedError: an option that the architecture does not take.
        """
        for option in options:
            if option not in (known := (*self.own_options, *_LAYER_OPTIONS)):
                raise UnsupportedError(f"Expected an option of {self.name} among {', '.join(known)}, got {option!r}")
        own: dict[str, Any] = {name: value for name, value in options.items() if name in self.own_options}
        shared = LayerOptions(**{name: value for name, value in options.items() if name in _LAYER_OPTIONS})
        build: Callable[..., Network] = self
        return build(input_shape, outputs, input_norm=input_norm, options=shared, generator=generator, **own)


def architecture(builder: "Callable[Concatenate[Sequence[int], int, P], list[nn.Module]]") -> Architecture[P]:
    """Declare a function as an architecture.

    Args:
        builder: takes the shape of one example and the number of logits, and the keywords ``input_norm``, ``options``
            (a `LayerOptions`) and ``generator``; each further keyword is an option of its own, with a default and an
            annotation of `clipless.option_types`. Returns layers of `clipless.layers`, the first one an
            `InputBall` of radius ``input_norm``. The generator draws every initial weight.

    Raises:
        UnsupportedError: one of these keywords is missing, or an option without a default or an annotation.
    """
    return Architecture(builder)


def _own_options(builder: Callable[..., Any]) -> Mapping[str, Any]:
    keywords = [p for p in inspect.signature(builder).parameters.values() if p.kind is p.KEYWORD_ONLY]
    missing = [name for name in _SHARED if name not in {keyword.name for keyword in keywords}]
    if missing:
        raise UnsupportedError(f"Expected the keyword {missing[0]} of the architecture {builder.__name__}; add it")
    own = [keyword for keyword in keywords if keyword.name not in _SHARED]
    for keyword in own:
        if keyword.default is keyword.empty or keyword.annotation is keyword.empty:
            raise UnsupportedError(
                f"Expected a default and a type of the option {keyword.name} of the architecture {builder.__name__}"
            )
        if keyword.name in _LAYER_OPTIONS:
            raise UnsupportedError(f"{builder.__name__} has an option {keyword.name} of its own; take it from options")
    annotations = SimpleNamespace(__annotations__={keyword.name: keyword.annotation for keyword in own})
    return MappingProxyType(get_type_hints(annotations, builder.__globals__, include_extras=True))
