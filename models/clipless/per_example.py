"""The sum of clipped per-example gradients (DP-SGD), whose gradients Opacus forms: its only door.

Hooks are attached for one pass and removed again, so that a model never leaves with them. Opacus' ghost clipping is not
used: it takes the gradient of scaled losses in a second pass, whose kinks and clipped cotangents need not be those of
the norms. Nor are its noise, sampling and accounting: those are the plan's.

Shape letters: B batch, O outputs, I inputs, P patch entries, L patches.
"""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from clipless.errors import UnsupportedError
from clipless.guard import column_of, row_norms, select_rows
from clipless.layers import Conv1d, Conv2d, Dense, Residual
from clipless.losses import Loss
from clipless.network import Network


@dataclass(slots=True)
class _Seen:
    """What one layer with weights has seen in a pass: its inputs, and the cotangents of its outputs."""

    layer: nn.Module
    activations: list[Tensor]
    backprops: Tensor


def accumulate_clipped(
    model: Network,
    loss: Loss,
    x: Tensor,
    y: Tensor,
    clip_norm: float,
    *,
    forward: Network | None = None,
    ghost: bool = False,
) -> None:
    """Add ``sum_i g_i min(1, C / |g_i|)`` to ``parameter.grad``, g_i the whole gradient of example i.

    Args:
        model: layers of this package.
        loss: of one example.
        x: (B, ...) rows.
        y: (B,) targets.
        clip_norm: C.
        forward: what is applied to the rows, see `clipless.training.accumulate_gradients`.
        ghost: form the norms alone, then the sums from the inputs and cotangents that each layer has seen in the same
            pass (Li et al. 2022, arXiv 2110.05679, Bu et al. 2023, arXiv 2210.00038); less memory for dense layers.

    Raises:
        UnsupportedError: Opacus forms no gradients for one of the parameters.

    Guarantees:
        The gradients of all parameters together change by at most C (times the rounding of float32 sums) when
        one row of the batch is replaced by a row with zero contribution, for any weights; rows with a non-finite
        gradient contribute nothing. Every gradient that is summed is one whose norm was taken: none is formed twice.
    """
    forward = forward or model
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    sums = [p.grad for p in parameters.values()]
    for parameter in parameters.values():
        parameter.grad = None  # the backward passes add the unclipped sum there
    try:
        if ghost:
            with _watched(model) as seen:
                loss(forward(x), y).sum().backward()
            norms = {p: norm_B for one in seen for p, norm_B in _norms(one).items()}
            factor_B = _factors([_formed(name, norms.get(p)) for name, p in parameters.items()], clip_norm)
            sums_of = {p: total for one in seen for p, total in _scaled(one, factor_B).items()}
            clipped = [sums_of[p] for p in parameters.values()]
        else:
            with _hooked(model):
                loss(forward(x), y).sum().backward()
                formed = [_formed(name, getattr(p, "grad_sample", None)) for name, p in parameters.items()]
            clipped = _summed(formed, _factors([row_norms(rows) for rows in formed], clip_norm))
    finally:
        for parameter, total in zip(parameters.values(), sums, strict=True):
            parameter.grad = total
    for parameter, addition in zip(parameters.values(), clipped, strict=True):
        parameter.grad = addition if parameter.grad is None else parameter.grad.add_(addition)


def _summed(gradients: list[Tensor], factor_B: Tensor) -> list[Tensor]:
    """Sums of per-example gradients times their factors; rows of factor 0 are selected away, whatever they hold."""
    for rows in gradients:
        rows[factor_B == 0] = 0.0
    return [torch.tensordot(factor_B, rows, dims=1) for rows in gradients]


def _norms(seen: _Seen) -> dict[nn.Parameter, Tensor]:
    """Norm of each row's gradient.

    Those of dense layers on vectors are products, which underflow cannot lower. Elsewhere they are those of the
    gradients themselves: the inner products that a ghost norm of tokens sums up cancel, it could come out too small and
    clip too little.
    """
    layer, backprops = seen.layer, seen.backprops
    if type(layer) is not Dense or backprops.dim() != 2:
        return {p: row_norms(rows) for p, rows in _rows(layer, seen.activations, backprops).items()}
    found = {layer.weight: row_norms(backprops) * row_norms(seen.activations[0])}
    return found if layer.bias is None else {**found, layer.bias: row_norms(backprops)}


