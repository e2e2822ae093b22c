"""The clipping norm during a training: fixed, on a schedule, or following a private quantile.

The layers are `clipless.layers.ClipGradient`; what is decided here is by which factor their norms are lowered at each
step. A schedule is known before the first step. A quantile is learned from the training rows, and paid for: each step
also releases a noisy count of the rows that stayed below the norm, with a share of the step's privacy.

Shape letters: B batch.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from clipless.errors import PlanError
from clipless.guards.exact_sums import grid
from clipless.layers import ClipGradient
from clipless.plans.method import Schedule
from clipless.privacy.noise_grid import released_step
from clipless.scalars import Scalar, entry, exponential, larger, round_down, smaller

# Norms and sensitivities that fall stop at this share of the planned ones: noise that underflows would hide nothing.
LEAST_SHARE = 1e-3


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveClipping:
    """Let the norm follow a quantile of the cotangents' norms (Andrew et al. 2021, arXiv 1905.03871, algorithm 1).

    After each step ``C <- C exp(-rate (n / b - quantile))``, with n the noisy number of rows whose norm was at most C,
    counted as +-1/2 around b / 2, so that one row moves the count by at most 1/2. C starts from the layer's norm and
    never exceeds it.

    Attributes:
        quantile: share of the rows that are to stay below the norm, in (0, 1).
        share: of each step's privacy that the count receives, in (0, 1): its multiplier is ``sigma / sqrt(share)``,
            that of the gradients ``sigma / sqrt(1 - share)``, and together they compose to sigma.
        rate: of the geometric update; positive.
    """

    quantile: float = 0.9
    share: float = 0.01
    rate: float = 0.2

    def __post_init__(self) -> None:
        for name, value in (("quantile", self.quantile), ("share", self.share)):
            if not 0 < value < 1:
                raise PlanError(f"Expected 0 < {name} < 1, got {name}={value!r} (AdaptiveClipping)")
        if not 0 < self.rate < float("inf"):
            raise PlanError(f"Expected 0 < rate < inf, got rate={self.rate!r} (AdaptiveClipping)")


Clipping = Schedule | AdaptiveClipping


def clipping_layers(model: nn.Module) -> list[ClipGradient]:
    """Return the layers of ``model`` that clip cotangents."""
    return [layer for layer in model.modules() if isinstance(layer, ClipGradient)]


def check_clipping(model: nn.Module, clipping: Clipping, frozen: frozenset[str] = frozenset()) -> None:
    """Refuse a moving norm without a layer to move, or a quantile whose layer no trained gradient reaches.

    ``frozen`` are the names of the parameters that come to rest.

    Raises:
        PlanError: no clipping layer; or, for a quantile, several, whose counts would each have to be paid, or one in
            front of which nothing is trained or everything comes to rest.
    """
    if clipping is Schedule.CONSTANT:
        return
    layers = clipping_layers(model)
    if not isinstance(clipping, AdaptiveClipping):
        if not layers:
            raise PlanError(f"Expected a ClipGradient layer for clipping={clipping.value}, got none")
        return
    if len(layers) != 1:
        raise PlanError(f"Expected exactly one ClipGradient layer for AdaptiveClipping, got {len(layers)}")
    modules = list(model.modules())
    front = {id(p) for module in modules[: modules.index(layers[0])] for p in module.parameters(recurse=False)}
    if all(id(p) not in front or name in frozen for name, p in model.named_parameters() if p.requires_grad):
        raise PlanError(
            "Expected a layer in front of ClipGradient that keeps training, since AdaptiveClipping counts the "
            "gradients that reach it; freeze fewer layers, or clip behind one that is trained"
        )


class ClipNorms:
    """The norms of a model's clipping layers from step to step.

    The layers of ``model`` hold their full norm outside of steps; ``batch_size`` is the fixed denominator of the count,
    ``count_std`` the deviation of its noise, and each of ``copies`` passes of a row counts for a part of it.

    Its ``factor`` is the share of the full norm that an adaptive clipping has come to.
    """

    def __init__(
        self, model: nn.Module, clipping: Clipping, steps: int, batch_size: float, count_std: float, copies: int = 1
    ) -> None:
        self._layers = clipping_layers(model)
        self._clipping, self._steps = clipping, steps
        self._batch_size, self._count_std, self._copies = batch_size, count_std, copies
        self.factor: Scalar = 1.0
        self._centred_count: Scalar = 0.0

    @property
    def adaptive(self) -> bool:
        """Whether `advance` releases a count, for which it takes one standard normal number."""
        return isinstance(self._clipping, AdaptiveClipping)

    @contextmanager
    def lowered(self, step: int) -> Iterator[None]:
        """Lower the norms to those of ``step``, from 0, inside the block."""
        factor = self._clipping.factor(step, self._steps) if isinstance(self._clipping, Schedule) else self.factor
        self._centred_count = 0.0
        with ExitStack() as stack:
            for layer in self._layers:
                stack.enter_context(layer.lowered(larger(factor, LEAST_SHARE), counting=self.adaptive))
            yield

    def count(self, rows: int, counts_B: Tensor | None = None) -> None:
        """Take in the indicators of one backward pass over ``rows`` rows, which padding may follow.

        Of these, ``counts_B`` says which count; all by default.

        Raises:
            PlanError: the layer saw fewer rows, or saw them more than once: one row could then move the count by more
                than was accounted.
        """
        if not self.adaptive:
            return
        (layer,) = self._layers
        seen = layer.take_indicators()
        if rows == 0:  # a pass without rows, or none
            return
        if len(seen) != 1 or len(seen[0]) < rows:
            raise PlanError("Expected one backward pass of the drawn rows through ClipGradient, got another or several")
        own_B = seen[0][:rows] if counts_B is None else torch.where(counts_B, seen[0][:rows], 0.0)
        self._centred_count += entry(own_B.sum(dtype=torch.float64))

    def advance(self, normal: Scalar) -> None:
        """Release the noisy count and update the norm; ``normal`` is a draw of N(0, 1)."""
        if isinstance(self._clipping, AdaptiveClipping):
            step = grid(0.5)  # halves add up exactly, and are whole numbers of steps
            std = self._copies * self._count_std
            released = released_step(std, step)
            exact = self._centred_count + round_down(std * normal / step) * step
            noisy = round_down(exact / released + 0.5) * released
            below = noisy / (self._copies * self._batch_size) + 0.5
            exponent = -self._clipping.rate * (below - self._clipping.quantile)
            factor = self.factor * exponential(smaller(exponent, 50.0))  # any more noise than that would overflow
            self.factor = smaller(larger(factor, LEAST_SHARE), 1.0)
