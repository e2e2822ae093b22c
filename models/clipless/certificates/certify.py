r"""Certificates from rigorous norms: Euclidean ones, and by them or by induced norms those in l1 and l-infinity.

For a network whose layers before the last have Lipschitz constant L_h and whose last layer is ``W h``, the
class y cannot lose to j within the radius ``(f_y - f_j) / (|w_y - w_j| L_h)``; otherwise ``sqrt(2) L`` replaces
the denominator, and ``L`` for a single logit (Tsuzuku et al. 2018, arXiv 1802.04034; Bethune et al. 2024). The
score of a binary task, of constant L, moves by at most ``L r`` on each side of a pair: the order of two rows
stands within the radius r if their scores differ by more than ``2 L r``. Logits come from a float64 forward
pass, norms of the current weights from above: power iteration is a lower bound and never used.

In another norm a perturbation of norm r is followed through the layers in three norms side by side
(`clipless.certificates.induced`), which includes the Euclidean radius over sqrt(d) for l-infinity, and the Euclidean
radius itself for l1. An input ball in front is the identity as long as no input leaves it; where its room does not
last, its own constants in these norms serve.

Shape letters: B batch, K logits, P positives, N negatives.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from math import inf, isfinite, log2, nan, prod, sqrt

import torch
from torch import Tensor, nn
from torch.func import functional_call

from clipless.bounds import NetworkBounds, WeightNorms, bound_network
from clipless.bounds._rules import Rounding, Signal, rounding, rounding_of_unbounded
from clipless.certificates.induced import Reach, propagate_reach
from clipless.errors import UnsupportedError
from clipless.layers import ClipGradient, Dense, InputBall
from clipless.network import Network, features_shape, prefix_depth, split_fixed_prefix
from clipless.norms import LEAST, lengths_upper
from clipless.row_independence import VECTOR, PassShape, Watch, is_alone, watch_layers
from clipless.saving import architecture

_MOST_ROWS = 256  # of a pass
_FEWEST_ROWS = VECTOR
_PASS_ENTRIES = 2**18  # of the rows of a pass, about
_LARGEST = torch.finfo(torch.float64).max


@torch.no_grad()
def float64_features(model: Network, x: Tensor) -> Tensor:
    """Return the float64 features of ``x`` behind the fixed prefix of ``model``; training does not change them.

    Guarantees:
        What is computed of a row depends on that row alone, as `float64_logits` has it.

    Raises:
        ValueError: rows of another shape than the network's.
    """
    _check_shape(x, model.input_shape)
    prefix, _ = split_fixed_prefix(deepcopy(model).double())
    return row_by_row(prefix, x, _find_pass_size(prefix, list(prefix.layers), x))


@torch.no_grad()
def float64_logits(model: Network, x: Tensor, *, features: Tensor | None = None, alone: bool = False) -> Tensor:
    """Logits (B, K) of a float64 forward pass on the device of ``x``.

    Args:
        model: the network, with the weights that it has now.
        x: rows.
        features: the `float64_features` of these rows, which save the prefix's part.
        alone: for scores of private rows: test that what a pass computes of a row depends on that row alone.

    Guarantees:
        What is computed of a row does not depend on how many others there are: passes have one shape, for a kernel is
        chosen by it. With ``alone`` it depends neither on the place of a row nor on what others hold: where passes with
        these weights fail the test (`clipless.row_independence`), each row is passed by itself.

    Raises:
        ValueError: rows or features of another shape than the network's.
    """
    features = float64_features(model, x) if features is None else features
    _check_shape(features, features_shape(model))
    layers = list(model.layers)[prefix_depth(model) :]
    rest = [(layer, _to_float64(layer)) for layer in layers]

    def logits(rows: Tensor) -> Tensor:
        return _through(rest, rows)

    return row_by_row(logits, features, _find_pass_size(model, layers, features, logits) if alone else None)


def _check_shape(x: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse rows of another shape: constants of convolutions hold for the declared one alone."""
    if tuple(x.shape[1:]) != shape:
        raise ValueError(f"Expected rows of shape {shape}, got {tuple(x.shape[1:])}")


def row_by_row(function: Callable[[Tensor], Tensor], x: Tensor, size: int | None = None) -> Tensor:
    """Map rows in float64, in passes of one shape, filled up with zeros: it depends on the shape of a row alone.

    ``size`` is the number of rows of a pass, for measured reasons; by default a power of two.
    """
    size = size or _pass_size(x.shape[1:])
    parts = []
    for chunk in x.split(size):
        rows = torch.zeros((size, *chunk.shape[1:]), dtype=torch.float64, device=x.device)
        rows[: len(chunk)] = chunk
        parts.append(function(rows)[: len(chunk)])
    return torch.cat(parts)


