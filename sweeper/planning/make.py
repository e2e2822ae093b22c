"""Making the plan of a sweep: the only place that cuts a budget, gives scores their noise and states the claim."""

import contextlib
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path

from clipless.datasets import Dataset, Evaluation, input_format
from sweeper.errors import SweeperError
from sweeper.planning.configurations import find_plannable, plan_configuration, plan_event, plan_first
from sweeper.planning.sweep_plan import RecordedSpec, SweepPlan
from sweeper.privacy.baselines import Baselines
from sweeper.privacy.claims import Claim, Steering
from sweeper.privacy.evaluation.curve_noise import CurveNoise
from sweeper.privacy.evaluation.paid_scores import ScoreNoise
from sweeper.privacy.pricing import Price
from sweeper.privacy.spending import Request, Spending, UnmetRequestError, find_spending
from sweeper.specification.objectives import reads_training_rows
from sweeper.specification.rules.data import broken_score_rules
from sweeper.specification.search import NO_SCHEDULER, SELECTION_SHARE
from sweeper.specification.spec import Spec
from sweeper.specification.stages import SPARE_EPOCHS
from sweeper.specification.yaml_file import parse_mapping
from sweeper.trials.metrics import check_metrics
from sweeper.trials.rehearsal import rehearsal_halves
from sweeper.trials.settings import TrialSettings


def make_sweep_plan(
    spec: Spec,
    data: Dataset,
    data_dir: Path | None = None,
    *,
    steering: Steering | None = None,
    spending: Spending | None = None,
) -> SweepPlan:
    """Return the plan of a sweep.

    Args:
        spec: what its user wrote.
        data: of which shapes, numbers of rows and declarations are looked at, and labels of public rows.
        data_dir: where the data were looked for.
        steering: what the trials of earlier sweeps, from which proposals learn, add to its claim.
        spending: as it was cut when the sweep began, for one that resumes.

    Raises:
        SpecError: the spec does not fit the data, or its budget cannot be cut as it asks.
        clipless.errors.CliplessError: no configuration can be planned, or no noise meets the budget.
    """
    _check_against(spec, data)
    shared = make_trial_settings(spec, data)
    training, epochs = find_plannable(
        shared, spec.trials, partial(plan_event, shared, data, has_noise=not spec.privacy.in_slots)
    )
    if spending is None:
        share = spec.search.selection_share
        spare_epochs = spec.privacy.spare_epochs
        request = Request(
            epsilon=inf if spec.privacy.sweep_epsilon is None else spec.privacy.sweep_epsilon,
            delta=spec.privacy.delta,
            training=training,
            epochs=epochs,
            trials=spec.trials,
            stages=spec.stages,
            repeats=spec.search.repeats,
            spare_epochs=SPARE_EPOCHS if spare_epochs is None else spare_epochs,
            repetitions=spec.search.repetitions,
            share=SELECTION_SHARE if share is None else share,
            noise=shared.noise,
            relation=spec.privacy.relation,
        )
        spending = _cut(spec, request)
    if spending.first_slot is not None:
        find_plannable(shared, spec.trials, lambda one: plan_configuration(shared, data, one, spending.first_slot))
    plan = plan_of_records(spec, make_claim(spec, data, shared, spending, steering), spending)
    plan = replace(plan, shared=shared, input=input_format(**spec.data_options(data_dir)))

    def expect() -> Price | None:
        return plan.expected_price(plan_first(shared, plan.trials, data))

    return replace(plan, announcement=f"{spec.name}: {spending.in_words(spec.privacy.delta, expect)}")


def plan_of_records(spec: Spec, claim: Claim, spending: Spending) -> SweepPlan:
    """Return the plan of a sweep of which nothing is trained any more, and whose data need not be at hand."""
    return SweepPlan(
        spec=_record(spec),
        privacy=spec.privacy,
        search=spec.search,
        resources=spec.resources,
        shared=_share(spec, None),
        population=claim.population,
        trials=sum(spending.stage_trials) or spec.trials,
        rehearsals=spec.rehearsals,
        first=spec.first,
        spending=spending,
        claim=claim,
    )


