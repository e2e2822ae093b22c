r"""L2 certificates from rigorous norms.

For a network whose layers before the last have Lipschitz constant L_h and whose last layer is ``W h``, the
class y cannot lose to j within the radius ``(f_y - f_j) / (|w_y - w_j| L_h)``; otherwise ``sqrt(2) L`` replaces
the denominator, and ``L`` for a single logit (Tsuzuku et al. 2018, arXiv 1802.04034; Bethune et al. 2024). The
score of a binary task, of constant L, moves by at most ``L r`` on each side of a pair: the order of two rows
stands within the radius r if their scores differ by more than ``2 L r``. Logits come from a float64 forward
pass, norms of the current weights from above: power iteration is a lower bound and never used.

Shape letters: B batch, K logits, P positives, N negatives.
"""

from collections.abc import Sequence
from copy import deepcopy
from math import inf, isfinite, nan, sqrt

import torch
from torch import Tensor

from clipless.bounds import NetworkBounds, WeightNorms, bound_network
from clipless.bounds._rules import relative_error
from clipless.front import split_fixed_front
from clipless.layers import ClipGradient, Dense
from clipless.network import Network

_CHUNK = 4096


@torch.no_grad()
def float64_features(model: Network, x: Tensor) -> Tensor:
    """What a float64 forward pass of the fixed front of ``model`` makes of ``x``; it does not change in training."""
    front, _ = split_fixed_front(deepcopy(model).double())
    return torch.cat([front(chunk.double()) for chunk in x.split(_CHUNK)])


@torch.no_grad()
def float64_logits(model: Network, x: Tensor, *, features: Tensor | None = None) -> Tensor:
    """Logits (B, K) of a float64 forward pass on the device of ``x``.

    Args:
        model: the network.
        x: (B, ...) rows.
        features: `float64_features` of these rows, which save the front's part.
    """
    _, rest = split_fixed_front(deepcopy(model).double())
    features = float64_features(model, x) if features is None else features
    return torch.cat([rest(chunk) for chunk in features.split(_CHUNK)])


def measured_bounds(model: Network) -> NetworkBounds:
    """Bounds of ``model`` from rigorous norms of its weights as they are, for a float64 forward pass."""
    return bound_network(model, WeightNorms.MEASURED, torch.float64)


def forward_error(model: Network, bounds: NetworkBounds) -> float:
    """Largest distance between float64 logits and the exact ones, over every input.

    The errors of the layers (see ``relative_error`` of the bound rules), enlarged by the gains of the layers behind
    them. Where there is no bound yet, in front of the input ball, the ball's takes its place.

    Args:
        model: the network.
        bounds: its `measured_bounds`.
    """
    error, waiting, shape = 0.0, 0.0, model.input_shape
    for (_, bound), layer in zip(bounds.layers, model.layers, strict=True):
        waiting += relative_error(layer, shape, bound.output.shape)
        shape = bound.output.shape
        if isfinite(bound.output.norm):
            own = inf if bound.error is None else bound.error
            error = error * bound.input_gain + max(own, waiting * bound.output.norm)
            waiting = 0.0
    return error * (1.0 + bounds.slack) ** sum(bound.depth for _, bound in bounds.layers)


def certified_radii(
    model: Network, logits_BK: Tensor, target_B: Tensor, *, bounds: NetworkBounds | None = None
) -> Tensor:
    """Radius, in units of the network's input tensor, within which no input changes the correct decision.

    Args:
        model: the network that gave ``logits_BK``.
        logits_BK: float64 logits; K = 1 is a binary decision at 0.
        target_B: int64 labels.
        bounds: `measured_bounds` of the model, computed if left out.

    Returns:
        (B,) float64 radii; 0 for a wrong decision. An example is certified at r if its radius is *greater*
        than r.

    Guarantees:
        Every input whose Euclidean distance from the example is below the radius is decided as ``target_B``
        by the float64 network, for finite inputs, rounding of both forward passes included. Non-finite logits
        certify nothing.
    """
    bounds = bounds or measured_bounds(model)
    logits_BK = logits_BK.double()
    error = 2.0 * forward_error(model, bounds)
    if logits_BK.shape[1] == 1:
        sign_B = target_B.double() * 2.0 - 1.0
        radii_B = (logits_BK[:, 0] * sign_B - error) / bounds.lipschitz()
    else:
        margins_BK = logits_BK.gather(1, target_B[:, None]) - logits_BK - sqrt(2.0) * error
        reach_BK = _pairwise_lipschitz(model, bounds, logits_BK)[target_B]
        own_BK = torch.nn.functional.one_hot(target_B, logits_BK.shape[1]).bool()
        radii_B = (margins_BK / reach_BK).masked_fill(own_BK, float("inf")).amin(dim=1)
    finite_B = logits_BK.isfinite().all(dim=1)
    return torch.where((radii_B > 0) & finite_B, radii_B, 0.0)


