"""The prior: configurations that did well on public tables of like size, and where they come from.

`benchmarks/prior.py` makes ``prior.json``: it trains the same configurations on public tables of several sizes, at
several epsilons, and keeps for each region of (N, epsilon) those with the best average rank. Nothing private enters, so
that to begin with them costs nothing; the card names the tables among what was taken as public.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import inf, log
from typing import Any, TypeGuard

from sweeper.adapters import parse
from sweeper.records import Scalar
from sweeper.specification.dimensions import Dimension
from sweeper.specification.fields.ranges import Choices, Range
from sweeper.specification.left_out import PublicNumbers
from sweeper.specification.search import Prior

FILE = "prior.json"
Wanted = Scalar | tuple[str, ...]  # a value, or several that would do
_KINDS = ("model.architecture", "training.loss.name", "training.method")
_LOSSES = ("tau-bce", "tau-cce")
FACT = (
    "The configurations that were tried first are those of the prior {name}, learned from public tables alone "
    "({tables})."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorSource:
    """A public table that the prior was learned from, or on which it was tested only (``held_out``)."""

    name: str
    source: str  # who published it, with the licence that is stated there
    rows: int
    columns: int  # of an encoded row
    classes: int
    held_out: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorRegion:
    """Configurations for training rows up to ``rows`` and budgets up to ``epsilon``, best first; None for any."""

    rows: int | None
    epsilon: float | None
    configurations: tuple[Mapping[str, Scalar], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePrior:
    """What ``prior.json`` holds.

    Attributes:
        name: with its version.
        made: the date of the measurement.
        command: that makes the file.
        measured: what was trained and how it was ranked, in words.
        sources: tables.
        regions: ordered by epsilon within rows, each the first that holds what it is asked for.
    """

    name: str
    made: str
    command: str
    measured: str
    sources: tuple[PriorSource, ...]
    regions: tuple[PriorRegion, ...]

    def region(self, rows: int, epsilon: float) -> PriorRegion:
        """Return the region of so many training rows and a budget."""
        return next(
            one
            for one in self.regions
            if rows <= (inf if one.rows is None else one.rows)
            and epsilon <= (inf if one.epsilon is None else one.epsilon)
        )

    def first_configurations(
        self, dimensions: Sequence[Dimension], numbers: PublicNumbers, epsilon: float
    ) -> list[dict[str, Scalar]]:
        """Return configurations to try first, best first, as values of open dimensions by name.

        Each number is the nearest one that a dimension allows; of a name that the space does not hold, such as another
        loss, nothing is known, and there are none.
        """
        found: list[dict[str, Scalar]] = []
        for one in self.region(numbers.rows, epsilon).configurations:
            projected = project(_absolute(one, numbers), dimensions)
            if projected and projected not in found:
                found.append(projected)
        return found


@cache
def load_prior() -> TablePrior:
    """Return the prior that ships with this package."""
    text = resources.files("sweeper.planning").joinpath(FILE).read_text("utf-8")
    return parse(TablePrior, json.loads(text))


def prior_facts(name: Prior | None) -> tuple[str, ...]:
    """Return the sentences for the card: what is taken as public where the prior of that name is used."""
    if name in (None, Prior.NONE):
        return ()
    prior = load_prior()
    tables = ", ".join(one.name for one in prior.sources if not one.held_out)
    return (FACT.format(name=prior.name, tables=tables),)


def project(wanted: Mapping[str, Wanted], dimensions: Sequence[Dimension]) -> dict[str, Scalar] | None:
    """Return the configuration of a space that is nearest to a wanted one, as values of its open dimensions.

    ``wanted`` are values by the keys of dimensions; the loss may be one of several. What it does not say stays open;
    what the space fixes is as it is. None where architecture, method or loss is another.
    """
    found: dict[str, Scalar] = {}
    chosen: dict[str, Scalar] = {}
    for one in dimensions:
        if one.key not in wanted or not (one.when is None or one.when.holds(chosen)):
            continue
        value = one.value if one.space is None else _nearest(wanted[one.key], one.space)
        if value is None or (one.key in _KINDS and value not in _names(wanted[one.key])):
            return None
        chosen[one.name] = value  # type: ignore[assignment]
        if one.space is not None:
            found[one.name] = value  # type: ignore[assignment]
    return found


def _names(wanted: Wanted) -> tuple[Scalar, ...]:
    return wanted if isinstance(wanted, tuple) else (wanted,)


def _nearest(wanted: Wanted, space: Range | Choices) -> Scalar | None:
    named = [one for one in _names(wanted) if one in space]
    if named:
        return named[0]
    if not _is_number(wanted):
        return None
    if isinstance(space, Choices):
        numbers = [
            one for one in space.values if isinstance(one, int | float) and not isinstance(one, bool) and one > 0
        ]
        return min(numbers, key=lambda one: abs(log(one / wanted)), default=None)
    value = min(max(wanted, space.low), space.high)
    if (step := space.step or (1 if space.integer else None)) is not None:
        value = space.low + step * int((value - space.low) / step)
    return int(value) if space.integer else float(value)


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _absolute(configuration: Mapping[str, Scalar], numbers: PublicNumbers) -> dict[str, Wanted]:
    """Return a configuration for so many rows: the prior has sampling rates, a spec batch sizes."""
    values = {key: value for key, value in configuration.items() if key != "sampling_rate"}
    rate = float(configuration["sampling_rate"])
    kinds = {"model.architecture": "mlp", "training.method": "clipless", "training.optimizer": "adam"}
    losses = _LOSSES if numbers.classes == 2 else _LOSSES[1:]
    return {**values, **kinds, "training.batch_size": max(1, int(rate * numbers.rows)), "training.loss.name": losses}
