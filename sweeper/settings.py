"""The sections of a spec, as pydantic models: unknown keys refused, nothing coerced.

A field typed ``Open`` takes a value, a list or a range; the others take one value for the whole sweep,
because points of different deltas, relations or evaluations could not be compared.
"""

import enum
import re
from inspect import signature
from math import isfinite
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from clipless.datasets import ColourSpace, ColumnSplit, Evaluation, HashSplit, Preparation
from clipless.methods import Method
from clipless.optimizers import Schedule
from clipless.privacy.allocation import NoiseAllocation
from clipless.privacy.events import Relation
from clipless.projections import CONSTRAINTS
from sweeper.choices import (
    ACTIVATION,
    ARCHITECTURES,
    CONSTRAINT,
    COUNT,
    EVEN,
    LOSSES,
    POOLING,
    POSITIVE,
    SKIP,
)
from sweeper.domains import ClassWeights, Domain, Flag, Name, Number, Variant, Variants
from sweeper.errors import SpecError
from sweeper.hyperparameters import Choices, Open
from sweeper.mistakes import mistake
from sweeper.objectives import metric_list, objective_list, same
from sweeper.outcomes import Constraint, parse_constraint


class Optimizer(enum.Enum):
    """What turns a noised gradient into a step."""

    SGD = "sgd"
    ADAM = "adam"


class Sampler(enum.Enum):
    """What proposes configurations."""

    TPE = "tpe"
    GP = "gp"
    NSGA2 = "nsga2"
    NSGA3 = "nsga3"
    QUASI_RANDOM = "quasi-random"
    RANDOM = "random"
    GRID = "grid"


class Scheduler(enum.Enum):
    """What ends trials early."""

    NONE = "none"
    HYPERBAND = "hyperband"
    ASHA = "asha"


# The schedule of a clipping norm that follows a private quantile.
ADAPTIVE = "adaptive"

_SHARE = Number(above=0, below=1, fixed=True)
_FRACTION = Number(above=0, at_most=1)
_EVALUATION = Name(names=Evaluation, refused=("private",), fixed=True)


def _frozen_number(domain: Number, **changes: Any) -> Number:
    return Number(**{**domain.__dict__, **changes, "fixed": True})


_ONE_COUNT = _frozen_number(COUNT)
_ONE_POSITIVE = _frozen_number(POSITIVE)


