"""Optimisers that post-process private gradients: frozen settings that build a torch optimiser."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import torch
from torch import nn

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


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low < value < high:
        raise ValueError(f"Expected {low} < {name} < {high}, got {name}={value!r}")
