"""Sweeps, fronts and picked points as Python shows them: texts and HTML that fit a screen, and trials as a table."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sweeper.errors import RecordError
from sweeper.markup import WIDTH, aligned, latex_table, paragraph, table
from sweeper.privacy.claims import COPIED, EXPLORATORY, Claim
from sweeper.privacy.held_out import interval_on_test
from sweeper.privacy.pricing import Price, value_name
from sweeper.program import program
from sweeper.records import ConfigValues, Point, Scalar, SweepStatus
from sweeper.results.front_record import FrontRecord, frame_of
from sweeper.results.highlights import (
    Highlight,
    best_of_trial,
    explain,
    highlights,
    lead_lines,
    score_lines,
    spread,
    test_text,
    value_text,
)
from sweeper.rounding import exactly, in_brackets, number_of, round_up
from sweeper.specification.fields.nested import flatten
from sweeper.store.trial_standings import LOST_REASON

if TYPE_CHECKING:
    import pandas as pd

_MOST_NAMED = 3  # points without a model, in a sentence


def front_in_html(front: FrontRecord) -> str:
    """Return a front: its counts, what its best point reaches, its named points among others, and what it costs."""
    head = f"{front.sweep}: {len(front.on_front)} of {front.total} points, hypervolume {front.hypervolume_in_words}"
    parts = [paragraph(head, strong=True)]
    parts += [paragraph(mark, strong=True) for mark in _marks(front)]
    if lead := lead_lines(front):
        parts.append(lines_in_html(lead))
    titles = highlights(front)
    shown = _shown(front, titles)
    if shown:
        parts.append(table(*_tabulated(front, shown, titles)))
    if len(shown) < len(front.on_front):
        parts.append(paragraph(f"{len(shown)} of {len(front.on_front)} are shown; to_dataframe() has all of them."))
    parts += map(paragraph, _lacking_models(front))
    if "everything" in front.ledger:
        parts.append(paragraph(front.ledger["everything"].in_words))
    return "".join(parts)


def front_in_latex(front: FrontRecord) -> str:
    """Return a front as a table of LaTeX; its caption has what its best point reaches and costs."""
    titles = highlights(front)
    shown = _shown(front, titles)
    counts = f"{front.sweep}: {len(shown)} of {number_of(len(front.on_front), 'point')} on the front, of {front.total}."
    price = front.ledger["everything"].in_words if "everything" in front.ledger else ""
    lead = [one if one.endswith(".") else f"{one}." for one in lead_lines(front)]
    caption = " ".join(filter(None, [counts, *_marks(front), *lead, price]))
    return latex_table(*_tabulated(front, shown, titles), caption, front.sweep)


def _tabulated(
    front: FrontRecord, points: Sequence[Point], titles: Iterable[Highlight]
) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of a table of points, which are named where they have a title."""
    names, named = _utilities(front), {one.point.key: one.title for one in titles}
    tested = [name for name in names if any(name in (point.test or {}) for point in points)]
    between = any(interval_on_test(point, name, front.claim) for point in points for name in tested)
    heads = [f"test {name}{' [95 % interval]' if between else ''}" for name in tested]
    heads = ["trial", "epoch", value_name("epsilon"), *heads, *(f"validation {name}" for name in names), ""]
    rows = [
        [
            point.trial,
            point.moment,
            value_text(point, "epsilon"),
            *(_tested_text(point, name, front.claim) for name in tested),
            *(value_text(point, name) for name in names),
            named.get(point.key, ""),
        ]
        for point in points
    ]
    return heads, rows


def _marks(front: FrontRecord) -> list[str]:
    """Return what stands against every number of a front, in sentences."""
    copied = [COPIED] if COPIED in front.claim.conditions else []
    return [f"{EXPLORATORY}."] * front.claim.exploratory + copied


def _lacking_models(front: FrontRecord) -> list[str]:
    """Return which points of the front cannot be picked, in a sentence, if any; none where no model is kept at all."""
    lacking = [point.label for point in front.front_points if point.model is None]
    if not 0 < len(lacking) < len(front.on_front):
        return []
    more = f"; and {len(lacking) - _MOST_NAMED} more" if len(lacking) > _MOST_NAMED else ""
    named = f"{'; '.join(lacking[:_MOST_NAMED])}{more}"
    return [f"Not picked, for they came back to the front when their models had been removed: {named}."]


def _utilities(front: FrontRecord) -> list[str]:
    return [one.name for one in front.objectives if one.name != "epsilon"]


