"""What figures over hyperparameters compare: the trials, or the rehearsed configurations where these are more.

Where configurations are rehearsed, few of them are trained, and what hyperparameters do shows in the rehearsals alone.
Where a budget is cut into stages, trials differ in noise, which hides what hyperparameters do: some figures compare
the trials of one stage alone. A figure says either in itself: pictures of it are shown without the page around them.

A score of public rows that were rehearsed on is as sure as a share of the validation rows: each row is scored once, by
a model that was trained on the other half.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

from dashboards.data import SweepData, finite
from dashboards.figures._base import omitted
from dashboards.figures._common import epsilon_title
from dashboards.figures._comparable import UNEXPLAINED, noise_note
from dashboards.figures._scores import UNCHOSEN, VALIDATION, half_width, interval_of, scores_in_words, within
from dashboards.figures.hyperparameters._axes import declared_ranges
from dashboards.text import rehearsed_text, show_epsilon, title_of
from sweeper.privacy.held_out import wilson
from sweeper.privacy.pricing import OWN
from sweeper.records import Interval, Objective, Point, RehearsalSource
from sweeper.results.highlights import best_by_trial
from sweeper.rounding import number_of
from sweeper.specification.fields.nested import flatten
from sweeper.specification.objectives import is_share_of_rows

_CI = "95 % CI of the best"
_APART = 1.5  # times an epsilon, from which on scores differ by it alone
_DIGITS = 2  # of importances that differ; a smaller difference is chance
_ON_ROWS = (
    " Each row is scored once, by a model trained on the other half. The interval is Wilson's, where it is widest; it "
    "leaves out how much trainings differ, and the best epoch of several scores a little too high."
)
_STARS = " Stars are configurations that were trained afterwards."
_POINT_AT_STARS = " Point at a star to see as which trial it was trained."


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Configurations, and what each reached at its best point: the one that a reader would take."""

    subject: str  # what one of them is called in a table
    objectives: tuple[str, ...]
    settings: Mapping[str, Mapping[str, Any]]  # dotted values by id, of those that reached every objective
    reached: Mapping[str, Mapping[str, float]]  # values by objective, by id
    note: str = ""  # what they are; empty where they are all trials
    half_width: float | None = None  # of the 95 % interval of a score, None where that is not known
    sure: Interval | None = None  # how sure the highest utility is, None where that is not known
    sure_as: str = ""  # what that interval is
    certainty: str = ""  # of rehearsals, how sure their scores are; empty where that is not known
    trained: Mapping[str, str] | None = None  # of rehearsals, the trials that train each, empty where none does


def compare(data: SweepData, *, one_noise: bool = False) -> Compared:
    """Return the trials of a sweep, those of one stage of its budget with ``one_noise``; its rehearsals if more."""
    return _rehearsals(data) if data.compares_rehearsals else _trials(data, one_noise=one_noise)


def remarks_of(data: SweepData, limit: int, *, one_noise: bool = False) -> str:
    """Return what a caption adds: what is compared where that are not all trials, and how many of them are drawn."""
    if data.compares_rehearsals:
        return _rehearsals_in_words(data)
    note, count = (noise_note(data), len(data.comparable)) if one_noise else ("", len(data.trials))
    return f"{f' {note}.' if note else ''}{omitted(limit, count, 'trials')}"


def half_width_of(data: SweepData) -> float | None:
    """Return half the widest 95 % interval of a score that is compared, None where that is not known."""
    return compare(data).half_width


def trained_in_words(data: SweepData, words: str = _STARS) -> str:
    """Return what a caption says of rehearsed configurations that were trained; empty where none was."""
    return words if data.compares_rehearsals and any(one.trials for one in data.rehearsals) else ""


def gestures_of(data: SweepData) -> str:
    """Return what a pointer does with rehearsed configurations that were trained; empty where none was."""
    return trained_in_words(data, _POINT_AT_STARS)


