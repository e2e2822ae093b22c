"""How sure the scores in a figure are, in words and as bars: pictures are shown without the page around them."""

from collections.abc import Iterable, Sequence
from typing import Any

from clipless.datasets import Evaluation
from clipless.datasets.metadata import units_word
from dashboards.data import SweepData
from dashboards.figures._theme import Theme
from dashboards.text import number
from sweeper.privacy.baselines import MajoritySource
from sweeper.privacy.claims import Claim
from sweeper.privacy.held_out import wilson
from sweeper.records import Interval, Point
from sweeper.results.front import Front
from sweeper.results.highlights import finals_first
from sweeper.specification.objectives import is_share_of_rows, needs_two_classes

_FINALS = " Solid lines pass through finals, dotted ones left of them through explorers, as on the front."
_MOST_BARS = 200  # points with error bars
UNCHOSEN = "ignoring selection"
CHOSEN = "selection allowed for"  # estimates of noisy scores: see `sweeper.privacy.evaluation.posteriors`
_TEST = "test"
_INTERVAL = "95 % CI"
VALIDATION = "validation"  # all that is said of scores whose intervals are not known


def scores_in_words(front: Front, names: Iterable[str], *, means: bool = True) -> str:
    """Return of which rows the values of these names are scores, and half the widest 95 % interval of one of them.

    Without ``means`` they are those of single trainings, also where points are means of several.
    """
    return compared_in_words([front], tuple(names), means=means)


def certified_in_words(data: SweepData) -> str:
    """Return of which rows certified accuracy is a score, and how sure where it is noisy."""
    return scores_in_words(data.result, [data.certificate or ""]) if is_noisy(data.result) else VALIDATION


def compared_in_words(fronts: Sequence[Front], names: Sequence[str], *, means: bool = True) -> str:
    """Return the same of several fronts: of which rows, and half the widest interval there."""
    halves = [half_width(front, names) for front in fronts if front.points]
    known = [half for half in halves if half is not None]
    if not known or len(known) < len(halves):
        return VALIDATION
    rows = {_counted(front.claim, VALIDATION) or VALIDATION for front in fronts}
    of = rows.pop() if len(rows) == 1 else VALIDATION
    if any(map(is_noisy, fronts)):
        noisy = "noisy validation scores" if of == VALIDATION else f"noisy scores of {of}"
        return f"{noisy}, {within(max(known))}, {CHOSEN}"
    return f"{of}{_repeated(fronts) * means}, {within(max(known))}, {UNCHOSEN}"


def repeats_of(front: Front) -> int:
    """Return of how many trainings the values of a point are the means, 1 without repeats."""
    return max((len(one) for point in front.points for one in point.repeats.values()), default=1)


def _repeated(fronts: Sequence[Front]) -> str:
    """What values are where every point has been trained several times, as often in all fronts."""
    counts = {repeats_of(front) for front in fronts}
    return "" if 1 in counts or len(counts) > 1 else f", means of {max(counts)} trainings"


def _counted(claim: Claim, split: str) -> str:
    """Return how many rows of a split there are, or privacy units; empty for records of private ones that lacked it."""
    count = claim.baselines.rows.get(split, 0)
    return f"{count} {split} {units_word(claim.unit)}" if count else ""


def test_in_words(claim: Claim, half: float | None) -> str:
    """Return how many test rows there are, or privacy units, as far as known, and half the widest interval there."""
    rows = _counted(claim, _TEST) or "test rows"
    return rows if half is None else f"{rows}, {within(half)}"


def compared_on_test(fronts: Sequence[Front]) -> str:
    """Return how many test rows fronts have, where it is the same number."""
    rows = {test_in_words(front.claim, None) for front in fronts}
    return rows.pop() if len(rows) == 1 else f"{_TEST} rows"


def rows_in_words(scores: str) -> str:
    """Return of which rows scores are, without how sure each is: that is not how sure their hypervolume is.

    >>> rows_in_words("261 validation rows, 95 % CI ≤ ±6.1 points, ignoring selection")
    'scores of 261 validation rows'
    >>> rows_in_words("noisy validation scores, 95 % CI ≤ ±6.1 points"), rows_in_words("validation")
    ('noisy validation scores', 'validation scores')
    """
    rows = scores.partition(",")[0]
    if rows == VALIDATION:
        return f"{rows} scores"
    return rows if rows.startswith("noisy") else f"scores of {rows}"


