r"""How far a perturbation can grow in the norms l1, l2 and l-infinity, followed through a network side by side.

A `Reach` bounds three norms of one difference d of n elements. Each bounds the others::

    |d|_inf <= |d|_2 <= sqrt(|d|_1 |d|_inf),       |d|_1 <= sqrt(n) |d|_2,       |d|_1 <= n |d|_inf

and a layer whose Lipschitz constant is known in a norm carries that norm on. For a linear map that is the induced
norm: the largest absolute column sum for l1, the largest absolute row sum for l-infinity. A layer without a rule here
carries on the Euclidean norm alone, by its bound rule, and the others follow from it. No constraint keeps row or column
sums small: these bounds are of the weights as they are, for certificates.

* Elementwise 1-Lipschitz maps, and rearrangements, have constant 1 in every norm; so has sorting: of all ways to pair
  the entries of two vectors, the sorted one has the least distance in every l_p.
* The projection P onto a Euclidean ball has, outside of it, the Jacobian ``s (I - v v^T)``, ``0 < s <= 1, |v|_2 = 1``.
  Its row i sums to ``s (1 - v_i^2 + |v_i| sum_{j != i} |v_j|) <= s (c^2 + sqrt(n - 1) c |v_i|)`` with
  ``c^2 = 1 - v_i^2``: at most ``(1 + sqrt n) / 2``. It is symmetric, so that the columns have the same sums.
* Subtracting the mean is ``I - 1 1^T / n``: 2 - 2 / n. Group normalisation is that, 1 / alpha, and P.
* A pair of the Householder activation stays or is reflected, with ``|cos theta| + |sin theta|`` in rows and columns.
* In a window of p elements ``|d|_2 <= sqrt(p) |d|_inf``; the maximum is 1-Lipschitz; the mean has rows that sum to 1.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf, prod, sqrt
from typing import Any

import torch
from torch import Tensor, nn

from clipless import layers as kinds
from clipless.bounds._rules import LayerBound, Signal, WeightNorms
from clipless.bounds.composition.compose import bound_sequence
from clipless.bounds.composition.propagate import ROUNDING_SLACK
from clipless.norms import LEAST, at_least_normal, lengths_upper

Shape = tuple[int, ...]
Gains = tuple[float, float]  # in l1 and in l-infinity
_SLACK = 1.0 + ROUNDING_SLACK[torch.float64]
_KEEP: frozenset[type[nn.Module]] = frozenset(
    {
        *(kinds.Abs, kinds.GroupSort, kinds.ReLU, kinds.Softplus, kinds.Tanh, kinds.MaxPool2d),
        *(kinds.ClipGradient, kinds.Flatten, kinds.SpaceToDepth, kinds.SwapAxes, kinds.Tokens),
    }
)


@dataclass(frozen=True, slots=True)
class Reach:
    """Upper bounds of the l1, the Euclidean and the l-infinity norm of one difference."""

    one: float
    two: float
    largest: float

    @classmethod
    def of_unit(cls, norm: float, elements: int) -> "Reach":
        """Bound the differences of n elements whose l_p norm is at most 1, for p = 1, 2 or inf."""
        known = {1.0: cls(1.0, inf, inf), 2.0: cls(inf, 1.0, inf), inf: cls(inf, inf, 1.0)}
        return known[norm].tighten(elements)

    def tighten(self, elements: int) -> "Reach":
        """Return the bounds, each tightened by the others."""
        one = min(self.one, elements * self.largest, sqrt(elements) * self.two)
        largest = min(self.largest, self.two, self.one)
        two = min(self.two, sqrt(one) * sqrt(largest))  # the product itself could underflow
        return Reach(min(one, sqrt(elements) * two), two, min(largest, two))

    def of_products(self, weight_MI: Tensor) -> Tensor:
        """Bound the M inner products of the rows of ``weight_MI`` with the difference, by Hoelder's inequality."""
        rounded = 1.0 + weight_MI.shape[-1] * torch.finfo(torch.float64).eps
        weight = weight_MI.double().abs()
        sums, lengths, peaks = weight.sum(dim=-1), lengths_upper(weight), weight.amax(dim=-1)
        by_norm = ((sums, self.largest), (lengths, self.two), (peaks, self.one))
        return torch.stack([found.clamp(min=LEAST) * reach * rounded for found, reach in by_norm]).amin(dim=0)


def propagate_reach(layers: Iterable[tuple[nn.Module, LayerBound]], signal: Signal, reach: Reach) -> Reach:
    """Bound a perturbation behind the layers.

    The layers come in order with their bounds from `WeightNorms.MEASURED`; ``signal`` and the norms ``reach`` of its
    perturbation enter the first.
    """
    for layer, bound in layers:
        reach = _through(layer, bound, signal, reach)
        signal = bound.output
    return reach


