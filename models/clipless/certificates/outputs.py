"""What a model says of rows, and how far each answer holds: all that its scores are computed from.

Shape letters: B rows, K logits.
"""

from dataclasses import dataclass

from torch import Tensor

from clipless.bounds import NetworkBounds
from clipless.certificates.certify import certified_radii, float64_logits, measured_bounds
from clipless.datasets import Split
from clipless.network import Network


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Outputs:
    """The outputs of one model on rows; on private rows they are as secret as the rows.

    Attributes:
        logits: (B, K) float64.
        radii: (B,) `certified_radii`, in units of the network's input tensor.
        bounds: `measured_bounds` of the model.
    """

    logits: Tensor
    radii: Tensor
    bounds: NetworkBounds

    @classmethod
    def of(cls, model: Network, split: Split, features: Tensor | None = None) -> "Outputs":
        """Return the outputs on a split, whose `float64_features` save the part of the fixed prefix."""
        logits_BK, bounds = float64_logits(model, split.x, features=features), measured_bounds(model)
        return cls(logits_BK, certified_radii(model, logits_BK, split.y, bounds=bounds), bounds)
