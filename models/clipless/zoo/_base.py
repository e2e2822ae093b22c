"""An architecture: a function that returns layers, or a module of one's own, whose keywords are its options.

The function declares each option once, by a keyword with a default and an annotation of `clipless.option_types`; specs,
their schema and messages read it there. A module of this folder that declares an architecture, or the entry point
of a package of one's own, needs no line elsewhere.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import update_wrapper
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, get_type_hints

from clipless import layers
from clipless.errors import UnsupportedError
from clipless.zoo._options import DEFAULT_OPTIONS, LayerMaker, LayerOptions

if TYPE_CHECKING:
    from torch import Generator, nn

    from clipless.network import Network

    Builder = Callable[..., list[nn.Module]]
    AnyBuilder = Callable[..., list[nn.Module] | nn.Module]

_LAYER_OPTIONS = tuple(field.name for field in fields(LayerOptions))


class Architecture:
    """A family of networks: call it for one of them.

    Attributes:
        name: by which a spec chooses it: that of the function, with hyphens.
        own_options: the annotation of each option of its own.
    """

    def __init__(self, builder: "AnyBuilder") -> None:
        update_wrapper(self, builder)
        self.builder: Builder = builder  # type: ignore[assignment]  # most return layers, and some are built upon
        self.name = builder.__name__.replace("_", "-")
        self.own_options = _own_options(builder)

    def __call__(
        self,
        input_shape: Sequence[int],
        outputs: int,
        *,
        input_norm: float,
        options: LayerOptions = DEFAULT_OPTIONS,
        generator: "Generator | None" = None,
        **own: Any,
    ) -> "Network":
        """Return a network: an input ball, and the layers of the architecture.

        The ball has the radius ``input_norm``, the generator draws the initial weights, and ``own`` are the
        architecture's own options. A module that is no `Network` is converted, see `clipless.convert`.

        Raises:
            UnsupportedError: an option that the architecture does not take, or an operation of a module of one's own
                that has no layer.
            ValueError: shapes or options that do not fit.
        """
        from torch import nn

        from clipless.conversion.convert import convert
        from clipless.network import Network

        self._check(own, tuple(self.own_options))
        with _own_luck(generator):
            made: Any = self.builder(tuple(input_shape), outputs, LayerMaker(options, generator), **own)
        if isinstance(made, Network):
            has_ball = len(made.layers) > 0 and type(made.layers[0]) is layers.InputBall
            made = list(made.layers)[has_ball:]
        elif isinstance(made, nn.Module):
            return convert(
                made, input_shape, input_norm=input_norm, constraint=options.constraint, bias_norm=options.bias_norm
            )
        if not (isinstance(made, list) and all(isinstance(layer, nn.Module) for layer in made)):
            raise UnsupportedError(f"Expected a list of layers from the architecture {self.name}, got {made!r:.80}")
        return Network([layers.InputBall(input_norm), *made], input_shape)

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
        self._check(options, (*self.own_options, *_LAYER_OPTIONS))
        own = {name: value for name, value in options.items() if name not in _LAYER_OPTIONS}
        shared = LayerOptions(**{name: value for name, value in options.items() if name in _LAYER_OPTIONS})
        return self(input_shape, outputs, input_norm=input_norm, options=shared, generator=generator, **own)

    def _check(self, options: Iterable[str], known: tuple[str, ...]) -> None:
        for option in options:
            if option not in known:
                raise UnsupportedError(f"Expected an option of {self.name} among {', '.join(known)}, got {option!r}")


def architecture(builder: "AnyBuilder") -> Architecture:
    """Declare a function as an architecture.

    Args:
        builder: takes the shape of one example, the number of logits and a `LayerMaker`; each keyword is an option of
            its own, with a default and an annotation of `clipless.option_types`. Returns layers of `clipless.layers`,
            which stand behind an input ball, and whose initial weights the maker draws; or a module of one's own,
            which is converted, or a `Network`.

    Raises:
        UnsupportedError: other arguments, or an option without a default or an annotation.
    """
    return Architecture(builder)


@contextlib.contextmanager
def _own_luck(generator: "Generator | None") -> Iterator[None]:
    """Let modules of torch, which draw their weights from a generator that all share, draw them by this one's seed."""
    if generator is None:
        yield
        return
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(generator.initial_seed())
        yield


def _own_options(builder: "AnyBuilder") -> Mapping[str, Any]:
    parameters = list(inspect.signature(builder).parameters.values())
    own = [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    if len(parameters) - len(own) != 3:
        raise UnsupportedError(
            f"Expected (input_shape, outputs, make, *, ...) of the architecture {builder.__name__}, got "
            f"{inspect.signature(builder)}; correct its arguments"
        )
    for option in own:
        if option.default is option.empty or option.annotation is option.empty:
            raise UnsupportedError(
                f"Expected a default and a type of the option {option.name} of the architecture {builder.__name__}"
            )
        if option.name in (*_LAYER_OPTIONS, "input_norm", "options", "generator"):
            raise UnsupportedError(
                f"Expected another name than {option.name} for an option of {builder.__name__}, for every architecture "
                "has one of that name; rename it"
            )
    annotations = SimpleNamespace(__annotations__={option.name: option.annotation for option in own})
    return MappingProxyType(get_type_hints(annotations, builder.__globals__, include_extras=True))
