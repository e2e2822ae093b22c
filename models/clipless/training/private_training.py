"""A private training from step to step, alone or in a stack: its draws, noise, clipping norms, averages and epochs.

A training alone and a member of a stack form their sums in other ways. What hides a row afterwards is the same for
both, and stands here.

Shape letters: D all trainable entries.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from operator import is_not

import torch
from torch import Tensor

from clipless.certificates.outputs import Outputs
from clipless.datasets import Split
from clipless.errors import PlanError
from clipless.guards.exact_sums import grid
from clipless.losses import Loss
from clipless.network import Network
from clipless.plans.clipping import ClipNorms
from clipless.plans.freezing import frozen
from clipless.plans.input_statistics import release_statistics
from clipless.plans.method import Schedule
from clipless.plans.plan import NOISE_INFLATION, Plan
from clipless.privacy.randomness import RandomSource
from clipless.privacy.sampling import PoissonSampler
from clipless.scalars import Scalar, entry, on_host
from clipless.training.averaging import Averaging, FollowedAverages
from clipless.training.checkpoint import TrainingState, save_state
from clipless.training.noise_scales import NoiseScales


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


class PrivateTraining(ABC):
    """One training of one model; its private statistics are released, or read from ``state``, when it is made.

    Attributes:
        model: the trained network.
        loss: of the training.
        plan: of the whole training.
        source: randomness of batches and noise.
        sampler: draws the batches.
        copies: of each drawn row.
        parameters: those that are trained, by name.
        sizes: their numbers of entries.
        averages: of the weights.
        clip_norms: of the layers that clip gradients.
        epoch: done.
        steps: done.
    """

    def __init__(
        self,
        model: Network,
        loss: Loss,
        data: Split,
        plan: Plan,
        source: RandomSource,
        *,
        schedule: Schedule,
        learning_rate: float,
        averaging: float | None,
        averages: Mapping[str, Averaging] | None,
        copies: int,
        micro_batch_size: int,
        state: TrainingState | None,
    ) -> None:
        self.model, self.loss, self.plan, self.source, self.copies = model, loss, plan, source, copies
        self.sampler = PoissonSampler(plan.population, plan.sampling_rate, source, data.offsets)
        if state is None:
            release_statistics(
                model,
                data,
                self.sampler,
                source,
                noise_std=plan.noise_multiplier * (1.0 + NOISE_INFLATION),
                batch_size=plan.batch_size,
                micro_batch_size=micro_batch_size,
            )
        else:
            model.load_state_dict(state.under("model"))
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.sizes = [p.numel() for p in self.parameters.values()]
        self._modules = list(model.modules())
        self._schedule, self._learning_rate = schedule, learning_rate
        self.averages = FollowedAverages(model, averaging, averages)
        self.clip_norms = ClipNorms(
            model, plan.clipping, self.planned_steps, plan.batch_size, plan.count_std, self.copies
        )
        self.epoch, self.steps = 0, 0

    @property
    def planned_steps(self) -> int:
        """The number of steps of the whole training."""
        return self.plan.epochs * self.plan.steps_per_epoch

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        return self._learning_rate * self._schedule.factor(self.steps, self.planned_steps)

    @property
    def ended(self) -> bool:
        """Whether every planned epoch is done."""
        return self.epoch >= self.plan.epochs

    def check_layers(self) -> None:
        """Raise PlanError for exchanged or unfrozen layers: neither guard nor noise would reach their gradients."""
        trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        same = trained.keys() == self.parameters.keys() and all(p is self.parameters[n] for n, p in trained.items())
        modules = list(self.model.modules())
        if not same or len(modules) != len(self._modules) or any(map(is_not, modules, self._modules)):
            raise PlanError("Expected the layers that training began with, found others; make a new plan for them")

    @contextmanager
    def at_step(self) -> Iterator[tuple[Plan, frozenset[str]]]:
        """Yield the plan of the next step and its resting parameters; norms are lowered, layers frozen inside."""
        resting = self.plan.resting(self.model, self.steps)
        with self.clip_norms.lowered(self.steps), frozen(self.model, resting):
            yield self.plan.at(self.model, self.loss, resting), resting

    def hold_noise_scales(self, scales_D: NoiseScales) -> None:
        """Keep where `scale_noise` writes."""
        self._scales_D = scales_D
        self._scaled_for: tuple[Mapping[str, Scalar], frozenset[str]] | None = None

    def scale_noise(self, plan: Plan, resting: frozenset[str]) -> None:
        """Write deviations, grids and steps of what is released of every entry where they have changed."""
        moving = not all(map(on_host, plan.sensitivities.values()))
        if not moving and self._scaled_for == (plan.sensitivities, resting):
            return
        stds = plan.noise_stds
        for name, scales_d in zip(self.parameters, self._scales_D.split(self.sizes), strict=True):
            if name in resting:
                scales_d.fill(0.0, 1.0)
            else:
                scales_d.fill(stds[name] * self.copies, grid(plan.sensitivities[name]))
        self._scaled_for = None if moving else (plan.sensitivities, resting)

    def release_count(self, device: torch.device) -> None:
        """Release the count of an adaptive clipping norm, with its noise, and update the norm."""
        if self.clip_norms.adaptive:
            self.clip_norms.advance(entry(self.source.normal(1, device)))

    def project(self, resting: frozenset[str]) -> None:
        """Put every weight that does not rest back into its constraint set."""
        with frozen(self.model, resting):
            self.model.project()

    def count_step(self) -> None:
        """Count a step and follow it with every average."""
        self.steps += 1
        self.averages.update(self.steps)

    @contextmanager
    def show_epoch(self, epsilon: float, outputs: Mapping[str, Outputs]) -> Iterator[Epoch]:
        """Yield the epoch; the model holds its shown weights inside the block, and keeps them after the last one."""
        with self.averages.shown(keep=self.ended):
            yield Epoch(self.epoch, epsilon, self.averages.on_request(), outputs)

    @abstractmethod
    def optimizer_tensors(self) -> dict[str, Tensor]:
        """Return the optimiser's tensors for a `TrainingState`."""

    def state(self) -> TrainingState:
        """Return the state between two epochs; its tensors change with the next step."""
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        tensors |= self.optimizer_tensors() | self.averages.tensors()
        return TrainingState(epoch=self.epoch, tensors=tensors, clip_factor=float(self.clip_norms.factor))

    def save(self, checkpoint: str | os.PathLike[str] | None) -> None:
        """Write the state after an epoch, where it is asked for."""
        if checkpoint is not None:
            save_state(checkpoint, self.plan, self.state())

    def resume(self, state: TrainingState) -> None:
        """Take over a state's averages, clipping norm and epoch."""
        self.averages.restore(state)
        self.clip_norms.factor = state.clip_factor
        self.epoch, self.steps = state.epoch, state.epoch * self.plan.steps_per_epoch
