"""What tests look at in a step: what was drawn from its source of randomness, and the gradients that it sums."""

import torch

from clipless.testing import SeededSource
from clipless.training.batch_sums import sum_gradients


class RecordingSource(SeededSource):  # type: ignore[misc]
    """A repeatable source that remembers what was drawn from it."""

    def __init__(self, seed=0):
        super().__init__(seed)
        self.normals, self.batches = [], 0

    def normal(self, count, device="cpu"):
        self.normals.append(super().normal(count, device))
        return self.normals[-1]

    def bernoulli(self, count, probability):
        self.batches += 1
        return super().bernoulli(count, probability)


def accumulate_gradients(model, loss, x, y, plan, *, ghost=False, exact=False):
    """Add what `sum_gradients` makes of one batch to ``parameter.grad``, rounded once."""
    totals = {n: torch.zeros_like(p, dtype=torch.float64) for n, p in model.named_parameters() if p.requires_grad}
    before = {name: model.get_parameter(name).grad for name in totals}
    model.zero_grad()
    sum_gradients(model, loss, x, y, plan, totals, ghost=ghost, exact=exact)
    for name, total in totals.items():
        parameter, held = model.get_parameter(name), before[name]
        parameter.grad = total.to(parameter.dtype) if held is None else held.add_(total)
