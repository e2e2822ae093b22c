"""The configuration of one trial: every value of the spec chosen, nothing left open."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from clipless.plans.method import Method
from clipless.plans.schedule import Schedule
from clipless.privacy.allocation import NoiseAllocation
from clipless.privacy.events import Relation
from sweeper.errors import SpecError
from sweeper.spec.fields.messages import sentence
from sweeper.spec.settings import Optimizer


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TrialModel(_Part):
    """What is trained; ``options`` go to the architecture."""

    model_config = ConfigDict(extra="allow")

    architecture: str
    input_clip: float | None = None
    standardise: bool | None = None
    input_quantile: float | None = None
    weight_norm: float | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Width, depth and whatever else the architecture takes."""
        return dict(self.model_extra or {})


class TrialLoss(_Part):
    """A loss and its parameters."""

    model_config = ConfigDict(extra="allow")

    name: str

    @property
    def parameters(self) -> dict[str, Any]:
        """Temperature and whatever else the loss takes."""
        return dict(self.model_extra or {})


class TrialTraining(_Part):
    """How it is trained; ``None`` for what the optimiser or the method has no use for."""

    method: Method
    epochs: int | None = None
    batch_size: int
    learning_rate: float
    optimizer: Optimizer
    momentum: float | None = None
    schedule: Schedule = Schedule.CONSTANT
    averaging: float | None = None
    loss: TrialLoss
    sensitivity_fraction: float | None = None
    follow_weights: bool | None = None
    exact_norms: bool | None = None
    gradient_clip: float | None = None
    gradient_clip_schedule: str | None = None
    clip_quantile: float | None = None
    clip_norm: float | None = None
    ghost_clipping: bool | None = None
    copies: int | None = None
    flip: bool | None = None
    shift: int | None = None
    freeze_after: float | None = None
    freeze_layers: int | None = None
    micro_batch_size: int | None = None


class TrialPrivacy(_Part):
    """What is promised; ``None`` for the one of epsilon and noise multiplier that the plan computes."""

    epsilon: float | None = None
    noise_multiplier: float | None = None
    delta: float
    noise: NoiseAllocation | None = None
    relation: Relation
    accept_large_delta: bool = False


class TrialConfig(_Part):
    """One configuration, nested as in the spec."""

    model: TrialModel
    training: TrialTraining
    privacy: TrialPrivacy

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; ``from_json`` reads them back."""
        return self.model_dump(mode="json", exclude_none=True)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "TrialConfig":
        """Read a configuration.

        Raises:
            SpecError: a value is missing or wrong.
        """
        try:
            return cls.model_validate(dict(content))
        except ValidationError as error:
            raise SpecError(sentence(error, "the trial's configuration", cls)) from None
