"""What turns noised gradients into steps: optimisers, learning-rate schedules, averages. All of it post-processing."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from clipless.errors import UnsupportedError


@final
@dataclass(frozen=True, slots=True)
class SGD:
    """Stochastic gradient descent with momentum."""

    learning_rate: float
    momentum: float = 0.0

    def __post_init__(self) -> None:
        _check("learning_rate", self.learning_rate, 0.0, float("inf"))
        if not 0 <= self.momentum < 1:
            raise ValueError(f"Expected 0 <= momentum < 1, got momentum={self.momentum!r}")


@final
@dataclass(frozen=True, slots=True)
class Adam:
    """Adam (Kingma and Ba 2015)."""

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        _check("learning_rate", self.learning_rate, 0.0, float("inf"))
        _check("beta1", self.beta1, 0.0, 1.0)
        _check("beta2", self.beta2, 0.0, 1.0)
        _check("epsilon", self.epsilon, 0.0, 1.0)


Optimizer = SGD | Adam


def build_optimizer(settings: Optimizer, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the torch optimiser of ``settings``.

    Every option here reads gradients that already carry noise, so its result is post-processing.

    Raises:
        UnsupportedError: settings of another type.
    """
    if type(settings) is SGD:
        return torch.optim.SGD(parameters, lr=settings.learning_rate, momentum=settings.momentum)
    if type(settings) is Adam:
        betas = (settings.beta1, settings.beta2)
        return torch.optim.Adam(parameters, lr=settings.learning_rate, betas=betas, eps=settings.epsilon)
    raise UnsupportedError(f"Expected optimiser settings SGD or Adam, got {type(settings).__name__}")


class MovingAverage:
    """Exponential moving average of the iterates, ``a <- decay a + (1 - decay) w`` (De et al. 2022, arXiv 2204.13650).

    Every constraint set is convex, or lies in a ball of its radius, so that the average keeps the bound of its norm.

    Attributes:
        values: the averages, none before the first update.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], decay: float) -> None:
        _check("averaging", decay, 0.0, 1.0)
        self._parameters: list[Tensor] = list(parameters)
        self._decay = decay
        self.values: list[Tensor] = []

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights as they are now; the first ones are the first average."""
        if self.values:
            torch._foreach_lerp_(self.values, self._parameters, 1.0 - self._decay)
        else:
            self.values = [p.clone() for p in self._parameters]

    @contextmanager
    def shown(self, *, keep: bool = False) -> Iterator[None]:
        """Let the parameters hold their averages inside the block, and behind it if ``keep``."""
        held = [p.detach().clone() for p in self._parameters]
        self._put(self.values or held)
        try:
            yield
        finally:
            if not keep:
                self._put(held)

    @torch.no_grad()
    def _put(self, values: Iterable[Tensor]) -> None:
        for parameter, value in zip(self._parameters, values, strict=True):
            parameter.copy_(value)


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low < value < high:
        raise ValueError(f"Expected {low} < {name} < {high}, got {name}={value!r}")
