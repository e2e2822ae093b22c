"""The dense layer. Shape letters: B batch, T tokens, I inputs, O outputs."""

from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clipless.guards.guard import guarded_linear
from clipless.layers._base import BiasedLayer, add_bias, add_bias_parameter, bias_config, project_bias
from clipless.projections import Constraint, Orthogonal, initial_gain


@final
class Dense(BiasedLayer):
    """``y = W x + b`` on one vector (B, I) or on tokens (B, T, I), with ``W`` and ``b`` kept in constraint sets.

    Args:
        constraint: the set that the weight is projected onto after each step.
        generator: draws the initial weight; a public generator.
        bias: whether there is a b; it starts at 0.
        bias_norm: radius of the ball that b is projected onto after each step. A public number.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        constraint: Constraint | None = None,
        generator: torch.Generator | None = None,
        *,
        bias: bool = False,
        bias_norm: float = 1.0,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.constraint = constraint or Orthogonal()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        nn.init.orthogonal_(self.weight, gain=initial_gain(self.constraint), generator=generator)
        add_bias_parameter(self, out_features, bias_norm if bias else None)

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            "in_features": self.in_features,
            "out_features": self.out_features,
            "constraint": self.constraint,
            **bias_config(self),
        }

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer; inside a private step the gradients of weight and bias pass their guards."""
        if self.guards is None or not self.weight.requires_grad:
            return add_bias(self, F.linear(x, self.weight), axis=-1)
        return add_bias(self, guarded_linear(x, self.weight, self.guards["weight"]), axis=-1)

    @torch.no_grad()
    def project(self) -> None:
        """Put trained parameters back into their constraint sets."""
        if self.weight.requires_grad:
            self.weight.copy_(self.constraint.project(self.weight))
        project_bias(self)
