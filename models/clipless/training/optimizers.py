"""Optimisers: post-processing of noised gradients."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import assert_never, final

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

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


class Descent:
    """Steps along ``parameter.grad``, taken by the functional form of torch's optimisers.

    Their classes import torch's compiler at once, two seconds of every process that trains. In a training, every option
    reads gradients that already carry noise, so that its result is post-processing.

    A parameter without a gradient rests, and what its steps carry along rests with it.

    Attributes:
        state: by the number of a parameter, what its steps carry along; none before its first one.

    Raises:
        UnsupportedError: settings of another type.
    """

    def __init__(self, settings: Optimizer, parameters: Iterable[Tensor]) -> None:
        if type(settings) not in (SGD, Adam):
            raise UnsupportedError(f"Expected optimiser settings SGD or Adam, got {type(settings).__name__}")
        self._settings = settings
        self._parameters = list(parameters)
        self.learning_rate = settings.learning_rate
        self.state: dict[int, dict[str, Tensor]] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        moving = {i: (p, p.grad) for i, p in enumerate(self._parameters) if p.grad is not None}
        parameters, gradients = [p for p, _ in moving.values()], [gradient for _, gradient in moving.values()]
        for i in moving.keys() - self.state.keys():
            self.state[i] = self._begin(self._parameters[i])
        carried = [self.state[i] for i in moving]
        match self._settings:
            case SGD(momentum=momentum):
                sgd(
                    parameters,
                    gradients,
                    [tensors.get("momentum_buffer") for tensors in carried],
                    lr=self.learning_rate,
                    momentum=momentum,
                    dampening=0.0,
                    weight_decay=0.0,
                    nesterov=False,
                    maximize=False,
                )
            case Adam(beta1=beta1, beta2=beta2, epsilon=epsilon):
                adam(
                    parameters,
                    gradients,
                    [tensors["exp_avg"] for tensors in carried],
                    [tensors["exp_avg_sq"] for tensors in carried],
                    [],
                    [tensors["step"] for tensors in carried],
                    lr=self.learning_rate,
                    beta1=beta1,
                    beta2=beta2,
                    eps=epsilon,
                    weight_decay=0.0,
                    amsgrad=False,
                    maximize=False,
                )
            case _:
                assert_never(self._settings)

    def resume(self, state: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Restore the state of an earlier training of these parameters."""
        devices = [parameter.device for parameter in self._parameters]
        self.state = {
            i: {name: tensor if name == "step" else tensor.to(devices[i]) for name, tensor in tensors.items()}
            for i, tensors in state.items()
        }

    def _begin(self, parameter: Tensor) -> dict[str, Tensor]:
        match self._settings:
            case SGD(momentum=momentum):
                return {"momentum_buffer": torch.zeros_like(parameter)} if momentum else {}
            case Adam():
                step = torch.tensor(0.0, device="cpu")  # torch counts there
                return {"step": step, "exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
            case _:
                assert_never(self._settings)


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low < value < high:
        raise ValueError(f"Expected {low} < {name} < {high}, got {name}={value!r}")
