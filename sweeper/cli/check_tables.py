"""The tables of ``sweeper check``: what a sweep would do, and what that costs."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from clipless.datasets import Dataset
from clipless.datasets.metadata import units_word
from clipless.plans.plan import Plan
from clipless.privacy.accounting.calibration import steps_for
from sweeper.planning.check import count_trials
from sweeper.planning.preview import (
    Preview,
    find_lack_of_gpus,
    find_lack_of_privacy,
    find_lack_of_signal,
    find_loose_bounds,
)
from sweeper.planning.sweep_plan import SweepPlan
from sweeper.privacy.evaluation.paid_scores import ScoreNoise
from sweeper.privacy.pricing import price
from sweeper.privacy.spending import Spending
from sweeper.results.estimates import CONFIDENCE, share
from sweeper.rounding import number_of, round_up
from sweeper.specification.fields.nested import flatten
from sweeper.specification.left_out import Default
from sweeper.specification.objectives import is_share_of_rows

_EXAMPLE = 0.8  # an accuracy, whose interval is shown
_WHOLE_PERCENT = 0.01  # a share below it has a decimal


def render_check(
    plan: SweepPlan, data: Dataset, previews: Sequence[Preview], unchecked: str = "", *, details: bool = True
) -> RenderableType:
    """Return what ``sweeper check`` prints: whether it can run and its price, then what is chosen.

    ``unchecked`` says what of the declarations nobody compares with the rows. ``details`` are the configurations, other
    cuts of the budget, and what scores cost.
    """
    lack = find_lack_of_gpus(plan)
    shown: list[RenderableType] = [Text(f"{plan.name}: {'valid, but not for this machine' if lack else 'valid'}.")]
    shown += [Text(lack, style="bold red")] if lack else []
    lacks = find_lack_of_privacy(plan, previews), find_lack_of_signal(plan, previews)
    shown += [Text(f"{words}.", style="bold red") for words in lacks if words]
    lines = [plan.price_in_words, *_render_head(plan, data), *_render_baseline(plan)]
    shown += [Text(line) for line in (*lines, unchecked, find_loose_bounds(plan)) if line]
    shown += [Text(""), _render_chosen(plan.chosen)] if plan.chosen else []
    if plan.spending.parts():
        shown += [Text(""), _render_budget(plan)]
        shown += [Text(""), _render_other_cuts(plan.spending, plan.privacy.delta)] if details else []
    for one in previews:
        passed = [Text(_passed_over_in_words(one.passed_over))] if one.passed_over else []
        block = [*passed, *(_render_one(one) if details else ())]
        shown += [Text(""), *block] if block else []
    if noise := plan.shared.noise:
        costs = _render_score_costs(plan, noise, previews) if details else []
        shown += [Text(""), *(Text(line) for line in (*_render_scores(plan, noise), *costs))]
    return Group(*shown)


def _render_head(plan: SweepPlan, data: Dataset) -> list[str]:
    declared = data.metadata
    return [
        f"Data: {declared.name}, N = {plan.population} training {units_word(declared.unit)}, evaluation "
        f"{declared.evaluation.value}, unit {declared.unit}.",
        f"Search: {count_trials(plan)}; {number_of(plan.shared.space.open, 'hyperparameter')} to search.",
    ]


def _render_baseline(plan: SweepPlan) -> list[str]:
    """Return what scores have to beat as far as it is public; where labels are private their owner can declare it."""
    baselines = plan.claim.baselines
    name = next((one.name for one in plan.shared.objectives if one.name != "epsilon"), "")
    against = baselines.in_words(name)
    if not against:
        return []
    is_open = is_share_of_rows(name) and not baselines.majority
    remedy = "; target.largest_share in the ranges file declares it, where it is public" if is_open else ""
    return [f"To beat in {name}: {against}{remedy}.", plan.advice]


def _render_chosen(chosen: Sequence[Default]) -> Table:
    """Return what the spec leaves to its data, one row for each value; a reason that goes on is not repeated."""
    table = Table(title="chosen for you; a value in the spec takes its place", box=None, title_justify="left")
    for column in ("field", "value", "because"):
        table.add_column(column, overflow="fold", no_wrap=column == "field")
    reason = ""
    for one in chosen:
        because = one.because
        if reason and because.startswith(reason):
            because = f"likewise{because.removeprefix(reason)}"
        else:
            reason = because
        value = number_of(len(one.value), "configuration") if one.field == "search.first" else _in_yaml(one.value)
        table.add_row(one.field, Text(value), because)
    return table


def _in_yaml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_in_yaml(inner)}' for key, inner in value.items())}}}"
    return f"[{', '.join(map(_in_yaml, value))}]" if isinstance(value, list) else f"{value}"


def _render_scores(plan: SweepPlan, noise: ScoreNoise) -> list[str]:
    """Return how well scores of private rows will be known, a line for each split."""
    stds, counted = noise.stds, units_word(plan.claim.unit)
    lines = [f"Scores of private rows ({', '.join(noise.names)}), each release with noise of its own:"]
    sigmas = {"validation": noise.noise_multiplier, "test": noise.noise_multiplier}
    if noise.curves is None:
        sigmas["test"] = noise.test_noise_multiplier
    for split, rows in (("validation", noise.validation), ("test", noise.test)):
        lines.append(
            f"  {split}: {rows} {counted}, noise multiplier {sigmas[split]:.4g}, standard deviation {stds[split]:.3g}; "
            f"an accuracy of {100 * _EXAMPLE:.0f} % is known to +-{100 * _half_width(stds[split], rows):.1f} points"
        )
    lines.append(
        f"  The sampling of the {counted} is in these, with confidence {100 * CONFIDENCE:.0f} %; the best of several "
        "scores is known less well."
        f"{_render_by_class(plan, noise)}"
    )
    return lines


def _render_score_costs(plan: SweepPlan, noise: ScoreNoise, previews: Sequence[Preview]) -> list[str]:
    delta, pools = plan.privacy.delta, plan.spending.score_pools
    text = f"  One release costs epsilon {round_up(price([noise.paid(1).event], delta).epsilon)}"
    if pools is not None:
        validation = pools[0].event
        text += f", the {validation.steps} of validation rows together {round_up(price([validation], delta).epsilon)}"
    else:
        count = plan.shared.repeats * previews[0].plan.epochs
        text += f", the {count} of validation rows that a trial makes "
        text += round_up(price([noise.paid(count).event], delta).epsilon)
    if pools is None and plan.spending.selection is None:
        _, scores = plan.expected_events([one.plan for one in previews])
        text += f", all {sum(event.steps for event in scores)} of the sweep {round_up(price(scores, delta).epsilon)}"
    if noise.curves is None:
        return [f"{text}.", "  Each point of the front is one release of test rows more."]
    curves = round_up(price([noise.paid_test(1).event], delta).epsilon)
    what = "certified accuracy at every radius" + ", ROC and calibration" * noise.curves.two_classes
    return [
        f"{text}.",
        f"  Each point of the front releases whole curves of test rows in place of scores ({what}): noise multiplier "
        f"{noise.curves.noise_multiplier:g}, epsilon {curves}{_count_curves(plan, noise)}.",
    ]


def _render_by_class(plan: SweepPlan, noise: ScoreNoise) -> str:
    """Return how well scores by class are known by one release of validation rows, at public shares of the classes."""
    found = noise.expect("validation", _EXAMPLE, plan.claim.baselines.majority.get("validation"))
    if found is None:
        return ""
    known, form = [], noise.form
    if form.hits:
        known += [
            ("a balanced accuracy", found.balanced_error),
            ("the recall of such a class", found.recall_errors[-1]),
        ]
    if form.order:
        known.append(("an AUROC", found.auroc_error))
    texts = [f"{name} to +-{100 * _half_width(error.std, error.rows):.1f}" for name, error in known]
    class_share = f"{100 * found.sizes[-1] / noise.validation:.3g} %"
    return f" With a class of {class_share} of the rows, of 80 % likewise {', '.join(texts)} points."


def _half_width(std: float, rows: float) -> float:
    """Return half the width of the interval of an example's accuracy, by noise and sampling."""
    _, (low, high) = share(_EXAMPLE, std**2, rows)
    return (high - low) / 2


