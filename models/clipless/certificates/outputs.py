"""The outputs of a model on rows with their certified radii, from which all its scores are computed.

Shape letters: B rows, K logits.
"""

from dataclasses import dataclass

from torch import Tensor

from clipless.certificates.certify import Measured, float64_logits, several_certified_radii
from clipless.datasets import Split
from clipless.network import Network


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Outputs:
    """The outputs of one model on rows; on private rows they are as secret as the rows.

    Attributes:
        logits: (B, K) float64.
        radii: (B,) `certified_radii`, in units of the network's input tensor.
        measured: of the weights that gave the logits, which the model may not hold any more.
    """

    logits: Tensor
    radii: Tensor
    measured: Measured

    @classmethod
    def of(cls, model: Network, split: Split, features: Tensor | None = None, *, alone: bool = False) -> "Outputs":
        """Return the outputs on a split, whose `float64_features` save the part of the fixed prefix.

        ``alone`` as `clipless.certificates.certify.float64_logits` has it.
        """
        logits_BK = float64_logits(model, split.x, features=features, alone=alone)
        measured = Measured.of(model, split.x.device)
        (radius_B,) = several_certified_radii(logits_BK[None], split.y, [measured])
        return cls(logits_BK, radius_B, measured)
