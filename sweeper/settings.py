"""The sections of a spec, as pydantic models: unknown keys refused, nothing coerced.

A field typed ``Open`` takes a value, a list or a range; the others take one value for the whole sweep,
because points of different deltas, relations or evaluations could not be compared.
"""

import enum
import re
from inspect import signature
from math import isfinite
from types import MappingProxyType
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from clipless.datasets import ColourSpace, ColumnSplit, Evaluation, HashSplit, Preparation
from clipless.methods import Method
from clipless.optimizers import Schedule
from clipless.privacy.allocation import NoiseAllocation
from clipless.privacy.events import Relation
from clipless.projections import CONSTRAINTS
from clipless.zoo import ACTIVATIONS, POOLINGS
from sweeper import objectives
from sweeper.domains import Domain, Flag, Name, Number, Variant, Variants
from sweeper.errors import SpecError
from sweeper.hyperparameters import Choices, Open
from sweeper.mistakes import mistake


class Optimizer(enum.Enum):
    """What turns a noised gradient into a step."""

    SGD = "sgd"
    ADAM = "adam"


class Sampler(enum.Enum):
    """What proposes configurations."""

    TPE = "tpe"
    RANDOM = "random"


class Scheduler(enum.Enum):
    """What ends trials early."""

    NONE = "none"


_COUNT = Number(integer=True, at_least=1)
_POSITIVE = Number(above=0)
_FRACTION = Number(above=0, at_most=1)
_SHARE = Number(above=0, below=1, fixed=True)
_EVEN = Number(integer=True, at_least=2, multiple_of=2)
_TEMPERATURE: MappingProxyType[str, Domain] = MappingProxyType({"temperature": _POSITIVE})
_REDUCTION: MappingProxyType[str, Domain] = MappingProxyType({"reduction": Name(names=("sum", "mean"))})
_HINGE: MappingProxyType[str, Domain] = MappingProxyType({"margin": _POSITIVE, **_REDUCTION})
_CONSTRAINT = Name(names=tuple(CONSTRAINTS))
_ACTIVATION, _POOLING = Name(names=tuple(ACTIVATIONS)), Name(names=tuple(POOLINGS))
_SKIP = Number(at_least=0, below=1)
_COMMON: MappingProxyType[str, Domain] = MappingProxyType(
    {"activation": _ACTIVATION, "bias": Flag(), "constraint": _CONSTRAINT}
)
_MLP: MappingProxyType[str, Domain] = MappingProxyType({"width": _EVEN, "depth": _COUNT, **_COMMON})
_CONVNET: MappingProxyType[str, Domain] = MappingProxyType({**_MLP, "hidden": _EVEN, "pooling": _POOLING})
_PATCH_NET: MappingProxyType[str, Domain] = MappingProxyType(
    {"width": _EVEN, "depth": _COUNT, "hidden": _EVEN, "patch": _COUNT, "constraint": _CONSTRAINT}
)
_LENET: MappingProxyType[str, Domain] = MappingProxyType(
    {"width": _EVEN, "hidden": _EVEN, "pooling": _POOLING, **_COMMON}
)
_VGG: MappingProxyType[str, Domain] = MappingProxyType({**_CONVNET, "convolutions": _COUNT})
_RESNET: MappingProxyType[str, Domain] = MappingProxyType(
    {**_MLP, "blocks": _COUNT, "skip": _SKIP, "learned_skip": Flag()}
)
_WIDE_RESNET: MappingProxyType[str, Domain] = MappingProxyType({**_RESNET, "widening": _COUNT})
_MIXER: MappingProxyType[str, Domain] = MappingProxyType({"patch": _COUNT, "depth": _COUNT, "skip": _SKIP, **_COMMON})
_SCATTERING: MappingProxyType[str, Domain] = MappingProxyType(
    {
        "scales": Number(integer=True, at_least=1, at_most=4),
        "orientations": Number(integer=True, at_least=1, at_most=32),
        "order": Number(integer=True, at_least=1, at_most=2),
        "order0_gain": Number(at_least=0),
        "order2_gain": Number(at_least=0),
        "feature_clip": _POSITIVE,
        "hidden": Number(integer=True, at_least=0, multiple_of=2),
        "constraint": _CONSTRAINT,
    }
)

ARCHITECTURES: MappingProxyType[str, MappingProxyType[str, Domain]] = MappingProxyType(
    {
        "mlp": _MLP,
        "convnet": _CONVNET,
        "patch-net": _PATCH_NET,
        "lenet": _LENET,
        "vgg": _VGG,
        "resnet": _RESNET,
        "wide-resnet": _WIDE_RESNET,
        "mixer": _MIXER,
        "scattering": _SCATTERING,
    }
)
LOSSES: MappingProxyType[str, MappingProxyType[str, Domain]] = MappingProxyType(
    {
        "tau-cce": _TEMPERATURE,
        "tau-bce": _TEMPERATURE,
        "hinge": _HINGE,
        "kr": _REDUCTION,
        "hkr": MappingProxyType({"alpha": Number(at_least=0), **_HINGE}),
        "k-cosine": MappingProxyType({"floor": _POSITIVE}),
        "mae": _REDUCTION,
    }
)
DEFAULT_PARAMETERS: MappingProxyType[str, float | str] = MappingProxyType(
    {"temperature": 1.0, "margin": 1.0, "alpha": 10.0, "floor": 1.0, "reduction": "mean"}
)

