"""The private training loop: sample, forward, guarded backward, noise, step, project, record.

Shape letters: B batch, D all trainable entries.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clipless.datasets import Split
from clipless.errors import PlanError
from clipless.guard import guarded
from clipless.inspection import check_arithmetic
from clipless.losses import Loss
from clipless.network import Network
from clipless.optimizers import Adam, Optimizer, build_optimizer
from clipless.plan import Plan, check_plan
from clipless.privacy.randomness import RandomSource, SecureSource
from clipless.privacy.sampling import PoissonSampler

DEFAULT_MICRO_BATCH = 4096


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch done; the model holds its weights until the next one is asked for.

    Attributes:
        epoch: 1-based.
        epsilon: upper bound of what the model costs now, had this epoch been fixed in advance.
    """

    epoch: int
    epsilon: float


def fit(
    model: nn.Module,
    loss: Loss,
    data: Split,
    plan: Plan,
    *,
    optimizer: Optimizer | None = None,
    micro_batch_size: int = DEFAULT_MICRO_BATCH,
    source: RandomSource | None = None,
) -> Iterator[Epoch]:
    """Train ``model`` in place, one epoch for each value asked for.

    Args:
        model: the network that ``plan`` was made for; on the device of the data.
        loss: the loss that ``plan`` was made for.
        data: training rows, ``plan.population`` of them.
        plan: see `clipless.make_plan`.
        optimizer: settings; Adam at 1e-3 by default.
        micro_batch_size: rows per forward pass; a larger batch is accumulated. Does not change privacy.
        source: randomness of batches and noise; by default, and for any guarantee, a fresh `SecureSource`.

    Raises:
        PlanError: the plan was made for something else.
        UnsupportedError: the model cannot be guarded, or the arithmetic is of low precision.

    Guarantees:
        The sequence of models after every step is (epsilon, delta)-differentially private for the rows of
        ``data`` with epsilon as priced from ``plan.event()``. Nothing else that depends on the rows is
        returned, logged or stored. Holds for non-finite rows.
    """
    network = check_plan(plan, model, loss, len(data))
    check_arithmetic(data.x.device)
    if not micro_batch_size >= 1:
        raise PlanError(f"Expected micro_batch_size >= 1, got micro_batch_size={micro_batch_size!r}")
    trainer = _Trainer(
        network, loss, data, plan, optimizer or Adam(1e-3), micro_batch_size, source or SecureSource()
    )
    return trainer.epochs()


class _Trainer:
    def __init__(
        self,
        model: Network,
        loss: Loss,
        data: Split,
        plan: Plan,
        optimizer: Optimizer,
        micro_batch_size: int,
        source: RandomSource,
    ) -> None:
        self._model, self._loss, self._data, self._plan = model, loss, data, plan
        self._micro_batch_size = micro_batch_size
        self._source = source
        self._sampler = PoissonSampler(plan.population, plan.sampling_rate, source)
        parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._gradient_D = flat_gradient(list(parameters.values()))
        stds = plan.noise_stds
        self._noise_stds_D = torch.cat(
            [torch.full((p.numel(),), stds[name], device=data.x.device) for name, p in parameters.items()]
        )
        self._optimizer = build_optimizer(optimizer, parameters.values())

    def epochs(self) -> Iterator[Epoch]:
        curve = self._plan.epsilon_curve()
        for epoch in range(1, self._plan.epochs + 1):
            for rows in self._sampler.batches(self._plan.steps_per_epoch):
                self._step(torch.from_numpy(rows).to(self._data.x.device))
            yield Epoch(epoch, curve[epoch - 1])

    def _step(self, rows_B: Tensor) -> None:
        self._gradient_D.zero_()
        for chunk in rows_B.split(self._micro_batch_size):
            accumulate_gradients(
                self._model, self._loss, self._data.x[chunk], self._data.y[chunk], self._plan
            )
        noise_D = self._source.normal(self._gradient_D.numel(), self._gradient_D.device)
        self._gradient_D.addcmul_(noise_D, self._noise_stds_D).div_(self._plan.batch_size)
        self._optimizer.step()
        self._model.project()


def flat_gradient(parameters: list[nn.Parameter]) -> Tensor:
    """Allocate one flat gradient of which each parameter's ``grad`` is a view, so that one noise draw serves all."""
    flat_D = torch.zeros(sum(p.numel() for p in parameters), device=parameters[0].device)
    for parameter, view in zip(parameters, flat_D.split([p.numel() for p in parameters]), strict=True):
        parameter.grad = view.view_as(parameter)
    return flat_D


def accumulate_gradients(model: nn.Module, loss: Loss, x: Tensor, y: Tensor, plan: Plan) -> None:
    """Add the guarded gradient of the *summed* loss of a batch to ``parameter.grad``.

    Guarantees:
        Each parameter's accumulated gradient changes by at most ``plan.sensitivities`` when one row is added
        or removed, up to the rounding that `clipless.plan.NOISE_INFLATION` covers.
    """
    if len(x) == 0:
        return
    with guarded(model, plan.sensitivities):
        loss(model(x), y).sum().backward()