class Section(BaseModel):
    """Base of the sections."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, validate_default=True)


class Classes(Domain):
    """The labels in order; numbers count as their text."""

    def parse(self, value: Any) -> tuple[str, ...]:
        """Return the labels."""
        labels = isinstance(value, list | tuple) and all(type(label) in (str, int) for label in value)
        texts = tuple(map(str, value)) if labels else ()
        if not len(set(texts)) == len(texts) >= 2:
            raise mistake("two or more distinct labels, texts or whole numbers")
        return texts

    def json_schema(self) -> dict[str, Any]:
        """Two or more texts or whole numbers."""
        return {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 2, "uniqueItems": True}


class Centre(Domain):
    """One number, or one for each channel."""

    def parse(self, value: Any) -> tuple[float, ...]:
        """Return the numbers."""
        numbers = value if isinstance(value, list | tuple) else [value]
        if not numbers or any(type(number) not in (int, float) or not isfinite(number) for number in numbers):
            raise mistake("a number to subtract, or a list with one for each channel")
        return tuple(map(float, numbers))

    def json_schema(self) -> dict[str, Any]:
        """A number or several."""
        number = {"type": "number"}
        return {"anyOf": [number, {"type": "array", "items": number, "minItems": 1}]}


class SplitShare(Domain):
    """A fraction of the rows, or the values of the split column that mark them."""

    def parse(self, value: Any) -> float | tuple[str, ...]:
        """Return the fraction, or the values."""
        if isinstance(value, list | tuple):
            if not (value and all(isinstance(text, str) for text in value)):
                raise mistake("one or more texts that mark a split")
            return tuple(value)
        return float(_SHARE.one(value))

    def json_schema(self) -> dict[str, Any]:
        """A fraction, or texts."""
        return {"anyOf": [_SHARE.json_schema(), {"type": "array", "items": {"type": "string"}, "minItems": 1}]}


class SplitSettings(Section):
    """How rows are assigned: fractions by keyed hash, or a ``column`` and the values that mark each split."""

    train: Annotated[tuple[str, ...], SplitShare()] | None = None
    validation: Annotated[float | tuple[str, ...], SplitShare()] | None = None
    test: Annotated[float | tuple[str, ...], SplitShare()] | None = None
    salt: str | None = None
    column: str | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        if self.column is not None:
            for part, values in parts.items():
                if not isinstance(values, tuple):
                    raise mistake(f"the values of column {self.column!r} that mark {part} rows", path=part, got=values)
            if self.salt is not None:
                raise mistake("no salt for a declared split", path="salt", got=self.salt, remedy="leave it out")
            marks = [mark for values in parts.values() if isinstance(values, tuple) for mark in values]
            if len(set(marks)) < len(marks):
                raise mistake("each value in one split only", got=marks)
            return self
        for part, values in parts.items():
            if isinstance(values, tuple) or (part == "train" and values is not None):
                remedy = "name the column, or give fractions for validation and test"
                raise mistake("splits.column for declared values", path=part, got=values, remedy=remedy)
        if not sum(share for share in (self.validation, self.test) if isinstance(share, float)) < 1:
            raise mistake("validation + test < 1", got=[self.validation, self.test])
        return self

    def splitting(self) -> HashSplit | ColumnSplit:
        """Return what the data sets are loaded with."""
        if self.column is not None:
            marks = {"train": self.train, "validation": self.validation, "test": self.test}
            return ColumnSplit(column=self.column, **marks)  # type: ignore[arg-type]
        given = {"validation": self.validation, "test": self.test, "salt": self.salt}
        return HashSplit(**{key: value for key, value in given.items() if value is not None})  # type: ignore[arg-type]


class DataSettings(Section):
    """A bundled data set by ``name``, or a file of one's own by ``path`` with its declarations."""

    name: str | None = None
    path: str | None = None
    target: str | None = None
    evaluation: Annotated[Evaluation, _EVALUATION] | None = None
    unit: str | None = None
    ranges: str | None = None
    classes: Annotated[tuple[str, ...], Classes()] | None = None
    splits: SplitSettings | None = None
    colour: Annotated[ColourSpace, Name(names=ColourSpace, fixed=True)] | None = None
    centre: Annotated[tuple[float, ...], Centre()] | None = None
    normalise: Annotated[float, _ONE_POSITIVE] | None = None

    def preparation(self) -> Preparation | None:
        """Return what is done to each example, ``None`` for nothing."""
        made = Preparation(colour=self.colour or ColourSpace.RGB, centre=self.centre or (), normalise=self.normalise)
        return None if made == Preparation() else made

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.name is None) == (self.path is None):
            raise mistake("exactly one of name and path", got=[self.name, self.path])
        own = {"target": self.target, "unit": self.unit, "ranges": self.ranges, "classes": self.classes}
        given = [key for key, value in own.items() if value is not None and value != "row"]
        if self.path is None and given:
            expected = f"no {{name}} for the bundled data set {self.name}, which declares its own"
            raise mistake(expected, path=given[0], got=own[given[0]], remedy="leave it out")
        if self.path is not None and self.evaluation is None:
            raise mistake("{name} to say what the rows held back are", path="evaluation", got=None, remedy="add it")
        return self


WITH_RADIUS = tuple(name for name, kind in CONSTRAINTS.items() if "radius" in signature(kind).parameters)