def induced_gains(layer: nn.Module, shape: Shape) -> Gains | None:
    """Lipschitz constants of ``layer`` in l1 and l-infinity for inputs of ``shape``, by exact type; None: no rule."""
    if type(layer) in _KEEP:
        return 1.0, 1.0
    rule = _RULES.get(type(layer))
    return None if rule is None else rule(layer, shape)


def _through(layer: nn.Module, bound: LayerBound, signal: Signal, reach: Reach) -> Reach:
    two = float(at_least_normal(bound.input_gain)) * reach.two
    if type(layer) is kinds.Residual:
        one, largest = _mix(layer, signal, reach)
    else:
        gains = induced_gains(layer, signal.shape)
        factors = (inf, inf) if gains is None else (float(at_least_normal(gain)) for gain in gains)
        one, largest = (factor * norm for factor, norm in zip(factors, (reach.one, reach.largest), strict=True))
    found = Reach(one, two, largest).tighten(prod(bound.output.shape))
    rounded = _SLACK**bound.depth
    return Reach(*(float(at_least_normal(norm * rounded)) for norm in (found.one, found.two, found.largest)))


def _mix(layer: kinds.Residual, signal: Signal, reach: Reach) -> tuple[float, float]:
    named = [(str(index), inner) for index, inner in enumerate(layer.layers)]
    bounds = bound_sequence(named, signal, WeightNorms.MEASURED)
    inside = propagate_reach(
        ((inner, bound) for (_, inner), (_, bound) in zip(named, bounds, strict=True)), signal, reach
    )
    kept = passed = 1.0
    if layer.weight is not None:
        share = layer.weight if layer.mix is None else layer.mix.item()
        kept, passed = abs(share), abs(1.0 - share)
    return kept * reach.one + passed * inside.one, kept * reach.largest + passed * inside.largest


def _dense(layer: kinds.Dense, shape: Shape) -> Gains:
    del shape  # tokens are mapped alike, each alone
    weight_OI = layer.weight.detach().double().abs()
    return _largest(weight_OI.sum(dim=0)), _largest(weight_OI.sum(dim=1))


def _conv(layer: kinds.Conv1d | kinds.Conv2d, shape: Shape) -> Gains:
    """An input element meets the kernel entries of one residue class of the stride; zero padding drops some."""
    del shape
    kernel, stride, _ = layer.geometry
    applied = (layer.weight.detach().double() * layer.scale).abs().view(layer.out_channels, -1, *kernel)
    per_input = applied.unflatten(0, (layer.groups, -1)).sum(dim=1)  # (G, I / G, h, w)
    classes = [per_input[..., r :: stride[0], c :: stride[1]] for r in range(stride[0]) for c in range(stride[1])]
    return max(_largest(part.sum(dim=(-2, -1))) for part in classes), _largest(applied.sum(dim=(1, 2, 3)))


def _ball(shape: Shape) -> float:
    return (1.0 + sqrt(prod(shape))) / 2.0


def _centring_gain(elements: int) -> float:
    return 2.0 - 2.0 / elements


def _group_norm(layer: kinds.GroupNorm, shape: Shape) -> Gains:
    group = (prod(shape) // layer.groups,)
    gain = _centring_gain(*group) / layer.alpha * _ball(group)
    return gain, gain


def _householder(layer: kinds.Householder, shape: Shape) -> Gains:
    del shape
    angle = layer.angle.detach().double()
    gain = max(1.0, _largest(angle.cos().abs() + angle.sin().abs()))
    return gain, gain


def _average(layer: kinds.AvgPool2d, shape: Shape) -> Gains:
    del shape
    scale = float(layer.window) if layer.scaled else 1.0
    return scale / layer.window**2, scale


def _largest(sums: Tensor) -> float:
    return float(sums.max()) if bool(sums.isfinite().all()) else inf


_RULES: dict[type[nn.Module], Callable[[Any, Shape], Gains]] = {
    kinds.AvgPool2d: _average,
    kinds.Conv1d: _conv,
    kinds.Conv2d: _conv,
    kinds.Dense: _dense,
    kinds.GlobalL2Pool2d: lambda _, shape: (1.0, sqrt(prod(shape[1:]))),
    kinds.GroupNorm: _group_norm,
    kinds.Householder: _householder,
    kinds.InputBall: lambda _, shape: (_ball(shape), _ball(shape)),
    kinds.L2Pool2d: lambda layer, _: (1.0, float(layer.window)),
    kinds.LayerCentering: lambda _, shape: (_centring_gain(prod(shape)), _centring_gain(prod(shape))),
    kinds.Sigmoid: lambda *_: (0.25, 0.25),
}
