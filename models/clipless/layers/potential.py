"""The convex potential layer. Shape letters: B batch, T tokens, D features, H hidden features."""

from typing import Any, final

import torch
from torch import Tensor, nn

from clipless.guards.potential import guarded_potential, potential
from clipless.layers._base import BiasedLayer, add_bias_parameter, bias_config, project_bias
from clipless.projections import Constraint, Orthogonal, initial_gain


@final
class ConvexPotential(BiasedLayer):
    """``y = x - 2 W^T relu(W x + b)`` on one vector (B, D) or on tokens (B, T, D) (Meunier et al. 2022, 2110.12690).

    A step down the gradient of a convex function: 1-Lipschitz for every W of spectral norm at most 1, the identity at
    W = 0, and norm-preserving for a square orthogonal W, where it is ``-W^T |W x|``. The projection of W alone keeps it
    so. With a larger radius of the constraint it is ``2 radius^2 - 1``-Lipschitz.

    Args:
        features: D.
        hidden: H, rows of W; left out, as many as features.
        constraint: the set that W is projected onto after each step.
        generator: draws the initial W; a public generator.
        bias: whether there is a b; it starts at 0.
        bias_norm: radius of the ball that b is projected onto after each step. A public number.
    """

    def __init__(
        self,
        features: int,
        hidden: int | None = None,
        constraint: Constraint | None = None,
        generator: torch.Generator | None = None,
        *,
        bias: bool = False,
        bias_norm: float = 1.0,
    ) -> None:
        super().__init__()
        self.features = features
        self.hidden = features if hidden is None else hidden
        self.constraint = constraint or Orthogonal()
        self.weight = nn.Parameter(torch.empty(self.hidden, features))
        nn.init.orthogonal_(self.weight, gain=initial_gain(self.constraint), generator=generator)
        add_bias_parameter(self, self.hidden, bias_norm if bias else None)

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        names = ("features", "hidden", "constraint")
        return {**{name: getattr(self, name) for name in names}, **bias_config(self)}

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer; inside a private step the gradients of weight and bias pass their guards."""
        bias = None if self.bias_norm is None else self.bias
        if self.guards is None:
            return potential(x, self.weight, bias)
        return guarded_potential(x, self.weight, bias, self.guards, self.normalising_offset(x[0].numel()))

    def normalising_offset(self, entries: int) -> float:
        """Return what normalised training adds to an input's norm, of so many entries: ``sqrt(T) bias_norm``."""
        return 0.0 if self.bias_norm is None else (entries / self.features) ** 0.5 * self.bias_norm

    @torch.no_grad()
    def project(self) -> None:
        """Put trained parameters back into their constraint sets."""
        if self.weight.requires_grad:
            self.weight.copy_(self.constraint.project(self.weight))
        project_bias(self)