def terms_of(data: SweepData, shown: Compared) -> str:
    """Return of what the marks are the best points, how sure their scores are, and what a model costs."""
    _, _, price = epsilon_title(data).partition(", ")
    own = [point.values["epsilon"] for point in data.points if finite(point, "epsilon")]
    if data.compares_rehearsals:
        trained = [f"trained models: {OWN} ≤ {show_epsilon(max(own))}"] if own else []
        return "; ".join(
            [
                f"best epoch of each of {len(shown.reached)} configurations, at no further cost",
                *trained,
                *_why_trained(data, shown),
                price,
            ]
        )
    own = [values["epsilon"] for values in shown.reached.values() if "epsilon" in values]
    ends = dict.fromkeys(show_epsilon(end) for end in (min(own), max(own))) if own else ()
    grow = ", and a larger one raises scores" if own and max(own) > _APART * min(own) else ""
    which = f"best point of each of {number_of(len(shown.reached), 'trial')}" + (
        f", {OWN} {' to '.join(ends)}{grow}" if ends else ""
    )
    return "; ".join([which, scores_in_words(data.result, (data.utility,)), price])


def _why_trained(data: SweepData, shown: Compared) -> Iterator[str]:
    """Yield why they were trained, where the best of them do not show it."""
    first = next((one for one in data.rehearsals if one.error is not None), None)
    best = max(shown.reached.values(), key=lambda one: data.direction(data.utility).sign * one[data.utility])
    starred = [shown.reached[id_] for id_, trials in (shown.trained or {}).items() if trials]
    if first is None and starred and len(shown.objectives) > 1:
        names = " and ".join(map(title_of, shown.objectives))
        more = ", and the one that adds most to it" * (len(starred) > 1)
        yield f"trained: the best in {names} together (hypervolume){more}"
    if first is None or not starred or best in starred:
        return
    error = first.error or 0.0
    how_much = f"{100 * error:.2g} points" if len(shown.objectives) == 1 else f"{error:.2g} of hypervolume"
    within = f"others are better by less than {how_much}, the error" if isfinite(error) else "too few show an error"
    yield f"trained: what did best on public tables; {within} of rehearsals"


def order(data: SweepData) -> tuple[str, ...]:
    """Return dotted names of hyperparameters, the most important one for the utility first.

    Where a forest explains the utility too little, the largest importance for any other result counts. Ranges of the
    spec come before others that matter as much. Nothing where a forest explains none: then no order means anything.
    """
    found = {one.target: one for one in data.importances if one.explained >= UNEXPLAINED}
    judges = [found[data.utility]] if data.utility in found else list(found.values())
    losses = {name: max(one.losses[name] for one in judges) for one in judges for name in one.losses}
    places = {name: round(max(loss, 0.0), _DIGITS) for name, loss in losses.items()}  # below 0 is chance
    ranges = declared_ranges({} if data.manifest is None else data.manifest.spec)
    return tuple(sorted(losses, key=lambda name: (-places[name], name not in ranges, -losses[name])))


def explained_share(data: SweepData, name: str) -> float | None:
    """Return the R² of the forest that explains a result by hyperparameters, None where it explains next to nothing."""
    return next(
        (one.explained for one in data.importances if one.target == name and one.explained >= UNEXPLAINED), None
    )


def explained_in_words(data: SweepData, name: str = "") -> str:
    """Return how many trials or rehearsals there are, and how little their hyperparameters explain; empty without.

    What they explain is the result of this name, by default the one that they explain best.
    """
    shown = compare(data, one_noise=True)
    count = len(shown.reached)
    if not count:
        return ""
    best = max((one.explained for one in data.importances if name in ("", one.target)), default=None)
    words = number_of(count, shown.subject)
    if best is None or best >= UNEXPLAINED:
        return words
    what = (
        f"for {title_of(name)}: hyperparameters do not explain it"
        if name
        else "at most: hyperparameters explain no result"
    )
    return f"{words}, but an R² of {best:.2f} {what}"


