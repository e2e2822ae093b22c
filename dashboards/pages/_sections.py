"""The parts of the report that are text: what was found, what it costs, what is claimed, how to take it."""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import combinations
from math import floor, isfinite, isnan

from clipless.audits.finding import AuditKind, Finding
from clipless.datasets import Evaluation
from clipless.datasets.metadata import units_word
from clipless.privacy.exposure import FALSE_ALARMS, Basis
from dashboards.data import SweepData
from dashboards.pages._html import Child, Html, each, join, tag
from dashboards.pages._page import card, exploratory, facts_list, header, scrolling_table, section
from dashboards.summary import best_of, budgets
from dashboards.text import (
    MISSING,
    delta_text,
    deltas_text,
    in_parentheses,
    interval_text,
    is_fraction,
    number,
    percent,
    show,
    show_epsilon,
    show_test,
    show_value,
    title_of,
    whole,
)
from sweeper.privacy.baselines import MajoritySource, warning
from sweeper.privacy.card.person import GROUP_PRIVACY, group_epsilon
from sweeper.privacy.claims import CERTIFIED_MODEL
from sweeper.privacy.held_out import mean_in_words, shown_score
from sweeper.privacy.pricing import OWN, Price, prices_by_release
from sweeper.program import program
from sweeper.records import Point, PointKey
from sweeper.results.budgets import WithinBudget
from sweeper.results.highlights import FINALS_FIRST, finals_first, nearly_best
from sweeper.results.pick import pick
from sweeper.rounding import number_of, round_down
from sweeper.specification.objectives import AUROC, BALANCED

_BASES = {
    Basis.PROFILE: "the privacy profile of everything that was paid for",
    Basis.RENYI: (
        "the Renyi divergences of everything that was paid for, which allow more than the loss distributions that a "
        "finished sweep is priced by"
    ),
    Basis.PAIR: "epsilon and delta alone, which allow more than most mechanisms do",
}


_SHARES: Mapping[MajoritySource | None, str] = {
    None: ", by its declared or privately released share",  # earlier records do not say which
    MajoritySource.DECLARED: ", the share that the ranges file declares",
    MajoritySource.SKETCH: ", its share in the private sketch",
}


def head(data: SweepData, eyebrow: Html | str, answers: Html) -> Html:
    """Name, answers, and the terms under which every epsilon of the page is stated: one line that opens."""
    claim = data.result.claim
    banner = exploratory(" The conditions below say what.") if claim.exploratory else None
    terms = [data.result.claim.data, delta_text(data), *data.relations, f"{claim.population} {units_word(claim.unit)}"]
    line = tag("summary", tag("b", "Terms"), " ", ", ".join([*terms, f"scored on {claim.evaluation} rows"]))
    opened = tag("details", line, facts_list(facts(data)), class_="terms")
    return header(eyebrow, data.name, join([banner, answers, opened]))


def facts(data: SweepData) -> dict[str, tuple[str, str | None]]:
    """Return the terms of a sweep, and what was trained, each with a note or none."""
    claim = data.result.claim
    return {
        "data": (claim.data, f"{claim.population} training {units_word(claim.unit)}"),
        "delta": (deltas_text(data), None),
        "relation": (", ".join(data.relations) or "not recorded", f"unit: {claim.unit}"),
        "evaluation rows": (claim.evaluation, None),
        **_tried_fact(data),
        "points": (str(len(data.points)), f"{len(data.result.on_front)} on the front"),
        **_price_fact(data),
        **_constant_fact(data),
    }


def _tried_fact(data: SweepData) -> dict[str, tuple[str, str | None]]:
    """How many trials there are; of a sweep that rehearses, how many configurations were rehearsed and trained."""
    done, planned = len(data.rehearsals), data.rehearsals_planned
    if not planned:
        return {"trials": (str(len(data.trials)), _how_ended(data))}
    of_all = "" if done == planned else f" of {planned}"
    note = f"rehearsed on {data.rehearsal_source.in_words}" + (f"; {ended}" if (ended := _how_ended(data)) else "")
    return {"configurations": (f"{done}{of_all} rehearsed, {len(data.trials)} trained", note)}


def _constant_fact(data: SweepData) -> dict[str, tuple[str, str | None]]:
    """What the majority-class baseline reaches: what every score has to beat."""
    baselines = data.result.claim.baselines
    reached = baselines.constant(data.utility)
    if reached is None:
        return {}
    known = "validation" in baselines.majority
    note = "always predicts the most frequent class" if known else f"at least: {len(baselines.classes)} classes"
    note = "chance" if data.utility in (AUROC, BALANCED) else note
    counted = (
        known and data.utility not in (AUROC, BALANCED) and data.result.claim.evaluation == Evaluation.PUBLIC.value
    )
    rows = " on validation rows" if counted else ""
    interval = in_parentheses(data.utility, baselines.interval(data.utility))
    shown = f"{show(data.utility, reached)}{interval}{rows}"
    return {"majority-class baseline": (f"{data.utility} {shown}", note)}


