"""Making the plan of a sweep: the only place that cuts a budget, gives scores their noise and states the claim."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import ceil, inf, isfinite, sqrt

from clipless.datasets import Dataset, Evaluation, HashSplit, InputFormat, Ranges
from clipless.datasets.splits import Splitting
from clipless.datasets.tables.table import CATEGORY_CHANGES
from clipless.errors import DataError
from clipless.sketches.release import SketchForm
from sweeper.errors import SpecError
from sweeper.planning.account_plan import check_paid, plan_account
from sweeper.planning.configurations import find_plannable, plan_configuration, plan_event, plan_first
from sweeper.planning.defaults import CompletedSpec
from sweeper.planning.prior import prior_facts
from sweeper.planning.sweep_plan import RecordedSpec, SweepPlan
from sweeper.privacy.baselines import Baselines
from sweeper.privacy.claims import CERTIFIED_MODEL, Claim, Steering
from sweeper.privacy.entries import ChargedEvents
from sweeper.privacy.evaluation.curve_noise import CurveNoise
from sweeper.privacy.evaluation.paid_scores import FINAL_SCORES, ScoreNoise
from sweeper.privacy.pricing import Price, price
from sweeper.privacy.spending import Request, Resumed, Spending, UnmetRequestError, find_spending
from sweeper.rounding import round_up
from sweeper.schedulers import make_scheduler
from sweeper.specification.left_out import Default
from sweeper.specification.objectives import AUROC, BALANCED, reads_training_rows
from sweeper.specification.rules.data import broken_score_rules
from sweeper.specification.search import NO_SCHEDULER, SELECTION_SHARE, SKETCH
from sweeper.specification.settings import AUTO
from sweeper.specification.spec import Spec, chosen_by_results
from sweeper.specification.stages import LOW_SHARE, SPARE_EPOCHS
from sweeper.trials.metrics import check_metrics
from sweeper.trials.rehearsal import rehearsal_halves
from sweeper.trials.settings import TrialSettings

_CLOSE, _LARGEST = 1.05, 100.0  # how near the least budget is found that would do, and up to which it is looked for
WIDEST = 0.2  # half the width of the interval of a planned score, by its noise alone, that still tells something
_EXPECTED = 0.8  # a score, whose noise by class is looked at
CONFIDENCE_WIDTH = 1.96  # standard deviations


def make_sweep_plan(
    completed: CompletedSpec,
    data: Dataset,
    encoding: InputFormat | None = None,
    *,
    spending: Spending | None = None,
    score_noise: tuple[float, float] | None = None,
) -> SweepPlan:
    """Return the plan of a sweep; no file is read for it, and no account.

    Args:
        completed: its spec, with all that it leaves to the data chosen.
        data: of which shapes, numbers of rows and declarations are looked at, and labels of public rows.
        encoding: how its rows are encoded.
        spending: as it was cut when the sweep began, for one that resumes.
        score_noise: noise multipliers of scores of validation and test rows with which it began, likewise.

    Raises:
        SpecError: the spec does not fit the data, or its budget cannot be cut as it asks.
        clipless.errors.CliplessError: no configuration can be planned, or no noise meets the budget.
    """
    spec = completed.spec
    _check_against(spec, data)
    way = find_spending(spec.spending)
    request = _request(spec, data, way, score_noise)
    shared = _share(spec, request.noise)
    if spending is None:
        spending = _cut(spec, way, request)
    if spending.first_slot is not None:
        find_plannable(shared, spec.trials, lambda one: plan_configuration(shared, data, one, spending.first_slot))
    splitting = _splitting(spec, encoding)
    chosen = (*completed.chosen, *_explain(spec, request.noise, spending))
    plan = plan_of_records(spec, make_claim(spec, data, shared, spending), spending)
    plan = replace(plan, shared=shared, input=encoding, chosen=chosen)
    plan = replace(plan, account=plan_account(plan, data, splitting))
    check_paid(plan)

    def expect() -> Price | None:
        return plan.expected_price(plan_first(shared, plan.trials, data))

    stated = spending.in_words(spec.privacy.delta, expect)
    return replace(plan, stated=f"{stated}{_why_infinite(plan)}")


def state_resumed(plan: SweepPlan, data: Dataset, resumed: Resumed) -> SweepPlan:
    """Return the plan of a sweep that goes on, with a price that holds what is spent; one that is fixed stays."""

    def price_with(charged: ChargedEvents, trials: int) -> Price | None:
        return plan.resumed_price(charged, plan_first(plan.shared, plan.trials, data) if trials else (), trials)

    stated = plan.spending.resumed_in_words(resumed, price_with)
    return plan if stated is None else replace(plan, stated=f"{stated}{_why_infinite(plan)}")


def _splitting(spec: Spec, encoding: InputFormat | None) -> Splitting:
    """Return what says the side of each row: the spec, or the ranges file of its table, or nothing but its rows."""
    declared = encoding.raw.splits if encoding is not None and isinstance(encoding.raw, Ranges) else None
    given = None if spec.data.splits is None else spec.data.splits.splitting()
    return given or declared or HashSplit()


def _why_infinite(plan: SweepPlan) -> str:
    """Return that scores alone make the price infinite, empty where one release of them has a finite one."""
    noise = plan.shared.noise
    if noise is None or isfinite(price([noise.paid(1).event], plan.privacy.delta).epsilon):
        return ""
    return " Scores of private rows make it infinite, whatever a training costs: raise privacy.score_noise."


def steer_plan(plan: SweepPlan, steering: Steering) -> SweepPlan:
    """Return the plan of a sweep whose proposals learn from trials of earlier ones.

    Raises:
        SpecError: the sweep is charged to an account, and nobody has paid for what steers it.
    """
    steered = replace(plan, claim=plan.claim.steered_by(steering))
    check_paid(steered)
    return steered


def _explain(spec: Spec, noise: ScoreNoise | None, spending: Spending) -> Iterator[Default]:
    """Yield what the plan itself chose where the spec leaves it out: what is rehearsed on, and the noise of scores."""
    if spec.search.rehearse is None and spec.privacy.stages is None and spec.stages:
        value: bool | str = spec.rehearsals > 0
        because = "rehearsals on public validation rows cost nothing" if value else "explorers find the configuration"
        if spec.sketch_share:
            value, share = SKETCH, f"{100 * spec.sketch_share:.0f} %"
            because = f"no row is public: a sketch of the table shows what to train for {share} of the signal"
        elif spec.trials == 1:
            because = "there is one configuration to train" if not value else because
        yield Default(field="search.rehearse", value=value, because=because)
    if spec.has_low_end and spec.privacy.finals is None:
        because = (
            f"a trial with {100 * LOW_SHARE:g} % of the signal comes first, for points of the front at small epsilons"
        )
        yield Default(field="privacy.finals", value=AUTO, because=because)
    if noise is not None and spec.privacy.score_noise is None:
        pools = spending.score_pools
        count = "all" if pools is None else f"the {pools[0].event.steps}"
        because = f"{count} releases of scores cost what may be spent on validation rows, beside the training"
        yield Default(field="privacy.score_noise", value=float(f"{noise.noise_multiplier:.4g}"), because=because)


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


def make_score_noise(spec: Spec, data: Dataset, planned: tuple[float, float] | None = None) -> ScoreNoise | None:
    """Return the noise of a sweep's scores, ``None`` where they are free.

    ``planned`` are the multipliers of scores of validation rows and of test rows where the spec leaves them out.

    Raises:
        SpecError: nothing says how scores of these rows are paid for, or the spec declares noise for free ones.
    """
    declared = data.metadata
    for field, got, expected, remedy in broken_score_rules(spec.search, spec.privacy, declared.evaluation):
        section, name = field.split(".")[:2]  # without the place in a list
        raise spec.mistaken(expected.replace("{name}", name), f"{section}.{name}", got, remedy)
    if declared.evaluation is not Evaluation.PRIVATE:
        return None
    given = spec.privacy.score_noise
    multipliers = planned if given is None else (given, given)
    if multipliers is None:
        raise spec.mistaken("a noise multiplier of the scores of private rows", "privacy.score_noise", None, "add it")
    if spec.search.repetitions is not None and not declared.split_by_row:
        expected = f"no private selection by scores of private rows of {declared.name}, which does not say that the"
        expected += " split of each row depends on that row alone"
        raise spec.mistaken(expected, "search.selection", None, "leave it out")
    named = [name for name in (*spec.search.objectives, *spec.search.metrics) if name != "epsilon"]
    names, relation = tuple(dict.fromkeys(["accuracy", *named])), spec.privacy.relation
    curves = spec.privacy.curve_noise
    return ScoreNoise(
        names=names,
        noise_multiplier=multipliers[0],
        test_noise_multiplier=multipliers[1],
        relation=relation,
        apart=declared.split_by_row,
        validation=len(data.validation),
        test=len(data.test),
        classes=len(declared.classes),
        curves=None if curves is None else CurveNoise.of(curves, names, declared, relation),
        final_scores=_final_scores(spec),
    )


def make_claim(spec: Spec, data: Dataset, shared: TrialSettings, spending: Spending) -> Claim:
    """Return what a sweep claims, of certificates where it makes some."""
    claim = Claim.about(
        data.metadata,
        len(data.train),
        delta=spec.privacy.delta,
        reads_training_rows=reads_training_rows(spec.search.metrics),
        ends_trials_early=spec.search.scheduler != NO_SCHEDULER,
        has_budget=spending.budget is not None,
        chosen=chosen_by_results(spec),
        of_spending=spending.conditions,
        rehearses=spec.rehearsals > 0 and spending.sketch is None,
        sketch=spending.sketch,
        taken=prior_facts(spec.search.prior),
        noise=shared.noise,
        smoothing=shared.smoothing,
        baselines=Baselines.of(data, spec.search.without_privacy),
        deployment=spec.deployment.to_plain(),
    )
    of_radii = () if spec.radii or shared.smoothing is not None else (CERTIFIED_MODEL, CATEGORY_CHANGES)
    return replace(claim, conditions=tuple(one for one in claim.conditions if one not in of_radii))


def _check_against(spec: Spec, data: Dataset) -> None:
    spec.validate_against(len(data.train), len(data.metadata.classes))
    check_metrics(spec.search.metrics, data.metadata, spec.source)
    if spec.sketch_share:
        _check_sketch(data)
    elif spec.rehearsals:
        rehearsal_halves(data)


def _request(spec: Spec, data: Dataset, way: type[Spending], kept: tuple[float, float] | None) -> Request:
    """Return what the spec asks of its way of spending; a sweep that began keeps the noise of its scores."""
    settings, free = spec.privacy, _share(spec, None)
    training, epochs = find_plannable(
        free, spec.trials, partial(plan_event, free, data, has_noise=not settings.form.gives_noise)
    )
    share = spec.search.selection_share
    request = Request(
        epsilon=inf if settings.sweep_epsilon is None else settings.sweep_epsilon,
        delta=settings.delta,
        training=training,
        epochs=epochs,
        trials=spec.trials,
        stages=spec.stages,
        ends=tuple(training.steps * epoch // epochs for epoch in _rungs(spec, epochs)),
        repeats=spec.search.repeats,
        spare_epochs=SPARE_EPOCHS if settings.spare_epochs is None else settings.spare_epochs,
        repetitions=spec.search.repetitions,
        share=SELECTION_SHARE if share is None else share,
        final_scores=_final_scores(spec),
        sketch_share=spec.sketch_share,
        relation=settings.relation,
    )
    if data.metadata.evaluation is not Evaluation.PRIVATE or settings.score_noise is not None:
        return replace(request, noise=make_score_noise(spec, data))
    noise = make_score_noise(spec, data, kept or way.plan_multipliers(request))

    def suffices(epsilon: float) -> bool:
        larger = make_score_noise(spec, data, way.plan_multipliers(replace(request, epsilon=epsilon)))
        return larger is None or _tell_something(larger, data.metadata.largest_share)

    _check_rows_suffice(spec, noise, data.metadata.largest_share, suffices)
    return replace(request, noise=noise)


def _check_rows_suffice(
    spec: Spec, noise: ScoreNoise | None, largest: float | None, suffices: Callable[[float], bool]
) -> None:
    """Refuse rows of which planned scores would tell next to nothing, before anything of them is released.

    ``suffices`` says of a larger budget whether they would tell something under it.
    """
    if noise is None:
        return
    for (split, score), std in _expected_noise(noise, largest).items():
        rows = {"validation": noise.validation, "test": noise.test}[split]
        if CONFIDENCE_WIDTH * std > WIDEST:
            needed = rows
            while CONFIDENCE_WIDTH * std > WIDEST:  # once, but where a class is smaller than its noise
                needed = ceil(CONFIDENCE_WIDTH * std * needed / WIDEST)
                std = _expected_noise(replace(noise, validation=needed, test=needed), largest)[split, score]
            expected = f"at least {needed} {split} rows, so that the noise of {score} at this budget is within "
            expected += f"+-{WIDEST:g}, got {rows}"
            given = spec.privacy.sweep_epsilon
            least = None if given is None else _find_least(given, suffices)
            raised = "the budget" if least is None else f"privacy.sweep_epsilon to {round_up(least, 2)}"
            raise spec.mistaken(expected, "data.splits", None, f"raise {raised}, or hold more rows back (data.splits)")


def _tell_something(noise: ScoreNoise, largest: float | None) -> bool:
    """Whether every planned score tells something beside its noise."""
    return all(CONFIDENCE_WIDTH * std <= WIDEST for std in _expected_noise(noise, largest).values())


def _find_least(given: float, suffices: Callable[[float], bool]) -> float | None:
    """Return a budget that suffices, larger than the one that is given, by at most `_CLOSE`; None where none is near.

    A larger one suffices too.
    """
    low, high = given, 2.0 * given
    while not suffices(high):
        low, high = high, 2.0 * high
        if high > _LARGEST:
            return None
    while high > _CLOSE * low:
        middle = sqrt(low * high)
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def _rungs(spec: Spec, epochs: int) -> Sequence[int]:
    scheduler = make_scheduler(spec.search, spec.objectives)
    return () if scheduler is None else scheduler.rungs(epochs)


def _expected_noise(noise: ScoreNoise, largest: float | None) -> dict[tuple[str, str], float]:
    """Return the deviations of the noise of scores by split and name, those by class at their public shares."""
    found = {}
    for split, std in noise.stds.items():
        found[split, "a score"] = std
        by_class = noise.expect(split, _EXPECTED, largest)
        if by_class is not None and by_class.form.hits:
            found[split, BALANCED] = by_class.balanced_error.std
        if by_class is not None and by_class.form.order:
            found[split, AUROC] = by_class.auroc_error.std
    return found


def _final_scores(spec: Spec) -> int | None:
    return (spec.privacy.final_scores or FINAL_SCORES) if spec.stages else None


def _check_sketch(data: Dataset) -> None:
    try:
        SketchForm.of(data.metadata)
    except DataError as error:
        raise SpecError(f"{error}; set search.rehearse: false") from None


def _cut(spec: Spec, way: type[Spending], request: Request) -> Spending:
    try:
        return way.cut(request)
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
        smoothing=spec.search.smoothed,
    )


def _record(spec: Spec) -> RecordedSpec:
    return RecordedSpec(
        name=spec.name,
        values=spec.to_plain(),
        overrides=dict(spec.overrides),
        digest=spec.digest(),
        source=spec.source,
        text=spec.text,
    )