def _scaled(seen: _Seen, factor_B: Tensor) -> dict[nn.Parameter, Tensor]:
    """Sums of gradients times their factors: a gradient is linear in the cotangent that reached its layer.

    Whatever a row of factor 0 holds is replaced by zeros, so that the shape of the batch stays.
    """
    layer, keep_B = seen.layer, factor_B > 0
    activations = [select_rows(keep_B, rows) for rows in seen.activations]
    backprops = select_rows(keep_B, seen.backprops) * column_of(factor_B, seen.backprops)
    if type(layer) is not Dense:
        return {p: rows.sum(dim=0) for p, rows in _rows(layer, activations, backprops).items()}
    found = {layer.weight: torch.einsum("b...o,b...i->oi", backprops, activations[0])}
    return found if layer.bias is None else {**found, layer.bias: backprops.flatten(0, -2).sum(dim=0)}


def _rows(layer: nn.Module, activations: list[Tensor], backprops: Tensor) -> dict[nn.Parameter, Tensor]:
    """Per-example gradients of one layer, as Opacus forms them."""
    from opacus import GradSampleModule
    from opacus.grad_sample.functorch import ft_compute_per_sample_gradient

    form = GradSampleModule.GRAD_SAMPLERS.get(type(layer), ft_compute_per_sample_gradient)
    found: dict[nn.Parameter, Tensor] = form(layer, activations, backprops)
    return found


def _formed(name: str, value: object) -> Tensor:
    if not isinstance(value, Tensor):
        raise UnsupportedError(f"Expected per-example gradients of {name}, Opacus formed none; train it by clipless")
    return value


def _factors(norms: list[Tensor], clip_norm: float) -> Tensor:
    """Factor of each row, (B,); 0 for a row whose gradient is not finite."""
    norm_B = row_norms(torch.stack(norms, dim=1))
    return torch.where(norm_B.isfinite(), (clip_norm / norm_B).clamp(max=1.0), 0.0)


@contextmanager
def _watched(model: Network) -> Iterator[list[_Seen]]:
    """Note what each layer with weights sees in the one pass inside the block."""
    _register()
    inputs: dict[nn.Module, list[Tensor]] = {}
    found: list[_Seen] = []

    def forwards(layer: nn.Module, given: tuple[Tensor, ...], _: Tensor) -> None:
        inputs[layer] = [x.detach() for x in given]

    def backwards(layer: nn.Module, _: object, cotangents: tuple[Tensor, ...]) -> None:
        found.append(_Seen(layer, inputs.pop(layer), cotangents[0].detach()))

    with warnings.catch_warnings(), ExitStack() as handles:
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        for layer in model.modules():
            if any(p.requires_grad for p in layer.parameters(recurse=False)):
                handles.enter_context(layer.register_forward_hook(forwards))
                handles.enter_context(layer.register_full_backward_hook(backwards))
        yield found


@contextmanager
def _hooked(model: Network) -> Iterator[None]:
    """Let backward passes leave the gradients of each example beside the parameters of ``model``."""
    from opacus import GradSampleModule

    _register()
    before = {module: dict(vars(module)) for module in model.modules()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        # Not strict: that refuses constant buffers too; the layers are known, and every gradient is asked for.
        hooked = GradSampleModule(model.train(), batch_first=True, loss_reduction="sum", strict=False)
        try:
            yield
        finally:
            hooked.to_standard_module()
            for module, state in before.items():
                vars(module).clear()
                vars(module).update(state)


@cache
def _register() -> None:
    """Tell Opacus the quick forms for layers of this package; it forms the others by differentiating them."""
    from opacus.grad_sample import register_grad_sampler

    def dense(layer: Any, activations: list[Tensor], backprops: Tensor) -> dict[nn.Parameter, Tensor]:
        """Per-example gradients on a vector or on tokens."""
        found = {layer.weight: torch.einsum("b...o,b...i->boi", backprops, activations[0])}
        return found if layer.bias is None else {**found, layer.bias: torch.einsum("b...o->bo", backprops)}

    def convolution(layer: Any, activations: list[Tensor], backprops: Tensor) -> dict[nn.Parameter, Tensor]:
        """Per-example gradients of a convolution, from its patches."""
        g_BOL = backprops.flatten(2)
        g_BGOL = g_BOL.unflatten(1, (layer.groups, -1))
        rows = torch.einsum("bgol,bgpl->bgop", g_BGOL, layer.patches(activations[0])) * layer.scale
        found = {layer.weight: rows.reshape(-1, *layer.weight.shape)}
        return found if layer.bias is None else {**found, layer.bias: g_BOL.sum(dim=2)}

    def block(layer: Any, activations: list[Tensor], backprops: Tensor) -> dict[nn.Parameter, Tensor]:
        """Per-example gradients of a learned skip; the layers inside have their own."""
        x = activations[0]
        with torch.no_grad():
            f = layer.inside(x)
        return {layer.mix: (backprops * (x - f)).flatten(1).sum(dim=1, keepdim=True)}

    register_grad_sampler(Dense)(dense)
    register_grad_sampler([Conv1d, Conv2d])(convolution)
    register_grad_sampler(Residual)(block)