def _count_curves(plan: SweepPlan, noise: ScoreNoise) -> str:
    """Return of how many points a budget has room for the curves, empty without one."""
    given, sigma = plan.privacy.sweep_epsilon, noise.paid_test(1).event.noise_multiplier
    if given is None:
        return ""
    count = steps_for(given, plan.privacy.delta, sigma, 1.0, plan.privacy.relation)
    return f"; privacy.sweep_epsilon has room for those of {count} points"


def _render_one(one: Preview) -> list[RenderableType]:
    plan = one.plan
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
        Text("A configuration that the search may try:"),
        *(Text(f"  {line}") for line in _configuration_in_lines(one)),
        Text(
            f"  steps: {plan.steps_per_epoch} per epoch, {plan.epochs} epochs; a row joins each with probability "
            f"q = {plan.sampling_rate:.5f}"
        ),
        Text(f"  noise multiplier {plan.noise_multiplier:.4f}; neighbours {plan.relation.value}"),
        Text(
            f"  own epsilon {round_up(last.epsilon)} at delta {plan.delta!r}, the smaller of two upper bounds "
            f"(accountants PLD {round_up(last.pld)}, RDP {rdp})"
        ),
        Text(f"  on the way: {curve}"),
        *([] if one.slots is None else [Text(f"  {_slots_in_words(plan, one.slots)}")]),
        table,
    ]