def constant_in_words(data: SweepData, split: str = "validation") -> str:
    """What the majority-class baseline reaches and where that is known from, in one sentence; empty if it is not.

    It is that of validation rows where the split has no other.
    """
    claim = data.result.claim
    split = split if split in claim.baselines.majority else "validation"
    reached = claim.baselines.constant(data.utility, split)
    if reached is None:
        return ""
    value = whole(show(data.utility, reached))
    if data.utility in (AUROC, BALANCED):
        return f"Chance reaches {value}."
    if "validation" not in claim.baselines.majority:
        return (
            f"Always predicting the most frequent class reaches at least {value}; how often that class occurs in the "
            "private rows is neither declared nor released."
        )
    source = f" on {split} rows"
    if claim.evaluation == Evaluation.PRIVATE.value:
        source = f"{_SHARES[claim.baselines.majority_source]}{claim.baselines.contradiction}"
    interval = in_parentheses(data.utility, claim.baselines.interval(data.utility, split))
    return f"Always predicting the most frequent class reaches {value}{interval}{source}."


def _price_fact(data: SweepData) -> dict[str, tuple[str, str | None]]:
    """The price of the sweep, beside the own epsilon of its costliest training, and where the front ends before it."""
    price, costliest = data.result.price, data.costliest_training
    if price is None:
        return {}
    note = None
    if costliest is not None:
        ratio = number(price.epsilon / costliest, up=True)
        note = f"{ratio} times the own epsilon of the costliest training, {show_epsilon(costliest)}"
        last = max((point.values.get("epsilon", 0.0) for point in data.front_points), default=costliest)
        if last < costliest:
            note += (
                f". The front ends at own epsilon {show_epsilon(last)}: trainings above it are in the price, "
                "but gave no better model"
            )
    if price.unproven:
        note = price.unproven if note is None else f"{note}. {price.unproven}"
    return {"price": (f"epsilon {show_epsilon(price.epsilon)}{price.doubt}", note)}


def _how_ended(data: SweepData) -> str | None:
    counts = Counter(data.how_stands(id_) for id_ in data.trials)
    return ", ".join(f"{count} {status}" for status, count in counts.most_common()) or None


def headline(data: SweepData) -> Html:
    """What can be bought: the first thing a reader wants to know."""
    if not data.front_points:
        words = "The best points for each budget stand here as soon as a trial has finished its first epoch."
        return section("headline", "The best models, and their price", tag("p", words))
    found = _distinct(budgets(data))
    cards = tag("div", *(_card(data, budget, title) for title, budget in found), class_="cards")
    alone = (
        "The best points of the front by own epsilon: what one training costs whose configuration and epoch are fixed "
        "in advance. They show what a larger or smaller budget is worth in another sweep; a model of this one costs "
        "the price, whichever it is."
    )
    if finals_first(data.front_points):
        alone += f" {FINALS_FIRST}"
    if _overlap(data, [budget for _, budget in found]):
        alone += " Where the intervals of two cards overlap, their difference may be chance."
    return section(
        "headline",
        "The best models, and their price",
        *_bought(data),
        tag("h3", "By own epsilon (fixed in advance)"),
        tag("p", alone),
        cards,
    )


def _overlap(data: SweepData, found: Iterable[WithinBudget]) -> bool:
    """Whether the scores of two budgets have intervals that overlap."""
    points = (budget.best.get(data.utility) for budget in found)
    distinct = {point.key: point for point in points if point is not None}.values()
    ends = [shown_score(point, data.utility, data.result.claim).interval for point in distinct]
    return any(a[0] <= b[1] and b[0] <= a[1] for a, b in combinations(filter(None, ends), 2))


def _distinct(found: Iterable[WithinBudget]) -> list[tuple[str, WithinBudget]]:
    """Budgets with a title each; those that buy the same points are one."""
    groups: dict[tuple[PointKey | None, ...], list[WithinBudget]] = {}
    for budget in found:
        keys = tuple(None if point is None else point.key for point in budget.best.values())
        groups.setdefault(keys, []).append(budget)
    ranges = (
        " to ".join(dict.fromkeys(number(one.epsilon) for one in (same[0], same[-1]))) for same in groups.values()
    )
    return [(f"{OWN} ≤ {text}", same[0]) for text, same in zip(ranges, groups.values(), strict=True)]


