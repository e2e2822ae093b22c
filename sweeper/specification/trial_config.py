"""The configuration of one trial: every value of the spec chosen, nothing left open.

The options of the sections ``training`` and ``privacy`` are declared here, each once: the type that the code reads,
what the spec takes for it, its default there, and which trials have it. ``settings.py`` derives the sections from that,
``dimensions.py`` the search space.
"""

import enum
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from clipless.plans.method import Method, Schedule
from clipless.privacy.allocation import NoiseAllocation
from clipless.privacy.events import Relation
from sweeper.errors import SpecError
from sweeper.records import ConfigValues
from sweeper.specification.fields._section import ONE_COUNT, REQUIRED, Condition, Option
from sweeper.specification.fields.choices import COUNT, POSITIVE
from sweeper.specification.fields.fields import Flag, Name, Number
from sweeper.specification.fields.messages import sentences


class Optimizer(enum.Enum):
    """What turns a noised gradient into a step."""

    SGD = "sgd"
    ADAM = "adam"


# The schedule of a clipping norm that follows a private quantile.
ADAPTIVE = "adaptive"
_CLIP_SCHEDULES = (*(schedule.value for schedule in Schedule), ADAPTIVE)
_SHARE = Number(above=0, below=1)

_PRIVATE = Condition("training.method", frozenset(m.value for m in Method if m is not Method.NON_PRIVATE))
_BOUNDED = Condition("training.method", frozenset(m.value for m in Method if m.bounded))
_CLIPPED = Condition("training.method", frozenset({Method.DP_SGD.value}))
_SGD = Condition("training.optimizer", frozenset({Optimizer.SGD.value}))
_FOLLOWED = Condition("training.gradient_clip_schedule", frozenset({ADAPTIVE}))


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _WithOptions(_Part):
    model_config = ConfigDict(extra="allow")

    @property
    def options(self) -> dict[str, Any]:
        """Whatever else the architecture or the loss takes: its width, its temperature."""
        return dict(self.model_extra or {})


class TrialModel(_WithOptions):
    """What is trained; ``options`` go to the architecture."""

    architecture: str
    input_clip: float | None = None
    standardise: bool | None = None
    input_quantile: float | None = None
    weight_norm: float | None = None


class TrialLoss(_WithOptions):
    """A loss; ``options`` are its parameters."""

    name: str


class TrialTraining(_Part):
    """How it is trained; ``None`` for what the optimiser or the method has no use for.

    Each option of the section ``training`` but the loss is declared here, and nowhere else.
    """

    method: Annotated[Method, Option(Name(names=Method), "clipless")]
    epochs: Annotated[int | None, Option(COUNT)] = None
    batch_size: Annotated[int, Option(COUNT, 256)]
    learning_rate: Annotated[float, Option(POSITIVE, 0.01)]
    optimizer: Annotated[Optimizer, Option(Name(names=Optimizer), "adam")]
    momentum: Annotated[float | None, Option(Number(at_least=0, below=1), 0.9, _SGD)] = None
    schedule: Annotated[Schedule, Option(Name(names=Schedule), "constant")] = Schedule.CONSTANT
    averaging: Annotated[float | None, Option(_SHARE)] = None
    loss: TrialLoss
    sensitivity_fraction: Annotated[float | None, Option(Number(above=0, at_most=1), 1.0, _BOUNDED)] = None
    follow_weights: Annotated[bool | None, Option(bool, False, _BOUNDED)] = None
    exact_norms: Annotated[bool | None, Option(Flag(), when=_BOUNDED)] = None
    gradient_clip: Annotated[float | None, Option(POSITIVE, when=_BOUNDED)] = None
    gradient_clip_schedule: Annotated[str | None, Option(Name(names=_CLIP_SCHEDULES), when=_BOUNDED)] = None
    clip_quantile: Annotated[float | None, Option(_SHARE, when=_FOLLOWED)] = None
    clip_norm: Annotated[float | None, Option(POSITIVE, 1.0, _CLIPPED)] = None
    ghost_clipping: Annotated[bool | None, Option(bool, False, _CLIPPED)] = None
    copies: Annotated[int | None, Option(COUNT)] = None
    flip: Annotated[bool | None, Option(bool)] = None
    shift: Annotated[int | None, Option(Number(integer=True, at_least=0))] = None
    input_noise: Annotated[float | None, Option(Number(at_least=0))] = None
    freeze_after: Annotated[float | None, Option(_SHARE)] = None
    freeze_layers: Annotated[int | None, Option(COUNT)] = None
    micro_batch_size: Annotated[int | None, Option(ONE_COUNT)] = None


class TrialPrivacy(_Part):
    """What is promised; ``None`` for the one of epsilon and noise multiplier that the plan computes."""

    epsilon: Annotated[float | None, Option(POSITIVE, when=_PRIVATE)] = None
    noise_multiplier: Annotated[float | None, Option(POSITIVE, when=_PRIVATE)] = None
    delta: Annotated[float, Option(Number(above=0, below=1, fixed=True), REQUIRED)]
    noise: Annotated[NoiseAllocation | None, Option(Name(names=NoiseAllocation), "min-variance", _BOUNDED)] = None
    relation: Annotated[Relation, Option(Name(names=Relation, fixed=True), Relation.ADD_OR_REMOVE_ONE)]
    accept_large_delta: Annotated[bool, Option(bool, False)] = False


class TrialConfig(_Part):
    """One configuration, nested as in the spec."""

    model: TrialModel
    training: TrialTraining
    privacy: TrialPrivacy

    def to_json(self) -> ConfigValues:
        """Return JSON values; ``from_json`` reads them back."""
        return self.model_dump(mode="json", exclude_none=True)

    @classmethod
    def from_json(cls, content: Mapping[str, object]) -> "TrialConfig":
        """Read a configuration.

        Raises:
            SpecError: a value is missing or wrong.
        """
        try:
            return cls.model_validate(dict(content))
        except ValidationError as error:
            raise SpecError(*sentences(error, "the trial's configuration", cls, {})) from None
