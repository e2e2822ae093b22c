"""The training of one member of a stack: all that is not the same for every member.

Shape letters: B batch, D all trainable entries.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Protocol, final
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from clipless.certificates.outputs import Outputs
from clipless.datasets import Split
from clipless.errors import PlanError, UnsupportedError
from clipless.network import Network, precompute, split_fixed_prefix
from clipless.plans.trainable import check_trainable
from clipless.privacy.randomness import SecureSource
from clipless.saving import architecture
from clipless.stacks.descent import carried_names, stored_names
from clipless.stacks.member import Member
from clipless.training.checkpoint import TrainingState, state_to_resume
from clipless.training.noise_scales import NoiseScales
from clipless.training.placing import uses_features
from clipless.training.private_training import Epoch, PrivateTraining
from clipless.training.trainer import check_training


@final
class MemberTraining(PrivateTraining):
    """One member in training.

    Attributes:
        member: what is trained.
        entries: (D,) float32 by name: ``weights``, and what the optimiser carries; rows of the stack's tensors.
        data: what passes look up: the rows, or their features behind the fixed prefix.
        first: number of layers that the rows of ``data`` have passed already.
        outputs: of the epoch that is shown next, see `clipless.training.private_training.Epoch`.
        yielded: the last epoch that was shown.
    """

    def __init__(self, member: Member, data: Split, micro_batch_size: int, features: "PrefixFeatures") -> None:
        plan = member.plan
        model = check_training(member.model, member.loss, data, plan, member.augmentation)
        self.member = member
        state = state_to_resume(member.checkpoint, plan, member.resumes_from)
        super().__init__(
            *(model, member.loss, data, plan, member.source or SecureSource()),
            schedule=member.schedule,
            learning_rate=member.optimizer.learning_rate,
            averaging=member.averaging,
            averages=member.averages,
            copies=member.copies,
            micro_batch_size=micro_batch_size,
            state=state,
        )
        self.first, self.data = features.of(model) if uses_features(data, member.augmentation) else (0, data)
        weights_D = torch.cat([p.detach().flatten() for p in self.parameters.values()])
        self.entries = {"weights": weights_D}
        self.entries |= {name: torch.zeros_like(weights_D) for name in carried_names(member.optimizer)}
        self.yielded = 0
        self.outputs: Mapping[str, Outputs] = {}
        self._rested: dict[str, int] = {}  # in which steps what rests had moved
        if state is not None:
            self.resume(state)

    @cached_property
    def curve(self) -> list[float]:
        """Epsilon after each epoch."""
        return self.plan.epsilon_curve()

    def augment(self, x: Tensor) -> Tensor:
        """Return the copies of rows, those of one row one behind the other."""
        augmentation = self.member.augmentation
        return x if augmentation is None else augmentation.apply(x, self.source)

    def place(self, entries: Mapping[str, Tensor], scales_D: NoiseScales) -> None:
        """Move to rows of a stack's tensors, which hold the same entries; the network's parameters become views."""
        self.entries = dict(entries)
        self.hold_noise_scales(scales_D)
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
        check_trainable(self.model)
        self.check_layers()
        pieces = self.entries["weights"].split(self.sizes)
        if any(p.data_ptr() != piece.data_ptr() for p, piece in zip(self.parameters.values(), pieces, strict=True)):
            raise PlanError("Expected the layers that training began with, found others; make a new plan for them")

    def count_step(self, resting: frozenset[str] = frozenset()) -> None:
        """Count a step in which some parameters rested, and follow it with every average."""
        for name in resting:
            self._rested.setdefault(name, self.steps)
        super().count_step()

    @contextmanager
    def shown(self) -> Iterator[Epoch]:
        """Yield the epoch; the model holds its shown weights inside the block, and keeps them after the last one."""
        self.yielded = self.epoch
        outputs, self.outputs = self.outputs, {}
        with self.show_epoch(self.curve[self.epoch - 1], outputs) as epoch:
            yield epoch

    def each_shown(self) -> Generator[str, None, None]:
        """Let the model hold, one after the other, all that an epoch shows; yield the average, "" for the epoch's own.

        Close the iterator to put the weights back.
        """
        with self.averages.shown():
            yield ""
            for name, held in self.averages.on_request().items():
                with held():
                    yield name

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """Return the optimiser's tensors, as those of a training alone."""
        pieces = {name: self.entries[name].split(self.sizes) for name in stored_names(self.member.optimizer)}
        tensors: dict[str, Tensor] = {}
        for i, (name, parameter) in enumerate(self.parameters.items()):
            moved = self._rested.get(name, self.steps)
            tensors |= _name_tensors(
                f"optimizer.{i}", {key: p[i].view_as(parameter) for key, p in pieces.items()}, moved
            )
        return tensors

    def resume(self, state: TrainingState) -> None:
        """Take over a state."""
        super().resume(state)
        for i, name in enumerate(self.parameters):
            held = state.under(f"optimizer.{i}")
            for key in stored_names(self.member.optimizer):
                self.entries[key].split(self.sizes)[i].copy_(held[key].flatten())
            if "step" in held and held["step"].item() < self.steps:
                self._rested[name] = int(held["step"].item())


class PrefixFeatures(Protocol):
    """Features of the rows behind the fixed prefix of a network."""

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
    """Return a text that tells prefixes apart; None for layers with state, or of another package."""
    try:
        return None if prefix.state_dict() else repr(architecture(prefix))
    except UnsupportedError:
        return None


def _name_tensors(prefix: str, tensors: Mapping[str, Tensor], steps: int) -> dict[str, Tensor]:
    named = {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}
    return named | ({f"{prefix}.step": torch.tensor(float(steps))} if "exp_avg" in tensors else {})
