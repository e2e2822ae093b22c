"""What an audit is asked about: a training, and how much may be spent on attacking it."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from enum import StrEnum

import torch

from clipless.datasets import Split
from clipless.errors import AuditError
from clipless.losses import Loss
from clipless.network import Network
from clipless.plans.plan import Plan
from clipless.privacy.randomness import RandomSource, SecureSource
from clipless.training.optimizers import Adam, Optimizer


class Effort(StrEnum):
    """How much an audit may cost.

    CHEAP: the step and the noise, well under a twentieth of a training; for every trial.
    THOROUGH: a longer search, and a training of its own with canaries; for points of a front.
    """

    CHEAP = "cheap"
    THOROUGH = "thorough"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedTraining:
    """A training whose claim is attacked: what `clipless.fit` was given, without its private rows.

    Attributes:
        subject: whose claim it is, in words for people.
        model: the network, initial or trained; audits work on copies of it.
        loss: the loss that ``plan`` was made for.
        plan: the claim, by ``plan.claims()``.
        rows: public or made up (`made_up_rows`); audits look at them and tell of them.
        optimizer: as for `clipless.fit`.
        micro_batch_size: as for `clipless.fit`.
        ghost_clipping: as for `clipless.fit`.
        exact_norms: as for `clipless.fit`.
        source: makes the randomness of a training; by default what `clipless.fit` takes.

    Raises:
        AuditError: the plan claims no privacy.
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

    def __post_init__(self) -> None:
        if not self.plan.noise_multiplier > 0.0:
            raise AuditError(f"Expected a claim of privacy to audit, got a {self.plan.method.value} plan without noise")

    def copied_model(self) -> Network:
        """Return a copy of the model that an audit may change."""
        return deepcopy(self.model)

    @property
    def epsilon(self) -> float:
        """The claim for the whole plan."""
        return self.plan.claims()[-1].epsilon


def made_up_rows(model: Network, classes: int, count: int = 64, seed: int = 0) -> Split:
    """Return random rows of the shape of ``model`` and targets below ``classes``; (count, ...) and (count,)."""
    generator = torch.Generator().manual_seed(seed)
    here = next(model.parameters(), torch.zeros(()))
    x = torch.rand((count, *model.input_shape), generator=generator)
    return Split(x.to(here.device), torch.randint(classes, (count,), generator=generator).to(here.device))
