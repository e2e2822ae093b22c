"""From a spec to its search space, defined by running: what Optuna is asked, and what its answers become.

A parameter exists only where it means something: the temperature of a loss is asked for when that loss was
chosen. Parameter names are those of ``dimensions.py`` and stay the same when choices are added.
"""

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from sweeper.specification.dimensions import Dimension
from sweeper.specification.fields.messages import did_you_mean_or_known
from sweeper.specification.fields.nested import unflatten
from sweeper.specification.fields.ranges import Choices, Range, Scalar
from sweeper.specification.spec import Spec
from sweeper.specification.trial_config import TrialConfig


class Proposer(Protocol):
    """The part of ``optuna.Trial`` that is used."""

    def suggest_float(self, name: str, low: float, high: float, *, step: float | None, log: bool) -> float:
        """Propose a number."""

    def suggest_int(self, name: str, low: int, high: int, *, step: int, log: bool) -> int:
        """Propose a whole number."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Propose one of the choices."""


def suggest(trial: Proposer, spec: Spec) -> dict[str, Scalar]:
    """Ask for every open value of the spec, each under its dimension's name."""
    suggested: dict[str, Scalar] = {}
    chosen: dict[str, Scalar] = {}
    for dimension in spec.dimensions:
        if dimension.when is not None and not dimension.when.holds(chosen):
            continue
        if dimension.space is not None:
            suggested[dimension.name] = chosen[dimension.name] = _ask(trial, dimension.name, dimension.space)
        else:
            chosen[dimension.name] = dimension.value  # type: ignore[assignment]
    return suggested


def resolve(spec: Spec, suggested: Mapping[str, Scalar]) -> TrialConfig:
    """Join what the spec fixes and what was suggested.

    Raises:
        SpecError: a suggestion is missing, outside its range, or belongs to nothing.
    """
    left = dict(suggested)
    chosen: dict[str, Scalar] = {}
    flat: dict[str, Scalar] = {}
    for dimension in spec.dimensions:
        if dimension.when is None or dimension.when.holds(chosen):
            chosen[dimension.name] = flat[dimension.key] = _settled(spec, dimension, left)
    if left:
        name, value = next(iter(left.items()))
        known = [dimension.name for dimension in spec.dimensions if dimension.space is not None]
        raise spec.mistaken("an open hyperparameter", name, value, did_you_mean_or_known(name, known))
    return TrialConfig.from_json(unflatten(flat))


def sample(spec: Spec, count: int) -> list[dict[str, Scalar]]:
    """Return ``count`` proposals that the sweep could make: those to be tried first, then random ones."""
    import optuna  # not needed where trials run

    with quiet_optuna():
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=spec.search.seed))
    for first in spec.first[:count]:
        study.enqueue_trial(first)
    return [suggest(study.ask(), spec) for _ in range(count)]


def open_dimensions(spec: Spec) -> int:
    """Return the number of open values, conditional ones included."""
    return sum(dimension.space is not None for dimension in spec.dimensions)


@contextlib.contextmanager
def quiet_optuna() -> Iterator[None]:
    """Keep Optuna from announcing a new study on standard error."""
    logger = logging.getLogger("optuna.storages")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _ask(trial: Proposer, name: str, space: Range | Choices) -> Scalar:
    if isinstance(space, Choices):
        choice: Scalar = trial.suggest_categorical(name, list(space.values))
        return choice
    if space.integer:
        return trial.suggest_int(name, int(space.low), int(space.high), step=int(space.step or 1), log=space.log)
    return trial.suggest_float(name, space.low, space.high, step=space.step, log=space.log)


def _settled(spec: Spec, dimension: Dimension, left: dict[str, Scalar]) -> Scalar:
    if dimension.space is None:
        return dimension.value  # type: ignore[return-value]
    if dimension.name not in left:
        raise spec.mistaken("a suggested value, got none", dimension.name)
    value = left.pop(dimension.name)
    if value not in dimension.space:
        raise spec.mistaken(f"a value within {dimension.space.to_plain()}", dimension.name, value)
    return value
