"""Residual blocks. Shape letters: B batch."""

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from clipless.guards.guard import GuardedLayer
from clipless.guards.per_channel import guarded_mix


@final
class Residual(GuardedLayer):
    """``x + f(x)``, or ``a x + (1 - a) f(x)``, around a sequence of layers f that keeps the shape.

    Args:
        layers: f, applied one after the other.
        weight: a in [0, 1), or [0, 1] if it is learned; None for the plain sum.
        learned: whether a is trained from ``weight`` on; it is projected onto [0, 1] after each step.
    """

    mix: nn.Parameter | None

    def __init__(self, layers: Sequence[nn.Module], weight: float | None = None, *, learned: bool = False) -> None:
        super().__init__()
        if not layers:
            raise ValueError("Expected at least one layer in a residual block, got none (Residual)")
        if weight is not None and not 0 <= weight <= 1:
            raise ValueError(f"Expected 0 <= weight <= 1, got weight={weight!r} (Residual)")
        if learned and weight is None:
            raise ValueError("Expected a weight to start from, got learned=True without one (Residual)")
        if weight == 1 and not learned:
            raise ValueError(
                "Expected weight < 1 for a block that is trained, got weight=1: f would not matter (Residual)"
            )
        self.layers = nn.ModuleList(layers)
        self.weight = weight
        self.learned = learned
        self.register_parameter("mix", nn.Parameter(torch.tensor([float(weight or 0.0)])) if learned else None)

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"layers": tuple(self.layers), "weight": self.weight, "learned": self.learned}

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block; inside a private step the gradient of a learned weight passes the guard."""
        f = self.inside(x)
        if self.mix is None:
            return x + f if self.weight is None else self.weight * x + (1.0 - self.weight) * f
        if self.guards is None or not self.mix.requires_grad:
            return self.mix * x + (1.0 - self.mix) * f
        return guarded_mix(x, f, self.mix, self.guards["mix"])

    def inside(self, x: Tensor) -> Tensor:
        """Apply f alone."""
        for layer in self.layers:
            x = layer(x)
        return x

    @torch.no_grad()
    def project(self) -> None:
        """Put a learned weight back into [0, 1]; the layers inside are projected by the network."""
        if self.mix is not None and self.mix.requires_grad:
            self.mix.clamp_(0.0, 1.0)
