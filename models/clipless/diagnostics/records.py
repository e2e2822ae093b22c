"""The result of a diagnosis: frozen numbers, no rows.

Shape letters: N rows.
"""

from dataclasses import dataclass
from math import ceil, floor, log10

import numpy as np
from torch import Tensor

from clipless.plans.method import Method

_BINS_PER_DECADE = 10
_DECADES = 6
_LINEAR_BINS = 40


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many of some numbers >= 0 lie between edges."""

    edges: tuple[float, ...]  # ascending, one more than ``counts``; none where every number is 0
    counts: tuple[int, ...]  # of each bin, which holds its lower edge
    below: int = 0  # how many lie under the first edge, zeros among them


@dataclass(frozen=True, slots=True, kw_only=True)
class Norms:
    """The norms of some rows."""

    largest: float
    median: float
    histogram: Histogram


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterDiagnosis:
    """One parameter: the contributions of rows to its gradient, against its sensitivity.

    A row's *own* contribution is the gradient of its loss, under ``lip-dp-sgd`` divided by the norm of its input of
    the layer; the guard has not scaled it yet.
    """

    name: str
    size: int  # d_k, number of entries
    # analytic bound of a contribution under the constraints; None for a network without bounds
    worst_case: float | None
    # Delta_k, where the guard acts (``dp-sgd``: the clip norm, of all parameters together); None without privacy
    sensitivity: float | None
    own: Norms  # exact norms of the contributions
    guard_bound: Norms  # what the guard takes those norms to be: from above, without forming a gradient
    acted: float  # share of rows whose contribution was scaled
    signal: float  # norm of the summed contributions of a batch of expected size, b times their mean
    noise_std: float  # standard deviation of the noise on each entry of that sum

    @property
    def tightness(self) -> float | None:
        """Share of the analytic worst case that the largest contribution reaches."""
        return None if self.worst_case is None else self.own.largest / self.worst_case

    @property
    def noise_to_gradient(self) -> float:
        """Norm of the noise over that of the signal; inf where there is no signal."""
        noise: float = self.noise_std * self.size**0.5
        return 0.0 if noise == 0.0 else noise / self.signal if self.signal > 0.0 else float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDiagnosis:
    """One layer: its signals on the way forward and the cotangents on the way back, at its output."""

    name: str
    kind: str
    activation_bound: float | None  # rigorous bound under the constraints; None where there is none
    activation_largest: float  # largest norm that a row's output had
    cotangent_bound: float | None  # likewise, of the gradient of the loss in the output
    cotangent_largest: float | None  # None for the layers in front of the first parameter, which need none

    @property
    def forward_tightness(self) -> float | None:
        """Share of the bound that the largest output reaches."""
        return None if self.activation_bound is None else self.activation_largest / self.activation_bound

    @property
    def backward_tightness(self) -> float | None:
        """Share of the bound that the largest cotangent reaches."""
        if self.cotangent_bound is None or self.cotangent_largest is None:
            return None
        return self.cotangent_largest / self.cotangent_bound


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedParameter:
    """The effect of one setting of clipping on one parameter; see `ClippingBias`."""

    name: str
    cosine: float
    acted: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippingBias:
    """The direction and norm of the mean clipped contribution, against those of the mean gradient."""

    method: Method  # what clips: the guard per layer (``clipless``, ``lip-dp-sgd``), or the whole gradient (``dp-sgd``)
    level: float  # the sensitivity fraction, or the clip norm C
    in_use: bool  # whether the plan trains with this setting
    noise_norm: float  # root of the mean squared norm of the noise on the summed gradient, per unit of noise multiplier
    acted: float  # share of rows of which at least one contribution was scaled
    # between the sum of clipped contributions and the sum of gradients, over all parameters; NaN where either is
    # zero
    cosine: float
    kept: float  # norm of the former over that of the latter
    parameters: tuple[ClippedParameter, ...]  # the same for each parameter alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics:
    """One look at a model."""

    rows: int
    left_out: int  # how many more were not finite somewhere; the guard selects such rows away
    parameters: tuple[ParameterDiagnosis, ...]
    layers: tuple[LayerDiagnosis, ...]
    noise_to_gradient: float  # norm of all noise over that of the whole summed gradient of a batch of expected size
    clipping: tuple[ClippingBias, ...]  # settings, from gentle to harsh, method by method


@dataclass(frozen=True, slots=True, kw_only=True)
class InputNorms:
    """Norms of examples in one coordinate system.

    ``bound`` is the declared norm that no example exceeds.
    """

    space: str
    bound: float
    norms: Norms


def log_norms(norm_N: Tensor) -> Norms:
    """Summarise norms of which the smallest matter too: ten bins a decade, at the same places for every model."""
    values_N = norm_N.detach().cpu().double().numpy()
    positive = values_N[values_N > 0]
    if len(positive) == 0:
        return Norms(largest=0.0, median=0.0, histogram=Histogram((), (), len(values_N)))
    top = float(positive.max())
    low = max(float(positive.min()), top * 10.0**-_DECADES)
    first, last = ceil(_BINS_PER_DECADE * log10(low)) - 1, floor(_BINS_PER_DECADE * log10(top))
    grid = 10.0 ** (np.arange(first, last + 1) / _BINS_PER_DECADE)
    edges = np.array([min(grid[0], low), *grid[(grid > low) & (grid < top)], top])
    return _summary(values_N, edges)


def linear_norms(norm_N: Tensor, bound: float) -> Norms:
    """Summarise norms between 0 and ``bound``, or the largest if that is larger: forty bins."""
    values_N = norm_N.detach().cpu().double().numpy()
    return _summary(values_N, np.linspace(0.0, max(bound, float(values_N.max())), _LINEAR_BINS + 1))


def _summary(values_N: np.ndarray, edges: np.ndarray) -> Norms:
    counts, _ = np.histogram(values_N, edges)
    below = int((values_N < edges[0]).sum())
    histogram = Histogram(tuple(edges.tolist()), tuple(counts.tolist()), below)
    return Norms(largest=float(values_N.max()), median=float(np.median(values_N)), histogram=histogram)