def _pass_size(shape: Sequence[int]) -> int:
    """Return the rows of a pass: a power of two, less for large rows."""
    most_rows = max(_FEWEST_ROWS, min(_MOST_ROWS, _PASS_ENTRIES // max(1, prod(shape))))
    return 1 << int(log2(most_rows))


def _find_pass_size(
    model: Network, layers: Sequence[nn.Module], x: Tensor, function: Callable[[Tensor], Tensor] | None = None
) -> int:
    """Return the rows of a pass in which each is treated alone, 1 where larger passes fail; tested with these weights.

    Args:
        model: tells shapes apart.
        layers: that the rows pass.
        x: rows; only shape and device are looked at.
        function: applies the layers; the model by default.
    """
    shape = tuple(x.shape[1:])
    size = _pass_size(shape)

    def pass_rows(x: Tensor, chosen_B: Tensor, counts_B: Tensor, watch: Watch) -> Mapping[str, Tensor]:
        del chosen_B, counts_B
        with watch_layers(layers, watch):
            watch((function or model)(x.double()))
        return {}

    form = PassShape((_architecture_text(model), "float64", len(layers)), size, shape, x.device)
    return size if is_alone(pass_rows, form) else 1


def _architecture_text(model: Network) -> str | None:
    try:
        return repr(architecture(model))
    except UnsupportedError:
        return None


def _to_float64(layer: nn.Module) -> dict[str, Tensor]:
    """Return the weights and constants of a layer in float64; a copy of the whole network costs ten times as much."""
    state = [*layer.named_parameters(), *layer.named_buffers()]
    return {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in state}


def _through(layers: Sequence[tuple[nn.Module, dict[str, Tensor]]], x: Tensor) -> Tensor:
    for layer, state in layers:
        x = functional_call(layer, state, (x,))
    return x


def measured_bounds(model: Network) -> NetworkBounds:
    """Bounds of ``model`` from rigorous norms of its weights as they are, for a float64 forward pass."""
    return bound_network(model, WeightNorms.MEASURED, torch.float64)


def forward_error(model: Network, bounds: NetworkBounds) -> float:
    """Largest distance between float64 logits and the exact ones, over every input.

    The errors of the layers (see ``relative_error`` of the bound rules), enlarged by the gains of the layers behind
    them. Where there is no bound yet, in front of the input ball, the ball's takes its place, for layers whose rounding
    is relative to what they put out (`Rounding`); another layer there has no bound, and the error is inf. ``bounds``
    are the `measured_bounds` of the model.
    """
    error, shape, norm, exact = 0.0, model.input_shape, inf, True
    waiting: list[tuple[nn.Module, tuple[int, ...], tuple[int, ...]]] = []
    for (_, bound), layer in zip(bounds.layers, model.layers, strict=True):
        if norm == inf:
            kind = rounding_of_unbounded(layer)
            if kind is Rounding.CANCELLING or (kind is Rounding.RELATIVE_IF_EXACT and not exact):
                return inf
            exact = exact and kind is Rounding.EXACT
        waiting.append((layer, shape, bound.output.shape))
        shape, norm = bound.output.shape, float(bound.output.norm)
        if isfinite(norm):
            own = inf if bound.error is None else float(bound.error)
            error = error * float(bound.input_gain) + max(own, sum(rounding(*passed, norm) for passed in waiting))
            waiting = []
    return error * (1.0 + bounds.slack) ** sum(bound.depth for _, bound in bounds.layers)


def certify(model: Network, x: Tensor, target_B: Tensor, *, norm: float = 2.0) -> Tensor:
    """Return the `certified_radii` of rows ``x`` (B, ...), their float64 logits computed here."""
    return certified_radii(model, float64_logits(model, x), target_B, norm=norm, inputs=x)


def certified_radii(
    model: Network, logits_BK: Tensor, target_B: Tensor, *, norm: float = 2.0, inputs: Tensor | None = None
) -> Tensor:
    """Radius, in units of the network's input tensor, within which no input changes the correct decision.

    Args:
        model: the network that gave ``logits_BK``, with the weights that gave them; of one that holds others by now,
            `several_certified_radii` takes what was measured of those.
        logits_BK: float64 logits; K = 1 is a binary decision at 0.
        target_B: int64 labels.
        norm: 1, 2 or inf: the norm that distances from the example are measured in.
        inputs: (B, ...) the rows that gave the logits; only in the norms 1 and inf do they raise a radius.

    Returns:
        (B,) float64 radii; 0 for a wrong decision. An example is certified at r if its radius is *greater*
        than r.

    Raises:
        ValueError: another norm.

    Guarantees:
        Every input whose distance from the example, in that norm, is below the radius is decided as ``target_B``
        by the float64 network, for finite inputs, rounding of both forward passes included. Non-finite logits
        certify nothing.
    """
    if norm not in (1.0, 2.0, inf):
        raise ValueError(f"Expected norm 1, 2 or inf, got norm={norm!r}")
    bounds, logits_BK = measured_bounds(model), logits_BK.double()
    if norm == 2.0:
        radii_B = _radii(model, bounds, logits_BK, target_B, _euclidean_reach(model, bounds, logits_BK))
    else:
        radii_B = _radii(model, bounds, logits_BK, target_B, _reach(model, bounds, norm, len(model.layers)))
        if inputs is not None and len(model.layers) > 0 and type(model.layers[0]) is InputBall:
            inside = _radii(model, bounds, logits_BK, target_B, _reach(model, bounds, norm, len(model.layers) - 1))
            radii_B = torch.maximum(radii_B, torch.minimum(inside, _room(model.layers[0], inputs, norm)))
    return _positive_radii(radii_B, logits_BK)


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """The bounds of a model that radii need beside its logits, measured on its weights at one moment.

    Attributes:
        bounds: `measured_bounds`.
        error: distance of two float64 logits, together, from the exact ones.
        reach: (K, K) how far a perturbation of norm 1 moves each difference of two logits; (1, 1) for one logit.
    """

    bounds: NetworkBounds
    error: float
    reach: Tensor

    @classmethod
    def of(cls, model: Network, device: torch.device) -> "Measured":
        """Measure a model whose logits lie on a device.

        Raises:
            CliplessError: as `measured_bounds`.
        """
        bounds = measured_bounds(model)
        like_BK = torch.empty((0, *bounds.output.shape), dtype=torch.float64, device=device)
        return cls(bounds, 2.0 * forward_error(model, bounds), _euclidean_reach(model, bounds, like_BK).to(device))


def several_certified_radii(logits_NBK: Tensor, target_B: Tensor, measured: Sequence[Measured]) -> Tensor:
    """Return the Euclidean `certified_radii` (N, B) of N networks on the same rows, in one go.

    Args:
        logits_NBK: float64 logits of each.
        target_B: int64 labels.
        measured: of each, with the weights that gave the logits.

    Guarantees:
        Those of `certified_radii`, of each network by itself.
    """
    error_N = torch.tensor([one.error for one in measured], dtype=torch.float64, device=logits_NBK.device)
    reach_NKK = torch.stack([one.reach for one in measured])
    return _positive_radii(_radii_of_several(error_N, logits_NBK, target_B, reach_NKK), logits_NBK)


def _positive_radii(radii_B: Tensor, logits_BK: Tensor) -> Tensor:
    """Return the radii that are positive, of rows with finite logits, and 0 for the others; axes in front may be."""
    finite_B = logits_BK.isfinite().all(dim=-1)
    # What overflows is not infinite: no norm from above is 0.
    return torch.where((radii_B > 0) & finite_B, radii_B.clamp(max=_LARGEST), 0.0)


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
    weights_B: Tensor | None = None,
    measured: Measured | None = None,
) -> list[float]:
    """Share of pairs of a positive and a negative that stay in order when both move by less than a radius.

    Args:
        model: the network that gave ``logits_BK``; not looked at where it is ``measured``.
        logits_BK: float64 logits, 1 or 2.
        target_B: int64 labels, 0 or 1.
        radii: >= 0, in units of the network's input tensor.
        weights_B: float64, of rows; a pair has the product of both. All alike by default.
        measured: with the weights that gave the logits, which the model may not hold any more; of the model as it is
            if left out.

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
    logits_BK = logits_BK.double()
    measured = measured or Measured.of(model, logits_BK.device)
    score_B, finite_B = binary_scores(logits_BK), logits_BK.isfinite().all(dim=1)
    error, reach = 2.0 * measured.error * sqrt(logits_BK.shape[1]), float(measured.reach[-1, 0])
    weights_B = torch.ones_like(score_B) if weights_B is None else weights_B
    positive_P, weight_P = torch.where(finite_B, score_B, -torch.inf)[target_B == 1], weights_B[target_B == 1]
    negative_N, order_N = torch.where(finite_B, score_B, torch.inf)[target_B == 0].sort()
    if not (len(positive_P) and len(negative_N)):
        return [nan] * len(radii)
    below_N1 = torch.cat([weights_B.new_zeros(1), weights_B[target_B == 0][order_N].cumsum(0)])
    pairs = float(weight_P.sum() * below_N1[-1])
    gaps = [2.0 * reach * radius + error for radius in radii]
    # searchsorted counts the negatives strictly below, and would find every one below a NaN
    found = [torch.searchsorted(negative_N, positive_P - gap) if gap < inf else None for gap in gaps]
    return [0.0 if one is None else min(1.0, float((weight_P * below_N1[one]).sum()) / pairs) for one in found]


def _radii(model: Network, bounds: NetworkBounds, logits_BK: Tensor, target_B: Tensor, reach_KK: Tensor) -> Tensor:
    """(B,) radii from how far a perturbation of norm 1 moves differences of logits, (K, K), or one logit, (1, 1)."""
    error = 2.0 * forward_error(model, bounds)
    error_N = torch.tensor([error], dtype=torch.float64, device=logits_BK.device)
    return _radii_of_several(error_N, logits_BK[None], target_B, reach_KK[None].to(logits_BK.device))[0]


def _radii_of_several(error_N: Tensor, logits_NBK: Tensor, target_B: Tensor, reach_NKK: Tensor) -> Tensor:
    """(N, B) radii of N networks on the same rows, each from its own rounding and reach."""
    if logits_NBK.shape[2] == 1:
        sign_B = (target_B == 1).double() - (target_B == 0).double()  # another label is never decided: radius 0
        return (logits_NBK[..., 0] * sign_B - error_N[:, None]) / reach_NKK[:, 0]
    own_B1 = target_B[:, None]
    true_NB1 = logits_NBK.gather(2, own_B1.expand(len(logits_NBK), -1, -1))
    margins_NBK = (true_NB1 - logits_NBK).clamp(max=_LARGEST) - sqrt(2.0) * error_N[:, None, None]
    own_BK = torch.nn.functional.one_hot(target_B, logits_NBK.shape[2]).bool()
    return (margins_NBK / reach_NKK[:, target_B]).masked_fill(own_BK, inf).amin(dim=2)


def _euclidean_reach(model: Network, bounds: NetworkBounds, logits_BK: Tensor) -> Tensor:
    if logits_BK.shape[1] == 1:
        return torch.tensor([[bounds.lipschitz()]], dtype=torch.float64)
    return _pairwise_lipschitz(model, bounds, logits_BK)


def _reach(model: Network, bounds: NetworkBounds, norm: float, count: int) -> Tensor:
    """How far the last ``count`` layers let a perturbation of norm 1 move each difference of logits, or one logit."""
    first, (behind, dense) = len(model.layers) - count, _last_dense(model)
    every = [(layer, bound) for layer, (_, bound) in zip(model.layers, bounds.layers, strict=True)]
    signal = every[first - 1][1].output if first else Signal(model.input_shape)
    start = Reach.of_unit(norm, prod(signal.shape))
    (classes,) = bounds.output.shape
    if dense is None or behind > count:
        weight_KI, reach = torch.eye(classes, dtype=torch.float64), propagate_reach(every[first:], signal, start)
    else:
        weight_KI, reach = dense.weight.detach().double(), propagate_reach(every[first:-behind], signal, start)
    apart = weight_KI[None] if classes == 1 else weight_KI[:, None, :] - weight_KI[None, :, :]
    return (reach.of_products(apart.cpu()) * (1.0 + bounds.slack)).clamp(min=LEAST)


def _room(ball: InputBall, inputs: Tensor, norm: float) -> Tensor:
    """(B,) distances, in ``norm``, within which no input leaves the ball."""
    rows = inputs.double().flatten(1)
    length_B = rows.norm(dim=1) * (1.0 + rows.shape[1] * torch.finfo(torch.float64).eps)
    margin_B = (ball.radius - length_B) * (1.0 - 1e-12) / (1.0 if norm == 1.0 else sqrt(rows.shape[1]))
    return torch.where(margin_B > 0, margin_B, 0.0)


def _last_dense(model: Network) -> tuple[int, Dense | None]:
    """The dense layer that the logits come from, if any, counted from the end; clipping behind it changes none."""
    for behind, layer in enumerate(reversed(model.layers), start=1):
        if type(layer) is not ClipGradient:
            return behind, layer if type(layer) is Dense else None
    return 0, None


def _pairwise_lipschitz(model: Network, bounds: NetworkBounds, logits_BK: Tensor) -> Tensor:
    """(K, K) Lipschitz constants of the differences of two logits; rows by true class."""
    classes = logits_BK.shape[1]
    largest = torch.full((classes, classes), sqrt(2.0) * float(bounds.lipschitz()), dtype=torch.float64)
    largest = largest.to(logits_BK.device)
    behind, last = _last_dense(model)
    if last is None:
        return largest
    weight = last.weight.detach().double()
    apart = lengths_upper(weight[:, None, :] - weight[None, :, :]) * (1.0 + bounds.slack)
    return torch.minimum(largest, apart * bounds.lipschitz(skip_last=behind)).clamp(min=LEAST)
