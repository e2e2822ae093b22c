"""What a stack keeps of each member: all that is not the same for every member.

Shape letters: B batch, D all trainable entries.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Protocol
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from clipless.certificates.outputs import Outputs
from clipless.datasets import Split
from clipless.errors import PlanError, UnsupportedError
from clipless.guards.exact_sums import grid
from clipless.network import Network, precompute, split_fixed_prefix
from clipless.plans.clip_norm import ClipNorms
from clipless.plans.freezing import frozen
from clipless.plans.input_statistics import release_statistics
from clipless.plans.plan import NOISE_INFLATION, Plan
from clipless.plans.trainable import check_trainable
from clipless.privacy.randomness import SecureSource
from clipless.privacy.sampling import PoissonSampler
from clipless.saving import architecture
from clipless.scalars import Scalar, on_host
from clipless.stacks.descent import carried_names, stored_names
from clipless.stacks.member import Member
from clipless.training.averaging import FollowedAverages
from clipless.training.checkpoint import TrainingState, save_state, state_to_resume
from clipless.training.trainer import Epoch, check_training


class Trainee:
    """One member in training: its batches, noise, norms, averages and epochs.

    Attributes:
        member: what is trained.
        epoch: done.
        steps: done.
        entries: (D,) float32 by name: ``weights``, and what the optimiser carries; rows of the stack's tensors.
        data: what passes look up: the rows, or their features behind the fixed prefix.
        first: number of layers that the rows of ``data`` have passed already.
        outputs: of the epoch that is shown next, see `clipless.training.trainer.Epoch`.
    """

    def __init__(self, member: Member, data: Split, micro_batch_size: int, features: "Features") -> None:
        plan = member.plan
        self.member, self._network = member, check_training(member.model, member.loss, data, plan, member.augmentation)
        self.source = member.source or SecureSource()
        self.sampler = PoissonSampler(plan.population, plan.sampling_rate, self.source)
        state = state_to_resume(member.checkpoint, plan, member.resumes_from)
        if state is None:
            release_statistics(
                self._network,
                data,
                self.sampler,
                self.source,
                noise_std=plan.noise_multiplier * (1.0 + NOISE_INFLATION),
                batch_size=plan.batch_size,
                micro_batch_size=micro_batch_size,
            )
        else:
            self._network.load_state_dict(state.under("model"))
        self.first, self.data = (0, data) if member.augmentation is not None else features.of(self._network)
        self.parameters = {name: p for name, p in self._network.named_parameters() if p.requires_grad}
        self._modules = list(self._network.modules())
        self.sizes = [p.numel() for p in self.parameters.values()]
        weights_D = torch.cat([p.detach().flatten() for p in self.parameters.values()])
        self.entries = {"weights": weights_D}
        self.entries |= {name: torch.zeros_like(weights_D) for name in carried_names(member.optimizer)}
        self._averages = FollowedAverages(self._network, member.averaging, member.averages)
        self.clip_norms = ClipNorms(
            self._network, plan.clipping, self.planned_steps, plan.batch_size, plan.count_std, member.copies
        )
        self.epoch, self.steps, self.told = 0, 0, 0
        self.outputs: Mapping[str, Outputs] = {}
        self._rested: dict[str, int] = {}  # in which steps what rests had moved
        self._prepared: tuple[Mapping[str, Scalar], frozenset[str]] | None = None
        if state is not None:
            self._restore(state)

    @cached_property
    def curve(self) -> list[float]:
        """Epsilon after each epoch."""
        return self.member.plan.epsilon_curve()

    def augmented(self, x: Tensor) -> Tensor:
        """Return the copies of rows, those of one row one behind the other."""
        augmentation = self.member.augmentation
        return x if augmentation is None else augmentation.apply(x, self.source)

    @property
    def planned_steps(self) -> int:
        """Of the whole training."""
        return self.member.plan.epochs * self.member.plan.steps_per_epoch

    @property
    def learning_rate(self) -> float:
        """At the next step."""
        factor = self.member.schedule.factor(self.steps, self.planned_steps)
        return self.member.optimizer.learning_rate * factor

    @property
    def ended(self) -> bool:
        """Whether every planned epoch is done."""
        return self.epoch >= self.member.plan.epochs

    def place(self, entries: Mapping[str, Tensor], stds_D: Tensor, grids_D: Tensor) -> None:
        """Move to rows of a stack's tensors, which hold the same entries; the network's parameters become views."""
        self.entries = dict(entries)
        self._stds_D, self._grids_D, self._prepared = stds_D, grids_D, None
        for parameter, piece in zip(self.parameters.values(), entries["weights"].split(self.sizes), strict=True):
            parameter.data = piece.view_as(parameter)

    def release(self) -> None:
        """Leave the stack: the network takes its weights along."""
        for parameter in self.parameters.values():
            parameter.data = parameter.data.clone()

    def check(self) -> None:
        """Refuse a network that was changed since training began: neither guard nor noise would reach its gradients.

        Raises:
            PlanError: other layers or parameters, or parameters that lie elsewhere.
            UnsupportedError: as `clipless.plans.trainable.check_trainable`.
        """
        if self.ended:
            raise PlanError(f"Expected a member with epochs left, got one that has trained all {self.epoch}")
        check_trainable(self._network)
        trained = {name: p for name, p in self._network.named_parameters() if p.requires_grad}
        pieces = self.entries["weights"].split(self.sizes)
        same = trained.keys() == self.parameters.keys() and all(
            p is self.parameters[name] and p.data_ptr() == piece.data_ptr()
            for (name, p), piece in zip(trained.items(), pieces, strict=True)
        )
        modules = list(self._network.modules())
        if not same or len(modules) != len(self._modules) or any(a is not b for a, b in zip(modules, self._modules)):  # noqa: B905
            raise PlanError("Expected the layers that training began with, found others; make a new plan for them")

    @contextmanager
    def at_step(self) -> Iterator[tuple[Plan, frozenset[str]]]:
        """Yield the plan of the next step and what rests; norms are lowered and frozen layers at rest in the block."""
        plan, network = self.member.plan, self._network
        resting = plan.resting(network, self.steps)
        with ExitStack() as stack:
            stack.enter_context(self.clip_norms.lowered(self.steps))
            if resting:
                stack.enter_context(frozen(network, resting))
            yield plan.at(network, self.member.loss, resting), resting

    def scale_noise(self, plan: Plan, resting: frozenset[str]) -> None:
        """Write deviations, in steps of the grid, and grids of every entry where they have changed."""
        moving = not all(map(on_host, plan.sensitivities.values()))
        if not moving and self._prepared == (plan.sensitivities, resting):
            return
        stds, pieces = (
            plan.noise_stds,
            zip(self._stds_D.split(self.sizes), self._grids_D.split(self.sizes), strict=True),
        )
        for name, (std_d, grid_d) in zip(self.parameters, pieces, strict=True):
            step = 1.0 if name in resting else grid(plan.sensitivities[name])
            std_d.fill_(0.0 if name in resting else stds[name] * self.member.copies / step)
            grid_d.fill_(step)
        self._prepared = None if moving else (plan.sensitivities, resting)

    def stepped(self, resting: frozenset[str]) -> None:
        """Count a step and follow it with every average."""
        for name in resting:
            self._rested.setdefault(name, self.steps)
        self.steps += 1
        self._averages.update(self.steps)

    def project(self, resting: frozenset[str]) -> None:
        """Put every weight that does not rest back into its constraint set."""
        with frozen(self._network, resting):
            self._network.project()

    def save(self) -> None:
        """Write the state after an epoch, where it is asked for."""
        if self.member.checkpoint is not None:
            save_state(self.member.checkpoint, self.member.plan, self.state())

    @contextmanager
    def shown(self) -> Iterator[Epoch]:
        """Yield the epoch; the model holds what is shown inside the block, and keeps it after the last one."""
        self.told = self.epoch
        outputs, self.outputs = self.outputs, {}
        with self._averages.shown(keep=self.ended):
            yield Epoch(self.epoch, self.curve[self.epoch - 1], self._averages.on_request(), outputs)

    def each_shown(self) -> Generator[str, None, None]:
        """Let the model hold, one after the other, all that an epoch shows; yield the average, "" for the epoch's own.

        Close the iterator to put the weights back.
        """
        with self._averages.shown():
            yield ""
            for name, held in self._averages.on_request().items():
                with held():
                    yield name

    def state(self) -> TrainingState:
        """Return the state between two epochs, as that of a training alone."""
        tensors = {f"model.{name}": tensor for name, tensor in self._network.state_dict().items()}
        names = stored_names(self.member.optimizer)
        pieces = {name: self.entries[name].split(self.sizes) for name in names}
        for i, (name, parameter) in enumerate(self.parameters.items()):
            moved = self._rested.get(name, self.steps)
            tensors |= _carried(f"optimizer.{i}", {key: p[i].view_as(parameter) for key, p in pieces.items()}, moved)
        tensors |= self._averages.tensors()
        return TrainingState(epoch=self.epoch, tensors=tensors, clip_factor=float(self.clip_norms.factor))

    def _restore(self, state: TrainingState) -> None:
        steps = state.epoch * self.member.plan.steps_per_epoch
        for i, name in enumerate(self.parameters):
            held = state.under(f"optimizer.{i}")
            for key in stored_names(self.member.optimizer):
                self.entries[key].split(self.sizes)[i].copy_(held[key].flatten())
            if "step" in held and held["step"].item() < steps:
                self._rested[name] = int(held["step"].item())
        self._averages.restore(state)
        self.clip_norms.factor = state.clip_factor
        self.epoch, self.steps = state.epoch, steps


class Features(Protocol):
    """What the rows of the data are behind the fixed prefix of a network."""

    def of(self, network: Network) -> tuple[int, Split]:
        """Return how many layers the fixed prefix has, and the rows behind it."""


class FixedFeatures:
    """Rows behind fixed prefixes, computed once for all members with the same one; those with statistics have own.

    They are kept for as long as a member has them.
    """

    def __init__(self, data: Split) -> None:
        self._data = data
        self._known: WeakValueDictionary[str, Split] = WeakValueDictionary()

    def of(self, network: Network) -> tuple[int, Split]:
        """Return how many layers the fixed prefix has, and the rows behind it."""
        prefix, _ = split_fixed_prefix(network)
        key = description(prefix)
        if key is None:
            return len(prefix.layers), precompute(prefix, self._data)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = precompute(prefix, self._data)
        return len(prefix.layers), found


def description(prefix: Network) -> str | None:
    """Return what tells prefixes apart; None for layers with state, or of another package."""
    try:
        return None if prefix.state_dict() else repr(architecture(prefix))
    except UnsupportedError:
        return None


def _carried(prefix: str, tensors: Mapping[str, Tensor], steps: int) -> dict[str, Tensor]:
    named = {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}
    return named | ({f"{prefix}.step": torch.tensor(float(steps))} if "exp_avg" in tensors else {})
