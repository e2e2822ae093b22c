"""No constraint."""

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, final

from clipless.projections._base import constraint

if TYPE_CHECKING:
    from torch import Tensor


@constraint("free")
@final
@dataclass(frozen=True, slots=True)
class Free:
    """No constraint: no bound, and so for `dp-sgd` and training without privacy alone."""

    @property
    def radius(self) -> float:
        """Infinite: no bound of the norm."""
        return inf

    def project(self, weight_OI: "Tensor") -> "Tensor":
        """Return the matrix."""
        return weight_OI
