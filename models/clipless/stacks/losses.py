"""The losses of a stack: each member's rows under its own loss.

Shape letters: M members, R rows of all members, K logits.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from clipless.losses import Loss, MultilabelBCE, TauBCE, TauCCE

# Of the form T l(z / T), so that rows of any temperatures pass one loss of temperature 1.
_SCALED = (TauCCE, TauBCE, MultilabelBCE)


class StackedLoss:
    """The losses of the members, the rows of one behind those of the other, the same number for each."""

    def __init__(self, losses: Sequence[Loss]) -> None:
        self._losses = losses
        first = losses[0]
        self._same = all(type(loss) is type(first) and loss == first for loss in losses)
        self._unscaled: Loss | None = None
        if isinstance(first, _SCALED):
            unscaled = replace(first, temperature=1.0)
            alike = all(type(one) is type(first) and replace(one, temperature=1.0) == unscaled for one in losses)
            self._unscaled = unscaled if alike else None

    def __call__(self, logits_RK: Tensor, target_R: Tensor) -> Tensor:
        """Return (R,) losses."""
        if self._same:
            return self._losses[0](logits_RK, target_R)
        if self._unscaled is not None:
            temperatures = [one.temperature for one in self._losses if isinstance(one, _SCALED)]
            by_member = torch.tensor(temperatures, dtype=logits_RK.dtype, device=logits_RK.device)
            temperature_R = by_member.repeat_interleave(len(logits_RK) // len(temperatures))
            return temperature_R * self._unscaled(logits_RK / temperature_R[:, None], target_R)
        parts = zip(self._losses, *(t.chunk(len(self._losses)) for t in (logits_RK, target_R)), strict=True)
        return torch.cat([loss(logits, target) for loss, logits, target in parts])
