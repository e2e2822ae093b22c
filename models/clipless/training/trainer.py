"""The training loop: sample, forward, guarded or clipped backward, noise, step, project, record.

Shape letters: B batch, D all trainable entries.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import chain
from math import ceil
from operator import is_not

import torch
from torch import Tensor, nn

from clipless.alone import arithmetic
from clipless.certificates.outputs import Outputs
from clipless.datasets import Split
from clipless.errors import PlanError
from clipless.guards.exact_sums import check_rows, grid
from clipless.losses import Loss
from clipless.network import Network, precompute, split_fixed_prefix
from clipless.plans.clip_norm import ClipNorms
from clipless.plans.freezing import frozen
from clipless.plans.input_statistics import release_statistics
from clipless.plans.method import Method, Schedule
from clipless.plans.placement import filled
from clipless.plans.plan import NOISE_INFLATION, Plan, check_plan
from clipless.plans.trainable import check_arithmetic, check_settings, check_trainable
from clipless.privacy.randomness import RandomSource, SecureSource
from clipless.privacy.sampling import PoissonSampler
from clipless.scalars import Scalar, entry, on_host
from clipless.training.augmentation import Augmentation
from clipless.training.averaging import Averaging, FollowedAverages
from clipless.training.batch_sums import CountedLoss, sum_gradients
from clipless.training.checkpoint import TrainingState, save_state, state_to_resume
from clipless.training.optimizers import Adam, Descent, Optimizer
from clipless.training.placing import training_places
from clipless.training.recording import Passes, recordable

# Rows per forward pass: on a CPU, few enough for activations to stay in the allocator's pools and the caches.
_MICRO_BATCHES = {"cpu": 512}
_LARGEST_MICRO_BATCH = 8192


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch done; the model holds its weights until the next one is asked for.

    Attributes:
        epoch: 1-based.
        epsilon: upper bound of what the model costs now, had this epoch been fixed in advance.
        averages: the averages that are followed, by name: a context in which the model holds one, at the same epsilon.
        outputs: of the model on rows that a stack looks at, by "" and of each average by its name; otherwise none.
    """

    epoch: int
    epsilon: float
    averages: Mapping[str, Callable[[], AbstractContextManager[None]]] = field(
        default_factory=dict, compare=False, repr=False
    )
    outputs: Mapping[str, Outputs] = field(default_factory=dict, compare=False, repr=False)


def fit(
    model: nn.Module,
    loss: Loss,
    data: Split,
    plan: Plan,
    *,
    optimizer: Optimizer | None = None,
    schedule: Schedule = Schedule.CONSTANT,
    averaging: float | None = None,
    averages: Mapping[str, Averaging] | None = None,
    micro_batch_size: int | None = None,
    ghost_clipping: bool = False,
    exact_norms: bool = False,
    augmentation: Augmentation | None = None,
    recorded: bool = False,
    source: RandomSource | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resumes_from: int = 0,
) -> Iterator[Epoch]:
    """Train ``model`` in place, one epoch per value requested; its private statistics are released at the call.

    Args:
        model: the network that ``plan`` was made for; on the device of the data.
        loss: the loss that ``plan`` was made for.
        data: training rows, ``plan.population`` of them.
        plan: see `clipless.make_plan`.
        optimizer: settings; Adam at 1e-3 by default.
        schedule: of the learning rate, over the planned steps.
        averaging: decay of an exponential moving average of the weights, in (0, 1), which the model then holds
            whenever an epoch is done; training continues from the weights themselves.
        averages: of the weights, by name, to follow beside them; each epoch has them, and they change nothing else.
        micro_batch_size: most rows per forward pass; a batch is accumulated from passes of one size, filled up with
            rows of zeros. Does not change privacy. By default 512 on a CPU, 8192 elsewhere.
        ghost_clipping: how ``dp-sgd`` clips, see `clipless.training.per_example.accumulate_clipped`. Does not change
            privacy.
        exact_norms: let the guard take the norm of each contribution on maps and tokens instead of a bound of it, which
            clips less where ``sensitivity_fraction`` is small and costs time. Does not change privacy.
        augmentation: random copies of each drawn row; does not change privacy. A fixed prefix is then applied at every
            step.
        recorded: record the first pass as a CUDA graph and replay it, which saves what the host needs to start each
            kernel; the sums are the same. Only where no sensitivity moves, and on a CUDA device.
        source: randomness of batches and noise; by default, and for any guarantee, a fresh `SecureSource`.
        checkpoint: a file that receives the state after each epoch, before the epoch is yielded. A training of the same
            plan that finds one there resumes from it, and first yields the epoch that it holds once more; a file that
            is damaged or of another plan is replaced.
        resumes_from: the least epoch that the checkpoint must hold: that with which only the rest was charged.

    Raises:
        PlanError: the plan was made for something else, or the checkpoint does not hold ``resumes_from``, of which
            nothing was drawn then; threads or precision of torch were changed during the training.
        UnsupportedError: the model cannot be guarded, or mixes rows; autocast is on.

    Guarantees:
        The private statistics of the model and its weights after every step are (epsilon, delta)-differentially
        private for the rows of ``data`` with epsilon as priced from ``plan.event()``. Nothing else that depends on the
        rows is returned, logged or stored. Holds for non-finite rows. A killed training has taken
        steps that its checkpoint does not hold; if their results could be seen, they must be charged too.
    """
    network = check_training(model, loss, data, plan, augmentation)
    micro_batch_size = check_micro_batch(micro_batch_size, data)
    trainer = PrivateTrainer(
        network,
        loss,
        data,
        plan,
        optimizer or Adam(1e-3),
        micro_batch_size,
        source or SecureSource(),
        schedule=schedule,
        averaging=averaging,
        averages=averages,
        ghost_clipping=ghost_clipping,
        exact_norms=exact_norms,
        augmentation=augmentation,
        recorded=recorded,
        state=state_to_resume(checkpoint, plan, resumes_from),
    )
    return trainer.epochs(checkpoint)


