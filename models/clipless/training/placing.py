"""The placement that a training uses, chosen by a test of its own passes before anything is drawn.

Shape letters: B rows of a pass, K logits.
"""

from collections.abc import Hashable, Mapping

import torch
from torch import Tensor

from clipless.datasets import Split
from clipless.errors import UnsupportedError
from clipless.losses import Loss
from clipless.network import Network, split_fixed_prefix
from clipless.plans.method import Method
from clipless.plans.placement import Placement, needs_slots, slotted_size, usual_size
from clipless.plans.plan import Plan
from clipless.privacy.randomness import RandomSource
from clipless.row_independence import PassShape, Watch, watch_layers
from clipless.saving import architecture
from clipless.training.augmentation import Augmentation
from clipless.training.batch_sums import CountedLoss, sum_gradients


def training_places(
    model: Network,
    loss: Loss,
    like: Split,
    plan: Plan,
    source: RandomSource,
    micro_batch_size: int,
    *,
    augmentation: Augmentation | None = None,
    ghost: bool = False,
    exact: bool = False,
) -> Placement:
    """Return where a training's batches stand in passes of at most ``micro_batch_size`` rows.

    Args:
        model: the network that ``plan`` was made for.
        loss: of the training.
        like: the training rows, of which only shape, types and device are looked at.
        plan: of the training.
        source: of the places; nothing is drawn from it here.
        micro_batch_size: most rows of a pass, copies included.
        augmentation: whose copies of a row stand one behind the other.
        ghost: see `clipless.training.batch_sums.sum_gradients`.
        exact: likewise.

    Raises:
        UnsupportedError: what other rows hold changes what is computed for a row.
    """
    copies = 1 if augmentation is None else augmentation.copies
    most = max(1, micro_batch_size // copies)
    size = usual_size(plan.batch_size, plan.population, most, like.x.device)
    if plan.method is Method.NON_PRIVATE:
        return Placement(size, None)
    trained = split_fixed_prefix(model)[1] if uses_features(like, augmentation) else model
    tested = _TestedPass(model, trained, loss, like, plan, ghost=ghost, exact=exact)
    if not needs_slots(tested, tested.form(size * copies), tested.first_layer, list(trained.parameters())):
        return Placement(size, None)
    size = slotted_size(plan.population, plan.sampling_rate, most)
    needs_slots(tested, tested.form(size * copies))  # refuses rows that are mixed in this shape
    return Placement.random(size, plan.population, plan.sampling_rate, source)


def uses_features(data: Split, augmentation: Augmentation | None) -> bool:
    """Whether a training computes the features of its rows behind a fixed prefix once.

    Those of a copy are not the row's. Those of units with several rows would be computed in places of the data that
    depend on how many rows other units have, which is as secret as these.
    """
    return augmentation is None and data.offsets is None


def make_targets(like: Tensor, chosen_B: Tensor, outputs: int) -> Tensor:
    """Return a target of the type of ``like`` for each made-up row: labels, or shares of classes."""
    if not like.dtype.is_floating_point:
        return (chosen_B.clamp(min=0) % max(2, outputs)).to(like.dtype)
    return like.new_full((len(chosen_B), *like.shape[1:]), 1.0 / outputs)


def form_of(model: Network, rows: int, shape: tuple[int, ...], device: torch.device, *options: Hashable) -> PassShape:
    """Return the form of a pass through a network; of layers of another package nothing is remembered."""
    try:
        key = repr(architecture(model)), tuple(p.requires_grad for p in model.parameters()), options
    except UnsupportedError:
        key = None
    return PassShape(key, rows, shape, device)


class _TestedPass:
    """One pass of a training over made-up rows, with the weights that the model has now."""

    def __init__(
        self, model: Network, trained: Network, loss: Loss, like: Split, plan: Plan, *, ghost: bool, exact: bool
    ) -> None:
        self._model, self._trained, self._loss, self._like, self._plan = model, trained, loss, like, plan
        self._ghost, self._exact = ghost, exact
        self._outputs = trained.output_shape()[0]
        self._layers = [module for module in trained.modules() if module is not trained]

    def form(self, rows: int) -> PassShape:
        """Return the form of a pass of so many rows."""
        options = (self._plan.method, type(self._loss), self._ghost, self._exact, len(self._trained.layers))
        return form_of(self._model, rows, self._trained.input_shape, self._like.x.device, *options)

    def first_layer(self, x: Tensor) -> Tensor:
        """Apply the first layer."""
        y: Tensor = self._trained.layers[0](x)
        return y

    def __call__(self, x: Tensor, chosen_B: Tensor, counts_B: Tensor, watch: Watch) -> Mapping[str, Tensor]:
        y = make_targets(self._like.y, chosen_B, self._outputs)
        totals = {
            name: torch.zeros_like(p, dtype=torch.float64)
            for name, p in self._model.named_parameters()
            if p.requires_grad
        }
        loss = CountedLoss(self._loss, counts_B)

        def forward(x: Tensor) -> Tensor:
            with watch_layers(self._layers, watch):
                logits_BK: Tensor = self._trained(x)
            return logits_BK

        sum_gradients(
            self._model, loss, x, y, self._plan, totals, forward=forward, ghost=self._ghost, exact=self._exact
        )
        return totals
