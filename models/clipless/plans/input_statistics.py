"""Statistics of the training rows that are released before the first step, at the price of training steps.

Each release is the training's own mechanism: a Poisson-sampled batch, contributions of norm at most 1, Gaussian noise
of the plan's multiplier. So k of them are k more steps of the same event.

Shape letters: B batch, M entries of a contribution.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from clipless.datasets import Split
from clipless.errors import PlanError
from clipless.guards.exact_sums import check_rows, grid, row_norms, row_sum, select_rows
from clipless.layers.statistics import PaidStatistics
from clipless.network import Network
from clipless.plans.placement import Placement, even_size, needs_slots, take_rows, whole
from clipless.privacy.randomness import RandomSource
from clipless.privacy.sampling import PoissonSampler
from clipless.row_independence import PassShape, Watch


def paid_layers(network: Network) -> list[tuple[int, PaidStatistics]]:
    """Return (place, layer) of the layers whose constants are releases.

    Raises:
        PlanError: one stands inside another layer or behind trained weights, where its input is no fixed map of a row.
    """
    found = [(i, layer) for i, layer in enumerate(network.layers) if isinstance(layer, PaidStatistics)]
    if len(found) != sum(isinstance(layer, PaidStatistics) for layer in network.modules()):
        raise PlanError("Expected private statistics among the layers of the network itself, found some inside a layer")
    if found and any(next(layer.parameters(), None) is not None for layer in list(network.layers)[: found[-1][0]]):
        raise PlanError("Expected private statistics in front of every layer with weights, found some behind one")
    return found


def releases(network: Network) -> int:
    """Return how many batches are released before the first step."""
    return sum(layer.releases for _, layer in paid_layers(network))


@torch.no_grad()
def release_statistics(
    network: Network,
    data: Split,
    sampler: PoissonSampler,
    source: RandomSource,
    *,
    noise_std: float,
    batch_size: float,
    micro_batch_size: int,
) -> None:
    """Estimate the constants of every paid layer in order, each from the outputs of the layers before it.

    ``noise_std`` is that of the noise on each sum, whose sensitivity is 1; ``batch_size`` is the fixed denominator b.

    Guarantees:
        Each of the `releases` computed sums changes by at most 1 in norm when one row is added or removed, whatever it
        holds.
    """
    found = paid_layers(network)
    passes = [_ContributionPass(network, place, layer) for place, layer in found]
    size = even_size(batch_size, batch_size / len(data), micro_batch_size)
    every = [_places(passed, size, data, batch_size, source) for passed in passes]  # before anything is drawn
    for (_, layer), passed, places in zip(found, passes, every, strict=True):
        shape = tuple(passed.front(data.x[:1]).shape[1:])
        total_M: Tensor | None = None
        for rows in sampler.batches(layer.releases, data.x.device):
            check_rows(len(rows))
            chosen = [whole(some, places.size) for some in places.passes(rows)]
            sum_M = torch.stack([passed.sum(take_rows(data.x, one), one >= 0) for one in chosen]).sum(dim=0)
            noisy_M = source.noisy(sum_M, noise_std, grid(1.0))
            total_M = noisy_M if total_M is None else total_M + noisy_M
        if total_M is not None:
            layer.settle((total_M / (layer.releases * batch_size)).float(), shape)


class _ContributionPass:
    """Sums the contributions of rows to the constants of a paid layer.

    Attributes:
        front: the layers in front of it.
    """

    def __init__(self, network: Network, place: int, layer: PaidStatistics) -> None:
        self.front = Network(list(network.layers)[:place], network.input_shape)
        self._layer = layer

    def __call__(self, x: Tensor, chosen_B: Tensor, counts_B: Tensor, watch: Watch) -> Mapping[str, Tensor]:
        """Pass made-up rows on, see `clipless.row_independence`."""
        del chosen_B
        watch(self.front(x))
        watch(self._layer.contributions(self.front(x)))
        return {"": self.sum(x, counts_B)}

    def sum(self, x: Tensor, counts_B: Tensor) -> Tensor:
        """Sum contributions that are held to norm 1, exactly; rows that do not count or are not finite are left out."""
        rows_BM = self._layer.contributions(self.front(x))
        norm_B = row_norms(rows_BM).double()
        kept_B = norm_B.isfinite() & counts_B
        scale_B = torch.where(kept_B, (1.0 / norm_B).clamp(max=1.0), 0.0)
        return row_sum(select_rows(kept_B, rows_BM), scale_B, grid(1.0))


def _places(passed: _ContributionPass, size: int, data: Split, batch_size: float, source: RandomSource) -> Placement:
    form = PassShape(None, size, tuple(data.x.shape[1:]), data.x.device)
    if needs_slots(passed, form):
        return Placement.random(size, len(data), batch_size / len(data), source)
    return Placement(size, None)
