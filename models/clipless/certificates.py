r"""L2 certificates from rigorous norms.

For a network whose layers before the last have Lipschitz constant L_h and whose last layer is ``W h``, the
class y cannot lose to j within the radius ``(f_y - f_j) / (|w_y - w_j| L_h)``; otherwise ``sqrt(2) L``
replaces the denominator, and ``L`` for a single logit (Tsuzuku et al. 2018, arXiv 1802.04034; Bethune et al.
2024). Logits come from a float64 forward pass, norms of the current weights from above: power iteration is a
lower bound and never used.

Shape letters: B batch, K logits.
"""

from copy import deepcopy
from math import sqrt

import torch
from torch import Tensor

from clipless.bounds import WeightNorms, bound_network
from clipless.layers import Dense
from clipless.network import Network

# Relative to the norm of the logits: what a float64 forward pass may be off by.
_FLOAT64_ERROR = 1e-10
_CHUNK = 4096


@torch.no_grad()
def float64_logits(model: Network, x: Tensor) -> Tensor:
    """Logits (B, K) of a float64 forward pass on the device of ``x``."""
    double = deepcopy(model).double()
    return torch.cat([double(chunk.double()) for chunk in x.split(_CHUNK)])


def certified_radii(model: Network, logits_BK: Tensor, target_B: Tensor) -> Tensor:
    """Radius, in units of the network's input tensor, within which no input changes the correct decision.

    Args:
        model: the network that gave ``logits_BK``.
        logits_BK: float64 logits; K = 1 is a binary decision at 0.
        target_B: int64 labels.

    Returns:
        (B,) float64 radii; 0 for a wrong decision. An example is certified at r if its radius is *greater*
        than r.

    Guarantees:
        Every input whose Euclidean distance from the example is below the radius is decided as ``target_B``
        by the float64 network, for finite inputs. Non-finite logits certify nothing.
    """
    bounds = bound_network(model, WeightNorms.MEASURED, torch.float64)
    logits_BK = logits_BK.double()
    error_B = _FLOAT64_ERROR * logits_BK.norm(dim=1)
    if logits_BK.shape[1] == 1:
        sign_B = target_B.double() * 2.0 - 1.0
        radii_B = (logits_BK[:, 0] * sign_B - error_B) / bounds.lipschitz()
    else:
        margins_BK = logits_BK.gather(1, target_B[:, None]) - logits_BK - 2.0 * error_B[:, None]
        reach_BK = _pairwise_lipschitz(model, bounds.lipschitz(), bounds.lipschitz(skip_last=1), logits_BK)[target_B]
        own_BK = torch.nn.functional.one_hot(target_B, logits_BK.shape[1]).bool()
        radii_B = (margins_BK / reach_BK).masked_fill(own_BK, float("inf")).amin(dim=1)
    return torch.where(radii_B > 0, radii_B, 0.0)


def _pairwise_lipschitz(model: Network, whole: float, hidden: float, logits_BK: Tensor) -> Tensor:
    """(K, K) Lipschitz constants of the differences of two logits; rows by true class."""
    classes = logits_BK.shape[1]
    largest = torch.full((classes, classes), sqrt(2.0) * whole, dtype=torch.float64, device=logits_BK.device)
    last = model.layers[-1]
    if type(last) is not Dense:
        return largest
    weight = last.weight.detach().double()
    apart = (weight[:, None, :] - weight[None, :, :]).norm(dim=2) * (1.0 + 1e-12)
    return torch.minimum(largest, apart * hidden).clamp(min=torch.finfo(torch.float64).tiny)
