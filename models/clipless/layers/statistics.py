"""Input layers with constants that are learned from the training rows, and paid for, before the first step.

Each declares what one row contributes to a sum, a vector of norm at most 1, and what it makes of the noisy sum.
`clipless.plans.input_statistics` draws the batches and adds the noise; `clipless.plans.plan` counts the releases.

Shape letters: B batch, F features or channels, P positions, M entries of a contribution.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod, sqrt
from typing import final

import torch
from torch import Tensor

from clipless.layers._base import Layer
from clipless.layers.normalization import InputBall

_LEAST_DIVISOR = torch.finfo(torch.float32).tiny  # divisors are learned in float32, where less may become 0


class PaidStatistics(Layer, ABC):
    """Base of the layers whose constants are a release, of ``releases`` batches, each charged like a training step."""

    def __init__(self, releases: int) -> None:
        super().__init__()
        if type(releases) is not int or releases < 1:
            raise ValueError(
                f"Expected a whole number releases >= 1, got releases={releases!r} ({type(self).__name__})"
            )
        self.releases = releases

    @abstractmethod
    def contributions(self, x: Tensor) -> Tensor:
        """Return (B, M) vectors, one a row, of norm at most 1; rows that are not finite contribute zero."""

    @abstractmethod
    def settle(self, mean_M: Tensor, shape: Sequence[int]) -> None:
        """Set the constants from the noisy mean of the contributions of examples of this shape."""


@final
class Standardise(PaidStatistics):
    """Subtracts a private mean from each feature or channel and divides by a private standard deviation.

    Put it in front of an `InputBall`, which makes sensitivities independent of the learned constants. Certificates
    fold in the smallest standard deviation, which ``floor`` keeps away from 0.

    Args:
        features: F, size of axis 1; statistics of maps are taken over all their positions.
        radius: C; for the statistics, rows are projected onto the ball of this radius. A public number.
        floor: smallest standard deviation, at least the smallest normal float32. A public number.
        releases: see `PaidStatistics`; more of them make the statistics more precise and cost more.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, features: int, radius: float, floor: float, releases: int = 1) -> None:
        super().__init__(releases)
        if type(features) is not int or features < 1:
            raise ValueError(f"Expected a whole number features >= 1, got features={features!r} (Standardise)")
        if not 0 < radius < float("inf"):
            raise ValueError(f"Expected 0 < radius < inf, got radius={radius!r} (Standardise)")
        if not _LEAST_DIVISOR <= floor < float("inf"):
            raise ValueError(f"Expected {_LEAST_DIVISOR:.3g} <= floor < inf, got floor={floor!r} (Standardise)")
        self.features, self.radius, self.floor = features, float(radius), float(floor)
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        """Standardise (B, F) or (B, F, ...)."""
        shape = (1, -1, *[1] * (x.dim() - 2))
        return (x - self.mean.view(shape)) / self.scale.view(shape)

    def contributions(self, x: Tensor) -> Tensor:
        """Return (B, 2 F): sqrt(P / 2) / C times the mean over positions, P / (sqrt(2) C^2) times that of squares.

        By Cauchy and Schwarz the first has norm at most 1 / sqrt(2); the second has no larger sum than |x|^2 / C^2.
        """
        z_BFP = InputBall(self.radius)(x).flatten(2) if x.dim() > 2 else InputBall(self.radius)(x).unsqueeze(2)
        positions = z_BFP.shape[2]
        first_BF = z_BFP.mean(dim=2) * (sqrt(positions / 2) / self.radius)
        second_BF = z_BFP.square().mean(dim=2) * (positions / (sqrt(2) * self.radius**2))
        return torch.cat([first_BF, second_BF], dim=1)

    @torch.no_grad()
    def settle(self, mean_M: Tensor, shape: Sequence[int]) -> None:
        """Undo the factors of `contributions` and set mean and standard deviation."""
        positions = prod(shape[1:])
        first_F, second_F = mean_M.chunk(2)
        mean_F = first_F * (self.radius / sqrt(positions / 2))
        variance_F = second_F * (sqrt(2) * self.radius**2 / positions) - mean_F.square()
        self.mean.copy_(mean_F)
        self.scale.copy_(variance_F.clamp(min=0.0).sqrt().clamp(min=self.floor))  # a small floor's square is 0


@final
class ScaleByQuantile(PaidStatistics):
    """Divides by a private quantile of the examples' norms: a private bound of inputs, for an `InputBall(1)` behind it.

    Norms are counted in bins whose edges grow geometrically; the quantile is the first edge up to which the noisy
    share of the rows is large enough.

    Args:
        low: first edge, at least the smallest normal float32. A public number.
        high: last edge; larger norms count as this one. A public number.
        quantile: share of the rows whose norms are to be at most the divisor, in (0, 1).
        bins: number of edges, at least 2.
        releases: see `PaidStatistics`.
    """

    scale: Tensor

    def __init__(self, low: float, high: float, quantile: float = 0.9, bins: int = 32, releases: int = 1) -> None:
        super().__init__(releases)
        if not _LEAST_DIVISOR <= low < high < float("inf"):
            raise ValueError(
                f"Expected {_LEAST_DIVISOR:.3g} <= low < high < inf, got low={low!r}, high={high!r} (ScaleByQuantile)"
            )
        if not 0 < quantile < 1:
            raise ValueError(f"Expected 0 < quantile < 1, got quantile={quantile!r} (ScaleByQuantile)")
        if type(bins) is not int or bins < 2:
            raise ValueError(f"Expected a whole number bins >= 2, got bins={bins!r} (ScaleByQuantile)")
        self.low, self.high, self.quantile, self.bins = float(low), float(high), float(quantile), bins
        self.register_buffer("scale", torch.tensor(float(high)))

    @property
    def edges(self) -> Tensor:
        """Upper edges of the bins, (M,), float64."""
        growth = torch.linspace(0.0, 1.0, self.bins, dtype=torch.float64, device=self.scale.device)
        return self.low * (self.high / self.low) ** growth

    def forward(self, x: Tensor) -> Tensor:
        """Divide (B, ...) by the quantile."""
        return x / self.scale

    def contributions(self, x: Tensor) -> Tensor:
        """Return (B, M): 1 in the bin of the row's norm, 0 elsewhere; 0 everywhere for a row that is not finite."""
        norm_B = torch.linalg.vector_norm(x.flatten(1).double(), dim=1)
        edges_M = self.edges
        bin_B = torch.bucketize(norm_B.nan_to_num(self.high), edges_M).clamp(max=self.bins - 1)
        counted_BM = torch.nn.functional.one_hot(bin_B, self.bins).to(x.dtype)
        return torch.where(norm_B.isfinite().view(-1, 1), counted_BM, 0.0)

    @torch.no_grad()
    def settle(self, mean_M: Tensor, shape: Sequence[int]) -> None:
        """Set the divisor."""
        del shape
        enough_M = mean_M.double().cumsum(0) >= self.quantile
        enough_M[-1] = True  # no norm counts beyond the last edge
        first = enough_M.int().argmax()  # of the largest entries the first
        self.scale.copy_(self.edges.take(first))