def _bought(data: SweepData) -> list[Html]:
    """What the price buys: the best points, whatever their own epsilons are."""
    price = data.result.price
    if price is None:
        return [tag("p", "The price of this sweep is not known.")]
    words = (
        "Points were chosen on validation rows; the test number beside each is the same model on rows that did not "
        "choose it."
    )
    near = nearly_best(data.result)
    best = WithinBudget(price.epsilon, {name: best_of(data, name) for name in utilities(data)})
    title = f"price: epsilon {show_epsilon(price.epsilon)}{price.doubt}"
    beside = [tag("p", near) if near else None, _knee(data)]
    return [
        tag("p", words),
        tag("div", _card(data, best, title), tag("div", *beside, class_="beside"), class_="cards"),
    ]


def _stated(data: SweepData, price: Price) -> Html:
    """What the price is for, and whether further trials change it."""
    released = data.result.ledger.get("everything", price).released
    return tag(
        "p",
        tag("strong", f"The price of this sweep is epsilon {show_epsilon(price.epsilon)}, "),
        "whether one of its models leaves or all. "
        if released
        else "for its winner; nothing else of this sweep may leave. ",
        _why(price),
    )


def _why(price: Price) -> str:
    """Whether further trials change the price, and what would fix it."""
    remedy = " With privacy.sweep_epsilon in the spec it is fixed beforehand, and exploring costs little of it."
    return price.course if price.fixed else price.course + remedy


def utilities(data: SweepData) -> list[str]:
    """Return the objectives that are not epsilon."""
    return [objective.name for objective in data.result.objectives if objective.name != "epsilon"]


def _knee(data: SweepData) -> Html | None:
    knee = data.result.knee
    if knee is None:
        return None
    names = [objective.name for objective in data.result.objectives if objective.name in knee.values]
    values = ", ".join(f"{title_of(name)} {whole(show_value(knee, name))}" for name in names)
    return tag(
        "p",
        tag("strong", "Knee of the front: "),
        f"{knee.label}, with {values} on validation rows. The front bends most here: past it, each gain in "
        "one objective costs more of another.",
    )


def _card(data: SweepData, budget: WithinBudget, title: str) -> Html:
    first = budget.best.get(data.utility)
    if first is None:
        return card(title, tag("p", "no point of the front is this private", class_="none"))
    rows = []
    for name, point in budget.best.items():
        if name != data.utility:
            rows.append(_card_row(f"its {title_of(name)}", name, first))
            if point is not None and point.key != first.key:
                # on test rows it may be behind the score of the first one
                chosen = ", chosen on validation rows" if name in (point.test or {}) else ""
                rows.append(_card_row(f"best {title_of(name)}{chosen}", name, point))
    marks = [f"{said}." for said in (data.doubt(first), nearly_constant(data, first)) if said]
    heads = join([tag("td"), each("th", ["test", "validation"], scope="col")])
    name = data.utility
    shown = shown_score(first, name, data.result.claim)
    tested, value = shown.split == "test", show(name, shown.value)
    unit = ", ".join(filter(None, [f"{title_of(name)} on {shown.split} rows", interval_text(name, shown.interval)]))
    mean = mean_in_words(first, name)
    chose = [tag("b", show_value(first, name)), f" on the validation rows that chose it{mean}"]
    where = f"{first.label}, {OWN} {show_epsilon(first.values['epsilon'])}"
    return card(
        title,
        tag("p", value, " ", tag("small", unit), class_="big"),
        tag("p", *(chose if tested else ["not scored on test rows"]), class_="test"),
        tag("table", tag("thead", tag("tr", heads)), tag("tbody", *rows)) if rows else None,
        tag("p", where, class_="from"),
        *(tag("p", mark, class_="warning") for mark in marks),
    )


def nearly_constant(data: SweepData, point: Point) -> str:
    """Say that a model nearly always gives one answer, empty where it does not or where rows are private."""
    return "" if point.classes is None else warning(point.classes, data.result.claim.baselines.classes)


