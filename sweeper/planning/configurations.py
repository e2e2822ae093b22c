"""Configurations as they would be trained: the first of a search that can be planned, and their plans.

Whether a configuration can be planned depends on nothing but the spec and what is declared of the data.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from clipless.datasets import Dataset
from clipless.errors import CliplessError
from clipless.plans.plan import Plan
from clipless.privacy.events import PoissonGaussian
from sweeper.errors import SpecError
from sweeper.records import Scalar
from sweeper.search.space import sample
from sweeper.specification.trial_config import TrialConfig
from sweeper.trials.build import build_loss, build_model, build_plan, event_without_noise
from sweeper.trials.settings import TrialSettings

T = TypeVar("T")

CHECKED_CONFIGURATIONS = 8  # until one can be planned
ESTIMATED_CONFIGURATIONS = 4  # that stand for all trials where the price is not fixed


def find_plannable(shared: TrialSettings, trials: int, make: Callable[[Mapping[str, Scalar]], T]) -> T:
    """Return what is made of the first of the first configurations that can be planned.

    Raises:
        SpecError, clipless.errors.CliplessError: the first of the configurations cannot be planned, and no other can.
    """
    return find_all_plannable(shared, trials, make, 1)[0][0]


def find_all_plannable(
    shared: TrialSettings, trials: int, make: Callable[[Mapping[str, Scalar]], T], wanted: int
) -> list[tuple[T, tuple[str, ...]]]:
    """Return what is made of the first configurations that can be planned, at most ``wanted``.

    Each comes with the refusals of those that stood in front of it.

    Raises:
        SpecError, clipless.errors.CliplessError: the first of the configurations cannot be planned, and no other can.
    """
    made: list[tuple[T, tuple[str, ...]]] = []
    refusals: list[Exception] = []
    since = 0
    for proposal in sample(shared.space, max(wanted, min(trials, CHECKED_CONFIGURATIONS))):
        try:
            made.append((make(proposal), tuple(map(str, refusals[since:]))))
        except (SpecError, CliplessError) as error:
            refusals.append(error)
            continue
        since = len(refusals)
        if len(made) == wanted:
            break
    if not made:
        raise refusals[0]
    return made


def plan_configuration(
    shared: TrialSettings, data: Dataset, proposal: Mapping[str, Scalar], slot: PoissonGaussian | None = None
) -> tuple[TrialConfig, Plan]:
    """Return a configuration and its plan, with the noise that a ``slot`` of the budget gives it.

    Raises:
        SpecError, clipless.errors.CliplessError: it cannot be planned.
    """
    config = shared.space.resolve(proposal)
    loss = build_loss(config)
    model = build_model(config, data, loss, shared.space.seed)
    return config, build_plan(config, model, loss, len(data.train), slot, repeats=shared.repeats)


def can_be_planned(
    shared: TrialSettings, data: Dataset, proposal: Mapping[str, Scalar], slot: PoissonGaussian | None = None
) -> bool:
    """Whether a configuration has a plan, with the noise that a ``slot`` of the budget gives it."""
    try:
        plan_configuration(shared, data, proposal, slot)
    except (SpecError, CliplessError):
        return False
    return True


def plan_event(
    shared: TrialSettings, data: Dataset, proposal: Mapping[str, Scalar], *, has_noise: bool
) -> tuple[PoissonGaussian, int]:
    """Return what a training of a configuration spends, and its epochs; its noise too where it ``has_noise`` itself.

    Raises:
        SpecError, clipless.errors.CliplessError: it cannot be planned.
    """
    config = shared.space.resolve(proposal)
    if not has_noise and config.training.epochs is not None:
        return event_without_noise(config, data, shared.space.seed), config.training.epochs
    plan = plan_configuration(shared, data, proposal)[1]
    return plan.event(), plan.epochs


def plan_first(shared: TrialSettings, trials: int, data: Dataset) -> list[Plan]:
    """Return the plans of the first few configurations, and of the ends of what sets their cost, that have one."""
    plans, first = [], sample(shared.space, min(trials, ESTIMATED_CONFIGURATIONS))
    for proposal in [*first, *(shared.space.ends(first[0]) if trials > 1 else ())]:
        try:
            plans.append(plan_configuration(shared, data, proposal)[1])
        except (SpecError, CliplessError):
            continue
    return plans
