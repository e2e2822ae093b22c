"""Sensitivities from the bounds of a network: what one example can contribute at most.

Those that follow weights, or a clipping norm that was learned, are numbers of the model's device (`clipless.scalars`).
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from clipless.bounds import NetworkBounds, WeightNorms, bound_network
from clipless.losses import Loss, loss_lipschitz
from clipless.network import Network
from clipless.plans.clipping import LEAST_SHARE
from clipless.plans.method import Method
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
