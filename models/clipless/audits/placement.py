"""The audit of places: does a row that joins a batch move the contributions of the others?

An empty row joins in front of rows at the kinks of the network's first layer, where the last bit of an activation
decides about a whole contribution, and the sums of both batches are compared bit by bit: they may differ by what the
row contributes by itself, and by nothing else. In a training whose batches have slots no row moves another; there a
row leaves its slot, and the others keep theirs.

Shape letters: B rows.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from clipless.audits.audited_training import AuditedTraining
from clipless.datasets import Split
from clipless.errors import UnsupportedError
from clipless.network import Network
from clipless.plans.placement import Placement, even_size, take_rows, whole
from clipless.plans.plan import Plan
from clipless.row_independence import PassShape, make_rows
from clipless.training.batch_sums import CountedLoss, sum_gradients
from clipless.training.placing import training_places
from clipless.training.trainer import check_micro_batch

JOINED = 2  # empty rows in front, at most
KINKED = 40  # of a batch

Sums = dict[str, Tensor]


@final
@dataclass(frozen=True, slots=True)
class FixedPlacement:
    """The slot of a row is its index: random slots, given their place for each row."""

    count: int

    def place(self, rows_B: Tensor) -> Tensor:
        """Return the content of each slot, (M,)."""
        slots = rows_B.new_full((self.count,), -1)
        slots[rows_B] = rows_B
        return slots


def compare_sums(
    training: AuditedTraining, model: Network, plan: Plan, generator: torch.Generator
) -> list[tuple[Sums, Sums]]:
    """Return the sums of a batch that empty rows have joined, and the sums of the two apart.

    One behind the other, as most trainings put their rows; where that moves anything, as this training puts them.
    """
    most = check_micro_batch(training.micro_batch_size, training.rows)
    data = make_kinked_rows(model, training.rows, generator)
    places = Placement(even_size(plan.batch_size, plan.sampling_rate, most), None)
    found = _sums_of_both(training, model, plan, places, data)
    if all(torch.equal(joined[name], apart[name]) for joined, apart in found for name in apart):
        return found
    try:
        places = training_places(
            *(model, training.loss, training.rows, plan, training.source(), most),
            ghost=training.ghost_clipping,
            exact=training.exact_norms,
        )
    except UnsupportedError:  # such a training is refused
        return found
    if places.slots is None:
        return found
    fixed = Placement(places.size, FixedPlacement(max(places.slots.count, len(data))))
    return _sums_of_both(training, model, plan, fixed, data)


def _sums_of_both(
    training: AuditedTraining, model: Network, plan: Plan, places: Placement, data: Split
) -> list[tuple[Sums, Sums]]:
    rows_B = torch.arange(JOINED, len(data), device=data.x.device)
    own, found = _sums(training, model, plan, places, data, rows_B), []
    for count in range(1, JOINED + 1):
        empty_B = torch.arange(count, device=data.x.device)
        joined = _sums(training, model, plan, places, data, torch.cat([empty_B, rows_B]))
        apart = _sums(training, model, plan, places, data, empty_B)
        found.append((joined, {name: own[name] + apart[name] for name in own}))
    return found


def make_kinked_rows(model: Network, like: Split, generator: torch.Generator) -> Split:
    """Return made-up rows in the type of ``like``, the first ones of them empty; many stand at kinks."""

    def first(x: Tensor) -> Tensor:
        for layer in model.layers:
            x = layer(x)
            if next(layer.parameters(), None) is not None:
                break
        return x

    form = PassShape(None, KINKED, model.input_shape, like.x.device)
    x = make_rows(KINKED, form, generator, first).to(like.x.dtype)
    x[:JOINED] = 0.0
    y = like.y[torch.arange(KINKED, device=like.y.device) % len(like.y)]
    return Split(x, y)


def _sums(
    training: AuditedTraining, model: Network, plan: Plan, places: Placement, data: Split, rows_B: Tensor
) -> Sums:
    totals = {name: torch.zeros_like(model.get_parameter(name), dtype=torch.float64) for name in plan.sensitivities}
    for chosen in places.passes(rows_B):
        placed = whole(chosen, places.size)
        loss = CountedLoss(training.loss, placed >= 0)
        x, y = take_rows(data.x, placed), take_rows(data.y, placed)
        sum_gradients(model, loss, x, y, plan, totals, ghost=training.ghost_clipping, exact=training.exact_norms)
    return totals
