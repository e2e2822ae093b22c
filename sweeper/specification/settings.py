"""The sections ``model``, ``training``, ``privacy``, ``deployment`` and ``resources`` of a spec.

A field typed ``Open`` takes a value, a list or a range; the others take one value for the whole sweep, because points
of different deltas, relations or evaluations could not be compared. The options of ``training`` and ``privacy`` are
declared in ``trial_config.py``.
"""

import enum
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from clipless.projections import CONSTRAINTS
from sweeper.errors import SweeperError
from sweeper.specification.addresses import parse_address
from sweeper.specification.architectures import ArchitectureSettings, architecture_options
from sweeper.specification.fields._section import ONE_COUNT, ONE_POSITIVE, OpenSection, Section, open_section
from sweeper.specification.fields.choices import ARCHITECTURE_OPTIONS, LOSS_OPTIONS, MODEL_OPTIONS, POSITIVE
from sweeper.specification.fields.fields import (
    CLASS_WEIGHTS,
    Day,
    FieldType,
    Flag,
    FreeText,
    Name,
    Number,
    Variant,
    Variants,
)
from sweeper.specification.fields.messages import bad_value, locate
from sweeper.specification.fields.ranges import Choices, Open, to_plain
from sweeper.specification.plugins import built_in_accountings
from sweeper.specification.stages import USUAL_SPENDING, SpendingForm, StageSettings, form_of
from sweeper.specification.trial_config import ADAPTIVE, TrialPrivacy, TrialTraining

AUTO = "auto"
_USUAL_BUDGETS = "usual budgets lie between 1 and 8"
WITH_RADIUS = tuple(name for name, kind in CONSTRAINTS.items() if "radius" in signature(kind).parameters)


class ModelSettings(ArchitectureSettings):
    """What is trained. Left out: the architecture's own default."""

    weight_norm: Annotated[Open, POSITIVE] | None = None
    input_clip: Annotated[Open, POSITIVE] | None = None
    standardise: Annotated[Open, Flag()] | None = None
    input_quantile: Annotated[Open, Number(above=0, below=1)] | None = None

    @model_validator(mode="after")
    def _every_option_is_taken(self) -> Self:
        taken = [architecture_options(variant.name) for variant in self.architecture]
        for option, field in MODEL_OPTIONS.items():
            given = getattr(self, option)
            if given is None:
                continue
            for options in taken:
                if options.get(option, field) != field:
                    locate(options[option].parse, to_plain(given), option)
            if not any(option in options for options in taken):
                takers = [name for name, options in ARCHITECTURE_OPTIONS.items() if option in options]
                raise bad_value(
                    f"no {{name}} without an architecture that takes it ({', '.join(takers)})",
                    path=option,
                    got=given,
                )
        if self.weight_norm is not None and not any(name in WITH_RADIUS for name in _values(self.constraint)):
            raise bad_value(
                f"no {{name}} without a constraint that has one ({', '.join(WITH_RADIUS)})",
                path="weight_norm",
                got=self.weight_norm,
            )
        self._biases_have_norms()
        return self

    def _biases_have_norms(self) -> None:
        biased = {v.name: True in _values(v.parameters.get("bias", self.bias)) for v in self.architecture}
        for variant in self.architecture:
            norm = variant.parameters.get("bias_norm")
            if norm is not None and not biased[variant.name]:
                path = f"architecture.{variant.name}.bias_norm"
                raise bad_value("no {name} without bias: true", path=path, got=norm)
        if self.bias_norm is not None and not any(biased.values()):
            raise bad_value("no {name} without bias: true", path="bias_norm", got=self.bias_norm)


def _values(value: Open | None) -> tuple[Any, ...]:
    return value.values if isinstance(value, Choices) else (value,)


if TYPE_CHECKING:
    _TrainingOptions = OpenSection
    _PrivacyOptions = OpenSection
else:
    _TrainingOptions = open_section(TrialTraining)
    _PrivacyOptions = open_section(TrialPrivacy)


class TrainingSettings(_TrainingOptions):
    """How it is trained. ``batch_size`` is the expected size of a Poisson-sampled batch."""

    loss: Annotated[tuple[Variant, ...], Variants(table=LOSS_OPTIONS)] = (Variant("tau-cce"),)
    class_weights: Annotated[tuple[float, ...], CLASS_WEIGHTS] | None = None

    @model_validator(mode="after")
    def _nothing_without_what_it_needs(self) -> Self:
        if self.freeze_layers is not None and self.freeze_after is None:
            expected = "no {name} without freeze_after, the share of the steps before it"
            raise bad_value(expected, path="freeze_layers", got=self.freeze_layers)
        if self.copies is not None and not (self.flip or self.shift or self.input_noise):
            expected = "no {name} without flip, shift or input_noise: all would be the same"
            raise bad_value(expected, path="copies", got=self.copies)
        if self.gradient_clip_schedule is not None and self.gradient_clip is None:
            expected = "no {name} without gradient_clip, the norm that it starts from"
            raise bad_value(expected, path="gradient_clip_schedule", got=self.gradient_clip_schedule)
        if self.clip_quantile is not None and ADAPTIVE not in _values(self.gradient_clip_schedule):
            expected = f"no {{name}} without gradient_clip_schedule: {ADAPTIVE}"
            raise bad_value(expected, path="clip_quantile", got=self.clip_quantile)
        return self