class ModelSettings(Section):
    """What is trained. Left out: the architecture's own default."""

    architecture: Annotated[tuple[Variant, ...], Variants(table=ARCHITECTURES)]
    width: Annotated[Open, EVEN] | None = None
    depth: Annotated[Open, COUNT] | None = None
    hidden: Annotated[Open, EVEN] | None = None
    patch: Annotated[Open, COUNT] | None = None
    convolutions: Annotated[Open, COUNT] | None = None
    blocks: Annotated[Open, COUNT] | None = None
    widening: Annotated[Open, COUNT] | None = None
    skip: Annotated[Open, SKIP] | None = None
    learned_skip: Annotated[Open, Flag()] | None = None
    activation: Annotated[Open, ACTIVATION] | None = None
    pooling: Annotated[Open, POOLING] | None = None
    bias: Annotated[Open, Flag()] | None = None
    bias_norm: Annotated[Open, POSITIVE] | None = None
    scales: Annotated[Open, ARCHITECTURES["scattering"]["scales"]] | None = None
    orientations: Annotated[Open, ARCHITECTURES["scattering"]["orientations"]] | None = None
    order: Annotated[Open, ARCHITECTURES["scattering"]["order"]] | None = None
    order0_gain: Annotated[Open, ARCHITECTURES["scattering"]["order0_gain"]] | None = None
    order2_gain: Annotated[Open, ARCHITECTURES["scattering"]["order2_gain"]] | None = None
    feature_clip: Annotated[Open, ARCHITECTURES["scattering"]["feature_clip"]] | None = None
    constraint: Annotated[Open, CONSTRAINT] | None = None
    weight_norm: Annotated[Open, POSITIVE] | None = None
    input_clip: Annotated[Open, POSITIVE] | None = None
    standardise: Annotated[Open, Flag()] | None = None
    input_quantile: Annotated[Open, Number(above=0, below=1)] | None = None

    @model_validator(mode="after")
    def _somebody_takes_each_option(self) -> Self:
        for option in {name: None for options in ARCHITECTURES.values() for name in options}:
            given = getattr(self, option)
            if given is not None and not any(option in ARCHITECTURES[v.name] for v in self.architecture):
                takers = [name for name, options in ARCHITECTURES.items() if option in options]
                raise mistake(
                    f"no {{name}} without an architecture that takes it ({', '.join(takers)})",
                    path=option,
                    got=given,
                )
        if self.weight_norm is not None and not any(name in WITH_RADIUS for name in _values(self.constraint)):
            raise mistake(
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
                raise mistake("no {name} without bias: true", path=path, got=norm)
        if self.bias_norm is not None and not any(biased.values()):
            raise mistake("no {name} without bias: true", path="bias_norm", got=self.bias_norm)


def _values(value: Open | None) -> tuple[Any, ...]:
    return value.values if isinstance(value, Choices) else (value,)


class TrainingSettings(Section):
    """How it is trained. ``batch_size`` is the expected size of a Poisson-sampled batch."""

    method: Annotated[Open, Name(names=Method)] = "clipless"
    epochs: Annotated[Open, COUNT] | None = None
    batch_size: Annotated[Open, COUNT] = 256
    learning_rate: Annotated[Open, POSITIVE] = 0.01
    optimizer: Annotated[Open, Name(names=Optimizer)] = "adam"
    momentum: Annotated[Open, Number(at_least=0, below=1)] = 0.9
    schedule: Annotated[Open, Name(names=Schedule)] = "constant"
    averaging: Annotated[Open, Number(above=0, below=1)] | None = None
    loss: Annotated[tuple[Variant, ...], Variants(table=LOSSES)] = (Variant("tau-cce"),)
    class_weights: Annotated[tuple[float, ...], ClassWeights()] | None = None
    sensitivity_fraction: Annotated[Open, _FRACTION] = 1.0
    follow_weights: bool = False
    exact_norms: Annotated[Open, Flag()] | None = None
    gradient_clip: Annotated[Open, POSITIVE] | None = None
    gradient_clip_schedule: Annotated[Open, Name(names=(*(s.value for s in Schedule), ADAPTIVE))] | None = None
    clip_quantile: Annotated[Open, Number(above=0, below=1)] | None = None
    clip_norm: Annotated[Open, POSITIVE] = 1.0
    ghost_clipping: bool = False
    copies: Annotated[Open, COUNT] | None = None
    flip: bool | None = None
    shift: Annotated[Open, Number(integer=True, at_least=0)] | None = None
    freeze_after: Annotated[Open, Number(above=0, below=1)] | None = None
    freeze_layers: Annotated[Open, COUNT] | None = None
    micro_batch_size: Annotated[int, _ONE_COUNT] | None = None

    @model_validator(mode="after")
    def _layers_and_when(self) -> Self:
        if self.freeze_layers is not None and self.freeze_after is None:
            expected = "no {name} without freeze_after, the share of the steps before it"
            raise mistake(expected, path="freeze_layers", got=self.freeze_layers)
        return self

    @model_validator(mode="after")
    def _copies_that_differ(self) -> Self:
        if self.copies is not None and not (self.flip or self.shift):
            raise mistake("no {name} without flip or shift: all would be the same", path="copies", got=self.copies)
        return self

    @model_validator(mode="after")
    def _a_norm_to_move(self) -> Self:
        if self.gradient_clip_schedule is not None and self.gradient_clip is None:
            expected = "no {name} without gradient_clip, the norm that it starts from"
            raise mistake(expected, path="gradient_clip_schedule", got=self.gradient_clip_schedule)
        if self.clip_quantile is not None and ADAPTIVE not in _values(self.gradient_clip_schedule):
            expected = f"no {{name}} without gradient_clip_schedule: {ADAPTIVE}"
            raise mistake(expected, path="clip_quantile", got=self.clip_quantile)
        return self


class PrivacySettings(Section):
    """What is promised. Two of epsilon, noise_multiplier and training.epochs give the third."""

    epsilon: Annotated[Open, POSITIVE] | None = None
    noise_multiplier: Annotated[Open, POSITIVE] | None = None
    delta: Annotated[float, Number(above=0, below=1, fixed=True)]
    noise: Annotated[Open, Name(names=NoiseAllocation)] = "min-variance"
    relation: Annotated[Relation, Name(names=Relation, fixed=True)] = Relation.ADD_OR_REMOVE_ONE
    accept_large_delta: bool = False
    sweep_epsilon: Annotated[float, _ONE_POSITIVE] | None = None


class SearchSettings(Section):
    """Which configurations are tried, and how long. ``trials`` left out: 16, or all if there are fewer."""

    objectives: Annotated[tuple[str, ...], BeforeValidator(objective_list)] = ("epsilon", "accuracy")
    metrics: Annotated[tuple[str, ...], BeforeValidator(metric_list)] = ()
    constraints: tuple[str, ...] = Field(default=(), strict=False)
    sampler: Annotated[Sampler, Name(names=Sampler, fixed=True)] = Sampler.TPE
    scheduler: Annotated[Scheduler, Name(names=Scheduler, fixed=True)] = Scheduler.NONE
    eta: Annotated[int, Number(integer=True, at_least=2, fixed=True)] = 3
    grace: Annotated[int, _ONE_COUNT] = 1
    brackets: Annotated[int, _ONE_COUNT] = 1
    trials: Annotated[int, _ONE_COUNT] | None = None
    repeats: Annotated[int, _ONE_COUNT] = 1
    hours: Annotated[float, _ONE_POSITIVE] | None = None
    seed: Annotated[int, Number(integer=True, at_least=0, below=2**32, fixed=True)] = 0
    first: tuple[dict[str, Any], ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _metrics_beside_objectives(self) -> Self:
        for i, name in enumerate(self.metrics):
            if any(same(name, objective) for objective in self.objectives):
                raise mistake("no metric that is an objective", path=f"metrics.{i}", got=name, remedy="leave it out")
        return self

    @property
    def outcomes(self) -> tuple[Constraint, ...]:
        """The constraints, each under the name that its value is recorded by."""
        return tuple(parse_constraint(text, self._recorded) for text in self.constraints)

    @property
    def _recorded(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(("epsilon", "accuracy", *self.objectives, *self.metrics)))

    @model_validator(mode="after")
    def _constraints_that_can_be_read(self) -> Self:
        for i, text in enumerate(self.constraints):
            try:
                parse_constraint(text, self._recorded)
            except SpecError as error:
                expected = str(error).removeprefix("Expected ").partition(", got ")[0]
                raise mistake(expected, path=f"constraints.{i}", got=text) from None
        return self

    @model_validator(mode="after")
    def _one_repeat(self) -> Self:
        if self.repeats != 1:
            expected, remedy = (
                "repeats = 1",
                "several seeds per configuration are not available in this version",
            )
            raise mistake(expected, path="repeats", got=self.repeats, remedy=remedy)
        return self


class ResourceSettings(Section):
    """What one trial may use, and how many run at once (left out: as many as fit)."""

    cpus: Annotated[float, _ONE_POSITIVE] = 1.0
    gpus: Annotated[float, Number(at_least=0, fixed=True)] = 0.0
    concurrent: Annotated[int, _ONE_COUNT] | None = None


_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class SweepName(Domain):
    """A name that can be a folder and an experiment."""

    def parse(self, value: Any) -> str:
        """Return the name."""
        if isinstance(value, str) and _FILE_NAME.fullmatch(value):
            return value
        raise mistake("a {name} of up to 100 letters, digits, '.', '_' and '-', a letter or digit first")

    def json_schema(self) -> dict[str, Any]:
        """Text of that pattern."""
        return {"type": "string", "pattern": f"^{_FILE_NAME.pattern}$"}
