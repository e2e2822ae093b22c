"""Refusals, by name, of models and states of torch that the guard cannot vouch for."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from clipless.bounds import bound_network, bounded_types
from clipless.bounds._rules import replaced_method
from clipless.errors import PlanError, UnsupportedError
from clipless.guards.guard import GuardedLayer
from clipless.network import Network
from clipless.row_independence import Settings, arithmetic, deterministic_convolutions

_MODULE_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = tuple(f"_global{name}" for name in _MODULE_HOOKS)


def check_trainable(model: nn.Module, *, bounded: bool = True) -> Network:
    """Return ``model`` if private training can vouch for it.

    Per-example clipping, which is not ``bounded``, does without finite bounds, but a layer without a rule may still mix
    the examples of a batch.

    Raises:
        UnsupportedError: not a `Network`; a layer without a bound rule; hooks; a parameter that is tied, not
            float32, or without a guard.
        InvalidBoundError: shapes that do not fit, or no input ball in front.
    """
    if type(model) is not Network:
        raise UnsupportedError(f"Expected a clipless.Network, got {type(model).__name__}: wrap the layers in one")
    for name in ("forward", "project"):
        if name in vars(model):
            raise UnsupportedError(f"The {name} of this Network was replaced; use the network's own")
    bounds = bound_network(model) if bounded else None
    if bounds is None:
        _check_layers(model)
    _check_hooks(model)
    _check_parameters(model)
    if bounds is None:
        return model
    known = {f"{layer}.{name}" for layer, bound in bounds.layers for name in bound.parameter_gains}
    for path, _ in model.named_parameters():
        if path not in known:
            raise UnsupportedError(f"Expected parameters that a bound rule knows, got {path}; remove it")
    return model


def check_rows_apart(model: Network, batches: Sequence[int] = (3, 4)) -> None:
    """Refuse a network that mixes the rows of a batch, as one whose layers stand on the batch axis does.

    Rows keep their places here; whether they may leave them is tested by `clipless.plans.placement`.

    Args:
        model: on the device, and under the settings of torch, that it is trained with.
        batches: numbers of rows, for a kernel is chosen by the shape of a batch.

    Raises:
        UnsupportedError: what other rows hold changes the output of a row, or the gradient in it.
    """
    here = next(model.parameters(), torch.zeros(()))
    generator = torch.Generator().manual_seed(0)
    for rows in batches:
        x = torch.rand((rows, *model.input_shape), generator=generator).to(here)
        before = _pass_rows(model, x)
        kept_B = torch.randperm(rows, generator=generator) < (rows + 1) // 2
        for own_B in (kept_B, ~kept_B):
            others = torch.where(own_B.view(-1, *[1] * len(model.input_shape)).to(here.device), x, float("nan"))
            after = _pass_rows(model, others)
            if len(before[0]) != rows or not all(_same(a[own_B], b[own_B]) for a, b in zip(before, after, strict=True)):
                raise UnsupportedError(
                    "Expected a network that treats each row of a batch alone, got one that mixes rows"
                )


def _pass_rows(model: Network, x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.requires_grad_()
    with torch.enable_grad(), deterministic_convolutions():
        y = model(x)
        (gradient,) = torch.autograd.grad(y.square().sum(), x, materialize_grads=True, allow_unused=True)
    return y.detach(), gradient


def _same(a: Tensor, b: Tensor) -> bool:
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def check_arithmetic(device: torch.device) -> None:
    """Refuse autocast, under which the guard would take norms of rounded cotangents.

    Matrix products and convolutions of lower precision (TF32, bfloat16) pass: see `check_rows_apart`.

    Raises:
        UnsupportedError: autocast is on.
    """
    if torch.is_autocast_enabled(device.type):
        raise UnsupportedError("Expected autocast to be off in private training; leave the torch.autocast block")


def check_settings(begun: Settings) -> None:
    """Refuse other settings of torch than training began with and was tested under.

    Raises:
        PlanError: naming the first that differs.
    """
    now = arithmetic()
    for name, value in asdict(begun).items():
        if getattr(now, name) != value:
            raise PlanError(
                f"Expected the arithmetic that training began with, {name} {value!r}, got {getattr(now, name)!r}: "
                "kernels round by it; change it before a training, not during one"
            )


def _check_layers(model: Network) -> None:
    for name, layer in model.named_modules():
        if layer is model or type(layer) is nn.ModuleList:
            continue
        if type(layer) not in bounded_types() or replaced_method(layer) is not None:
            kind = type(layer).__name__
            raise UnsupportedError(f"No bound rule for {name}, a {kind}; use a layer of clipless.layers")


def _check_hooks(model: Network) -> None:
    for name in _GLOBAL_HOOKS:
        if _hooks(torch_module, name):
            raise UnsupportedError(f"Expected no global module hooks in private training, found {name[1:]}")
    for path, module in model.named_modules():
        for name in _MODULE_HOOKS:
            if _hooks(module, name):
                raise UnsupportedError(f"Expected no hooks on {path or 'the network'}, found {name[1:]}; remove them")
    for path, parameter in model.named_parameters():
        if _hooks(parameter, "_backward_hooks") or _hooks(parameter, "_post_accumulate_grad_hooks"):
            raise UnsupportedError(f"Expected no hooks on parameter {path}; remove them")


def _hooks(owner: object, name: str) -> object:
    """Return the hooks that torch keeps under a private name; without that name, none could be seen."""
    try:
        return getattr(owner, name)
    except AttributeError:
        raise UnsupportedError(
            f"Expected a torch that lists its hooks in {name}, got torch {torch.__version__}; "
            "install a version that pyproject.toml allows"
        ) from None


def _check_parameters(model: Network) -> None:
    modules = [id(module) for _, module in model.named_modules(remove_duplicate=False)]
    if len(set(modules)) != len(modules):
        raise UnsupportedError("Expected every layer once, found one layer object in two places; build two layers")
    _check_untied(model)
    for path, parameter in model.named_parameters():
        owner = model.get_submodule(path.rpartition(".")[0])
        if not isinstance(owner, GuardedLayer):
            raise UnsupportedError(f"Expected a guarded layer to own {path}, got {type(owner).__name__}")
        if parameter.dtype != torch.float32:
            raise UnsupportedError(f"Expected float32 parameters, got {path} in {parameter.dtype}; use model.float()")


def _check_untied(model: Network) -> None:
    """Refuse parameters that share an entry; in one storage they may lie side by side, as those of a stack do."""
    named = list(model.named_parameters(remove_duplicate=False))
    spans = sorted((*_span(parameter), place) for place, (_, parameter) in enumerate(named))
    for (_, end, place), (start, _, next_place) in pairwise(spans):
        if start < end:
            first, path = (named[i][0] for i in sorted((place, next_place)))
            raise UnsupportedError(f"Expected parameters of their own, found {path} tied to {first}; untie them")


def _span(tensor: Tensor) -> tuple[int, int]:
    """Return the addresses of the first byte and of the one behind the last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()
