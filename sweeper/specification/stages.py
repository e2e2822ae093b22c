"""How a sweep spends its budget: stages, each of some trials that share a part of it.

Signals add up under composition: a training of sampling rate q, noise multiplier sigma and T steps costs about
``T (q / sigma)^2``, whatever its configuration. A stage's share is a share of that sum.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from sweeper.specification.fields._section import ONE_COUNT, Section
from sweeper.specification.fields.fields import Number

UNNAMED_SPENDING = ("composition", "winner", "exploration")  # ways to spend that follow from what else a spec says
SPARE_EPOCHS = 1
LOW_SHARE = 0.003  # of the signal, for the low end of a front
MOST_EARLY_SCORES = 3  # releases of scores of a stage before the last one, unless it has more trials
_SHARE = Number(above=0, below=1, fixed=True)
_DEFAULT_SHARES = (0.05, 0.15, 0.8)


class StageSettings(Section):
    """A stage as written in a spec; the last one takes the share that is left."""

    trials: Annotated[int, ONE_COUNT]
    share: Annotated[float, _SHARE] | None = None


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Some trials, and the share of the budget's signal that they divide among them."""

    trials: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingForm:
    """What a spec has to look like for a way of spending, `sweeper.privacy.spending`; by default that of a cut budget.

    Attributes:
        gives_noise: whether the budget of the sweep gives every trial its noise, as it is cut before any row is read.
        refused: keys of ``privacy`` that it has no use for.
        because: why, for messages.
        remedy: what to do about one that is given.
        selecting: the way of spending in its place with ``search.selection: private``, ``None`` if there is none.
    """

    gives_noise: bool = True
    refused: tuple[str, ...] = ()
    because: str = ""
    remedy: str = "leave it out"
    selecting: str | None = None


USUAL_SPENDING = "slots"  # of a budget, where a spec does not say how it is kept
_CUT = ("stages", "finals", "spare_epochs")
_FORMS = {
    "composition": SpendingForm(
        gives_noise=False,
        refused=(*_CUT, "accounting"),
        because="without sweep_epsilon, the budget that is divided",
        remedy="add sweep_epsilon, or leave it out",
        selecting="winner",
    ),
    "filter": SpendingForm(
        gives_noise=False,
        refused=_CUT,
        because="with accounting: filter, which takes trials as long as they fit",
    ),
    USUAL_SPENDING: SpendingForm(selecting="exploration"),
}


def form_of(spending: str) -> SpendingForm:
    """Return what a spec has to look like for the way of spending of that name."""
    return _FORMS.get(spending, SpendingForm())


def default_plans(trials: int, finals: int) -> tuple[StagePlan, ...]:
    """Return the stages of a sweep that says no more than its number of trials, those of the last one included."""
    *first, (_, share) = default_stages(max(trials - finals, 0) + 1)
    return (*(StagePlan(*stage) for stage in first), StagePlan(finals, share))


def plans_of_both_ends() -> tuple[StagePlan, ...]:
    """Return a training with next to no signal, which is the low end of the front, and the final, which has the rest.

    The final's first epochs are at a tenth of its epsilon and more; a training of share s is at about sqrt(s) of it.
    """
    return (StagePlan(1, LOW_SHARE), StagePlan(1, 1.0 - LOW_SHARE))


def early_scores(trials: int) -> int:
    """Return how many epochs of each trial of a stage before the last one release scores of private rows.

    >>> [early_scores(trials) for trials in (1, 2, 3, 12)]
    [3, 1, 1, 1]
    """
    return max(1, MOST_EARLY_SCORES // trials)


def stage_plans(stages: Sequence[StageSettings]) -> tuple[StagePlan, ...]:
    """Return stages of a spec with the share of the last one filled in."""
    given = [StagePlan(stage.trials, stage.share) for stage in stages[:-1] if stage.share is not None]
    return (*given, StagePlan(stages[-1].trials, 1.0 - sum(stage.share for stage in given)))


def default_stages(trials: int) -> tuple[tuple[int, float], ...]:
    """Return the number of trials and the share of the signal of each stage, whispers first.

    The shares add up to 1. One final; a quarter of the explorers in the middle; with fewer than six trials there is no
    stage in the middle, and with one trial there is nothing but the final.

    >>> default_stages(16)
    ((12, 0.05), (3, 0.15), (1, 0.8))

    Raises:
        ValueError: fewer than one trial.
    """
    if trials < 1:
        raise ValueError(f"Expected at least one trial, got trials={trials!r}")
    if trials == 1:
        return ((1, 1.0),)
    if trials < 6:
        return ((trials - 1, 0.2), (1, 0.8))
    middle = (trials - 1) // 5
    return ((trials - 1 - middle, _DEFAULT_SHARES[0]), (middle, _DEFAULT_SHARES[1]), (1, _DEFAULT_SHARES[2]))
