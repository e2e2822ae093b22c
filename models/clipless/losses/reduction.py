"""How the terms of the classes become the loss of one example."""

import enum
from typing import assert_never


class Reduction(enum.Enum):
    """Sum or mean over the K logits; the mean has 1/K of the sum's Lipschitz constant."""

    SUM = "sum"
    MEAN = "mean"

    def share(self, logits: int) -> float:
        """Return the factor of each term."""
        match self:
            case Reduction.SUM:
                return 1.0
            case Reduction.MEAN:
                return 1.0 / logits
            case _:
                assert_never(self)


def parse_reduction(value: "Reduction | str") -> Reduction:
    """Return the member of that value; raise ValueError for any other."""
    try:
        return Reduction(value)
    except ValueError:
        raise ValueError(f"Expected reduction sum or mean, got reduction={value!r}") from None