def without_intervals(scores: str) -> str:
    """Return of what scores are, without how sure each is.

    >>> without_intervals("261 validation rows, means of 3 trainings, 95 % CI ≤ ±6.1 points, ignoring selection")
    '261 validation rows, means of 3 trainings'
    """
    return scores.partition(f", {_INTERVAL}")[0]


def within(half: float) -> str:
    """Return half the 95 % confidence interval of scores for new rows, of the one that is known least, rounded up.

    >>> within(0.0604)
    '95 % CI ≤ ±6.1 points'
    """
    return f"{_INTERVAL} ≤ ±{number(round(100 * half, 9), 2, up=True)} points"


def half_width(front: Front, names: Iterable[str]) -> float | None:
    """Return half the widest 95 % interval that a value of these names has for new rows of the same kind.

    None where it is not known: of public rows it is that of a share of independent rows (`wilson`), or of an area under
    the ROC curve, which varies at most as one of the rarer class alone; of private ones that of the noisy releases.
    """
    names = tuple(names)
    if is_noisy(front):
        ends = [point.interval(name) for name in names for point in front.points]
        return max((abs(high - low) / 2.0 for low, high in filter(None, ends)), default=None)
    halves = []
    for name in names:
        scores = [p.values[name] for p in front.points if 0.0 <= p.values.get(name, -1) <= 1] if _is_known(name) else []
        if not scores:
            continue
        widest = interval_of(front, name, min(scores, key=lambda score: abs(score - 0.5)))
        if widest is None:
            return None
        halves.append((widest[1] - widest[0]) / 2.0)
    return max(halves, default=None)


def interval_of(front: Front, name: str, score: float) -> Interval | None:
    """Return the 95 % interval of a score of public rows for new ones, as `half_width`; None where it is not known.

    A noisy score has its own (`Point.interval`), and none here.
    """
    claim, rows = front.claim, front.claim.baselines.rows.get(VALIDATION, 0)
    if not rows or claim.evaluation != Evaluation.PUBLIC.value or claim.unit != "row" or not _is_known(name):
        return None
    if needs_two_classes(name):
        majority = claim.baselines.majority.get(VALIDATION)
        counted = claim.baselines.majority_source is MajoritySource.ROWS
        rows = round((1.0 - majority) * rows) if counted and majority is not None else 0
    return wilson(score, rows) if rows and 0.0 <= score <= 1.0 else None


def _is_known(name: str) -> bool:
    """Whether the interval of a score of this name follows from a number of rows."""
    return is_share_of_rows(name) or needs_two_classes(name)


def is_noisy(front: Front) -> bool:
    """Return whether scores of the front are noisy."""
    return any(point.noisy is not None for point in front.points)


def bars_in_words(data: SweepData) -> str:
    """Return what a caption says of bars of noisy scores, empty where no score has noise."""
    return " Bars are 95 % intervals of noisy scores." if is_noisy(data.result) else ""


def intervals_in_words(data: SweepData) -> str:
    """Return what a caption says of bars, and of which points lines pass through where finals come first."""
    return bars_in_words(data) + (_FINALS if finals_first(data.points) else "")


def open_marks(data: SweepData) -> str:
    """Return what a caption says of open marks, empty where there are none."""
    return " Open marks: explorers." if finals_first(data.points) else ""


def ends_of(point: Point, utility: str) -> tuple[float, float]:
    """The ends of the interval of a noisy score; else one standard deviation over repeats to either side."""
    interval, value = point.interval(utility), point.values[utility]
    if interval is not None:
        return interval
    spread = point.deviation(utility) or 0.0
    return value - spread, value + spread


def error_bars(points: Sequence[Point], utility: str, theme: Theme) -> dict[str, Any] | None:
    """Error bars, where there are intervals or repeats and not too many points."""
    ends = [ends_of(point, utility) for point in points]
    values = [point.values[utility] for point in points]
    if all(low == high for low, high in ends) or len(points) > _MOST_BARS:
        return None
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - value for value, (_, high) in zip(values, ends, strict=True)],
        "arrayminus": [value - low for value, (low, _) in zip(values, ends, strict=True)],
        "color": theme.muted,
        "thickness": 1.3,
        "width": 3,
    }
