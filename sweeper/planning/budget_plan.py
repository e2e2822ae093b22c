"""The budget of a sweep, cut for the trials that its spec describes."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

from clipless.datasets import Dataset
from clipless.errors import AccountingError, CliplessError
from clipless.plans.plan import Plan
from clipless.privacy.accounting.calibration import steps_for
from clipless.privacy.accounting.renyi_filter import RenyiFilter, best_order
from clipless.privacy.events import PoissonGaussian
from clipless.privacy.noisy_counts import in_one_split
from sweeper.errors import SpecError
from sweeper.privacy.budget import Budget, cut_budget
from sweeper.privacy.evaluation.score_noise import ScoreNoise
from sweeper.privacy.exploration import cut_exploration
from sweeper.rounding import round_up
from sweeper.search.space import sample
from sweeper.specification.fields.ranges import Scalar
from sweeper.specification.search import SELECTION_SHARE
from sweeper.specification.spec import Spec
from sweeper.specification.stages import SPARE_EPOCHS
from sweeper.specification.trial_config import TrialConfig
from sweeper.trials.build import build_loss, build_model, build_plan, event_without_noise

T = TypeVar("T")

CHECKED_CONFIGURATIONS = 8  # until one can be planned


def plan_budget(spec: Spec, data: Dataset) -> Budget | RenyiFilter | None:
    """Return the budget of a sweep as its spec divides it, ``None`` without one; nothing of it depends on the rows.

    Slots have the sampling rate and the steps of the first configuration that can be planned.

    Raises:
        SpecError, clipless.errors.CliplessError: no configuration can be planned, no noise meets the budget, or scores
            of private rows do not fit into it.
    """
    epsilon, delta = spec.privacy.sweep_epsilon, spec.privacy.delta
    if epsilon is None:
        return None
    training, epochs = first_that_can(spec, partial(_trial, spec, data))
    trial = training.with_steps(spec.search.repeats * training.steps)
    if not spec.privacy.in_slots:
        return RenyiFilter(order=best_order(trial, epsilon, delta), epsilon=epsilon, delta=delta)
    spare_epochs = SPARE_EPOCHS if spec.privacy.spare_epochs is None else spec.privacy.spare_epochs
    spare = spare_epochs * (trial.steps // epochs)
    noise = ScoreNoise.of(spec, data)
    if spec.search.repetitions is None:
        budget = cut_budget(epsilon, delta, spec.stages, trial, spare=spare)
    else:
        share = SELECTION_SHARE if spec.search.selection_share is None else spec.search.selection_share
        scores = None if noise is None else noise.paid(epochs).event
        law = spec.search.repetitions
        budget = cut_exploration(epsilon, delta, law, trial, share=share, spare=spare, scores=scores)
    return budget if noise is None else _with_scores(spec, budget, noise, epochs, spare_epochs)


def first_that_can(spec: Spec, make: Callable[[Mapping[str, Scalar]], T]) -> T:
    """Return what is made of the first of the first configurations that can be planned.

    Raises:
        SpecError, clipless.errors.CliplessError: the first of the configurations cannot be planned, and no other can.
    """
    return first_that_each_can(spec, make, 1)[0][0]


def first_that_each_can(
    spec: Spec, make: Callable[[Mapping[str, Scalar]], T], wanted: int
) -> list[tuple[T, tuple[str, ...]]]:
    """Return what is made of the first configurations that can be planned, at most ``wanted``.

    Each comes with the refusals of those that stood in front of it.

    Raises:
        SpecError, clipless.errors.CliplessError: the first of the configurations cannot be planned, and no other can.
    """
    made: list[tuple[T, tuple[str, ...]]] = []
    refusals: list[Exception] = []
    since = 0
    for proposal in sample(spec.space, max(wanted, min(spec.trials, CHECKED_CONFIGURATIONS))):
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


def planned(
    spec: Spec, data: Dataset, proposal: Mapping[str, Scalar], slot: PoissonGaussian | None = None
) -> tuple[TrialConfig, Plan]:
    """Return a configuration and its plan, with the noise that a ``slot`` of the budget gives it.

    Raises:
        SpecError, clipless.errors.CliplessError: it cannot be planned.
    """
    config = spec.space.resolve(proposal)
    loss = build_loss(config)
    model = build_model(config, data, loss, spec.search.seed)
    return config, build_plan(config, model, loss, len(data.train), slot, repeats=spec.search.repeats)


def _trial(spec: Spec, data: Dataset, proposal: Mapping[str, Scalar]) -> tuple[PoissonGaussian, int]:
    """Return what a training of a configuration spends, and its epochs."""
    config = spec.space.resolve(proposal)
    if spec.privacy.in_slots and config.training.epochs is not None:
        return event_without_noise(config, data, spec.search.seed), config.training.epochs
    plan = planned(spec, data, proposal)[1]
    return plan.event(), plan.epochs


def _with_scores(spec: Spec, budget: Budget, noise: ScoreNoise, epochs: int, spare_epochs: int) -> Budget:
    """Return the budget with what scores of private rows may spend: all of validation rows, what is left of test rows.

    A row is in one split, so that both are beside what training costs, not on top of it.
    """
    if not (noise.apart and in_one_split([budget.stages[0].slot])):
        expected = "add-or-remove-one, and data whose rows are assigned to splits one by one, with privacy.score_noise"
        raise spec.mistaken(expected, "privacy.sweep_epsilon", budget.epsilon, "set privacy.accounting: filter")
    releases = spec.search.repeats * (budget.trials * epochs + len(budget.stages) * spare_epochs)
    budget = replace(budget, scores=noise.paid(releases))
    if budget.price > budget.epsilon:  # which training alone does not exceed
        expected = f"noise with which {releases} releases of scores cost at most the budget, not "
        expected += round_up(budget.price)
        raise spec.mistaken(expected, "privacy.score_noise", noise.noise_multiplier, "raise it, or lower search.trials")
    affordable = _affordable_tests(spec, budget, noise)
    points = releases if budget.selection is None else releases + epochs  # those of the winner too
    return replace(budget, tests=noise.paid_test(min(affordable, points)))


def _affordable_tests(spec: Spec, budget: Budget, noise: ScoreNoise) -> int:
    """Return how many points the budget has test scores or curves for."""
    sigma = noise.paid_test(1).event.noise_multiplier
    try:
        return steps_for(budget.epsilon, budget.delta, sigma, 1.0, spec.privacy.relation)
    except AccountingError:
        field = "score_noise" if noise.curves is None else "curve_noise"
        expected = "noise with which the test scores or curves of one point cost at most the budget"
        raise spec.mistaken(expected, f"privacy.{field}", sigma, "raise it") from None
