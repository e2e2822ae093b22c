"""Weight standardisation. Shape letters: O rows, I columns."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from clipless.projections._base import check_iterations, constraint
from clipless.projections.orthogonal import orthogonal

if TYPE_CHECKING:
    from torch import Tensor


@constraint("standardised")
@final
@dataclass(frozen=True, slots=True)
class Standardised:
    """Weight standardisation after the step: rows of mean zero, then as `Orthogonal`, so that rows have one norm.

    Centring the rows multiplies by an orthogonal projection and enlarges no singular value; Bjorck iterations keep
    the mean. As a reparametrisation (Qiao et al. 2019, arXiv 1903.10520) its Jacobian would have no bound. Rows of
    one entry become zero.
    """

    iterations: int = 1

    def __post_init__(self) -> None:
        check_iterations(self, self.iterations)

    @property
    def radius(self) -> float:
        """Upper bound of the spectral norm after a projection."""
        return 1.0

    def project(self, weight_OI: "Tensor") -> "Tensor":
        """Return the projection of a matrix."""
        return orthogonal(weight_OI - weight_OI.mean(dim=-1, keepdim=True), self.iterations)
