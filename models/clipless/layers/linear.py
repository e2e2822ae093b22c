"""The dense layer. Shape letters: B batch, T tokens, I inputs, O outputs."""

from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clipless.guard import GuardedLayer, guarded_linear
from clipless.projections import Constraint, Orthogonal


@final
class Dense(GuardedLayer):
    """``y = W x`` on one vector (B, I) or on tokens (B, T, I), with ``W`` kept in a constraint set.

    Args:
        in_features: I.
        out_features: O.
        constraint: the set that the weight is projected onto after each step.
        generator: draws the initial weight; a public generator.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        constraint: Constraint | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.constraint = constraint or Orthogonal()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        nn.init.orthogonal_(self.weight, gain=self.constraint.radius, generator=generator)

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            "in_features": self.in_features,
            "out_features": self.out_features,
            "constraint": self.constraint,
        }

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer; inside a private step the weight's gradient passes the guard."""
        if self.sensitivities is None or not self.weight.requires_grad:
            return F.linear(x, self.weight)
        return guarded_linear(x, self.weight, self.sensitivities["weight"])

    @torch.no_grad()
    def project(self) -> None:
        """Put the weight back into its constraint set."""
        self.weight.copy_(self.constraint.project(self.weight))
