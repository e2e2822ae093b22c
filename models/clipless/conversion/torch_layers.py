"""Operations of torch and the layers of `clipless.layers` that compute the same.

A module has a row in the table by its exact type, a function or method by its name. What has none is refused, with
what to use in its place where that is known.
"""

import operator
from collections.abc import Callable, Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from clipless import layers
from clipless.bounds._rules import replaced_method
from clipless.errors import UnsupportedError
from clipless.projections import Constraint


class UnknownOperationError(UnsupportedError):
    """An operation of a user's module that no layer computes; one sentence names it, where it stands and the remedy."""

    def __init__(self, node: fx.Node, reason: str, remedy: str) -> None:
        stack = node.meta.get("nn_module_stack") or {}
        inside = next(reversed(stack.values()), ("", None))[0] if node.op != "call_module" else ""
        name = getattr(node.target, "__name__", str(node.target))
        where = f" in {inside}" if inside else ""
        super().__init__(f"Cannot convert {name}{where}: {reason}; {remedy}")


class Weights:
    """How the parameters of a module of torch are kept in a layer of `clipless.layers`."""

    def __init__(self, constraint: Constraint, bias_norm: float) -> None:
        self.constraint = constraint
        self.bias_norm = bias_norm
        self._frozen: list[nn.Parameter] = []

    @torch.no_grad()
    def move_to(self, source: nn.Linear | nn.Conv1d | nn.Conv2d, target: nn.Module, scale: float) -> nn.Module:
        """Return ``target`` with the weights of ``source``; its kernel is multiplied by ``scale`` in each pass."""
        target.get_parameter("weight").copy_(source.weight / scale)
        if source.bias is not None:
            target.get_parameter("bias").copy_(source.bias)
        for name, parameter in source.named_parameters():
            if not parameter.requires_grad:
                self._frozen.append(target.get_parameter(name))
        return target

    def freeze(self) -> None:
        """Freeze what is frozen in the module; once projected, for a frozen weight is not projected again."""
        for parameter in self._frozen:
            parameter.requires_grad_(False)


def is_leaf(part: nn.Module) -> bool:
    """Whether a module is one operation: of torch, or of `clipless.layers`."""
    return type(part) in layers.every_layer().values() or (
        type(part).__module__.startswith("torch.nn") and type(part) not in (nn.Sequential, nn.ModuleList)
    )


def is_sum(node: fx.Node) -> bool:
    """Whether a node adds two tensors."""
    tensors = sum(isinstance(argument, fx.Node) and not is_size(argument) for argument in node.args)
    plain = not node.kwargs and len(node.args) == 2 and tensors == 2
    method = node.op == "call_method" and node.target == "add"
    return plain and (method or (node.op == "call_function" and node.target in (operator.add, torch.add)))


def is_size(node: fx.Node) -> bool:
    """Whether a node is the number of rows of a batch: ``x.size(0)`` or ``x.shape[0]``."""
    if node.op == "call_method":
        return node.target == "size" and node.args[1:] == (0,)
    shape = node.args[0] if node.target is operator.getitem and node.args[1] == 0 else None
    return isinstance(shape, fx.Node) and shape.target is getattr and shape.args[1] == "shape"


def layer_of_module(node: fx.Node, part: nn.Module, weights: Weights) -> nn.Module | None:
    """Return the layer in the place of a module, None if it does nothing; raise UnknownOperationError for others."""
    if type(part) in layers.every_layer().values():
        if (replaced := replaced_method(part)) is not None:
            raise UnknownOperationError(node, f"the {replaced} of this layer was replaced", "use the layer's own")
        return part if next(part.parameters(), None) is not None else deepcopy(part)
    row = _MODULES.get(type(part))
    if row is None:
        kind = type(part).__name__
        remedy = next((text for name, text in _REMEDIES.items() if kind.startswith(name)), _USE)
        raise UnknownOperationError(node, f"{kind} is no layer with a bound rule", remedy)
    try:
        return row(part, weights)
    except _OptionError as error:
        raise UnknownOperationError(node, f"{type(part).__name__} with {error} has no layer", error.remedy) from None