def check_training(
    model: nn.Module, loss: Loss, data: Split, plan: Plan, augmentation: Augmentation | None = None
) -> Network:
    """Return ``model`` if it can be trained on ``data`` as ``plan`` says; the arguments and errors of `fit`."""
    network = check_plan(plan, model, loss, len(data), augmentation.copies if augmentation else 1)
    if tuple(data.x.shape[1:]) != network.input_shape:
        raise PlanError(
            f"Expected rows of the shape {network.input_shape} that the network was bounded for, got "
            f"{tuple(data.x.shape[1:])}"
        )
    check_rows(ceil(plan.batch_size) * (augmentation.copies if augmentation else 1))
    check_arithmetic(data.x.device)
    return network


def check_micro_batch(size: int | None, data: Split) -> int:
    """Return the most rows per forward pass, by default those for the device of ``data``; the error of `fit`."""
    size = default_micro_batch(data.x.device.type) if size is None else size
    if not size >= 1:
        raise PlanError(f"Expected micro_batch_size >= 1, got micro_batch_size={size!r}")
    return size


def default_micro_batch(device: str) -> int:
    """Return the default number of rows per forward pass on a kind of device."""
    return _MICRO_BATCHES.get(device, _LARGEST_MICRO_BATCH)


class PrivateTrainer:
    """The state of one training; `fit` checks what goes into it.

    It is long because what may touch gradients between the sums and their noise stands here, and nowhere else.
    """

    def __init__(
        self,
        model: Network,
        loss: Loss,
        data: Split,
        plan: Plan,
        optimizer: Optimizer,
        micro_batch_size: int,
        source: RandomSource,
        *,
        schedule: Schedule = Schedule.CONSTANT,
        averaging: float | None = None,
        averages: Mapping[str, Averaging] | None = None,
        ghost_clipping: bool = False,
        exact_norms: bool = False,
        augmentation: Augmentation | None = None,
        recorded: bool = False,
        state: TrainingState | None = None,
    ) -> None:
        self._model, self._loss, self._plan = model, loss, plan
        self._modules = list(model.modules())
        self._source = source
        self._sampler = PoissonSampler(plan.population, plan.sampling_rate, source)
        self._augmentation, self._copies = augmentation, augmentation.copies if augmentation else 1
        self._ghost_clipping, self._exact_norms = ghost_clipping, exact_norms
        self._settings = arithmetic()
        self._places = training_places(
            *(model, loss, data, plan, source, micro_batch_size),
            augmentation=augmentation,
            ghost=ghost_clipping,
            exact=exact_norms,
        )
        if state is None:
            release_statistics(
                model,
                data,
                self._sampler,
                source,
                noise_std=plan.noise_multiplier * (1.0 + NOISE_INFLATION),
                batch_size=plan.batch_size,
                micro_batch_size=micro_batch_size,
            )
        else:
            model.load_state_dict(state.under("model"))
        if augmentation is None:
            prefix, self._trained = split_fixed_prefix(model)
            self._data = precompute(prefix, data)
        else:  # features of a copy are not those of the row
            self._trained, self._data = model, data
        parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        sizes = [p.numel() for p in parameters.values()]
        self._gradient_D = torch.zeros(sum(sizes), dtype=torch.float64, device=data.x.device)
        pieces = dict(zip(parameters, self._gradient_D.split(sizes), strict=True))
        self._totals = {name: pieces[name].view_as(p) for name, p in parameters.items()}
        self._parameters = parameters
        self._noise_stds_D, self._grids_D = torch.zeros_like(self._gradient_D), torch.ones_like(self._gradient_D)
        self._noise_stds = dict(zip(parameters, self._noise_stds_D.split(sizes), strict=True))
        self._grids = dict(zip(parameters, self._grids_D.split(sizes), strict=True))
        recorded = recorded and recordable(plan, data.x.device)
        self._passes = Passes(self._sum, loss, self._places.size * self._copies, recorded=recorded)
        self._prepared: tuple[Mapping[str, Scalar], frozenset[str]] | None = None  # what the noise is scaled for
        self._optimizer = Descent(optimizer, parameters.values())
        self._steps, self._schedule, self._learning_rate = 0, schedule, optimizer.learning_rate
        self._averages = FollowedAverages(model, averaging, averages)
        steps = plan.epochs * plan.steps_per_epoch
        self._clip_norms = ClipNorms(model, plan.clipping, steps, plan.batch_size, plan.count_std, self._copies)
        self._epoch = 0
        if state is not None:
            self._restore(state)

    def epochs(self, checkpoint: str | os.PathLike[str] | None = None) -> Iterator[Epoch]:
        """Train one epoch per value requested; yield the epoch that the state held first."""
        curve = self._plan.epsilon_curve()
        held = [self._epoch] if self._epoch else []
        for epoch in chain(held, range(self._epoch + 1, self._plan.epochs + 1)):
            if epoch > self._epoch:
                self._train_epoch()
                if checkpoint is not None:
                    save_state(checkpoint, self._plan, self.state())
            with self._averages.shown(keep=epoch == self._plan.epochs):
                yield Epoch(epoch, curve[epoch - 1], self._averages.on_request())

    def state(self) -> TrainingState:
        """Return the state between two epochs; its tensors change with the next step."""
        tensors = {f"model.{name}": tensor for name, tensor in self._model.state_dict().items()}
        for i, entries in self._optimizer.state.items():
            tensors |= {f"optimizer.{i}.{name}": value for name, value in entries.items()}
        tensors |= self._averages.tensors()
        return TrainingState(epoch=self._epoch, tensors=tensors, clip_factor=float(self._clip_norms.factor))

    def _restore(self, state: TrainingState) -> None:
        entries: dict[int, dict[str, Tensor]] = {}
        for name, tensor in state.under("optimizer").items():
            i, _, key = name.partition(".")
            entries.setdefault(int(i), {})[key] = tensor
        self._optimizer.resume(entries)
        self._averages.restore(state)
        self._clip_norms.factor = state.clip_factor
        self._epoch, self._steps = state.epoch, state.epoch * self._plan.steps_per_epoch

    def _train_epoch(self) -> None:
        check_trainable(self._model, bounded=self._plan.method.bounded)
        self._check_layers()
        check_arithmetic(self._data.x.device)
        check_settings(self._settings)
        for rows_B in self._sampler.batches(self._plan.steps_per_epoch, self._data.x.device):
            self.step(rows_B)
        self._epoch += 1

    def _clear_gradients(self) -> None:
        """Discard the gradients of an unfinished step: they carry no noise yet."""
        for parameter in self._parameters.values():
            parameter.grad = None
        self._gradient_D.zero_()

    def _check_layers(self) -> None:
        """Refuse exchanged or unfrozen layers: neither guard nor noise would reach their gradients."""
        trained = {name: p for name, p in self._model.named_parameters() if p.requires_grad}
        same = trained.keys() == self._parameters.keys() and all(p is self._parameters[n] for n, p in trained.items())
        modules = list(self._model.modules())
        if not same or len(modules) != len(self._modules) or any(map(is_not, modules, self._modules)):
            raise PlanError("Expected the layers that training began with, found others; make a new plan for them")

    def step(self, rows_B: Tensor) -> None:
        """Take one step on the given rows; the plan's price holds only for rows that its sampler drew."""
        try:
            self._step(rows_B)
        except BaseException:
            self._clear_gradients()
            raise

    def _step(self, rows_B: Tensor) -> None:
        check_rows(len(rows_B) * self._copies)
        self._gradient_D.zero_()
        resting = self._plan.resting(self._model, self._steps)
        for parameter in self._parameters.values():
            parameter.grad = None
        with self._clip_norms.lowered(self._steps), frozen(self._model, resting):
            plan = self._plan.at(self._model, self._loss, resting)
            for chosen in self._places.passes(rows_B):
                self._accumulate(chosen, plan)
                self._check_gathered()
        if plan.method is not Method.NON_PRIVATE:
            self._add_noise(plan, resting)
        if self._clip_norms.adaptive:
            self._clip_norms.advance(entry(self._source.normal(1, self._gradient_D.device)))
        self._gradient_D.div_(self._copies * self._plan.batch_size)
        for name, parameter in self._parameters.items():
            parameter.grad = None if name in resting else self._totals[name].to(parameter.dtype)
        factor = self._schedule.factor(self._steps, self._plan.epochs * self._plan.steps_per_epoch)
        self._optimizer.learning_rate = self._learning_rate * factor
        self._optimizer.step()
        with frozen(self._model, resting):
            self._model.project()
        self._steps += 1
        self._averages.update(self._steps)

    def _add_noise(self, plan: Plan, resting: frozenset[str]) -> None:
        """Add noise in whole steps of the grid on which the sums lie: the result is a rounded Gaussian mechanism."""
        moving = not all(map(on_host, plan.sensitivities.values()))
        if moving or self._prepared != (plan.sensitivities, resting):
            stds = plan.noise_stds
            for name in self._parameters:
                step = 1.0 if name in resting else grid(plan.sensitivities[name])
                self._noise_stds[name].fill_(0.0 if name in resting else stds[name] * self._copies / step)
                self._grids[name].fill_(step)
            self._prepared = None if moving else (plan.sensitivities, resting)
        noise_D = self._source.normal(self._gradient_D.numel(), self._gradient_D.device)
        self._gradient_D.addcmul_((noise_D * self._noise_stds_D).floor_(), self._grids_D)

    def _check_gathered(self) -> None:
        """Refuse gradients that were formed where neither guard nor noise reaches them."""
        for parameter in self._parameters.values():
            if parameter.grad is not None:
                raise PlanError(
                    "Expected gradients to gather where the noise is added; one was formed elsewhere during the step"
                )

    def _accumulate(self, chosen: Tensor, plan: Plan) -> None:
        """Add the gradients of one pass over the chosen rows; -1 stands for none."""
        slotted = self._places.slots is not None
        x, y = ((filled(t, chosen) if slotted else t[chosen]) for t in (self._data.x, self._data.y))
        counts = chosen >= 0 if slotted else None
        if self._augmentation is not None:
            x, y = self._augmentation.apply(x, self._source), y.repeat_interleave(self._copies, dim=0)
            counts = None if counts is None else counts.repeat_interleave(self._copies)
        self._passes(x, y, plan, counts)
        self._clip_norms.count(len(x), counts)

    def _sum(self, loss: Loss | CountedLoss, x: Tensor, y: Tensor, plan: Plan, rows: int | None = None) -> None:
        sum_gradients(
            self._model,
            loss,
            x,
            y,
            plan,
            self._totals,
            rows=rows,
            forward=self._trained,
            ghost=self._ghost_clipping,
            exact=self._exact_norms,
        )
