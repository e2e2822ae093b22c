"""The gradient of a batch's summed loss, bounded as the method of its plan says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from clipless.guards.guard import guarded
from clipless.losses import Loss
from clipless.network import Network
from clipless.plans.method import Method
from clipless.plans.plan import Plan
from clipless.row_independence import deterministic_convolutions
from clipless.training.per_example import accumulate_clipped


@dataclass(frozen=True, slots=True)
class CountedLoss:
    """A loss that is zero, and whose gradient is zero, for rows that do not count."""

    loss: Loss
    counts: Tensor

    def __call__(self, logits_BK: Tensor, target_B: Tensor) -> Tensor:
        """Return (B,) losses."""
        return torch.where(self.counts, self.loss(logits_BK, target_B), 0.0)


def sum_gradients(
    model: Network,
    loss: Loss | CountedLoss,
    x: Tensor,
    y: Tensor,
    plan: Plan,
    totals: Mapping[str, Tensor],
    *,
    rows: int | None = None,
    forward: Callable[[Tensor], Tensor] | None = None,
    ghost: bool = False,
    exact: bool = False,
) -> None:
    """Add the gradient of the *summed* loss of a batch to ``totals``, bounded as the plan's method says.

    Totals are float64, by parameter. Only the first ``rows`` count; those behind fill the batch up. What is applied to
    them is ``forward``: ``model``, or its layers behind a fixed prefix that they have passed already. ``ghost`` is for
    ``dp-sgd`` (`clipless.training.per_example.accumulate_clipped`), ``exact`` for the methods that the guard bounds
    (`clipless.guards.guard.Guard`).

    Guarantees:
        Each parameter's computed total changes by at most ``plan.sensitivities`` when one row of the batch is replaced
        by a row with zero contribution (under ``dp-sgd`` all of them together by ``plan.clip_norm``), for up to
        `clipless.guards.exact_sums.MOST_ROWS` rows in all calls that share ``totals``. None without privacy.
    """
    if rows == 0 or len(x) == 0:
        return
    forward = forward or model

    def backward() -> None:
        with deterministic_convolutions():
            loss(forward(x), y)[:rows].sum().backward()

    match plan.method:
        case Method.DP_SGD:
            accumulate_clipped(model, backward, plan.clip_norm or 0.0, totals, ghost=ghost)
        case Method.NON_PRIVATE:
            backward()
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    totals[name].add_(parameter.grad)
                    parameter.grad = None
        case Method.CLIPLESS | Method.LIP_DP_SGD:
            normalise = plan.method is Method.LIP_DP_SGD
            with guarded(model, plan.sensitivities, normalise=normalise, exact=exact, totals=totals):
                backward()
