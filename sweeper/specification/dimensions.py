"""Every value that a trial needs, as a flat list of named dimensions, fixed or open.

A dimension's name is the dotted path in the spec and never changes with the number of choices:
``training.learning_rate``, ``training.loss`` (which one), ``training.loss.tau-cce.temperature`` (a parameter
of that choice). ``key`` is where the chosen value stands in the trial's configuration:
``training.loss.name``, ``training.loss.temperature``. A dimension with a condition exists only for some values of
another dimension.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import prod
from typing import Any

from sweeper.records import Scalar
from sweeper.specification.architectures import architecture_options
from sweeper.specification.fields._section import Condition, option_of
from sweeper.specification.fields.choices import LOSS_DEFAULTS, MODEL_OPTIONS
from sweeper.specification.fields.messages import bad_value, did_you_mean_or_known
from sweeper.specification.fields.ranges import Choices, Open, Range
from sweeper.specification.settings import WITH_RADIUS, ModelSettings, PrivacySettings, TrainingSettings


@dataclass(frozen=True, slots=True)
class Dimension:
    """One value that a trial needs."""

    name: str
    key: str
    value: Open
    when: Condition | None = None

    @property
    def space(self) -> Range | Choices | None:
        """What the search may choose from, ``None`` for a fixed value."""
        return self.value if isinstance(self.value, Range | Choices) else None


OF_THE_SWEEP = (
    "sweep_epsilon",
    "stages",
    "finals",
    "spare_epochs",
    "accounting",
    "score_noise",
    "final_scores",
    "curve_noise",
    "audit",
    "account",
)
"""Fields of the section ``privacy`` that are of the sweep, not of its trials."""


def list_dimensions(
    model: ModelSettings, training: TrainingSettings, privacy: PrivacySettings
) -> tuple[Dimension, ...]:
    """Return the dimensions, each after the one that its condition names."""
    of_privacy = _plain("privacy", privacy, leave_out=OF_THE_SWEEP)
    every = [*_model(model), *_training(training), *of_privacy]
    fixed = {
        dimension.name: dimension.value for dimension in every if dimension.space is None and dimension.when is None
    }
    return tuple(dimension for dimension in (_settle(dimension, fixed) for dimension in every) if dimension is not None)


def grid_size(dimensions: Sequence[Dimension]) -> int | None:
    """Return the number of configurations, ``None`` when there is no end of them."""
    return _product(_size(dimension, dimensions) for dimension in dimensions if dimension.when is None)


def _size(dimension: Dimension, dimensions: Sequence[Dimension]) -> int | None:
    if isinstance(dimension.space, Range):
        return dimension.space.size()
    below = [
        (s.when.values, _size(s, dimensions))
        for s in dimensions
        if s.when is not None and s.when.parent == dimension.name
    ]
    values = dimension.space.values if dimension.space is not None else (dimension.value,)
    branches = [_product(size for wanted, size in below if value in wanted) for value in values]
    return None if None in branches else sum(size for size in branches if size)


def proposal(dimensions: Sequence[Dimension], partial: Mapping[str, object]) -> dict[str, Scalar]:
    """Turn a partial configuration, written as in the spec, into values of open dimensions by name.

    Raises:
        PydanticCustomError: a key that is no dimension, or a value that the spec does not allow.
    """
    by_name = {dimension.name: dimension for dimension in dimensions}
    result: dict[str, Scalar] = {}
    for name, value in _flatten(partial):
        dimension = by_name.get(name)
        if dimension is None:
            raise bad_value(
                "a hyperparameter of this spec",
                path=name,
                got=value,
                remedy=did_you_mean_or_known(name, by_name),
            )
        if dimension.space is None:
            if value != (list(dimension.value) if isinstance(dimension.value, tuple) else dimension.value):
                raise bad_value(f"{dimension.value!r}, which the spec fixes", path=name, got=value)
            continue
        if value not in dimension.space:
            raise bad_value(f"a value within {dimension.space.to_plain()}", path=name, got=value)
        result[name] = value
    return result


def _flatten(partial: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in partial.items():
        name = prefix + key
        if isinstance(value, Mapping) and "name" in value:
            yield name, value["name"]
            parameters = {k: v for k, v in value.items() if k != "name"}
            yield from _flatten(parameters, f"{name}.{value['name']}.")
        elif isinstance(value, Mapping):
            yield from _flatten(value, f"{name}.")
        else:
            yield name, value


def _product(sizes: Iterable[int | None]) -> int | None:
    known = list(sizes)
    return None if None in known else prod(size for size in known if size)


def _settle(dimension: Dimension, fixed: Mapping[str, Open]) -> Dimension | None:
    """Drop a condition on a fixed dimension; ``None`` when it can never hold."""
    if dimension.when is None or dimension.when.parent not in fixed:
        return dimension
    return (
        Dimension(dimension.name, dimension.key, dimension.value)
        if fixed[dimension.when.parent] in dimension.when.values
        else None
    )


def _plain(section: str, settings: Any, leave_out: tuple[str, ...] = ()) -> Iterator[Dimension]:
    for field, declared in type(settings).model_fields.items():
        value = getattr(settings, field)
        if value is not None and field not in leave_out:
            name, option = f"{section}.{field}", option_of(declared)
            when = None if option is None else option.when
            yield Dimension(name, name, value.value if isinstance(value, Enum) else value, when)


def _names(values: Sequence[Any]) -> Open:
    names = tuple(variant.name for variant in values)
    return names[0] if len(names) == 1 else Choices(names)


def _model(model: ModelSettings) -> Iterator[Dimension]:
    yield Dimension("model.architecture", "model.architecture", _names(model.architecture))
    for dimension in _plain("model", model, leave_out=("architecture",)):
        field = dimension.name.rpartition(".")[2]
        if field == "weight_norm":
            yield replace(dimension, when=Condition("model.constraint", frozenset(WITH_RADIUS)))
            continue
        if field not in MODEL_OPTIONS:
            yield dimension
            continue
        takers = (
            v.name for v in model.architecture if field in architecture_options(v.name) and field not in v.parameters
        )
        yield Dimension(
            dimension.name, dimension.key, dimension.value, Condition("model.architecture", frozenset(takers))
        )
    for variant in model.architecture:
        when = Condition("model.architecture", frozenset({variant.name}))
        for field, value in variant.parameters.items():
            yield Dimension(f"model.architecture.{variant.name}.{field}", f"model.{field}", value, when)


def _training(training: TrainingSettings) -> Iterator[Dimension]:
    options = _plain("training", training, leave_out=("loss", "class_weights"))
    # Momentum comes last: what a seed proposes depends on the order in which a sampler is asked.
    yield from sorted(options, key=lambda dimension: dimension.name == "training.momentum")
    yield Dimension("training.loss", "training.loss.name", _names(training.loss))
    if training.class_weights is not None:
        yield Dimension("training.class_weights", "training.loss.class_weights", training.class_weights)
    for variant in training.loss:
        when = Condition("training.loss", frozenset({variant.name}))
        for field, value in {**LOSS_DEFAULTS[variant.name], **variant.parameters}.items():
            yield Dimension(f"training.loss.{variant.name}.{field}", f"training.loss.{field}", value, when)