def layer_of_call(node: fx.Node) -> nn.Module | None:
    """Return the layer in the place of a function or method; raise UnknownOperationError where there is none."""
    name = getattr(node.target, "__name__", str(node.target))
    row = _CALLS.get(name) if node.op == "call_method" or node.target in _FUNCTIONS else None
    if row is None:
        raise UnknownOperationError(node, "no layer computes it", remedy_of_call(name))
    try:
        return row(node.args[1:], dict(node.kwargs))
    except _OptionError as error:
        raise UnknownOperationError(node, f"with {error} it has no layer", error.remedy) from None


_USE = "use layers of clipless.layers or operations that have one"
_REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "BatchNorm": "it mixes the rows of a batch: use clipless.layers.GroupNorm or LayerCentering",
        "Dropout": "leave it out: noise already regularises",
        "LayerNorm": "its slope has no bound: use clipless.layers.LayerCentering",
        "AdaptiveAvgPool": "use clipless.layers.GlobalL2Pool2d or AvgPool2d",
        "LeakyReLU": "use ReLU or clipless.layers.GroupSort",
        "GELU": "use ReLU or clipless.layers.GroupSort",
        "SiLU": "use ReLU or clipless.layers.GroupSort",
    }
)


def remedy_of_call(name: str) -> str:
    """Return the remedy for a function or method that no layer computes."""
    if name.endswith("_") or name in ("iadd", "isub", "imul", "setitem"):
        return "it works in place: write a new value, such as x = x + f(x)"
    if name == "linear" or name.startswith("conv"):
        return "use the module, nn.Linear or nn.Conv2d, that owns its weights"
    if name == "dropout":
        return _REMEDIES["Dropout"]
    if name in ("mul", "sub", "truediv"):
        return "a residual block is the plain sum x + f(x); for shares use clipless.layers.Residual"
    return _USE


class _OptionError(Exception):
    """An option whose value no layer has, and the remedy."""

    def __init__(self, option: str, remedy: str = "leave that option out") -> None:
        super().__init__(option)
        self.remedy = remedy


def _require(**options: tuple[Any, Any]) -> None:
    for name, (given, wanted) in options.items():
        if given not in (wanted, (wanted,), (wanted, wanted)):
            raise _OptionError(f"{name}={given!r}")


def _linear(part: nn.Linear, weights: Weights) -> nn.Module:
    made = layers.Dense(
        part.in_features, part.out_features, weights.constraint, torch.Generator(), **_bias(part, weights)
    )
    return weights.move_to(part, made, 1.0)


def _conv(part: nn.Conv1d | nn.Conv2d, weights: Weights) -> nn.Module:
    if isinstance(part.padding, str):
        raise _OptionError(f"padding={part.padding!r}")
    if part.padding_mode not in ("zeros", "circular"):
        raise _OptionError(f"padding_mode={part.padding_mode!r}")
    _require(dilation=(part.dilation, 1))
    kind: Any = layers.Conv2d if type(part) is nn.Conv2d else layers.Conv1d
    single = (lambda value: value[0]) if kind is layers.Conv1d else tuple
    made = kind(
        part.in_channels,
        part.out_channels,
        single(part.kernel_size),
        single(part.stride),
        single(part.padding),
        weights.constraint,
        torch.Generator(),
        groups=part.groups,
        padding_mode=part.padding_mode,
        **_bias(part, weights),
    )
    return weights.move_to(part, made, made.scale)


def _bias(part: nn.Linear | nn.Conv1d | nn.Conv2d, weights: Weights) -> dict[str, Any]:
    return {"bias": part.bias is not None, "bias_norm": weights.bias_norm}


def _pool(kind: Callable[[int], nn.Module], given: Mapping[str, Any]) -> nn.Module:
    window = given["kernel_size"]
    window = window[0] if isinstance(window, tuple) and len(set(window)) == 1 else window
    if not isinstance(window, int):
        raise _OptionError(f"kernel_size={window!r}")
    _require(stride=(given.get("stride") or window, window), padding=(given.get("padding", 0), 0))
    _require(dilation=(given.get("dilation", 1), 1), ceil_mode=(given.get("ceil_mode", False), False))
    _require(return_indices=(given.get("return_indices", False), False))
    _require(divisor_override=(given.get("divisor_override"), None))
    return kind(window)


