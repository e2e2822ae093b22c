"""The sum of clipped per-example gradients (DP-SGD), formed by Opacus: its only door.

Opacus' hooks are attached for one pass and removed again, so that a model never leaves with them. Its noise,
sampling and accounting are not used: those are the plan's.

Shape letters: B batch, O outputs, I inputs, P patch entries, L patches.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from clipless.errors import UnsupportedError
from clipless.guard import row_norms
from clipless.layers import Conv1d, Conv2d, Dense, Residual
from clipless.losses import Loss
from clipless.network import Network


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
        ghost: form the norms alone, then the sum of the scaled losses' gradients in a second pass (Li et al. 2022,
            arXiv 2110.05679); less memory for dense layers.

    Raises:
        UnsupportedError: Opacus forms no gradients for one of the parameters.

    Guarantees:
        The gradients of all parameters together change by at most C (times the rounding of float32 sums) when
        one row is added or removed, for any weights; rows with a non-finite gradient contribute nothing.
    """
    forward = forward or model
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    sums = [p.grad for p in parameters.values()]
    for parameter in parameters.values():
        parameter.grad = None  # the backward passes add the unclipped sum there
    try:
        with _hooked(model, ghost=ghost):
            loss(forward(x), y).sum().backward()
            formed = [_formed(name, p, "_norm_sample" if ghost else "grad_sample") for name, p in parameters.items()]
        if ghost:
            factor_B = _factors(formed, clip_norm)
            clipped = _scaled(forward, loss, x, y, factor_B, list(parameters.values()))
        else:
            factor_B = _factors([row_norms(rows) for rows in formed], clip_norm)
            clipped = _summed(formed, factor_B)
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


def _scaled(
    forward: Network, loss: Loss, x: Tensor, y: Tensor, factor_B: Tensor, parameters: list[nn.Parameter]
) -> list[Tensor]:
    """The same sums, as the gradient of the scaled losses of the rows that are kept."""
    kept_B = factor_B > 0
    if not bool(kept_B.any()):
        return [torch.zeros_like(parameter) for parameter in parameters]
    total = (factor_B[kept_B] * loss(forward(x[kept_B]), y[kept_B])).sum()
    return list(torch.autograd.grad(total, parameters))


def _formed(name: str, parameter: nn.Parameter, attribute: str) -> Tensor:
    value = getattr(parameter, attribute, None)
    if not isinstance(value, Tensor):
        raise UnsupportedError(f"Expected per-example gradients of {name}, Opacus formed none; train it by clipless")
    return value


def _factors(norms: list[Tensor], clip_norm: float) -> Tensor:
    """Factor of each row, (B,); 0 for a row whose gradient is not finite."""
    norm_B = row_norms(torch.stack(norms, dim=1))
    return torch.where(norm_B.isfinite(), (clip_norm / norm_B).clamp(max=1.0), 0.0)


@contextmanager
def _hooked(model: Network, *, ghost: bool) -> Iterator[None]:
    """Let backward passes leave gradients, or norms, of each example beside the parameters of ``model``."""
    from opacus import GradSampleModule
    from opacus.grad_sample import GradSampleModuleFastGradientClipping

    _register()
    kind = GradSampleModuleFastGradientClipping if ghost else GradSampleModule
    before = {module: dict(vars(module)) for module in model.modules()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        # Not strict: that refuses constant buffers too; the layers are known, and every gradient is asked for.
        hooked = kind(model.train(), batch_first=True, loss_reduction="sum", strict=False)
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
    from opacus.grad_sample import register_grad_sampler, register_norm_sampler

    def dense(layer: Any, activations: list[Tensor], backprops: Tensor) -> dict[nn.Parameter, Tensor]:
        """Per-example gradients on a vector or on tokens."""
        found = {layer.weight: torch.einsum("b...o,b...i->boi", backprops, activations[0])}
        return found if layer.bias is None else {**found, layer.bias: torch.einsum("b...o->bo", backprops)}

    def dense_norms(layer: Any, activations: list[Tensor], backprops: Tensor) -> dict[nn.Parameter, Tensor]:
        """Norms that underflow cannot lower; on tokens those of the gradients themselves.

        The inner products that a ghost norm of tokens sums up cancel: it could come out too small and clip too little.
        """
        if backprops.dim() != 2:
            gradients = dense(layer, activations, backprops)
            return {parameter: row_norms(rows) for parameter, rows in gradients.items()}
        found = {layer.weight: row_norms(backprops) * row_norms(activations[0])}
        return found if layer.bias is None else {**found, layer.bias: row_norms(backprops)}

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
    register_norm_sampler(Dense)(dense_norms)
    register_grad_sampler([Conv1d, Conv2d])(convolution)
    register_grad_sampler(Residual)(block)