def make_trial_settings(spec: Spec, data: Dataset) -> TrialSettings:
    """Return what all trials of a sweep share.

    Raises:
        SpecError: the spec does not say how scores of these rows are paid for.
    """
    return _share(spec, make_score_noise(spec, data))


def make_score_noise(spec: Spec, data: Dataset) -> ScoreNoise | None:
    """Return the noise of a sweep's scores, ``None`` where they are free.

    Raises:
        SpecError: the spec does not say how scores of these rows are paid for, or declares noise for free ones.
    """
    declared = data.metadata
    for field, got, expected, remedy in broken_score_rules(spec.search, spec.privacy, declared.evaluation):
        section, name = field.split(".")[:2]  # without the place in a list
        raise spec.mistaken(expected.replace("{name}", name), f"{section}.{name}", got, remedy)
    sigma = spec.privacy.score_noise
    if declared.evaluation is not Evaluation.PRIVATE or sigma is None:
        return None
    if spec.search.repetitions is not None and not declared.split_by_row:
        expected = f"no private selection by scores of private rows of {declared.name}, which does not say that the"
        expected += " split of each row depends on that row alone"
        raise spec.mistaken(expected, "search.selection", None, "leave it out")
    named = [name for name in (*spec.search.objectives, *spec.search.metrics) if name != "epsilon"]
    names, relation = tuple(dict.fromkeys(["accuracy", *named])), spec.privacy.relation
    curves = spec.privacy.curve_noise
    return ScoreNoise(
        names=names,
        noise_multiplier=sigma,
        relation=relation,
        apart=declared.split_by_row,
        validation=len(data.validation),
        test=len(data.test),
        curves=None if curves is None else CurveNoise.of(curves, names, declared, relation),
    )


def make_claim(
    spec: Spec, data: Dataset, shared: TrialSettings, spending: Spending, steering: Steering | None = None
) -> Claim:
    """Return what a sweep claims."""
    return Claim.about(
        data.metadata,
        len(data.train),
        delta=spec.privacy.delta,
        reads_training_rows=reads_training_rows(spec.search.metrics),
        ends_trials_early=spec.search.scheduler != NO_SCHEDULER,
        has_budget=spending.budget is not None,
        of_spending=spending.conditions,
        rehearses=spec.rehearsals > 0,
        steering=steering,
        noise=shared.noise,
        baselines=Baselines.of(data, spec.search.without_privacy),
    )


def _check_against(spec: Spec, data: Dataset) -> None:
    spec.validate_against(len(data.train), len(data.metadata.classes))
    check_metrics(spec.search.metrics, data.metadata, spec.source)
    if spec.rehearsals:
        rehearsal_halves(data)


def _cut(spec: Spec, request: Request) -> Spending:
    try:
        return find_spending(spec.spending).cut(request)
    except UnmetRequestError as error:
        rule = error.rule
        raise spec.mistaken(rule.expected, rule.field, rule.got, rule.remedy) from None


def _share(spec: Spec, noise: ScoreNoise | None) -> TrialSettings:
    return TrialSettings(
        space=spec.space,
        objectives=spec.objectives,
        metrics=spec.search.metrics,
        repeats=spec.search.repeats,
        free_points=spec.search.free_points,
        cpus=spec.resources.cpus,
        gpus=spec.resources.gpus,
        noise=noise,
    )


def _record(spec: Spec) -> RecordedSpec:
    return RecordedSpec(
        name=spec.name,
        values=spec.to_plain(),
        overrides=dict(spec.overrides),
        digest=spec.digest(),
        source=spec.source,
        text=_text_of(spec),
    )


def _text_of(spec: Spec) -> str:
    """Return the text of the spec's file, comments and all, if that is what is run; its values otherwise."""
    with contextlib.suppress(OSError, ValueError, SweeperError):
        text = Path(spec.source).read_text(encoding="utf-8")
        if Spec.from_mapping(parse_mapping(text, spec.source), spec.source).digest() == spec.digest():
            return text
    return spec.to_yaml()