_MAX = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
_MEAN = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")


def _pool_module(kind: Callable[[int], nn.Module], names: tuple[str, ...]) -> Callable[[Any, Weights], nn.Module]:
    return lambda part, _: _pool(kind, {name: getattr(part, name) for name in names})


def _relu(inplace: bool) -> nn.Module:
    _require(inplace=(inplace, False))
    return layers.ReLU()


def _softplus(beta: Any, threshold: Any) -> nn.Module:
    if not threshold >= 20:
        raise _OptionError(f"threshold={threshold!r}")
    _require(beta=(beta, 1))
    return layers.Softplus()


def _flatten(start_dim: Any, end_dim: Any) -> nn.Module:
    if (start_dim, end_dim) != (1, -1):
        raise _OptionError(f"start_dim={start_dim!r} and end_dim={end_dim!r}", "flatten each example with flatten(1)")
    return layers.Flatten()


_MODULES: Mapping[type[nn.Module], Callable[[Any, Weights], nn.Module | None]] = MappingProxyType(
    {
        nn.Linear: _linear,
        nn.Conv1d: _conv,
        nn.Conv2d: _conv,
        nn.ReLU: lambda part, _: _relu(part.inplace),
        nn.Tanh: lambda *_: layers.Tanh(),
        nn.Sigmoid: lambda *_: layers.Sigmoid(),
        nn.Softplus: lambda part, _: _softplus(part.beta, part.threshold),
        nn.MaxPool2d: _pool_module(layers.MaxPool2d, _MAX),
        nn.AvgPool2d: _pool_module(layers.AvgPool2d, _MEAN),
        nn.Flatten: lambda part, _: _flatten(part.start_dim, part.end_dim),
        nn.PixelUnshuffle: lambda part, _: layers.SpaceToDepth(part.downscale_factor),
        nn.Identity: lambda *_: None,
    }
)

Call = Callable[[tuple[Any, ...], dict[str, Any]], nn.Module | None]


def _call(make: Callable[..., nn.Module | None], *names: str, **defaults: Any) -> Call:
    """Return a function that binds the arguments of a call behind its tensor to names, and refuses others."""

    def bound(args: tuple[Any, ...], kwargs: dict[str, Any]) -> nn.Module | None:
        given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        if len(args) > len(names) or set(given) - set(names):
            raise _OptionError(", ".join(map(repr, [*args, *kwargs])))
        return make(**given)

    return bound


def _flatten_rows(*shape: Any) -> nn.Module:
    """``view(x.size(0), -1)``: any other first size would mix rows."""
    if len(shape) == 2 and isinstance(shape[0], fx.Node) and is_size(shape[0]) and shape[1] == -1:
        return layers.Flatten()
    raise _OptionError(f"the shape {shape!r}", "flatten each example with x.flatten(1)")


_CALLS: Mapping[str, Call] = MappingProxyType(
    {
        "relu": _call(_relu, "inplace", inplace=False),
        "tanh": _call(layers.Tanh),
        "sigmoid": _call(layers.Sigmoid),
        "abs": _call(layers.Abs),
        "softplus": _call(_softplus, "beta", "threshold", beta=1, threshold=20),
        "flatten": _call(_flatten, "start_dim", "end_dim", start_dim=0, end_dim=-1),
        "view": lambda args, kwargs: _flatten_rows(*args, *kwargs),
        "reshape": lambda args, kwargs: _flatten_rows(*args, *kwargs),
        "max_pool2d": _call(lambda **given: _pool(layers.MaxPool2d, given), *_MAX),
        "avg_pool2d": _call(lambda **given: _pool(layers.AvgPool2d, given), *_MEAN),
    }
)
# Functions whose names are those of the table; a function of one's own of such a name is traced, or refused.
_FUNCTIONS = frozenset(
    {
        torch.relu,
        torch.tanh,
        torch.sigmoid,
        torch.abs,
        torch.flatten,
        F.relu,
        F.tanh,
        F.sigmoid,
        F.softplus,
        F.max_pool2d,
        F.avg_pool2d,
    }
)
