"""The training loop: sample, forward, guarded or clipped backward, noise, step, project, record.

Shape letters: B batch, D all trainable entries.
"""

import os
from collections.abc import Iterator, Mapping
from itertools import chain
from math import ceil

import torch
from torch import Tensor, nn

from clipless.datasets import Split
from clipless.errors import PlanError
from clipless.guards.exact_sums import check_rows
from clipless.losses import Loss
from clipless.network import Network, precompute, split_fixed_prefix
from clipless.plans.method import Method, Schedule
from clipless.plans.placement import take_rows
from clipless.plans.plan import Plan, check_plan
from clipless.plans.trainable import check_arithmetic, check_settings, check_trainable
from clipless.privacy.randomness import RandomSource, SecureSource
from clipless.row_independence import arithmetic
from clipless.training.augmentation import Augmentation
from clipless.training.averaging import Averaging
from clipless.training.batch_sums import CountedLoss, sum_gradients
from clipless.training.checkpoint import TrainingState, state_to_resume
from clipless.training.noise_scales import NoiseScales
from clipless.training.optimizers import Adam, Descent, Optimizer
from clipless.training.placing import training_places, uses_features
from clipless.training.private_training import Epoch, PrivateTraining
from clipless.training.recording import FixedSizePasses, recordable

# Rows per forward pass: on a CPU, few enough for activations to stay in the allocator's pools and the caches.
_MICRO_BATCHES = {"cpu": 512}
_LARGEST_MICRO_BATCH = 8192


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


class PrivateTrainer(PrivateTraining):
    """One training alone; `fit` checks its arguments."""

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
        self._augmentation, copies = augmentation, augmentation.copies if augmentation else 1
        self._ghost_clipping, self._exact_norms = ghost_clipping, exact_norms
        self._settings = arithmetic()
        self._optimizer = Descent(optimizer, (p for p in model.parameters() if p.requires_grad))
        self._places = training_places(
            *(model, loss, data, plan, source, micro_batch_size),
            augmentation=augmentation,
            ghost=ghost_clipping,
            exact=exact_norms,
        )
        super().__init__(
            *(model, loss, data, plan, source),
            schedule=schedule,
            learning_rate=optimizer.learning_rate,
            averaging=averaging,
            averages=averages,
            copies=copies,
            micro_batch_size=micro_batch_size,
            state=state,
        )
        if uses_features(data, augmentation):
            prefix, self._trained = split_fixed_prefix(model)
            self._data = precompute(prefix, data)
        else:
            self._trained, self._data = model, data
        self._gradient_D = torch.zeros(sum(self.sizes), dtype=torch.float64, device=data.x.device)
        pieces = zip(self.parameters.items(), self._gradient_D.split(self.sizes), strict=True)
        self._totals = {name: piece.view_as(p) for (name, p), piece in pieces}
        self._noise_scales_D = NoiseScales.like(self._gradient_D)
        self.hold_noise_scales(self._noise_scales_D)
        recorded = recorded and recordable(plan, data.x.device)
        self._passes = FixedSizePasses(self._sum, loss, self._places.size * copies, recorded=recorded)
        if state is not None:
            self.resume(state)

    def epochs(self, checkpoint: str | os.PathLike[str] | None = None) -> Iterator[Epoch]:
        """Train one epoch per value requested; yield the epoch that the state held first."""
        curve = self.plan.epsilon_curve()
        held = [self.epoch] if self.epoch else []
        for epoch in chain(held, range(self.epoch + 1, self.plan.epochs + 1)):
            if epoch > self.epoch:
                self._train_epoch()
                self.save(checkpoint)
            with self.show_epoch(curve[epoch - 1], {}) as shown:
                yield shown

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """Return the optimiser's tensors."""
        return {
            f"optimizer.{i}.{name}": value
            for i, entries in self._optimizer.state.items()
            for name, value in entries.items()
        }

    def resume(self, state: TrainingState) -> None:
        """Take over a state."""
        entries: dict[int, dict[str, Tensor]] = {}
        for name, tensor in state.under("optimizer").items():
            i, _, key = name.partition(".")
            entries.setdefault(int(i), {})[key] = tensor
        self._optimizer.resume(entries)
        super().resume(state)

    def _train_epoch(self) -> None:
        check_trainable(self.model, bounded=self.plan.method.bounded)
        self.check_layers()
        check_arithmetic(self._data.x.device)
        check_settings(self._settings)
        for rows_B in self.sampler.batches(self.plan.steps_per_epoch, self._data.x.device):
            self.step(rows_B)
        self.epoch += 1

    def _clear_gradients(self) -> None:
        """Discard the gradients of an unfinished step: they carry no noise yet."""
        for parameter in self.parameters.values():
            parameter.grad = None
        self._gradient_D.zero_()

    def step(self, rows_B: Tensor) -> None:
        """Take one step on the given rows; the plan's price holds only for rows that its sampler drew."""
        try:
            self._step(rows_B)
        except BaseException:
            self._clear_gradients()
            raise

    def _step(self, rows_B: Tensor) -> None:
        check_rows(len(rows_B) * self.copies)
        self._gradient_D.zero_()
        for parameter in self.parameters.values():
            parameter.grad = None
        with self.at_step() as (plan, resting):
            for chosen in self._places.passes(rows_B):
                self._accumulate(chosen, plan)
                self._check_gathered()
        if plan.method is not Method.NON_PRIVATE:
            self._add_noise(plan, resting)
        self.release_count(self._gradient_D.device)
        self._gradient_D.div_(self.copies * self.plan.batch_size)
        for name, parameter in self.parameters.items():
            parameter.grad = None if name in resting else self._totals[name].to(parameter.dtype)
        self._optimizer.learning_rate = self.learning_rate
        self._optimizer.step()
        self.project(resting)
        self.count_step()

    def _add_noise(self, plan: Plan, resting: frozenset[str]) -> None:
        self.scale_noise(plan, resting)
        noise_D = self.source.normal(self._gradient_D.numel(), self._gradient_D.device)
        self._noise_scales_D.add_noise(self._gradient_D, noise_D)

    def _check_gathered(self) -> None:
        """Refuse gradients that were formed where neither guard nor noise reaches them."""
        for parameter in self.parameters.values():
            if parameter.grad is not None:
                raise PlanError(
                    "Expected gradients to gather where the noise is added; one was formed elsewhere during the step"
                )

    def _accumulate(self, chosen: Tensor, plan: Plan) -> None:
        """Add the gradients of one pass over the chosen rows; -1 stands for none."""
        slotted = self._places.slots is not None
        x, y = ((take_rows(t, chosen) if slotted else t[chosen]) for t in (self._data.x, self._data.y))
        counts = chosen >= 0 if slotted else None
        if self._augmentation is not None:
            x, y = self._augmentation.apply(x, self.source), y.repeat_interleave(self.copies, dim=0)
            counts = None if counts is None else counts.repeat_interleave(self.copies)
        self._passes(x, y, plan, counts)
        self.clip_norms.count(len(x), counts)

    def _sum(self, loss: Loss | CountedLoss, x: Tensor, y: Tensor, plan: Plan, rows: int | None = None) -> None:
        sum_gradients(
            self.model,
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
