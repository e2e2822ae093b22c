"""Frozen records of the noise that was spent, apart from their cost.

An event states facts that are fixed before the first step: the noise multiplier, the sampling rate,
the number of steps and the neighbouring relation. It is hashable, comparable and travels as JSON; no
accountant, generator or datum may ever be kept in it. ``clipless.privacy.accounting.claim`` prices it.

| field value | meaning | price |
|---|---|---|
| ``noise_multiplier=0`` | no noise | infinite |
| ``noise_multiplier=inf`` | nothing but noise | 0 |
| ``sampling_rate=0`` | no row takes part | 0 |
| ``sampling_rate=1`` | every row takes part in every step | the Gaussian mechanism |
| ``steps=0`` | nothing was released | 0 |
| NaN anywhere | refused at construction | |
"""

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from clipless.errors import AccountingError

OVERFLOW = 2.0**-64
"""Probability, in each step, that the slots of `clipless.privacy.sampling` place rows other than their theorem says;
every price pays it out of delta."""


class Relation(enum.Enum):
    """The relation of neighbouring data sets.

    ``ADD_OR_REMOVE_ONE`` is meant with a public denominator: one example is there or contributes zero.
    ``REPLACE_ONE`` changes one example into any other; noise multipliers stay relative to the
    contribution of one example, the accountant takes the relation into account.
    """

    ADD_OR_REMOVE_ONE = "add-or-remove-one"
    REPLACE_ONE = "replace-one"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonGaussian:
    """``steps`` releases of a Poisson-sampled sum with Gaussian noise.

    Attributes:
        noise_multiplier: standard deviation of the noise over the largest norm of one example's
            contribution (its sensitivity under add-or-remove-one, whatever the relation is).
        sampling_rate: probability with which each example takes part in a step.

    Raises:
        AccountingError: a field is NaN, out of range or of the wrong type.
    """

    noise_multiplier: float
    sampling_rate: float
    steps: int
    relation: Relation

    def __post_init__(self) -> None:
        if not (_is_number(self.noise_multiplier) and self.noise_multiplier >= 0.0):
            raise AccountingError(f"Expected noise_multiplier >= 0, got {self.noise_multiplier!r}")
        if not (_is_number(self.sampling_rate) and 0.0 <= self.sampling_rate <= 1.0):
            raise AccountingError(f"Expected 0 <= sampling_rate <= 1, got {self.sampling_rate!r}")
        if not (isinstance(self.steps, int) and _is_number(self.steps) and self.steps >= 0):
            raise AccountingError(f"Expected an integer steps >= 0, got {self.steps!r}")
        if not isinstance(self.relation, Relation):
            raise AccountingError(f"Expected relation to be a Relation, got {self.relation!r}")

    def with_steps(self, steps: int) -> "PoissonGaussian":
        """Return the same mechanism, released ``steps`` times."""
        return replace(self, steps=steps)

    def to_json(self) -> dict[str, Any]:
        """Return strict JSON values; infinite noise becomes the string ``"inf"``."""
        noise = self.noise_multiplier
        return {
            "kind": "poisson-gaussian",
            "noise_multiplier": noise if math.isfinite(noise) else "inf",
            "sampling_rate": self.sampling_rate,
            "steps": self.steps,
            "relation": self.relation.value,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "PoissonGaussian":
        """Read back what ``to_json`` wrote.

        Raises:
            AccountingError: a key is missing, unknown, or holds a value no event can have.
        """
        keys = {"kind", "noise_multiplier", "sampling_rate", "steps", "relation"}
        if not isinstance(record, Mapping) or record.get("kind") != "poisson-gaussian" or set(record) != keys:
            raise AccountingError(f"Expected kind='poisson-gaussian' with exactly {sorted(keys)}, got {record!r}")
        noise = record["noise_multiplier"]
        return cls(
            noise_multiplier=math.inf if noise == "inf" else noise,
            sampling_rate=record["sampling_rate"],
            steps=record["steps"],
            relation=_relation(record["relation"]),
        )


@dataclass(frozen=True, slots=True)
class Composed:
    """Several events on the same data, all released, under one relation.

    Raises:
        AccountingError: no events, something that is not a ``PoissonGaussian``, or two relations.
    """

    events: tuple[PoissonGaussian, ...]

    def __post_init__(self) -> None:
        if not (isinstance(self.events, tuple) and self.events):
            raise AccountingError(f"Expected a tuple of at least one event, got events={self.events!r}")
        for event in self.events:
            if type(event) is not PoissonGaussian:
                raise AccountingError(f"Expected PoissonGaussian events, got {event!r}")
        if len({event.relation for event in self.events}) > 1:
            raise AccountingError("Expected one relation for all composed events, got two")

    @property
    def relation(self) -> Relation:
        """The relation that all events share."""
        return self.events[0].relation


Event = PoissonGaussian | Composed


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _relation(value: object) -> Relation:
    try:
        return Relation(value)
    except ValueError:
        known = ", ".join(relation.value for relation in Relation)
        raise AccountingError(f"Expected a relation out of {known}, got {value!r}") from None