def _tested_text(point: Point, name: str, claim: Claim) -> str:
    tested = (point.test or {}).get(name)
    return "-" if tested is None else f"{tested:.3f}{in_brackets(interval_on_test(point, name, claim))}"


def definitions(front: FrontRecord) -> list[str]:
    """Return what the words in a front's table mean, a line each; a `Sweep` shows them, a `Front` does not."""
    named = highlights(front)
    return explain(_shown(front, named), named) if front.front_points else []


def _shown(front: FrontRecord, named: Sequence[Highlight]) -> list[Point]:
    return spread(front.front_points, always=[one.point for one in named])


def go_on_with(folder: str | Path, untested: int = 0, *, lost: bool = False, later: Sequence[Point] = ()) -> str:
    """Return how a sweep goes on that ended early, and what its front lacks until then.

    Args:
        folder: of the sweep.
        untested: how many points of the front have no scores of test rows.
        lost: whether the sweep has lost its driver; it may still run elsewhere.
        later: the points that were recorded after the front was written.
    """
    lacks = f"Not scored on test rows yet: {number_of(untested, 'point')} of the front. " if untested else ""
    if later:
        last = max(point.epoch for point in later)
        lacks += f"Not in the front yet: {number_of(len(later), 'point')} of its trials, up to epoch {last}. "
    return f"{lacks}{'If it was killed, go' if lost else 'Go'} on with it: {program()} resume {folder}"


def _standing(folder: str, status: SweepStatus, reason: str, later: Sequence[Point]) -> list[str]:
    """Return how a sweep stands and where it is, and of one that has lost its driver what to do about it."""
    if status is not SweepStatus.LOST:
        return [f"{' '.join(filter(None, [status.value, reason]))}, in {folder}"]
    return [f"{status.value}, in {folder}: {LOST_REASON}", go_on_with(folder, lost=True, later=later)]


def sweep_in_html(
    folder: str, status: SweepStatus, reason: str, front: FrontRecord | RecordError, later: Sequence[Point] = ()
) -> str:
    """Return a sweep: how it stands, where it is, and its front if there is one, which lacks the ``later`` points."""
    if isinstance(front, RecordError):
        shown = paragraph(str(front))
    else:
        shown = front_in_html(front) + "".join(map(paragraph, definitions(front)))
    return "".join(map(paragraph, _standing(folder, status, reason, later))) + shown


def front_in_words(front: FrontRecord) -> str:
    """Return a front as text, likewise; of scores, those on test rows where all points that are shown have them."""
    counts = f"{front.sweep}: {len(front.on_front)} of {front.total} points, hypervolume {front.hypervolume_in_words}"
    lines = [counts, *(line for mark in _marks(front) for line in textwrap.wrap(mark, WIDTH))]
    head, *scores = lead_lines(front) or [""]
    lines += [head] if head else []
    lines += [line for text in scores for line in _indented(text)]
    titles = highlights(front)
    named, shown = {one.point.key: one.title for one in titles}, _shown(front, titles)
    names = _utilities(front)
    on_test = all(name in (point.test or {}) for point in shown for name in names)
    show = test_text if on_test else value_text
    heads = ["trial", "epoch", value_name("epsilon"), *(f"test {name}" if on_test else name for name in names), ""]
    rows = [
        [p.trial, p.moment, value_text(p, "epsilon"), *(show(p, n) for n in names), named.get(p.key, "")] for p in shown
    ]
    lines += aligned([heads, *rows]) if rows else []
    if len(shown) < len(front.on_front):
        lines.append(f"{len(shown)} of {len(front.on_front)} are shown; to_dataframe() has all of them.")
    lines += [line for text in _lacking_models(front) for line in textwrap.wrap(text, WIDTH)]
    if "everything" in front.ledger:
        lines += textwrap.wrap(front.ledger["everything"].in_words, WIDTH)
    return "\n".join(lines)


