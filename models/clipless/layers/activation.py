"""Activations. Shape letters: B batch, C channels or features."""

from typing import Any, final

import torch
from torch import Tensor, nn


@final
class GroupSort(nn.Module):
    """Sorts the features of each group in ascending order (Anil et al. 2019, arXiv 1811.05381).

    Feature i belongs to the group of ``i mod (C / group_size)``, so that a group lies in separate, contiguous
    blocks. Its Jacobian is a permutation: the norm of signal and cotangent is preserved.

    Args:
        group_size: features in one group; must divide C, the size of axis 1.
    """

    def __init__(self, group_size: int = 2) -> None:
        super().__init__()
        if not group_size >= 2:
            raise ValueError(f"Expected group_size >= 2, got group_size={group_size!r} (GroupSort)")
        self.group_size = group_size

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"group_size": self.group_size}

    def forward(self, x_BC: Tensor) -> Tensor:
        """Sort within groups along axis 1 of (B, C, ...)."""
        if self.group_size == 2:
            sorted_BC: Tensor = _SortPairs.apply(x_BC)  # type: ignore[no-untyped-call]
            return sorted_BC
        groups = x_BC.unflatten(1, (self.group_size, -1))
        ordered: Tensor = groups.sort(dim=1).values
        return ordered.flatten(1, 2)


class _SortPairs(torch.autograd.Function):
    """Groups of two without a sort; at ties the Jacobian is the identity, still a permutation.

    Halves are written in place of being concatenated: on a CPU these passes are bound by memory.
    """

    @staticmethod
    def forward(ctx: Any, x_BC: Tensor) -> Tensor:
        first, second = x_BC.chunk(2, dim=1)
        sorted_BC = torch.empty_like(x_BC)
        low, high = sorted_BC.chunk(2, dim=1)
        torch.minimum(first, second, out=low)
        torch.maximum(first, second, out=high)
        ctx.save_for_backward(first <= second)
        return sorted_BC

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (ordered,) = ctx.saved_tensors
        low, high = g.chunk(2, dim=1)
        if torch.is_grad_enabled():  # differentiated again, in searches for the worst case
            return torch.cat((torch.where(ordered, low, high), torch.where(ordered, high, low)), dim=1)
        grad_BC = torch.empty_like(g)
        first, second = grad_BC.chunk(2, dim=1)
        weight = ordered.to(g.dtype)  # lerp is exact at 0 and 1, and several times faster than where
        torch.lerp(high, low, weight, out=first)
        torch.lerp(low, high, weight, out=second)
        return grad_BC