def _trials(data: SweepData, *, one_noise: bool) -> Compared:
    objectives = tuple(objective.name for objective in data.result.objectives)
    utility = Objective(data.utility, data.direction(data.utility))
    known = (point for point in data.points if finite(point, data.utility, *objectives))
    best = best_by_trial(known, utility)
    ids = [id_ for id_ in (data.comparable if one_noise else data.trials) if id_ in best]
    return Compared(
        subject="trial",
        objectives=objectives,
        settings={id_: data.settings[id_] for id_ in ids},
        reached={id_: best[id_].values for id_ in ids},
        half_width=half_width(data.result, (data.utility,)),
        sure=_interval(data, best, ids),
        sure_as=_CI,
        note=noise_note(data) if one_noise else "",
    )


def _interval(data: SweepData, best: Mapping[str, Point], ids: Sequence[str]) -> Interval | None:
    """Return the interval of the best utility of trials."""
    if not ids:
        return None
    sign = data.direction(data.utility).sign
    point = max((best[id_] for id_ in ids), key=lambda one: sign * one.values[data.utility])
    return point.interval(data.utility) or interval_of(data.result, data.utility, point.values[data.utility])


def _rehearsed_interval(
    data: SweepData, objectives: Sequence[str], best: Mapping[str, Mapping[str, float]], half: float | None
) -> tuple[Interval | None, str]:
    """Return how sure the best utility of rehearsals is, and what says so."""
    sign, utility = data.direction(data.utility).sign, data.utility
    highest = sign * max((sign * values[utility] for values in best.values()), default=nan)
    if half is not None and is_share_of_rows(utility):
        return wilson(highest, data.result.claim.baselines.rows[VALIDATION]), _CI
    error = next((one.error for one in data.rehearsals if one.error is not None), None)
    if error is None or not isfinite(error) or list(objectives) != [utility]:
        return None, ""
    return (highest - error, highest + error), "error of rehearsals around the best"


def _rehearsals(data: SweepData) -> Compared:
    objectives = tuple(objective.name for objective in data.result.objectives if objective.name != "epsilon")
    found = {one.id: one for one in data.rehearsals if one.place is not None and one.best is not None}
    best = {id_: one.best.values for id_, one in sorted(found.items()) if one.best is not None}
    half = _half_width(data, list(filter(is_share_of_rows, objectives)), best)
    sure, sure_as = _rehearsed_interval(data, objectives, best, half)
    return Compared(
        subject="configuration",
        objectives=objectives,
        settings={id_: flatten(found[id_].configuration.config) for id_ in best},
        reached=best,
        note=rehearsed_text(data.rehearsal_source),
        certainty=_certainty(data, objectives, half),
        half_width=half,
        sure=sure,
        sure_as=sure_as,
        trained={id_: ", ".join(found[id_].trials) for id_ in best},
    )


def _certainty(data: SweepData, objectives: Sequence[str], half: float | None) -> str:
    """Return how sure the scores of rehearsals are."""
    if data.rehearsal_source is RehearsalSource.SKETCH:
        return "Scores are of synthetic rows, not of rows of the data"
    if half is None:
        return ""
    what = "Scores" if all(map(is_share_of_rows, objectives)) else "Accuracies"
    rows = data.result.claim.baselines.rows[VALIDATION]
    return f"{what} of {rows} public validation rows; {within(half)}, {UNCHOSEN}"


def _half_width(data: SweepData, names: Sequence[str], reached: Mapping[str, Mapping[str, float]]) -> float | None:
    """Return half the widest 95 % interval of a share of the validation rows, None where that is not known."""
    claim = data.result.claim
    rows = claim.baselines.rows.get(VALIDATION, 0)
    shares = [share for values in reached.values() for name in names if 0.0 <= (share := values[name]) <= 1.0]
    if data.rehearsal_source is RehearsalSource.SKETCH or not rows or not shares or claim.unit != "row":
        return None
    low, high = wilson(min(shares, key=lambda share: abs(share - 0.5)), rows)
    return (high - low) / 2.0


def _rehearsals_in_words(data: SweepData) -> str:
    """Return what a caption says of rehearsals."""
    shown = compare(data)
    words = f" {shown.note}." + (f" {shown.certainty}." if shown.certainty else "")
    if data.rehearsal_source is RehearsalSource.SKETCH:
        return f"{words} How far the two differ is not known."
    return words + (_ON_ROWS if shown.certainty else "")
