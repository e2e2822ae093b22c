"""Sensitivities from the bounds of a network: the largest contributions of one example.

Those that follow weights, or a clipping norm that was learned, are numbers of the model's device (`clipless.scalars`).
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from clipless.bounds import NetworkBounds, WeightNorms, bound_network
from clipless.errors import PlanError
from clipless.losses import Loss, loss_lipschitz
from clipless.network import Network
from clipless.plans.clipping import LEAST_SHARE
from clipless.plans.method import Method
from clipless.plans.trainable import check_rows_apart, check_trainable
from clipless.scalars import Scalar, entry, larger, replace_nan, smaller


def worst_case(network: Network, loss: Loss, method: Method, weights: WeightNorms) -> dict[str, Scalar]:
    """Return the sensitivity of each parameter; ``weights`` says where norms are taken from."""
    bounds = bound_network(network, weights)
    lipschitz = _loss_constant(network, loss, bounds)
    return bounds.sensitivities(lipschitz, normalised=method is Method.LIP_DP_SGD)


def _loss_constant(network: Network, loss: Any, bounds: NetworkBounds) -> Scalar:
    norm = bounds.output.norm
    logits = bounds.output.shape[0]
    if isinstance(norm, int | float):
        return loss_lipschitz(loss, logits, logit_norm=norm)
    largest = bound_network(network).output.norm
    norms_R, constants_R = _constants(loss, logits, largest, norm.device)
    return entry(constants_R.take(torch.searchsorted(norms_R, norm).clamp(max=len(norms_R) - 1)))


@lru_cache(maxsize=64)
def _constants(loss: Loss, logits: int, largest: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Constants of a loss over growing balls of logits: that of the next larger ball is one of a ball between them."""
    norms = [largest * 0.95**i for i in reversed(range(128))]
    constants = [loss_lipschitz(loss, logits, logit_norm=norm) for norm in norms]
    norms_R, constants_R = torch.tensor([norms, constants], dtype=torch.float64).to(device)
    return norms_R, constants_R


def limit_sensitivity(now: Scalar, planned: float, least: float = 0.0) -> Scalar:
    """Return a sensitivity that moves, between a share of the planned one and itself, which stands in for NaN.

    It does not fall below ``least`` either, where that is less than the planned one.
    """
    return smaller(larger(replace_nan(now, planned), max(LEAST_SHARE * planned, least)), planned)


def planned_sensitivities(
    model: nn.Module, loss: Loss, method: Method, fraction: float, clip_norm: float | None
) -> tuple[dict[str, float], dict[str, int]]:
    """Return the sensitivity and the number of entries of each trained parameter.

    Raises:
        PlanError: no trained parameter, or one that the method has no rule for; a network that ends in maps.
    """
    network = check_trainable(model, bounded=method.bounded)
    sizes = {name: p.numel() for name, p in network.named_parameters() if p.requires_grad}
    if not sizes:
        raise PlanError("Expected at least one trainable parameter, got none")
    shape = network.output_shape()
    if len(shape) != 1:
        raise PlanError(f"Expected a network that ends in a vector of logits, got shape {shape}")
    loss_lipschitz(loss, shape[0])  # refuses a loss that does not fit
    if method is Method.NON_PRIVATE:
        return {}, sizes
    if method is Method.DP_SGD:
        check_rows_apart(network)  # bound rules see to it elsewhere
        return dict.fromkeys(sizes, positive_budget(clip_norm)), sizes
    worst = worst_case(network, loss, method, WeightNorms.CONSTRAINED)
    unknown = [name for name in sizes if name not in worst]
    if unknown:
        raise PlanError(f"Expected parameters that {method.value} has a rule for, got {unknown[0]}; use clipless")
    return {name: fraction * float(worst[name]) for name in sizes}, sizes


def positive_budget(value: float | None) -> float:
    """Return a budget; raise PlanError unless it is positive and finite."""
    if value is None or not 0 < value < float("inf"):
        raise PlanError(f"Expected a positive, finite budget, got {value!r}")
    return value