def _configuration_in_lines(one: Preview) -> list[str]:
    """Return the values of a configuration, a line for each section of its spec."""
    sections: dict[str, list[str]] = {}
    for key, value in flatten(one.config.to_json()).items():
        section, _, name = key.partition(".")
        shown = f"{value:.4g}" if isinstance(value, float) else f"{value}"
        sections.setdefault(section, []).append(f"{name}={shown}")
    return [f"{section}: {', '.join(values)}" for section, values in sections.items()]


def _passed_over_in_words(refusals: Sequence[str]) -> str:
    several = len(refusals) > 1
    return (
        f"{number_of(len(refusals), 'configuration')} before this one cannot be planned; a trial of "
        f"{'one of them' if several else 'it'} fails and costs nothing: {refusals[0]}"
    )


def _slots_in_words(plan: Plan, slots: int) -> str:
    more = slots / plan.batch_size - 1.0
    return (
        f"batches are spread over {slots} slots, {100 * more:.0f} % more than the {plan.batch_size:g} rows that are "
        "drawn on average: kernels may look at the place of a row"
    )


def _render_budget(plan: SweepPlan) -> Table:
    """Return how the budget is cut, and what a trial of each part may spend."""
    spending, delta = plan.spending, plan.privacy.delta
    table = Table(title="The budget, cut before any row is read", box=None, title_justify="left")
    for column in ("stage", "trials", "share", "noise multiplier", "epsilon of one trial", "of the stage"):
        table.add_column(column, justify="right")
    for part in spending.parts():
        alone = round_up(price([part.slot], delta).epsilon)
        noise = f"{part.slot.noise_multiplier:.4g}"
        share = f"{100 * part.share:.{0 if part.share >= _WHOLE_PERCENT else 1}f} %"
        table.add_row(part.name, part.trials, share, noise, alone, round_up(part.epsilon))
    return table


def _render_other_cuts(spending: Spending, delta: float) -> Table:
    """Return a table of the noise multiplier, and the epsilon, of one trial of each part under other cuts."""
    title = "One trial of each stage under other cuts: noise multiplier (epsilon)"
    table = Table(title=title, box=None, title_justify="left")
    for column in ("", *spending.named_slots):
        table.add_column(column, justify="right" if column else "left")
    for name, cut in {"as it is": spending, **spending.other_cuts()}.items():
        slots = cut.named_slots.values()
        table.add_row(
            name, *(f"{slot.noise_multiplier:.4g} ({round_up(price([slot], delta).epsilon)})" for slot in slots)
        )
    return table