class AccountName(FieldType):
    """The address of an account: a file or a database, and behind ``#`` the name of the account in it."""

    def parse(self, value: Any) -> str:
        """Return the address."""
        expected = "an account as FILE#NAME or postgresql://HOST/DATABASE#NAME, without a password"
        if not isinstance(value, str):
            raise bad_value(expected)
        try:
            return str(parse_address(value))
        except SweeperError:  # the value may have a password
            raise bad_value(expected, got=None) from None

    def json_schema(self) -> dict[str, Any]:
        """A text with a name behind ``#``."""
        return {"type": "string", "pattern": "^.+#[A-Za-z0-9][A-Za-z0-9._-]*$"}


class AuditEffort(enum.Enum):
    """How hard the promises of front points are attacked at the end of a sweep."""

    NONE = "none"
    CHEAP = "cheap"
    THOROUGH = "thorough"


class Finals(FieldType):
    """How many trials the last stage has, or ``auto``: one, after a small one for the low end of the front."""

    def parse(self, value: Any) -> int | str:
        """Return the value."""
        if value == AUTO:
            return AUTO
        if isinstance(value, str):
            raise bad_value(f"{AUTO}, or an integer {{name}} >= 1")
        return int(ONE_COUNT.one(value))

    def json_schema(self) -> dict[str, Any]:
        """A number or that word."""
        return {"anyOf": [ONE_COUNT.json_schema(), {"const": AUTO}]}


class PrivacySettings(_PrivacyOptions):
    """What is promised. Two of epsilon, noise_multiplier and training.epochs give the third.

    With ``sweep_epsilon``, divided into slots, ``training.epochs`` is enough: each trial's noise is that of its stage.
    ``audit``, left out: cheap.
    """

    sweep_epsilon: Annotated[float, replace(ONE_POSITIVE, remedy=_USUAL_BUDGETS)] | None = None
    stages: tuple[StageSettings, ...] | None = Field(default=None, strict=False, min_length=1)
    finals: Annotated[int | str, Finals()] | None = None
    spare_epochs: Annotated[int, Number(integer=True, at_least=0, fixed=True)] | None = None
    accounting: Annotated[str, Name(names=built_in_accountings(), fixed=True)] | None = None
    score_noise: Annotated[float, ONE_POSITIVE] | None = None
    final_scores: Annotated[int, ONE_COUNT] | None = None
    audit: Annotated[AuditEffort, Name(names=AuditEffort, fixed=True)] | None = None

    curve_noise: Annotated[float, ONE_POSITIVE] | None = None
    account: Annotated[str, AccountName()] | None = None

    @property
    def last_trials(self) -> int:
        """The number of trials of the last stage, where the spec gives no stages."""
        return self.finals if isinstance(self.finals, int) else 1

    @property
    def budget(self) -> str:
        """The way in which the budget of the sweep is kept, ``composition`` without one."""
        return "composition" if self.sweep_epsilon is None else self.accounting or USUAL_SPENDING

    @property
    def form(self) -> SpendingForm:
        """What a spec has to look like for that way."""
        return form_of(self.budget)


class StackSize(FieldType):
    """How many trials of one shape are trained as one: a number, or None for ``auto``, as many as pay."""

    def parse(self, value: Any) -> int | None:
        """Return the number."""
        if value is None or value == AUTO:
            return None
        if isinstance(value, str):
            raise bad_value(f"{AUTO}, or an integer {{name}} >= 1")
        return int(ONE_COUNT.one(value))

    def json_schema(self) -> dict[str, Any]:
        """A number or that word."""
        return {"anyOf": [ONE_COUNT.json_schema(), {"const": AUTO}]}


class DeploymentSettings(Section):
    """What only people know of the model that leaves: texts, copied to its card. No training depends on them."""

    product: Annotated[str, FreeText()] | None = None
    description: Annotated[str, FreeText()] | None = None
    curator: Annotated[str, FreeText()] | None = None
    contact: Annotated[str, FreeText()] | None = None
    purpose: Annotated[str, FreeText()] | None = None
    intended_use: Annotated[str, FreeText()] | None = None
    region: Annotated[str, FreeText()] | None = None
    sector: Annotated[str, FreeText()] | None = None
    published: Annotated[str, Day()] | None = None
    retention: Annotated[str, FreeText()] | None = None
    collection: Annotated[str, FreeText()] | None = None
    access: Annotated[str, FreeText()] | None = None

    def to_plain(self) -> dict[str, str]:
        """Return what is said, by key."""
        return {name: str(value) for name, value in self.model_dump().items() if value is not None}


class ResourceSettings(Section):
    """What one trial may use, and how many run at once (left out: as many as fit).

    ``stack``: how many trials of one shape a process trains as one, 1 for none; None, or ``auto``, for as many as pay.
    """

    cpus: Annotated[float, ONE_POSITIVE] = 1.0
    gpus: Annotated[float, Number(at_least=0, fixed=True)] = 0.0
    concurrent: Annotated[int, ONE_COUNT] | None = None
    stack: Annotated[int | None, StackSize()] = None

    @model_validator(mode="after")
    def _one_device(self) -> Self:
        if self.gpus > 1:
            remedy = "set it to 1, or to a part of one: further GPUs train more trials at a time"
            raise bad_value("{name} <= 1, for a trial trains on one device", path="gpus", got=self.gpus, remedy=remedy)
        return self

    @property
    def threads(self) -> int:
        """The threads of a trial's process."""
        return max(1, int(self.cpus))
