"""The training that an audit attacks, and how much the attack may cost."""

from collections.abc import Callable, Hashable
from copy import deepcopy
from dataclasses import dataclass, field
from enum import StrEnum

import torch

from clipless.audits.planted import operand_shapes
from clipless.datasets import Split
from clipless.errors import AuditError
from clipless.losses import Loss
from clipless.network import Network
from clipless.plans.plan import Plan
from clipless.privacy.accounting.claim import claims
from clipless.privacy.randomness import RandomSource, SecureSource
from clipless.stacks.member import Member, step_form
from clipless.training.optimizers import Adam, Optimizer


class Effort(StrEnum):
    """How much an audit may cost.

    BRIEF: of a training like one that was audited (`AuditedTraining.form`), what may differ: whether its sums exceed
        its own sensitivities, and its noise the deviations that its own plan says.
    CHEAP: the step and the noise, well under a twentieth of a training; for every trial.
    THOROUGH: a longer search, and a training of its own with canaries; for points of a front.
    """

    BRIEF = "brief"
    CHEAP = "cheap"
    THOROUGH = "thorough"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedTraining:
    """A training whose claim is attacked: the arguments of `clipless.fit`, without its private rows.

    Attributes:
        subject: whose claim it is, in words for people.
        model: the network, initial or trained; audits work on copies of it.
        loss: the loss that ``plan`` was made for.
        plan: the claim, by ``plan.claims()``.
        rows: public or made up (`make_random_rows`); audits look at them and tell of them.
        optimizer: as for `clipless.fit`.
        micro_batch_size: as for `clipless.fit`.
        ghost_clipping: as for `clipless.fit`.
        exact_norms: as for `clipless.fit`.
        source: makes the randomness of a training; by default what `clipless.fit` takes.
        stacked: whether it is trained as a member of a stack (`clipless.stacks`); its step is then attacked there too.
        unit_rows: of each canary, where the claim is about privacy units of several rows.

    Raises:
        AuditError: the plan claims no privacy, the training never stacks, or canaries without rows.
    """

    subject: str
    model: Network
    loss: Loss
    plan: Plan
    rows: Split
    optimizer: Optimizer = field(default_factory=lambda: Adam(1e-3))
    micro_batch_size: int | None = None
    ghost_clipping: bool = False
    exact_norms: bool = False
    source: Callable[[], RandomSource] = SecureSource
    stacked: bool = False
    unit_rows: int = 1

    def __post_init__(self) -> None:
        if not self.unit_rows >= 1:
            raise AuditError(f"Expected canaries of at least one row, got unit_rows={self.unit_rows!r}")
        if not self.plan.noise_multiplier > 0.0:
            raise AuditError(f"Expected a claim of privacy to audit, got a {self.plan.method.value} plan without noise")
        if self.stacked and not self.stacks:
            raise AuditError(f"Expected a training that stacks, got {self.subject}, which is trained alone")

    @property
    def stacks(self) -> bool:
        """Whether such a training can be a member of a stack."""
        return not self.ghost_clipping and step_form(self.member(self.model, self.plan)) is not None

    def member(self, model: Network, plan: Plan) -> Member:
        """Return the training of another model, or with another plan, as a stack takes it."""
        return Member(
            model=model,
            loss=self.loss,
            plan=plan,
            optimizer=self.optimizer,
            exact_norms=self.exact_norms,
            source=self.source(),
        )

    def copy_model(self) -> Network:
        """Return a copy of the model that an audit may change."""
        return deepcopy(self.model)

    @property
    def form(self) -> Hashable:
        """The key of trainings whose steps run the same code on tensors of the same shapes."""
        layers = tuple(
            (type(layer), tuple((name, p.shape, p.requires_grad) for name, p in layer.named_parameters(recurse=False)))
            for layer in self.model.modules()
        )
        plan, units = self.plan, self.unit_rows
        options = (self.micro_batch_size, self.ghost_clipping, self.exact_norms, self.stacked, units)
        rules = (
            plan.method,
            plan.relation,
            plan.allocation,
            plan.follow_weights,
            type(plan.clipping),
            plan.freezing,
            self.source,
        )
        shapes = tuple(operand_shapes(self.model).items())
        return (layers, shapes, type(self.loss), type(self.optimizer), options, rules)

    @property
    def epsilon(self) -> float:
        """The claim for the whole plan."""
        event = self.plan.event()
        return claims(event, (event.steps,), self.plan.delta)[-1].epsilon  # kept: asked by each audit


def make_random_rows(model: Network, classes: int, count: int = 64, seed: int = 0) -> Split:
    """Return random rows of the shape of ``model`` and targets below ``classes``; (count, ...) and (count,)."""
    generator = torch.Generator().manual_seed(seed)
    here = next(model.parameters(), torch.zeros(()))
    x = torch.rand((count, *model.input_shape), generator=generator)
    return Split(x.to(here.device), torch.randint(classes, (count,), generator=generator).to(here.device))
