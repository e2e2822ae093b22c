"""The sum of clipped per-example gradients (DP-SGD).

Hooks are attached for one pass and removed again, so that a model never leaves with them. There is no second pass of
scaled losses, as in other forms of ghost clipping: its kinks and clipped cotangents need not be those of the norms.

Shape letters: B batch, D entries of a parameter, O outputs, I inputs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol

import torch
from torch import Tensor, nn

from clipless.errors import PlanError, UnsupportedError
from clipless.guards.exact_sums import (
    QuantisedOperand,
    WeightedSum,
    grid,
    linear_product,
    outer_grid,
    outer_sum,
    row_norms,
    row_sum,
    select_rows,
)
from clipless.layers import Dense
from clipless.network import Network
from clipless.training.layer_gradients import layer_gradients


def accumulate_clipped(
    model: Network, backward: Callable[[], None], clip_norm: float, totals: Mapping[str, Tensor], *, ghost: bool = False
) -> None:
    """Add ``sum_i g_i min(1, C / |g_i|)`` to ``totals``, g_i the whole gradient of example i.

    ``backward`` passes one batch forward and back, once; totals are float64, by parameter. ``ghost`` forms no gradients
    of dense layers on vectors, whose norms and sums follow from their inputs and cotangents (Li et al. 2022, arXiv
    2110.05679, Bu et al. 2023, arXiv 2210.00038), and takes less memory.

    Raises:
        UnsupportedError: a parameter whose layer the pass did not reach.
        PlanError: the batch was passed back more than once, or a layer was applied more than once.

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
        with _forming(model, clip_norm, ghost=ghost) as formed:
            backward()
    finally:
        for parameter, gradient in zip(parameters.values(), before, strict=True):
            parameter.grad = gradient
    gradients = [_gradients_of(name, formed.get(p)) for name, p in parameters.items()]
    factor_B = _factors(gradients, clip_norm)
    for name, one in zip(parameters, gradients, strict=True):
        for part, weight in one.sums(factor_B):
            totals[name].add_(part.view_as(totals[name]), alpha=float(weight))


class _Gradients(Protocol):
    """Gradients of one parameter, one for each row."""

    norms: Tensor  # (B,) upper bounds of their norms, float64
    roundings: Tensor  # (B,) what rounding may add to the norms of scaled gradients

    def sums(self, factor_B: Tensor) -> list[WeightedSum]:
        """Return the exact sum of gradients times their factors; rows of factor 0 are left out, whatever they hold."""


class _FormedRows:
    """Gradients that were formed, (B, D)."""

    def __init__(self, rows_BD: Tensor, clip_norm: float) -> None:
        self._step = grid(clip_norm)
        self.norms, self._rows_BD = row_norms(rows_BD).double(), rows_BD
        self.roundings = torch.zeros_like(self.norms)

    def sums(self, factor_B: Tensor) -> list[WeightedSum]:
        return [(row_sum(select_rows(factor_B > 0, self._rows_BD), factor_B, self._step), 1.0)]


class _OuterProducts:
    """Gradients of a dense layer on vectors, from its inputs and cotangents: g x^T, of norm |g| |x|."""

    def __init__(self, g_BO: Tensor, x_BI: Tensor, clip_norm: float) -> None:
        outputs, norm_B = g_BO.shape[1], row_norms(g_BO).double()
        self._step = outer_grid(clip_norm, x_BI.shape[1], outputs)
        self._g_BO, self._digits = g_BO, QuantisedOperand(x_BI)
        self.roundings = self._digits.rounding(self._step, outputs)
        bound_B = norm_B * self._digits.norm_B * self._digits.step_B
        self.norms = torch.where(self._digits.finite_B, bound_B, float("inf"))

    def sums(self, factor_B: Tensor) -> list[WeightedSum]:
        g_BO = select_rows(factor_B > 0, self._g_BO)
        return outer_sum(self._digits, g_BO, factor_B, self._step, linear_product)


def _gradients(
    layer: nn.Module, x: Tensor, g: Tensor, clip_norm: float, *, ghost: bool
) -> dict[nn.Parameter, _Gradients]:
    """Gradients of one layer; under ``ghost`` a dense one on vectors forms none.

    On tokens and maps norms are those of the gradients themselves: the inner products that a ghost norm of tokens sums
    up cancel, it could come out too small and clip too little.
    """
    if not (ghost and type(layer) is Dense and g.dim() == 2):
        return {p: _FormedRows(rows.flatten(1), clip_norm) for p, rows in layer_gradients(layer, x, g).items()}
    found: dict[nn.Parameter, _Gradients] = {layer.weight: _OuterProducts(g, x, clip_norm)}
    return found if layer.bias is None else {**found, layer.bias: _FormedRows(g, clip_norm)}


def _gradients_of(name: str, value: _Gradients | None) -> _Gradients:
    if value is None:
        raise UnsupportedError(
            f"Expected per-example gradients of {name}, the pass formed none: its layer has no part in the loss; "
            f"freeze it or take it out"
        )
    return value


def _factors(gradients: Sequence[_Gradients], clip_norm: float) -> Tensor:
    """Factor of each row, (B,) float64; 0 for a row whose gradient is not finite."""
    norm_B = torch.linalg.vector_norm(torch.stack([one.norms for one in gradients], dim=1), dim=1)
    rounding_B = torch.linalg.vector_norm(torch.stack([one.roundings for one in gradients], dim=1), dim=1)
    margin_B = (clip_norm - rounding_B).clamp(min=0.0)
    return torch.where(norm_B.isfinite(), (margin_B / norm_B).clamp(max=1.0), 0.0)


@contextmanager
def _forming(model: Network, clip_norm: float, *, ghost: bool) -> Iterator[dict[nn.Parameter, _Gradients]]:
    """Form the gradients of each layer with trained parameters in the one backward pass inside the block."""
    hooks = _GradientHooks(clip_norm, ghost)
    with ExitStack() as handles:
        for layer in model.modules():
            if any(p.requires_grad for p in layer.parameters(recurse=False)):
                handles.enter_context(layer.register_forward_hook(hooks.watch))
        yield hooks.gradients


class _GradientHooks:
    """One pass: gradients are formed layer by layer as cotangents arrive, so that inputs can be let go."""

    def __init__(self, clip_norm: float, ghost: bool) -> None:
        self.gradients: dict[nn.Parameter, _Gradients] = {}
        self._clip_norm, self._ghost = clip_norm, ghost
        self._forming = False

    def watch(self, layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        """Wait for the cotangents of a layer's outputs; outputs of a rule's own calls are not part of the pass."""
        if self._forming or not output.requires_grad:
            return
        x = given[0].detach()
        output.register_hook(lambda g: self._form(layer, x, g.detach()))

    def _form(self, layer: nn.Module, x: Tensor, g: Tensor) -> None:
        self._forming = True
        try:
            with torch.no_grad():  # a rule may apply layers, whose parameters could be differentiated
                formed = _gradients(layer, x, g, self._clip_norm, ghost=self._ghost)
        finally:
            self._forming = False
        if formed.keys() & self.gradients.keys():
            raise PlanError(
                f"Expected one backward pass of each {type(layer).__name__}, got a second one; pass the batch once"
            )
        self.gradients.update(formed)