def by_class(data: SweepData) -> Html | None:
    """How the test rows of each class fare under the best point and at the knee; None where that may not be told."""
    best = best_of(data, data.utility)
    chosen = {p.key: p for p in (best, data.result.knee) if p is not None and p.classes is not None}
    warned = [point for point in data.useful_points if nearly_constant(data, point)]
    tables = [table for point in chosen.values() if (table := _class_table(data, point)) is not None]
    if not tables:
        return None
    words = "How public test rows were decided. Balanced accuracy is the mean of the recalls."
    counts = f"{len(warned)} of {number_of(len(data.useful_points), 'point')} of the front"
    some = f"{counts} {'gives' if len(warned) == 1 else 'give'} nearly every row the same answer."
    banner = tag("p", tag("strong", "Nearly constant. "), some, class_="banner", role="note") if warned else None
    return section("classes", "Class by class", tag("p", words), banner, tag("div", *tables, class_="two"))


def _class_table(data: SweepData, point: Point) -> Html | None:
    counts, names = point.classes, data.result.claim.baselines.classes
    if counts is None:
        return None
    rows = [
        tag(
            "tr",
            tag("th", name, scope="row"),
            each("td", [rows, decided, *map(_share, (recall, precision))], class_="number"),
        )
        for name, rows, decided, recall, precision in zip(
            names or map(str, range(len(counts.rows))),
            *(counts.rows, counts.decided, counts.recalls, counts.precisions),
            strict=True,
        )
    ]
    heads = tag("th", "class", scope="col")
    heads = join(
        [heads, each("th", ["test rows", "decided for it", "recall", "precision"], scope="col", class_="number")]
    )
    title = f"{point.label}: balanced accuracy {show('balanced accuracy', counts.balanced_accuracy)}"
    warned_of = nearly_constant(data, point)
    warned = tag("p", f"{warned_of}.", class_="warning") if warned_of else None
    return tag("div", tag("h3", title), warned, scrolling_table(heads, rows, slim=True))


def _share(value: float | None) -> str:
    return MISSING if value is None else show("accuracy", value)


def _card_row(label: str, name: str, point: Point) -> Html:
    texts = [show_test(point, name), show_value(point, name) if name in point.values else MISSING]
    return tag("tr", tag("th", label, scope="row"), each("td", map(whole, texts)))


def cost(data: SweepData) -> Html:
    """The price, as the ledger states it."""
    cards = []
    for title, answer in prices_by_release(data.result.ledger).items():
        big: list[Html | str] = ["not released"]
        if answer.released:
            big = [show_epsilon(answer.epsilon), " ", tag("small", f"epsilon{answer.doubt}")]
        statement = tag("p", answer.statement, class_="test")
        cards.append(card(title, tag("p", *big, class_="big"), statement))
    words = (
        "The ledger computes it from everything that was spent. The own epsilon of a point holds if its configuration "
        "and epoch were fixed in advance; a model that was chosen by scores of this sweep costs the price."
    )
    columns = "cards" if len(cards) > 1 else "cards one"
    price = data.result.price
    return section(
        "cost",
        "The price",
        None if price is None else _stated(data, price),
        tag("p", words),
        tag("div", *cards, class_=columns) if cards else tag("p", "Nothing is priced yet."),
        _person(price),
    )


def _person(price: Price | None) -> Html | None:
    """What the price means to a person: what an attacker finds, and what several rows cost."""
    exposure = None if price is None else price.exposure
    if price is None or exposure is None:
        return None
    found = [
        *(
            (f"finds a row, accusing {100 * rate:g} % of innocents", percent(caught))
            for rate, caught in zip(FALSE_ALARMS, exposure.risk.caught, strict=True)
        ),
        ("finds a row: largest advantage", percent(exposure.risk.advantage)),
        *(
            (
                f"epsilon of a person with {number_of(one.rows, 'row')}, at delta {number(price.delta)}",
                group_epsilon(one),
            )
            for one in exposure.groups
        ),
        *(
            (
                f"moves the probability of an outcome, with {number_of(one.rows, 'planted row')}",
                percent(one.shift),
            )
            for one in exposure.groups
        ),
    ]
    heads = join(
        [
            tag("th", "where an attacker knows all other rows", scope="col"),
            tag("th", "at most", scope="col", class_="number"),
        ]
    )
    rows = [tag("tr", tag("th", name, scope="row"), tag("td", text, class_="number")) for name, text in found]
    basis = _BASES[exposure.risk.basis]
    note = price.qualify(f"Upper bounds at the price of the sweep, from {basis}.")
    if not all(one.own for one in exposure.groups):
        note += f" {GROUP_PRIVACY}"
    words = tag("p", tag("strong", price.qualify(exposure.risk.in_words())), " ", note)
    table = scrolling_table(heads, rows, slim=True)
    return tag("div", tag("div", tag("h3", "What that means for a person"), words), table, class_="two")