def _indented(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ")


def sweep_in_words(
    folder: str, status: SweepStatus, reason: str, front: FrontRecord | RecordError, later: Sequence[Point] = ()
) -> str:
    """Return a sweep as text, likewise."""
    head = _standing(folder, status, reason, later)
    if isinstance(front, RecordError):
        return "\n".join([*head, str(front)])
    meant = [line for text in definitions(front) for line in textwrap.wrap(text, WIDTH)]
    return "\n".join([*head, front_in_words(front), *meant])


def epsilon_first(names: Iterable[str]) -> list[str]:
    """Return names of objectives, epsilon before the others.

    >>> epsilon_first(["accuracy", "epsilon"])
    ['epsilon', 'accuracy']
    """
    return sorted(names, key=lambda name: name != "epsilon")


def picked_in_words(point: Point, config: ConfigValues, front: FrontRecord) -> list[str]:
    """Return a point that was picked as lines: what it costs, its scores beside a baseline, and its configuration."""
    epsilon = f"{value_name('epsilon')} {value_text(point, 'epsilon')}"
    head = f"{point.label}: {epsilon}{and_price(front.price)}"
    return [*_marks(front), head, *score_lines(point, front), _settings(config), *_lacking_models(front)]


def point_in_words(point: Point, config: Mapping[str, object], price: Price | None) -> list[str]:
    """Return a point as lines: its values, what releasing it costs, and its configuration."""
    values = ", ".join(f"{value_name(name)} {value_text(point, name)}" for name in epsilon_first(point.values))
    return [f"{point.label}: {values}{and_price(price)}", _settings(config)]


def and_price(price: Price | None) -> str:
    """Return what stands behind a point: what releasing it costs, empty where that is not known."""
    return "" if price is None else f"; price {round_up(price.epsilon)} at delta {exactly(price.delta)}{price.doubt}"


def _settings(config: Mapping[str, object]) -> str:
    """Return a configuration with a few digits, epsilon rounded up; its file has all.

    >>> _settings({"privacy": {"epsilon": 3.56601, "delta": 1e-05}, "training": {"epochs": 10}})
    'privacy.epsilon 3.567, privacy.delta 1e-05, training.epochs 10'
    """
    return ", ".join(f"{name} {_setting(name, value)}" for name, value in flatten(config).items())


def _setting(name: str, value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return round_up(value) if name.endswith("epsilon") else f"{value:.4g}"


def lines_in_html(lines: Sequence[str]) -> str:
    """Return lines as paragraphs, the first one strong."""
    head, *others = lines
    return paragraph(head, strong=True) + "".join(map(paragraph, others))


def trial_rows(front: FrontRecord) -> Iterator[dict[str, Scalar | None]]:
    """Yield one flat row per trial: how it ended, one point of it, and its configuration.

    That point is the best of the trial in the first objective beside epsilon. It may be off the front, where another
    trial is as good at a smaller epsilon. Columns:

    ``trial``, ``status``
        Which trial, and how it ended.
    ``epsilon``, ``accuracy``, ...
        The values of its point; where scores are noisy they are estimates, and ``low.NAME`` and ``high.NAME`` are the
        ends of their intervals. Its epsilon is its own, fixed in advance.
    ``test.accuracy``, ...
        Its scores of test rows, where it has some: points of the front have. ``low.test.NAME`` and so on likewise.
    ``on_front``, ``epoch``, ``made_from``
        The point: whether it is on the front, its epoch, how its weights were made (empty: those of the epoch).
    ``stage``
        Of the sweep's budget, from 1; only where the budget is cut.
    ``epochs``, ``reason``
        How many epochs were scored, and why the trial ended as it did.
    ``config.NAME``
        The configuration.
    """
    for id_, trial in front.trials.items():
        points = [point for point in front.points if point.trial == id_]
        found = best_of_trial(front, id_)
        stage = front.stage_of(id_)
        yield {
            "trial": id_,
            "status": trial.status,
            **({} if found is None else _values(found)),
            "on_front": found is not None and found.key in front.on_front,
            "epoch": None if found is None else found.epoch,
            "made_from": "" if found is None else found.made_from,
            **({} if stage is None else {"stage": stage + 1}),
            "epochs": max((point.epoch for point in points), default=0),
            "reason": trial.reason,
            **{f"config.{name}": value for name, value in flatten(trial.config).items()},
        }


def trial_frame(front: FrontRecord) -> "pd.DataFrame":
    """Return `trial_rows` as a table, without what all trials have in common, see `frame_of`."""
    return frame_of(list(trial_rows(front)))


def _values(point: Point) -> dict[str, float]:
    tested = point.test or {}
    known = {name: point.interval(name) for name in point.values}
    known |= {f"test.{name}": point.test_interval(name) for name in tested}
    intervals = {name: interval for name, interval in known.items() if interval is not None}
    ends = {f"{end}.{name}": pair[i] for name, pair in intervals.items() for i, end in enumerate(("low", "high"))}
    return dict(point.values) | {f"test.{name}": value for name, value in tested.items()} | ends
