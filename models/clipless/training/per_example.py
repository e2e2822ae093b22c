"""The sum of clipped per-example gradients (DP-SGD), whose gradients Opacus forms: its only door.

Hooks are attached for one pass and removed again, so that a model never leaves with them. Opacus' ghost clipping is not
used: it takes the gradient of scaled losses in a second pass, whose kinks and clipped cotangents need not be those of
the norms. Nor are its noise, sampling and accounting: those are the plan's.

Shape letters: B batch, O outputs, I inputs, P patch entries, L patches.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from clipless.errors import UnsupportedError
from clipless.guards.exact_sums import (
    Digits,
    Part,
    grid,
    linear_product,
    outer_grid,
    outer_sum,
    row_norms,
    row_sum,
    select_rows,
)
from clipless.layers import Conv1d, Conv2d, Dense, Residual
from clipless.network import Network


@dataclass(slots=True)
class _Seen:
    """What one layer with weights has seen in a pass: its inputs, and the cotangents of its outputs."""

    layer: nn.Module
    activations: list[Tensor]
    backprops: Tensor


def accumulate_clipped(
    model: Network, backward: Callable[[], None], clip_norm: float, totals: Mapping[str, Tensor], *, ghost: bool = False
) -> None:
    """Add ``sum_i g_i min(1, C / |g_i|)`` to ``totals``, g_i the whole gradient of example i.

    Args:
        model: layers of this package.
        backward: passes one batch forward and back, once.
        clip_norm: C.
        totals: by parameter, float64, shaped like it.
        ghost: form the norms alone, then the sums from the inputs and cotangents that each layer has seen in the same
            pass (Li et al. 2022, arXiv 2110.05679, Bu et al. 2023, arXiv 2210.00038); less memory for dense layers.

    Raises:
        UnsupportedError: Opacus forms no gradients for one of the parameters.

    Guarantees:
        The computed totals of all parameters together change by at most C when one row of the batch is replaced by a
        row with zero contribution, for any weights, as `clipless.guards.exact_sums` has it; rows with a non-finite
        gradient contribute nothing. Every gradient that is summed is one whose norm was taken: none is formed twice.
    """
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    before = [p.grad for p in parameters.values()]
    for parameter in parameters.values():
        parameter.grad = None  # the backward pass adds the unclipped sum there
    try:
        if ghost:
            with _watched(model) as seen:
                backward()
            formed = {p: sums for one in seen for p, sums in _seen_gradients(one, clip_norm).items()}
        else:
            with _hooked(model):
                backward()
                rows = {p: getattr(p, "grad_sample", None) for p in parameters.values()}
            formed = {p: _FormedRows(own.flatten(1), clip_norm) for p, own in rows.items() if isinstance(own, Tensor)}
    finally:
        for parameter, gradient in zip(parameters.values(), before, strict=True):
            parameter.grad = gradient
    gradients = [_found(name, formed.get(p)) for name, p in parameters.items()]
    with torch.no_grad():  # Opacus may form gradients that can be differentiated
        factor_B = _factors(gradients, clip_norm)
        for name, one in zip(parameters, gradients, strict=True):
            for part, weight in one.sums(factor_B):
                totals[name].add_(part.view_as(totals[name]), alpha=weight)


class _Gradients(Protocol):
    """Gradients of one parameter, one for each row.

    Attributes:
        norms: (B,) upper bounds of their norms, float64.
        roundings: (B,) what rounding may add to the norms of scaled gradients.
    """

    norms: Tensor
    roundings: Tensor

    def sums(self, factor_B: Tensor) -> list[Part]:
        """Return the exact sum of gradients times their factors; rows of factor 0 are left out, whatever they hold."""


class _FormedRows:
    """Gradients that were formed, (B, D)."""

    def __init__(self, rows_BD: Tensor, clip_norm: float) -> None:
        self._step = grid(clip_norm)
        self.norms, self._rows_BD = row_norms(rows_BD).double(), rows_BD
        self.roundings = torch.zeros_like(self.norms)

    def sums(self, factor_B: Tensor) -> list[Part]:
        return [(row_sum(select_rows(factor_B > 0, self._rows_BD), factor_B, self._step), 1.0)]


class _OuterProducts:
    """Gradients of a dense layer on vectors, from what it has seen: g x^T, of norm |g| |x|."""

    def __init__(self, g_BO: Tensor, x_BI: Tensor, clip_norm: float) -> None:
        outputs, norm_B = g_BO.shape[1], row_norms(g_BO).double()
        self._step = outer_grid(clip_norm, x_BI.shape[1], outputs)
        self._g_BO, self._digits = g_BO, Digits(x_BI)
        self.roundings = self._digits.rounding(self._step, outputs)
        bound_B = norm_B * self._digits.norm_B * self._digits.step_B
        self.norms = torch.where(self._digits.finite_B, bound_B, float("inf"))

    def sums(self, factor_B: Tensor) -> list[Part]:
        g_BO = select_rows(factor_B > 0, self._g_BO)
        return outer_sum(self._digits, g_BO, factor_B, self._step, linear_product)


def _seen_gradients(seen: _Seen, clip_norm: float) -> dict[nn.Parameter, _Gradients]:
    """Gradients of one layer: a dense one on vectors forms none.

    On tokens and maps norms are those of the gradients themselves: the inner products that a ghost norm of tokens sums
    up cancel, it could come out too small and clip too little.
    """
    layer, g = seen.layer, seen.backprops
    if type(layer) is not Dense or g.dim() != 2:
        return {p: _FormedRows(rows.flatten(1), clip_norm) for p, rows in _rows(layer, seen.activations, g).items()}
    found: dict[nn.Parameter, _Gradients] = {layer.weight: _OuterProducts(g, seen.activations[0], clip_norm)}
    return found if layer.bias is None else {**found, layer.bias: _FormedRows(g, clip_norm)}


def _found(name: str, value: _Gradients | None) -> _Gradients:
    if value is None:
        raise UnsupportedError(f"Expected per-example gradients of {name}, Opacus formed none; train it by clipless")
    return value


def _factors(gradients: Sequence[_Gradients], clip_norm: float) -> Tensor:
    """Factor of each row, (B,) float64; 0 for a row whose gradient is not finite."""
    norm_B = torch.linalg.vector_norm(torch.stack([one.norms for one in gradients], dim=1), dim=1)
    rounding_B = torch.linalg.vector_norm(torch.stack([one.roundings for one in gradients], dim=1), dim=1)
    room_B = (clip_norm - rounding_B).clamp(min=0.0)
    return torch.where(norm_B.isfinite(), (room_B / norm_B).clamp(max=1.0), 0.0)


def _rows(layer: nn.Module, activations: list[Tensor], backprops: Tensor) -> dict[nn.Parameter, Tensor]:
    """Per-example gradients of one layer, as Opacus forms them."""
    from opacus import GradSampleModule
    from opacus.grad_sample.functorch import ft_compute_per_sample_gradient

    form = GradSampleModule.GRAD_SAMPLERS.get(type(layer), ft_compute_per_sample_gradient)
    found: dict[nn.Parameter, Tensor] = form(layer, activations, backprops)
    return found


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
