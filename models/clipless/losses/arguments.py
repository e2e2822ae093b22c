"""Numbers, reductions over the logits, and targets of losses. Shape letters: B batch, K logits."""

import enum
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, assert_never

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def check_positive(name: str, value: float) -> None:
    """Raise ValueError, naming the number, unless it is positive and finite."""
    if not 0 < value < inf:
        raise ValueError(f"Expected 0 < {name} < inf, got {name}={value!r}")


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


def target_rows(target: "Tensor", like_BK: "Tensor") -> "Tensor":
    """Return targets as (B, K) rows of the dtype of ``like_BK``.

    Args:
        target: (B,) int64 labels or (B, K) rows. For K = 1: (B,) labels or numbers, or (B, 1) or (B, 2) rows, of
            which the last column counts.
        like_BK: the logits.
    """
    logits = like_BK.shape[1]
    if logits == 1:
        target_B = target[:, -1] if target.dim() == 2 else target
        return target_B[:, None].to(like_BK.dtype)
    if target.dim() == 2:
        return target.to(like_BK.dtype)
    import torch.nn.functional as F

    return F.one_hot(target, logits).to(like_BK.dtype)


def constants(values: tuple[float, ...], like: "Tensor") -> "Tensor":
    """Return numbers in the dtype and on the device of ``like``, where they are needed step after step."""
    return _constants(values, like.device, like.dtype)


@lru_cache(maxsize=128)
def _constants(values: tuple[float, ...], device: "torch.device", dtype: "torch.dtype") -> "Tensor":
    import torch

    return torch.tensor(values, device=device, dtype=dtype)