def decisions(logits_BK: Tensor) -> Tensor:
    """Return the (B,) decided classes: one logit at 0, more by the largest; -1 where a logit is not finite."""
    decided_B = (logits_BK[:, 0] > 0).long() if logits_BK.shape[1] == 1 else logits_BK.argmax(dim=1)
    return torch.where(logits_BK.isfinite().all(dim=1), decided_B, -1)


def binary_scores(logits_BK: Tensor) -> Tensor:
    """Return the (B,) score of class 1: the only logit, or the difference of two."""
    return logits_BK[:, 0] if logits_BK.shape[1] == 1 else logits_BK[:, 1] - logits_BK[:, 0]


def certified_auroc(
    model: Network,
    logits_BK: Tensor,
    target_B: Tensor,
    radii: Sequence[float],
    *,
    bounds: NetworkBounds | None = None,
) -> list[float]:
    """Share of pairs of a positive and a negative that stay in order when both move by less than a radius.

    Args:
        model: the network that gave ``logits_BK``.
        logits_BK: float64 logits of a binary task, K = 1 or 2.
        target_B: int64 labels, 0 or 1.
        radii: in units of the network's input tensor, >= 0.
        bounds: `measured_bounds` of the model, computed if left out.

    Returns:
        One number for each radius; NaN if one class is absent. Never more than the AUROC, ties counting nothing.

    Raises:
        ValueError: more than two logits, or a negative radius.

    Guarantees:
        A pair is counted only if the score gap is *greater* than 2 L r plus the rounding of all four forward
        passes: the float64 network then ranks the two in this order after any perturbation of both of at most r.
        Non-finite logits certify nothing.
    """
    if logits_BK.shape[1] > 2:
        raise ValueError(f"Expected 1 or 2 logits for a certified AUROC, got {logits_BK.shape[1]}")
    if not all(radius >= 0 for radius in radii):
        raise ValueError(f"Expected radii >= 0, got radii={list(radii)!r}")
    bounds = bounds or measured_bounds(model)
    logits_BK = logits_BK.double()
    score_B, finite_B = binary_scores(logits_BK), logits_BK.isfinite().all(dim=1)
    error, reach = 4.0 * forward_error(model, bounds), bounds.lipschitz()
    if logits_BK.shape[1] == 2:
        error *= sqrt(2.0)
        reach = float(_pairwise_lipschitz(model, bounds, logits_BK)[1, 0])
    positive_P = torch.where(finite_B, score_B, -torch.inf)[target_B == 1]
    negative_N = torch.where(finite_B, score_B, torch.inf)[target_B == 0].sort().values
    pairs = len(positive_P) * len(negative_N)
    if pairs == 0:
        return [nan] * len(radii)
    gaps = [2.0 * reach * radius + error for radius in radii]
    # searchsorted counts the negatives strictly below
    counts = [int(torch.searchsorted(negative_N, positive_P - gap).sum()) for gap in gaps]
    return [count / pairs for count in counts]


def _pairwise_lipschitz(model: Network, bounds: NetworkBounds, logits_BK: Tensor) -> Tensor:
    """(K, K) Lipschitz constants of the differences of two logits; rows by true class."""
    classes = logits_BK.shape[1]
    largest = torch.full((classes, classes), sqrt(2.0) * bounds.lipschitz(), dtype=torch.float64)
    largest = largest.to(logits_BK.device)
    layers = list(model.layers)
    while layers and type(layers[-1]) is ClipGradient:  # changes no logit
        layers.pop()
    if not layers or type(layers[-1]) is not Dense:
        return largest
    last, behind = layers[-1], len(model.layers) - len(layers)
    weight = last.weight.detach().double()
    apart = (weight[:, None, :] - weight[None, :, :]).norm(dim=2) * (1.0 + 1e-12)
    pairwise = torch.minimum(largest, apart * bounds.lipschitz(skip_last=1 + behind))
    return pairwise.clamp(min=torch.finfo(torch.float64).tiny)
