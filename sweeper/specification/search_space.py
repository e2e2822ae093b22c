"""The values that a sweep leaves open: what the search is asked for, and what its answers become.

A value exists only where it means something: the temperature of a loss is asked for when that loss was chosen. Names
are those of ``dimensions.py`` and stay the same when choices are added.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

from clipless.plans.method import Method
from sweeper.records import Scalar
from sweeper.specification.dimensions import Dimension
from sweeper.specification.fields.messages import did_you_mean_or_known, mistake
from sweeper.specification.fields.nested import unflatten
from sweeper.specification.fields.ranges import Choices, Range
from sweeper.specification.trial_config import TrialConfig


class Suggester(Protocol):
    """The part of ``optuna.Trial`` that is used."""

    def suggest_float(self, name: str, low: float, high: float, *, step: float | None, log: bool) -> float:
        """Propose a number."""

    def suggest_int(self, name: str, low: int, high: int, *, step: int, log: bool) -> int:
        """Propose a whole number."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Propose one of the choices."""


_COSTS = ("training.batch_size", "training.epochs", "privacy.epsilon", "privacy.noise_multiplier")
_RELEASES = ("model.standardise", "model.input_quantile")  # each is one release more, where it has a value
_METHOD = "training.method"  # one of them has no noise


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """Every value that a trial needs, fixed or open.

    Attributes:
        first: the configurations to try first, as values of open dimensions by name.
        seed: of the search, and of the initial weights.
        source: of the spec, for messages.
    """

    dimensions: tuple[Dimension, ...]
    first: tuple[dict[str, Scalar], ...]
    seed: int
    source: str

    @property
    def open(self) -> int:
        """The number of open values, conditional ones included."""
        return sum(dimension.space is not None for dimension in self.dimensions)

    @property
    def open_costs(self) -> tuple[str, ...]:
        """The open values that set what a training costs."""
        keys = {one.key for one in self.dimensions if _sets_cost(one)}
        return tuple(key.rpartition(".")[2] for key in (*_COSTS, *_RELEASES, _METHOD) if key in keys)

    def ends(self, proposal: Mapping[str, Scalar]) -> list[dict[str, Scalar]]:
        """Return a proposal with every combination of the ends of open costs; nothing where none of them is open."""
        spaces = {one.name: one.space for one in self.dimensions if _sets_cost(one) and one.name in proposal}
        ends = {name: _ends(space) for name, space in spaces.items() if space is not None}
        if not ends:
            return []
        chosen = (dict(zip(ends, values, strict=True)) for values in product(*ends.values()))
        return [self.suggest(_Known({**proposal, **one})) for one in chosen]

    def suggest(self, trial: Suggester) -> dict[str, Scalar]:
        """Ask for every open value, each under its dimension's name."""
        suggested: dict[str, Scalar] = {}
        chosen: dict[str, Scalar] = {}
        for dimension in self.dimensions:
            if dimension.when is not None and not dimension.when.holds(chosen):
                continue
            if dimension.space is not None:
                suggested[dimension.name] = chosen[dimension.name] = _ask(trial, dimension.name, dimension.space)
            else:
                chosen[dimension.name] = dimension.value  # type: ignore[assignment]
        return suggested

    def resolve(self, suggested: Mapping[str, Scalar]) -> TrialConfig:
        """Join what is fixed and what was suggested.

        Raises:
            SpecError: a suggestion is missing, outside its range, or belongs to nothing.
        """
        left = dict(suggested)
        chosen: dict[str, Scalar] = {}
        flat: dict[str, Scalar] = {}
        for dimension in self.dimensions:
            if dimension.when is None or dimension.when.holds(chosen):
                chosen[dimension.name] = flat[dimension.key] = self._value(dimension, left)
        if left:
            name, value = next(iter(left.items()))
            known = [dimension.name for dimension in self.dimensions if dimension.space is not None]
            remedy = did_you_mean_or_known(name, known)
            raise mistake(self.source, "an open hyperparameter", name, value, remedy)
        return TrialConfig.from_json(unflatten(flat))

    def _value(self, dimension: Dimension, left: dict[str, Scalar]) -> Scalar:
        if dimension.space is None:
            return dimension.value  # type: ignore[return-value]
        if dimension.name not in left:
            raise mistake(self.source, "a suggested value, got none", dimension.name)
        value = left.pop(dimension.name)
        if value not in dimension.space:
            raise mistake(self.source, f"a value within {dimension.space.to_plain()}", dimension.name, value)
        return value


def _sets_cost(dimension: Dimension) -> bool:
    """Whether a dimension is open, and one of its values may cost more than another."""
    space, key = dimension.space, dimension.key
    values = space.values if isinstance(space, Choices) else ()
    if key == _METHOD:
        return Method.NON_PRIVATE.value in values and len(values) > 1
    if key in _RELEASES:
        return len({bool(value) for value in values}) > 1
    return key in _COSTS and space is not None


def _ends(space: Range | Choices) -> tuple[Any, ...]:
    """Return the smallest and the largest value of numbers, and every choice of anything else."""
    if isinstance(space, Choices) and not all(type(value) in (int, float) for value in space.values):
        return space.values
    return space.extremes()


@dataclass(frozen=True, slots=True)
class _Known:
    """Suggests what is known, and the least or the first value of what is not."""

    values: Mapping[str, Scalar]

    def suggest_float(self, name: str, low: float, *_: Any, **__: Any) -> Any:
        return self.values.get(name, low)

    suggest_int = suggest_float

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        return self.values.get(name, choices[0])


def _ask(trial: Suggester, name: str, space: Range | Choices) -> Scalar:
    if isinstance(space, Choices):
        choice: Scalar = trial.suggest_categorical(name, list(space.values))
        return choice
    if space.integer:
        return trial.suggest_int(name, int(space.low), int(space.high), step=int(space.step or 1), log=space.log)
    return trial.suggest_float(name, space.low, space.high, step=space.step, log=space.log)