def claim(data: SweepData) -> Html:
    """Under which conditions the numbers hold, and what was taken as public."""
    claimed = data.result.claim
    relations = ", ".join(data.relations) or "not recorded"
    always = [
        f"Epsilon is stated at {delta_text(data)}, for the relation {relations}; the privacy unit is one "
        f"{claimed.unit}.",
    ]
    conditions = claimed.conditions
    if data.certificates or data.smoothed:
        always.append(f"Certified radii are Euclidean, in {claimed.radius_unit}.")
    else:
        conditions = tuple(one for one in conditions if one != CERTIFIED_MODEL)
    parts = {"Conditions": (*always, *conditions), "Taken as public": claimed.public}
    lists = (
        join([tag("h3", heading), tag("ul", each("li", sentences), class_="plain columns")])
        for heading, sentences in parts.items()
    )
    return section("claim", "What is claimed, and what is not", *lists)


def attacks(data: SweepData) -> Html | None:
    """What audits attained of each kind of claim, by the finding that attained most of it; None where nothing was."""
    if not data.evidence:
        return None
    kinds: dict[AuditKind, list[Finding]] = {}
    for row in data.evidence:
        kinds.setdefault(row.finding.kind, []).append(row.finding)
    words = (
        "Audits attacked the claims of this sweep, on public or made-up rows. An attack that reaches a larger epsilon "
        "than is claimed refutes the claim, and its points leave the front. One that reaches less refutes nothing, and "
        "proves no more than the epsilon that it reached."
    )
    heads = join(
        [
            tag("th", "audit", scope="col"),
            each("th", ["findings", "refuted", "claimed", "reached", "share"], scope="col", class_="number"),
            each("th", ["at delta", "where"], scope="col"),
        ]
    )
    return section(
        "attacks",
        "Attacks on the privacy claims",
        tag("p", words),
        scrolling_table(heads, [_attack_row(kind, found) for kind, found in kinds.items()]),
    )


def _attack_row(kind: AuditKind, found: list[Finding]) -> Html:
    most = max(found, key=lambda one: -1.0 if isnan(one.ratio) else one.ratio)
    refuted = sum(one.contradicted for one in found)
    share = MISSING if isnan(most.ratio) else show("accuracy", most.ratio)
    numbers = [str(len(found)), str(refuted), show_epsilon(most.epsilon), round_down(most.attained), share]
    return tag(
        "tr",
        tag("th", kind.value, scope="row"),
        each("td", numbers, class_="number"),
        each("td", [number(most.delta), most.subject]),
    )


PICK = (
    "Name the price that you can pay and what you need; you get the best point: its configuration, its privacy card "
    "and its model."
)


def how_to_pick(data: SweepData) -> Html:
    """Commands that take one model of the front, with thresholds that this front can meet."""
    where = shlex.quote(data.directory or data.name)
    most, least = conditions(data)
    limit = "" if most is None else f" --max-price {most}"
    commands = [f"{program()} pick {where}{limit}"]
    if least is not None:
        commands.append(f"{commands[0]} --min {shlex.quote('='.join(least))}")
    model = picked_model(data)
    load = [
        tag("p", "The model that pick takes, in Python:"),
        code(f'import clipless\n\nmodel = clipless.load("{data.directory or "."}/{model}")'),
    ]
    pick_it = code("\n".join(commands))
    return section("pick", "Take one of these models", tag("p", PICK), pick_it, *(load if model else []))


def picked_model(data: SweepData) -> str | None:
    """Path in the sweep's folder of the model that pick takes; None where there is no point or none was kept."""
    return pick(data.result).model if data.front_points else None


def conditions(data: SweepData) -> tuple[str | None, tuple[str, str] | None]:
    """Conditions that this front can meet: the largest price, and a certificate with its smallest value."""
    price, name = data.result.price, data.certificate
    most = None if price is None or not isfinite(price.epsilon) else show_epsilon(price.epsilon)
    best = best_of(data, name) if name else None
    if not (name and best and is_fraction(name)):
        return most, None
    return most, (name, f"{floor(20 * best.values[name]) / 20:g}")


def code(*parts: Child) -> Html:
    """Lines that may be wider than the page: a box that the keyboard scrolls."""
    return tag("pre", tag("code", *parts), tabindex=0)


def versions(data: SweepData) -> Html | None:
    """What the sweep ran on, if it was recorded."""
    found = None if data.manifest is None else data.manifest.versions
    if not isinstance(found, Mapping) or not found:
        return None
    names = {name: name.removesuffix(".version").removeprefix("version.") for name in found}
    text = ", ".join(f"{names[name]} {version}" for name, version in found.items())
    return tag("p", f"Made with {text}.")
