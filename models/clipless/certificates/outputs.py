"""The outputs of a model on rows with their certified radii, from which all its scores are computed.

Shape letters: B rows, K logits.
"""

from dataclasses import dataclass
from math import prod, sqrt

import torch
from torch import Tensor

from clipless.certificates.certify import Measured, float64_logits, several_certified_radii
from clipless.datasets import Split
from clipless.network import Network

_ENCODING = 16 * 2.0**-24  # of the largest coordinate of two rows, by which the roundings of both move them


def encoding_error(x: Tensor, radius: Tensor | float) -> Tensor:
    """Return by how much the encodings of a row and of a neighbour may be further apart than the two are.

    Args:
        x: rows as the network takes them, (B, ...), float32.
        radius: of the ball in which the neighbours of each row lie, (..., B) or one for all, in units of the network's
            input tensor; where it is infinite, no encoding matters.

    Returns:
        float64, of the shape of the radii, at least (B,), in units of the network's input tensor.

    Guarantees:
        A radius that is less by this holds for rows that are encoded again, as long as an encoding rounds each
        coordinate of either row by at most 8 units in the last place of 1, or of the largest coordinate.
    """
    finite = x.flatten(1).nan_to_num(0.0, 0.0, 0.0)  # a row that is not finite is decided as one of zeros
    reach = torch.as_tensor(radius, dtype=torch.float64, device=x.device).clamp(min=0.0).nan_to_num(0.0, 0.0)
    sizes = (finite.abs().amax(dim=1).double() + reach).clamp(min=1.0)  # of the largest coordinate of a neighbour
    return _ENCODING * sqrt(prod(x.shape[1:])) * sizes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Outputs:
    """The outputs of one model on rows; on private rows they are as secret as the rows.

    Attributes:
        logits: (B, K) float64.
        radii: (B,) `certified_radii` less `encoding_error`, in units of the network's input tensor.
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
        return cls(logits_BK, radius_B - encoding_error(split.x, radius_B), measured)
