"""What a spec would do, without training: plans, sensitivities, epsilon per epoch, noise against gradient, cost."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import torch
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from clipless.datasets import Dataset
from clipless.errors import CliplessError
from clipless.plans.method import Method
from clipless.plans.plan import Plan
from clipless.privacy.accounting.calibration import steps_for
from clipless.privacy.accounting.claim import Claim
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.accounting.renyi_filter import RenyiFilter
from clipless.privacy.events import PoissonGaussian
from clipless.privacy.randomness import SecureSource
from clipless.privacy.sampling import slots_for
from clipless.training.placing import training_places
from clipless.training.trainer import default_micro_batch
from sweeper.errors import SpecError
from sweeper.planning.budget_plan import first_that_can, first_that_each_can, plan_budget, planned
from sweeper.planning.price_preview import budget_in_words, other_cuts, planned_cost, planned_events, selection_in_words
from sweeper.privacy.budget import Budget
from sweeper.privacy.evaluation.score_noise import ScoreNoise
from sweeper.privacy.prices import answers
from sweeper.privacy.pricing import price
from sweeper.privacy.selection import Terms
from sweeper.rounding import round_up
from sweeper.specification.fields.nested import flatten
from sweeper.specification.fields.ranges import Scalar
from sweeper.specification.spec import Spec
from sweeper.specification.trial_config import TrialConfig
from sweeper.trials.build import build_augmentation, build_loss, build_model
from sweeper.trials.metrics import check_metrics
from sweeper.trials.rehearsal import rehearsal_halves

SELECTION, FINAL = "selection", "final"  # the stages of a budget that holds a private selection


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterPreview:
    """One parameter of a planned training."""

    name: str
    size: int
    sensitivity: float  # largest change of its summed gradient by one example
    noise_std: float  # standard deviation of the noise on each entry of the summed gradient
    # norm of the noise over the largest possible norm of the summed gradient of an expected batch, ``noise_std
    # sqrt(size) / (b sensitivity)``
    noise_to_gradient: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """One configuration as it would be trained; ``claims`` has one entry for each number of epochs.

    ``slots`` are those over which batches are spread, copies of rows left out; None for rows one behind the other.
    ``passed_over`` says why configurations that would have come before it cannot be planned.
    """

    config: TrialConfig
    plan: Plan
    parameters: tuple[ParameterPreview, ...]
    claims: tuple[Claim, ...]
    slots: int | None
    passed_over: tuple[str, ...] = ()


def preview(spec: Spec, data: Dataset, configurations: int = 1) -> tuple[Preview, ...]:
    """Plan the first ``configurations`` that the sweep could try: those to be tried first, then random ones.

    Those that cannot be planned are passed over, as trials of them fail without a price.

    Raises:
        SpecError: the spec does not fit the data.
        clipless.errors.CliplessError: the first of the configurations cannot be planned, and no other can.
    """
    _validate(spec, data)
    slot = _first_slot(spec, data)
    found = first_that_each_can(spec, lambda proposal: _plan(spec, data, proposal, slot), configurations)
    return tuple(replace(one, passed_over=refusals) for one, refusals in found)


def check_plans(spec: Spec, data: Dataset) -> None:
    """Refuse a sweep of which none of the first configurations can be planned; a single one may fail.

    Raises:
        SpecError: the spec does not fit the data.
        clipless.errors.CliplessError: the first of the configurations cannot be planned.
    """
    _validate(spec, data)
    first_plan(spec, data)


def first_plan(spec: Spec, data: Dataset) -> Plan:
    """Return the plan of the first of the configurations that can be planned.

    Raises:
        SpecError, clipless.errors.CliplessError: the first of the configurations cannot be planned, and no other can.
    """
    slot = _first_slot(spec, data)
    return first_that_can(spec, lambda proposal: planned(spec, data, proposal, slot)[1])


def can_be_planned(
    spec: Spec, data: Dataset, proposal: Mapping[str, Scalar], slot: PoissonGaussian | None = None
) -> bool:
    """Whether a configuration has a plan; that depends on nothing but the spec and what is declared of the data.

    The ``slot`` of a budget gives it its noise.
    """
    try:
        planned(spec, data, proposal, slot)
    except (SpecError, CliplessError):
        return False
    return True


def priced_terms(spec: Spec, data: Dataset, plan: Plan, repetitions: Repetitions) -> Terms:
    """Return the terms of a private selection among candidates that spend what one with this plan does.

    Raises:
        SpecError: scores of private rows that cannot be paid for.
    """
    noise = ScoreNoise.of(spec, data)
    scores = None if noise is None else noise.paid(plan.epochs).event
    return Terms(event=plan.event(), repetitions=repetitions, scores=scores)


def _validate(spec: Spec, data: Dataset) -> None:
    spec.validate_against(len(data.train), len(data.metadata.classes))
    check_metrics(spec.search.metrics, data.metadata, spec.source)
    if spec.rehearsals:
        rehearsal_halves(data)
    ScoreNoise.of(spec, data)


def _first_slot(spec: Spec, data: Dataset) -> PoissonGaussian | None:
    budget = plan_budget(spec, data)
    if not isinstance(budget, Budget):
        return None
    return (budget if budget.selection is None else budget.candidates).stages[0].slot


def _plan(spec: Spec, data: Dataset, proposal: Mapping[str, Scalar], slot: PoissonGaussian | None) -> Preview:
    config, plan = planned(spec, data, proposal, slot)
    stds = plan.noise_stds
    parameters = tuple(
        ParameterPreview(
            name=name,
            size=plan.sizes[name],
            sensitivity=delta,
            noise_std=stds[name],
            noise_to_gradient=stds[name] * sqrt(plan.sizes[name]) / (plan.batch_size * delta),
        )
        for name, delta in plan.sensitivities.items()
    )
    slots = _slots(spec, data, config, plan)
    return Preview(config=config, plan=plan, parameters=parameters, claims=plan.claims(), slots=slots)


def _slots(spec: Spec, data: Dataset, config: TrialConfig, plan: Plan) -> int | None:
    """Return over how many slots batches are spread, as a trial with its threads would find out on this machine."""
    if plan.method is Method.NON_PRIVATE:
        return None
    if spec.resources.gpus:
        return slots_for(plan.population, plan.sampling_rate)
    loss, threads = build_loss(config), torch.get_num_threads()
    torch.set_num_threads(max(1, int(spec.resources.cpus)))
    try:
        places = training_places(
            build_model(config, data, loss, spec.search.seed),
            *(loss, data.train, plan, SecureSource()),
            config.training.micro_batch_size or default_micro_batch("cpu"),
            augmentation=build_augmentation(config, data),
            ghost=bool(config.training.ghost_clipping),
            exact=bool(config.training.exact_norms),
        )
    finally:
        torch.set_num_threads(threads)
    return None if places.slots is None else places.slots.count


def render(spec: Spec, data: Dataset, previews: Sequence[Preview]) -> RenderableType:
    """Return what ``sweeper check`` prints."""
    declared = data.metadata
    parts: list[RenderableType] = [
        Text(
            f"{spec.name}: valid. {declared.name}, N = {len(data.train)} training rows, evaluation "
            f"{declared.evaluation.value}, unit {declared.unit}; {_number_of_trials(spec)}, "
            f"{spec.space.open} open hyperparameters."
        )
    ]
    lack = lack_of_gpus(spec)
    parts += [Text(lack, style="bold red")] if lack else []
    for one in previews:
        parts += [Text(""), *_render_one(one)]
    noise = ScoreNoise.of(spec, data)
    if noise is not None:
        parts.append(Text(f"\n{_render_scores(spec, noise, previews)}"))
    budget = plan_budget(spec, data)
    if budget is not None:
        return Group(*parts, Text(""), *_render_budget(budget))
    if spec.search.repetitions is not None:
        terms = priced_terms(spec, data, previews[0].plan, spec.search.repetitions)
        return Group(*parts, Text(f"\n{selection_in_words(terms, spec.privacy.delta)}"))
    cost = planned_cost(spec, [one.plan for one in previews], noise)
    parts.append(
        Text(
            f"\nEverything the sweep releases: about epsilon {round_up(cost.epsilon)} at delta {cost.delta!r}, if its "
            f"{cost.events} trials spend what the {len(previews)} above would. privacy.sweep_epsilon would bound it."
        )
    )
    return Group(*parts)


def lack_of_gpus(spec: Spec) -> str:
    """Return why a sweep cannot train on this machine, empty if it can: it asks for a GPU, and there is none."""
    if not spec.resources.gpus or torch.cuda.device_count():
        return ""
    return (
        f"Expected a GPU for resources.gpus: {spec.resources.gpus:g} in {spec.source}, but this machine has none that "
        "torch can use; leave it out, or name a cluster that has one with --cluster"
    )


def _number_of_trials(spec: Spec) -> str:
    law, trials = spec.search.repetitions, f"{spec.trials} trial{'s' * (spec.trials != 1)}"
    if spec.rehearsals:
        return f"{spec.rehearsals} configurations to rehearse on public rows, then {trials}"
    if law is None:
        return trials
    final = "" if spec.privacy.sweep_epsilon is None else ", then one final"
    return f"a secret number of trials, {law.mean:g} on average{final}"


def _render_scores(spec: Spec, noise: ScoreNoise, previews: Sequence[Preview]) -> str:
    delta, stds = spec.privacy.delta, noise.stds
    count = spec.search.repeats * previews[0].plan.epochs
    one, trial = (round_up(price([noise.paid(releases).event], delta).epsilon) for releases in (1, count))
    said = (
        f"Scores of private rows ({', '.join(noise.names)}): noise multiplier {noise.noise_multiplier:g} in each "
        f"release, a standard deviation of {stds['validation']:.3g} on {noise.validation} validation rows and "
        f"{stds['test']:.3g} on {noise.test} test rows. One release costs epsilon {one}, the {count} of validation "
        f"rows that a trial makes {trial}"
    )
    if spec.search.repetitions is None:
        _, scores = planned_events(spec, [one.plan for one in previews], noise)
        said += f", all {sum(event.steps for event in scores)} of the sweep {round_up(price(scores, delta).epsilon)}"
    if noise.curves is None:
        return f"{said}; each point of the front is one release of test rows more."
    curves = round_up(price([noise.paid_test(1).event], delta).epsilon)
    what = "certified accuracy at every radius" + ", ROC and calibration" * noise.curves.two_classes
    return (
        f"{said}. Each point of the front releases whole curves of test rows in place of scores ({what}): noise "
        f"multiplier {noise.curves.noise_multiplier:g}, epsilon {curves}{_room_for_curves(spec, noise)}."
    )


def _room_for_curves(spec: Spec, noise: ScoreNoise) -> str:
    """Return of how many points a budget has room for the curves, empty without one."""
    given, sigma = spec.privacy.sweep_epsilon, noise.paid_test(1).event.noise_multiplier
    if given is None:
        return ""
    count = steps_for(given, spec.privacy.delta, sigma, 1.0, spec.privacy.relation)
    return f"; privacy.sweep_epsilon has room for those of {count} points"


def _render_one(one: Preview) -> list[RenderableType]:
    plan = one.plan
    chosen = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in flatten(one.config.to_json()).items())
    table = Table(box=None, title_justify="left")
    for column in ("parameter", "entries", "sensitivity", "noise std", "noise / gradient"):
        table.add_column(column, justify="left" if column == "parameter" else "right")
    for p in one.parameters:
        table.add_row(p.name, str(p.size), f"{p.sensitivity:.4g}", f"{p.noise_std:.4g}", f"{p.noise_to_gradient:.3g}")
    count, last = len(one.claims), one.claims[-1]
    shown = sorted({0, count // 4, count // 2, count - 1})
    curve = ", ".join(f"epoch {i + 1}: {round_up(one.claims[i].epsilon)}" for i in shown)
    rdp = "absent" if last.rdp is None else round_up(last.rdp)
    return [
        *([Text(_passed_over_in_words(one.passed_over))] if one.passed_over else []),
        Text(chosen),
        Text(
            f"q = {plan.sampling_rate:.5f}, {plan.steps_per_epoch} steps per epoch, {plan.epochs} epochs, "
            f"noise multiplier {plan.noise_multiplier:.4f}, {plan.relation.value}"
        ),
        Text(f"epsilon {round_up(last.epsilon)} at delta {plan.delta!r} (PLD {round_up(last.pld)}, RDP {rdp})"),
        Text(f"on the way: {curve}"),
        *([] if one.slots is None else [Text(_slots_in_words(plan, one.slots))]),
        table,
    ]


def _passed_over_in_words(refusals: Sequence[str]) -> str:
    count = len(refusals)
    return (
        f"{count} configuration{'s' * (count != 1)} before this one cannot be planned; a trial of "
        f"{'one of them' if count > 1 else 'it'} fails and costs nothing: {refusals[0]}"
    )


def _slots_in_words(plan: Plan, slots: int) -> str:
    more = slots / plan.batch_size - 1.0
    return (
        f"batches are spread over {slots} slots, {100 * more:.0f} % more than the {plan.batch_size:g} rows that are "
        "drawn on average: kernels may look at the place of a row"
    )


def _render_budget(budget: Budget | RenyiFilter) -> list[RenderableType]:
    """Return the cut of a budget, what a trial of each stage may spend, and what other cuts would buy."""
    if isinstance(budget, RenyiFilter):
        return [Text(budget_in_words(budget))]
    table = Table(title="The budget, cut before any row is read", box=None, title_justify="left")
    for column in ("stage", "trials", "share", "noise multiplier", "epsilon of one trial", "of the stage"):
        table.add_column(column, justify="right")
    for name, trials, slot, share, together in _cut(budget):
        alone = price([slot], budget.delta).epsilon
        noise = f"{slot.noise_multiplier:.4g}"
        table.add_row(name, trials, f"{100 * share:.0f} %", noise, round_up(alone), round_up(together))
    return [table, Text(budget_in_words(budget)), Text(""), _other_cuts(budget)]


def _cut(budget: Budget) -> Iterator[tuple[str, str, PoissonGaussian, float, float]]:
    """Yield of each stage its name, number of trials, slot, share, and what it costs alone."""
    terms, shares, delta = budget.selection, list(budget.shares), budget.delta
    if terms is not None:
        winner = answers([], delta, selection=replace(terms, scores=None))["winner"].epsilon
        yield SELECTION, f"{terms.repetitions.mean:g} on average", terms.event, shares.pop(0), winner
    for number, (stage, share) in enumerate(zip(budget.stages, shares, strict=True), start=1):
        name = f"{number}" if terms is None else FINAL
        yield name, f"{stage.trials}", stage.slot, share, price([stage.pool], delta).epsilon


def _other_cuts(budget: Budget) -> Table:
    """Return a table of the noise multiplier, and the epsilon, of one trial of each stage under other cuts."""
    title = "One trial of each stage under other cuts: noise multiplier (epsilon)"
    table = Table(title=title, box=None, title_justify="left")
    names = [f"stage {number + 1}" for number in range(len(budget.stages))]
    for column in ("", *(names if budget.selection is None else (SELECTION, FINAL))):
        table.add_column(column, justify="right" if column else "left")
    table.add_row("as it is", *_loudnesses(budget))
    for name, cut in other_cuts(budget).items():
        table.add_row(name, *_loudnesses(cut))
    return table


def _loudnesses(budget: Budget) -> list[str]:
    whispers = [] if budget.selection is None else [budget.selection.event]
    slots = [*whispers, *(stage.slot for stage in budget.stages)]
    return [f"{slot.noise_multiplier:.4g} ({round_up(price([slot], budget.delta).epsilon, 3)})" for slot in slots]
