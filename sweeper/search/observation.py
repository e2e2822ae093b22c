"""What an earlier trial tells a sampler."""

from collections.abc import Mapping
from dataclasses import dataclass

from sweeper.spec.fields.ranges import Scalar


@dataclass(frozen=True, slots=True)
class Observation:
    """One earlier trial, as a sampler may be told of it.

    Attributes:
        params: values of this sweep's open dimensions by name.
        values: one for each objective, in their order; finite.
        violations: by how much each constraint is missed.
    """

    params: Mapping[str, Scalar]
    values: tuple[float, ...]
    violations: Mapping[str, float]