_EVALUATION = Name(names=Evaluation, refused=("private",), fixed=True)
_LATER_SAMPLERS = ("gp", "nsga2", "nsga3", "quasi-random", "grid")
_LATER_SCHEDULERS = ("hyperband", "asha")


def _frozen_number(domain: Number, **changes: Any) -> Number:
    return Number(**{**domain.__dict__, **changes, "fixed": True})


_ONE_COUNT = _frozen_number(_COUNT)
_ONE_POSITIVE = _frozen_number(_POSITIVE)


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
    width: Annotated[Open, _EVEN] | None = None
    depth: Annotated[Open, _COUNT] | None = None
    hidden: Annotated[Open, _EVEN] | None = None
    patch: Annotated[Open, _COUNT] | None = None
    convolutions: Annotated[Open, _COUNT] | None = None
    blocks: Annotated[Open, _COUNT] | None = None
    widening: Annotated[Open, _COUNT] | None = None
    skip: Annotated[Open, _SKIP] | None = None
    learned_skip: Annotated[Open, Flag()] | None = None
    activation: Annotated[Open, _ACTIVATION] | None = None
    pooling: Annotated[Open, _POOLING] | None = None
    bias: Annotated[Open, Flag()] | None = None
    scales: Annotated[Open, _SCATTERING["scales"]] | None = None
    orientations: Annotated[Open, _SCATTERING["orientations"]] | None = None
    order: Annotated[Open, _SCATTERING["order"]] | None = None
    order0_gain: Annotated[Open, _SCATTERING["order0_gain"]] | None = None
    order2_gain: Annotated[Open, _SCATTERING["order2_gain"]] | None = None
    feature_clip: Annotated[Open, _SCATTERING["feature_clip"]] | None = None
    constraint: Annotated[Open, _CONSTRAINT] | None = None
    weight_norm: Annotated[Open, _POSITIVE] | None = None
    input_clip: Annotated[Open, _POSITIVE] | None = None

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
        return self


def _values(value: Open | None) -> tuple[Any, ...]:
    return value.values if isinstance(value, Choices) else (value,)


class TrainingSettings(Section):
    """How it is trained. ``batch_size`` is the expected size of a Poisson-sampled batch."""

    method: Annotated[Open, Name(names=Method)] = "clipless"
    epochs: Annotated[Open, _COUNT] | None = None
    batch_size: Annotated[Open, _COUNT] = 256
    learning_rate: Annotated[Open, _POSITIVE] = 0.01
    optimizer: Annotated[Open, Name(names=Optimizer)] = "adam"
    momentum: Annotated[Open, Number(at_least=0, below=1)] = 0.9
    schedule: Annotated[Open, Name(names=Schedule)] = "constant"
    averaging: Annotated[Open, Number(above=0, below=1)] | None = None
    loss: Annotated[tuple[Variant, ...], Variants(table=LOSSES)] = (Variant("tau-cce"),)
    sensitivity_fraction: Annotated[Open, _FRACTION] = 1.0
    follow_weights: bool = False
    gradient_clip: Annotated[Open, _POSITIVE] | None = None
    clip_norm: Annotated[Open, _POSITIVE] = 1.0
    ghost_clipping: bool = False
    micro_batch_size: Annotated[int, _ONE_COUNT] | None = None


class PrivacySettings(Section):
    """What is promised. Two of epsilon, noise_multiplier and training.epochs give the third."""

    epsilon: Annotated[Open, _POSITIVE] | None = None
    noise_multiplier: Annotated[Open, _POSITIVE] | None = None
    delta: Annotated[float, Number(above=0, below=1, fixed=True)]
    noise: Annotated[Open, Name(names=NoiseAllocation)] = "min-variance"
    relation: Annotated[Relation, Name(names=Relation, fixed=True)] = Relation.ADD_OR_REMOVE_ONE
    accept_large_delta: bool = False


def _objectives(value: Any) -> tuple[str, ...]:
    if not (isinstance(value, list | tuple) and value and all(isinstance(name, str) for name in value)):
        raise mistake("a list of objectives such as [epsilon, accuracy, certified@36/255]")
    for i, name in enumerate(value):
        try:
            objectives.parse(name)
        except SpecError as error:
            expected = str(error).removeprefix("Expected ").partition(", got ")[0]
            raise mistake(expected, path=str(i), got=name) from None
        if any(objectives.same(name, earlier) for earlier in value[:i]):
            raise mistake("each objective once", path=str(i), got=name)
    if all(name == "epsilon" for name in value):
        raise mistake("an objective beside epsilon", remedy="add accuracy")
    return tuple(value)


class SearchSettings(Section):
    """Which configurations are tried, and how long. ``trials`` left out: 16, or all if there are fewer."""

    objectives: Annotated[tuple[str, ...], BeforeValidator(_objectives)] = ("epsilon", "accuracy")
    sampler: Annotated[Sampler, Name(names=Sampler, later=_LATER_SAMPLERS, fixed=True)] = Sampler.TPE
    scheduler: Annotated[Scheduler, Name(names=Scheduler, later=_LATER_SCHEDULERS, fixed=True)] = Scheduler.NONE
    trials: Annotated[int, _ONE_COUNT] | None = None
    repeats: Annotated[int, _ONE_COUNT] = 1
    hours: Annotated[float, _ONE_POSITIVE] | None = None
    seed: Annotated[int, Number(integer=True, at_least=0, below=2**32, fixed=True)] = 0
    first: tuple[dict[str, Any], ...] = Field(default=(), strict=False)

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
