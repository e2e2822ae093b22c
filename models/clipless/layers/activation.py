"""Activations. Shape letters: B batch, C channels or features, P = C / 2 pairs.

Each is 1-Lipschitz (the sigmoid 1/4) and acts on every example alone; its backward is finite wherever its input is.
"""

from collections.abc import Callable
from math import pi
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clipless.guards.guard import GuardedLayer
from clipless.guards.per_channel import guarded_householder, householder
from clipless.layers._base import Layer


@final
class GroupSort(nn.Module):
    """Sorts the features of each group in ascending order (Anil et al. 2019, arXiv 1811.05381).

    Feature i belongs to the group of ``i mod (C / group_size)``, so that a group lies in separate, contiguous
    blocks. Its Jacobian is a permutation: the norm of signal and cotangent is preserved.

    Two features a group is MaxMin; all of them in one group is FullSort.

    Args:
        group_size: features in one group; must divide C, the size of the sorted axis. None: all features.
        axis: 1 for the channels of (B, C, ...), -1 for the features of tokens (B, T, C).
    """

    def __init__(self, group_size: int | None = 2, axis: int = 1) -> None:
        super().__init__()
        if group_size is not None and not group_size >= 2:
            raise ValueError(f"Expected group_size >= 2, got group_size={group_size!r} (GroupSort)")
        if axis not in (1, -1):
            raise ValueError(f"Expected axis 1 or -1, got axis={axis!r} (GroupSort)")
        self.group_size = group_size
        self.axis = axis

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"group_size": self.group_size} | ({"axis": self.axis} if self.axis != 1 else {})

    def forward(self, x_BC: Tensor) -> Tensor:
        """Sort within groups along the axis."""
        if self.group_size == 2:
            sorted_BC: Tensor = _SortPairs.apply(x_BC, self.axis)  # type: ignore[no-untyped-call]
            return sorted_BC
        axis = self.axis % x_BC.dim()
        groups = x_BC.unflatten(axis, (self.group_size or x_BC.shape[axis], -1))
        ordered: Tensor = groups.sort(dim=axis).values
        return ordered.flatten(axis, axis + 1)


class _SortPairs(torch.autograd.Function):
    """Groups of two without a sort; at ties the Jacobian is the identity, still a permutation.

    Halves are written in place of being concatenated: on a CPU these passes are bound by memory.
    """

    @staticmethod
    def forward(ctx: Any, x_BC: Tensor, axis: int) -> Tensor:
        ctx.axis = axis
        first, second = x_BC.chunk(2, dim=axis)
        sorted_BC = torch.empty_like(x_BC)
        low, high = sorted_BC.chunk(2, dim=axis)
        torch.minimum(first, second, out=low)
        torch.maximum(first, second, out=high)
        ctx.save_for_backward(first <= second)
        return sorted_BC

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (ordered,) = ctx.saved_tensors
        low, high = g.chunk(2, dim=ctx.axis)
        if torch.is_grad_enabled():  # differentiated again, in searches for the worst case
            swapped = torch.cat((torch.where(ordered, low, high), torch.where(ordered, high, low)), dim=ctx.axis)
            return swapped, None
        grad_BC = torch.empty_like(g)
        first, second = grad_BC.chunk(2, dim=ctx.axis)
        weight = ordered.to(g.dtype)  # lerp is exact at 0 and 1, and several times faster than where
        torch.lerp(high, low, weight, out=first)
        torch.lerp(low, high, weight, out=second)
        return grad_BC, None


class _Elementwise(Layer):
    _function: Callable[[Tensor], Tensor]

    def forward(self, x: Tensor) -> Tensor:
        """Apply to a tensor of any shape."""
        return self._function(x)


@final
class ReLU(_Elementwise):
    """``max(t, 0)`` elementwise; the derivative at 0 is 0."""

    _function = staticmethod(torch.relu)


@final
class Abs(_Elementwise):
    """``|t|`` elementwise: norm-preserving; the derivative at 0 is 0."""

    _function = staticmethod(torch.abs)


@final
class Tanh(_Elementwise):
    """``tanh t`` elementwise."""

    _function = staticmethod(torch.tanh)


@final
class Sigmoid(_Elementwise):
    """``1 / (1 + exp(-t))`` elementwise: 1/4-Lipschitz, and 1/2 at 0."""

    _function = staticmethod(torch.sigmoid)


@final
class Softplus(_Elementwise):
    """``log(1 + exp t)`` elementwise: log 2 at 0."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply to a tensor of any shape."""
        # Beyond the threshold torch returns t itself. Its default of 20 would leave a step of 2e-9, which float64 sees
        # and no Lipschitz constant allows; at 40 the step is 4e-18, a thousandth of what rounding leaves.
        return F.softplus(x, threshold=40.0)


@final
class Householder(GuardedLayer):
    r"""Reflects the pairs of features that lie on one side of a learned line (Singla et al. 2022, arXiv 2108.04062).

    The vector of each pair's reflection is ``(sin(theta/2), -cos(theta/2))``: of norm 1 for every angle theta, so that
    nothing is projected and norms are preserved whatever is learned. ``theta = pi/2``, the start, is MaxMin.

    Args:
        features: C, the size of axis 1; even. Feature i is paired with ``i + C/2``.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        if not (features >= 2 and features % 2 == 0):
            raise ValueError(f"Expected an even number of features, got features={features!r} (Householder)")
        self.features = features
        self.angle = nn.Parameter(torch.full((features // 2,), pi / 2))

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"features": self.features}

    def forward(self, x_BC: Tensor) -> Tensor:
        """Reflect pairs along axis 1 of (B, C, ...); inside a private step the angles' gradient passes the guard."""
        if self.guards is None or not self.angle.requires_grad:
            return householder(x_BC, self.angle)
        return guarded_householder(x_BC, self.angle, self.guards["angle"])
