"""How a sweep spends its budget: stages, each of some trials that share a part of it.

Signals add up under composition: a training of sampling rate q, noise multiplier sigma and T steps costs about
``T (q / sigma)^2``, whatever its configuration. A stage's share is a share of that sum.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from sweeper.specification.default_stages import default_stages
from sweeper.specification.fields._section import ONE_COUNT, Section
from sweeper.specification.fields.fields import Number

SPARE_EPOCHS = 1
_SHARE = Number(above=0, below=1, fixed=True)


class Accounting(enum.Enum):
    """How the budget of a sweep is kept.

    ``SLOTS`` cuts it before any row is read; ``FILTER`` refuses the trial that does not fit any more.
    """

    SLOTS = "slots"
    FILTER = "filter"


class StageSettings(Section):
    """A stage as written in a spec; the last one takes the share that is left."""

    trials: Annotated[int, ONE_COUNT]
    share: Annotated[float, _SHARE] | None = None


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Some trials, and the share of the budget's signal that they divide among them."""

    trials: int
    share: float


def default_plans(trials: int, finals: int) -> tuple[StagePlan, ...]:
    """Return the stages of a sweep that says no more than its number of trials, those of the last one included."""
    *first, (_, share) = default_stages(max(trials - finals, 0) + 1)
    return (*(StagePlan(*stage) for stage in first), StagePlan(finals, share))


def stage_plans(stages: Sequence[StageSettings]) -> tuple[StagePlan, ...]:
    """Return stages of a spec with the share of the last one filled in."""
    given = [StagePlan(stage.trials, stage.share) for stage in stages[:-1] if stage.share is not None]
    return (*given, StagePlan(stages[-1].trials, 1.0 - sum(stage.share for stage in given)))
