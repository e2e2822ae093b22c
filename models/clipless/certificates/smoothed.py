r"""Smoothed certificates: of the class that a network most often decides for under Gaussian noise on its input.

The smoothed classifier of a network decides at x for the class that the network decides for with the largest
probability at x + sigma Z, Z standard normal. If that of class c is at least p > 1/2, it decides for c at every input
nearer than sigma Phi^-1(p) (Cohen et al. 2019, arXiv 1902.02918). p is not known: n draws give a lower confidence
bound, that of Clopper and Pearson (1934), and the radius holds but for a probability of alpha over these draws.

A network with a known Lipschitz constant says more than a class: how far the input of a draw may move before its class
changes. Draws are counted whose own certified radius (`clipless.certificates.certify`) exceeds a reach s >= 0. If p is
the probability of that, every input nearer than ``sigma Phi^-1(p) + s`` is decided alike; docs/mathematics.md has the
proof. s comes from draws that are not counted. Without a bound of the network s is 0: Cohen's certificate.

A smoothed certificate is not one of the network itself, which may decide otherwise at x, and it is probabilistic.

Shape letters: B rows, D draws, K logits.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256
from math import inf, isfinite, prod

import numpy as np
import torch
from scipy.special import betainc, betaincinv, ndtri
from torch import Tensor

from clipless.certificates.certify import Measured, decisions, row_by_row, several_certified_radii
from clipless.certificates.radii import MOST_DRAWS
from clipless.network import Network

_SELECTION_SHARE, _MOST_SELECTION = 4, 100  # one selection draw for so many draws, and no more than so many
_DRAWN_AT_ONCE = 1024
_PASS_ROWS = 16  # of double precision: convolutions take 6 to 15 times as long for each row in passes of 256
_DOWN = 1.0 - 1e-9  # covers the rounding of the special functions; what it costs is far below any radius
_LEAST_ALPHA = 1e-200
_SPARE = 0.5  # deviations by which the reach lies lower than where no draw is expected to miss it


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoothing:
    """How a model is smoothed and certified.

    Attributes:
        sigma: standard deviation of the noise in every entry, in units of the network's input tensor.
        alpha: probability, for each row, that its certificate is wrong by the chance of the draws.
        draws: n, counted for the bound; others before them choose the class, see `selection`.
        seed: public; fixes the noise together with the row itself, and nothing of a training.

    Raises:
        ValueError: a number out of range.
    """

    sigma: float
    alpha: float = 0.001
    draws: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.sigma < inf:
            raise ValueError(f"Expected 0 < sigma < inf, got sigma={self.sigma!r} (Smoothing)")
        if not 0.0 < self.alpha < 0.5:
            raise ValueError(f"Expected 0 < alpha < 0.5, got alpha={self.alpha!r} (Smoothing)")
        if type(self.draws) is not int or not 1 <= self.draws <= MOST_DRAWS:
            raise ValueError(f"Expected a whole number of draws from 1 to {MOST_DRAWS}, got draws={self.draws!r}")

    @property
    def selection(self) -> int:
        """How many draws choose the class and the reach of a row, before those that are counted."""
        return max(1, min(_MOST_SELECTION, self.draws // _SELECTION_SHARE))

    @property
    def largest_quantile(self) -> float:
        """Phi^-1 of the bound where every draw is counted: sigma times this is the largest radius of reach 0."""
        return quantile_below(lower_bound(self.draws, self.draws, self.alpha))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SmoothedDecisions:
    """The decisions of a smoothed classifier with their radii.

    Attributes:
        decided: (B,) int64 classes; -1 for rows on which it abstains.
        radii: (B,) float64, in units of the network's input tensor; 0 where it abstains.
    """

    decided: Tensor
    radii: Tensor


def lower_bound(hits: int, draws: int, alpha: float) -> float:
    """Return the one-sided Clopper-Pearson lower bound of a probability, rounded down.

    Args:
        hits: counted among the draws.
        draws: n.
        alpha: probability that the bound exceeds the true probability, at most.

    Raises:
        ValueError: counts or a probability out of range.

    Guarantees:
        ``P(Binomial(n, bound) >= hits) <= alpha``. 0 without hits, and for an alpha below 1e-200, of which double
        precision cannot tell; below 1 always.
    """
    if not (0 <= hits <= draws and draws >= 1 and 0.0 < alpha < 1.0):
        raise ValueError(f"Expected 0 <= hits <= draws and 0 < alpha < 1, got {hits}, {draws} and {alpha!r}")
    if hits == 0 or alpha < _LEAST_ALPHA:
        return 0.0
    bound = float(betaincinv(hits, draws - hits + 1, alpha)) * _DOWN
    while bound > 0.0 and not float(betainc(hits, draws - hits + 1, bound)) <= alpha * _DOWN:
        bound *= _DOWN
    return bound


def quantile_below(probability: float) -> float:
    """Return Phi^-1 of a probability, rounded down; -inf for 0 and for what is no probability.

    >>> quantile_below(0.0), round(quantile_below(0.975), 4)
    (-inf, 1.96)
    """
    if not 0.0 < probability < 1.0:
        return -inf
    found = float(ndtri(probability))
    return found - abs(found) * (1.0 - _DOWN) - 1e-15


@torch.no_grad()
def certify_smoothed(model: Network, x: Tensor, smoothing: Smoothing) -> SmoothedDecisions:
    """Decide rows (B, ...) by the smoothed classifier of a network, and certify the decisions.

    Rows are as the network takes them. Raw rows of a sweep that prepares or encodes them have other numbers:
    ``sweeper.predict(..., smoothed=True)`` prepares them.

    Guarantees:
        For each row, with probability at least 1 - alpha over its draws: the smoothed classifier of the float64 network
        decides as it says for every input nearer than the radius. Where the class is not found in more than half of the
        noise with that confidence, there is no radius and no class. What comes out for a row depends on the row, the
        weights and ``smoothing`` alone: neither on other rows nor on where a draw stands in a pass.

    Raises:
        ValueError: rows of another shape than the network's.
    """
    if tuple(x.shape[1:]) != model.input_shape:
        raise ValueError(f"Expected rows of shape {model.input_shape}, got {tuple(x.shape[1:])}")
    network = _Noisy(model, x.device, smoothing)
    found = [network.certify(row) for row in x]
    decided_B = torch.tensor([label for label, _ in found], dtype=torch.int64, device=x.device)
    radii_B = torch.tensor([radius for _, radius in found], dtype=torch.float64, device=x.device)
    return SmoothedDecisions(decided_B, radii_B)


class _Noisy:
    """A float64 network that decides noisy copies of one row at a time."""

    def __init__(self, model: Network, device: torch.device, smoothing: Smoothing) -> None:
        self._network = deepcopy(model).double().requires_grad_(requires_grad=False)
        self._smoothing, self._measured = smoothing, Measured.of(model, device)
        self._bounded = isfinite(self._measured.error) and bool(self._measured.reach.isfinite().all())

    def certify(self, row: Tensor) -> tuple[int, float]:
        """Return the class of a row and its radius, -1 and 0 where it abstains."""
        one = self._smoothing
        selection_DK = torch.cat(list(self._logits(row, "selection", one.selection)))
        label = _most_frequent(decisions(selection_DK))
        if label < 0:
            return -1, 0.0
        reach = self._choose_reach(selection_DK, label)
        hits = sum(
            int(self._counts(logits_DK, label, reach).sum()) for logits_DK in self._logits(row, "counted", one.draws)
        )
        radius = one.sigma * quantile_below(lower_bound(hits, one.draws, one.alpha)) + reach
        return (label, radius * _DOWN) if radius > 0.0 else (-1, 0.0)

    def _logits(self, row: Tensor, purpose: str, draws: int) -> Iterator[Tensor]:
        """Yield the logits of noisy copies (D, K); noise of a purpose is independent of that of another."""
        text = np.ascontiguousarray(row.detach().cpu().double().numpy()).tobytes()
        key = sha256(f"{purpose} {self._smoothing.seed} ".encode() + text).digest()
        noise = np.random.Generator(np.random.Philox(np.random.SeedSequence(int.from_bytes(key, "little"))))
        for start in range(0, draws, _DRAWN_AT_ONCE):
            size = min(_DRAWN_AT_ONCE, draws - start)
            drawn = torch.from_numpy(noise.standard_normal((size, prod(row.shape)))).to(row.device)
            moved = row.double() + self._smoothing.sigma * drawn.view(size, *row.shape)
            yield row_by_row(self._network, moved, _PASS_ROWS)

    def _radii(self, logits_DK: Tensor, label: int) -> Tensor:
        labels_D = torch.full((len(logits_DK),), label, dtype=torch.int64, device=logits_DK.device)
        return several_certified_radii(logits_DK[None], labels_D, [self._measured])[0]

    def _counts(self, logits_DK: Tensor, label: int, reach: float) -> Tensor:
        """Return which draws count; with a bound of the network none of them within rounding of another class."""
        if not self._bounded:
            return decisions(logits_DK) == label
        return self._radii(logits_DK, label) > reach

    def _choose_reach(self, logits_DK: Tensor, label: int) -> float:
        """Return the reach of the largest radius to expect, were the radii of draws normal: any would be sound.

        With mean m and deviation d, at most sigma, the quantile of the counted share falls by 1 / d for each unit of
        reach as long as it is below the one of a share of 1.
        """
        if not self._bounded:
            return 0.0
        radii_D = self._radii(logits_DK, label)
        deviation = float(radii_D.std(correction=0))
        return max(0.0, float(radii_D.mean()) - (self._smoothing.largest_quantile + _SPARE) * deviation)


def _most_frequent(decided_D: Tensor) -> int:
    """Return the class of most draws, -1 where the logits of none are finite."""
    labels = decided_D[decided_D >= 0]
    return -1 if not len(labels) else int(labels.bincount().argmax())
