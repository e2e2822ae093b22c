r"""Averages of the iterates: post-processing of released weights, at no price.

Every average is a running one, ``a <- a + c_t (w_t - a)`` with c_1 = 1. The exponential one has c_t = 1 - decay (De et
al. 2022, arXiv 2204.13650). The polynomial one has ``c_t = (p + 1) / (t + p)`` (Shamir and Zhang 2013, arXiv
1212.1824), which gives iterate i a weight that grows like ``i^p`` and needs no number of steps in advance: its memory
is a share ``1 / (p + 1)`` of the training so far. Averages of private iterates: Shejwalkar et al. 2022, arXiv
2210.01864.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn

from clipless.network import Network
from clipless.training.checkpoint import TrainingState


class Averaging(Protocol):
    """A rule by which the iterates are averaged."""

    def weight(self, step: int) -> float:
        """Return c_t, the weight of the newest iterate at this step, counted from 1."""

    @property
    def share(self) -> float:
        """The share of the average in the shown weights; the rest is the last iterate."""


@dataclass(frozen=True, slots=True)
class ExponentialAverage:
    """The first iterate, then ``decay`` times the average and the rest of the iterate."""

    decay: float

    def __post_init__(self) -> None:
        if not 0.0 < self.decay < 1.0:
            raise ValueError(f"Expected 0 < averaging < 1, got averaging={self.decay!r}")

    def weight(self, step: int) -> float:
        """Return 1 - decay, from the second step on."""
        return 1.0 if step == 1 else 1.0 - self.decay

    @property
    def share(self) -> float:
        """The average alone is shown."""
        return 1.0


@dataclass(frozen=True, slots=True)
class PolynomialAverage:
    """The average in which the weight of a step grows like its number to ``power``, mixed with the last iterate.

    ``share`` is that of the average, in (0, 1].
    """

    power: int
    share: float = 1.0

    def __post_init__(self) -> None:
        if not (self.power >= 0 and 0.0 < self.share <= 1.0):
            raise ValueError(f"Expected power >= 0 and 0 < share <= 1, got power={self.power!r}, share={self.share!r}")

    def weight(self, step: int) -> float:
        """Return (p + 1) / (t + p)."""
        return (self.power + 1) / (step + self.power)


class RunningAverage:
    """An average of the iterates of some parameters.

    The ball of a spectral norm is convex, so that an average keeps to it. Other constraint sets lie in a ball of their
    radius: an average keeps the bound, and whoever shows it can project it onto the set itself.

    There are no ``values`` before the first update.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], averaging: Averaging) -> None:
        self._parameters: list[Tensor] = list(parameters)
        self._averaging = averaging
        self.values: list[Tensor] = []

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Update the average with the current weights, those after this step; the first ones are the first average."""
        if self.values:
            torch._foreach_lerp_(self.values, self._parameters, self._averaging.weight(step))
        else:
            self.values = [p.clone() for p in self._parameters]

    @contextmanager
    def applied(self, *, keep: bool = False) -> Iterator[None]:
        """Put the shown weights into the parameters inside the block, and leave them there if ``keep``."""
        held = [p.detach().clone() for p in self._parameters]
        self._put(torch._foreach_lerp(held, self.values, self._averaging.share) if self.values else held)
        try:
            yield
        finally:
            if not keep:
                self._put(held)

    @torch.no_grad()
    def _put(self, values: Iterable[Tensor]) -> None:
        for parameter, value in zip(self._parameters, values, strict=True):
            parameter.copy_(value)


class FollowedAverages:
    """The averages of one training: the one that the model holds while an epoch is shown, and those shown on request.

    Args:
        model: trained; its trainable parameters are followed.
        averaging: decay of the average that stands for the weights while an epoch is shown; None for the weights.
        averages: further averages by name.

    Raises:
        ValueError: a name that is empty, which stands for what the model itself shows.
    """

    def __init__(self, model: Network, averaging: float | None, averages: Mapping[str, Averaging] | None) -> None:
        if "" in (averages or {}):
            raise ValueError(f"Expected a name for each of averages, got {sorted(averages or {})}")
        self._model = model
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._own = None if averaging is None else RunningAverage(self._parameters, ExponentialAverage(averaging))
        self._further = {name: RunningAverage(self._parameters, kind) for name, kind in (averages or {}).items()}
        self._all = {f"averages.{name}": average for name, average in self._further.items()}
        self._all |= {} if self._own is None else {"average": self._own}

    def update(self, step: int) -> None:
        """Update every average with the weights after this step, counted from 1."""
        for average in self._all.values():
            average.update(step)

    def shown(self, *, keep: bool = False) -> AbstractContextManager[None]:
        """Let the model hold an epoch's shown weights inside the block, and after it if ``keep``."""
        return nullcontext() if self._own is None else self._own.applied(keep=keep)

    def on_request(self) -> dict[str, Callable[[], AbstractContextManager[None]]]:
        """Return a context for each further average, by name, in which the model holds it in its constraint sets."""
        return {name: partial(self._projected, average) for name, average in self._further.items()}

    @contextmanager
    def _projected(self, average: RunningAverage) -> Iterator[None]:
        with average.applied():
            self._model.project()
            yield

    def tensors(self) -> dict[str, Tensor]:
        """Return the averages as tensors of a `TrainingState`."""
        return {f"{name}.{i}": value for name, one in self._all.items() for i, value in enumerate(one.values)}

    def restore(self, state: TrainingState) -> None:
        """Take the averages over from a state."""
        for name, average in self._all.items():
            # Those of an average "a.b" are under "a" too: only whole numbers are of "a" itself.
            values = {key: value for key, value in state.under(name).items() if key.isdecimal()}
            average.values = [values[str(i)].to(self._parameters[i].device) for i in range(len(values))]
