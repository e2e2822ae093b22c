"""The values that a sweep leaves open: what the search is asked for, and what its answers become.

A value exists only where it means something: the temperature of a loss is asked for when that loss was chosen. Names
are those of ``dimensions.py`` and stay the same when choices are added.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

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


COSTS = ("training.batch_size", "training.epochs", "privacy.epsilon", "privacy.noise_multiplier")
"""Names of the dimensions that set what a training costs."""


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
        names = [dimension.name for dimension in self.dimensions if dimension.space is not None]
        return tuple(name.rpartition(".")[2] for name in COSTS if name in names)

    def ends(self, proposal: Mapping[str, Scalar]) -> list[dict[str, Scalar]]:
        """Return a proposal with every combination of the ends of open costs; nothing where none of them is open."""
        spaces = {one.name: one.space for one in self.dimensions if one.name in COSTS and one.name in proposal}
        ends = {name: space.extremes() for name, space in spaces.items() if space is not None}
        if not ends:
            return []
        return [{**proposal, **dict(zip(ends, values, strict=True))} for values in product(*ends.values())]

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


def _ask(trial: Suggester, name: str, space: Range | Choices) -> Scalar:
    if isinstance(space, Choices):
        choice: Scalar = trial.suggest_categorical(name, list(space.values))
        return choice
    if space.integer:
        return trial.suggest_int(name, int(space.low), int(space.high), step=int(space.step or 1), log=space.log)
    return trial.suggest_float(name, space.low, space.high, step=space.step, log=space.log)
