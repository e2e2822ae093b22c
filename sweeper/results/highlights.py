"""The points of a front that every summary names: the best of each objective, the knee, and what ``pick`` takes."""

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isnan, sqrt

from sweeper.errors import PickError
from sweeper.pareto.knee import knee
from sweeper.privacy.claims import Claim
from sweeper.privacy.held_out import doubt, mean_in_words, shown_score
from sweeper.records import Objective, Point
from sweeper.results.front_record import FrontRecord
from sweeper.results.pick import pick, rank, surest
from sweeper.rounding import in_brackets, number_of, round_up
from sweeper.specification.objectives import is_share_of_rows

KNEE = "knee"
BELOW = "below the baseline"
PICKED = "what pick takes"
NOISY = "Scores of private rows are estimates from noisy releases; in brackets: 95 % intervals for new rows like them."
FINALS_FIRST = (
    "Finals come first. Another point ranks above a final only if its interval lies above the final's; a better score "
    "alone may be luck."
)
_HYPERVOLUME = "hypervolume: share of the box from worst to best values that the front dominates, from 0 to 1"
_CERTIFIED = "share of rows that are decided correctly, whatever changes within this radius"
_KNEE = "knee: where the front bends most; past it, each gain in one objective costs more of another"
_FREE = "the weights of that epoch averaged with those of earlier steps, at no further cost"
MAX_ROWS = 8  # of a front, where the named points are not more


@dataclass(frozen=True, slots=True)
class Highlight:
    """A point, and why it is named: ``("best accuracy", "what pick takes")``."""

    point: Point
    titles: tuple[str, ...]

    @property
    def title(self) -> str:
        """Why it is named, in words."""
        return ", ".join(self.titles)


def highlights(front: FrontRecord) -> tuple[Highlight, ...]:
    """Return the named points of a front, each once, smallest epsilon first; none of an empty front."""
    named: dict[tuple[str, int, str], list[str]] = {}
    for title, point in _name_points(front):
        named.setdefault(point.key, []).append(title)
    utility = next((one for one in front.objectives if one.name != "epsilon"), None)
    for point in front.front_points:
        if utility is not None and point.key in named and is_below_baseline(point, utility, front.claim):
            named[point.key].append(BELOW)
    return tuple(Highlight(point, tuple(named[point.key])) for point in front.front_points if point.key in named)


def is_below_baseline(point: Point, objective: Objective, claim: Claim) -> bool:
    """Whether the validation score of a point lies below what a constant prediction reaches."""
    ends = claim.baselines.ends(objective.name)
    if ends is None:
        return False
    value, interval = point.values.get(objective.name, ends[0]), point.interval(objective.name)
    return (value if interval is None else interval[1]) < ends[0]


def best(points: Iterable[Point], objective: Objective) -> Point | None:
    """Return the point that is best in an objective, of equals the one of the smallest epsilon; None of no points.

    Where scores are noisy, it is looked for among finals first, see `sweeper.results.pick.surest`.
    """
    known = [point for point in points if not isnan(point.values.get(objective.name, float("nan")))]
    among = known if objective.name == "epsilon" else surest(known, objective)
    return max(among, key=lambda point: rank(point, objective), default=None)


def why_first(point: Point, points: Iterable[Point], objective: Objective) -> str:
    """Return why a point is the best of these although another has a larger estimate; empty where none has."""
    if not any(rank(other, objective)[0] > rank(point, objective)[0] for other in points):
        return ""
    if point.is_final:
        return "a final; no other is better beyond the intervals"
    return "better than every final beyond the intervals"


def finals_first(points: Iterable[Point]) -> bool:
    """Whether finals stand among points whose scores are noisy, so that they come first."""
    return len({point.is_final for point in points if point.noisy is not None}) > 1


def value_text(point: Point, name: str) -> str:
    """Return a value as lists of points show it: an epsilon rounded up, a noisy score with its interval."""
    if name not in point.values:
        return "-"
    if name == "epsilon":
        return round_up(point.values[name])
    return f"{point.values[name]:.3f}{in_brackets(point.interval(name))}"


def test_text(point: Point, name: str) -> str:
    """Return a test number likewise."""
    tested = point.test or {}
    return f"{tested[name]:.3f}{in_brackets(point.test_interval(name))}" if name in tested else "-"


def nearly_best(front: FrontRecord) -> str:
    """Say how many other points the validation rows hardly tell from the one that ``pick`` takes, empty where none.

    They lie within one standard error of it, the binomial one of a share of public rows that are independent.
    """
    points, claim = front.front_points, front.claim
    name = next((one.name for one in front.objectives if one.name != "epsilon"), "")
    rows = claim.baselines.rows.get("validation", 0)
    if not points or points[0].noisy is not None or not is_share_of_rows(name) or not rows or claim.unit != "row":
        return ""
    value = pick(front).values[name]
    error = sqrt(value * (1.0 - value) / rows)
    near = sum(point.values[name] >= value - error for point in points) - 1
    if not near:
        return ""
    count = f"{number_of(near, 'other point')} of the front {'lies' if near == 1 else 'lie'}"
    return (
        f"{count} within one standard error of the best {name}, {100 * error:.1f} points on {rows} "
        f"validation rows: {'it' if near == 1 else 'they'} may be as good."
    )


def name_result(point: Point, name: str, claim: Claim, cost: str) -> str:
    """Return a score and what it cost as names of runs have them: both first, for lists cut names after 25 letters.

    It is that of test rows where they are scored.
    """
    shown = shown_score(point, name, claim)
    return f"{name} {shown.value:.3f}, {cost}, {shown.split} rows{in_brackets(shown.interval)}"


def shown_text(point: Point, name: str, claim: Claim) -> str:
    """Return the score that is shown first, with its interval and the rows that it is of."""
    shown = shown_score(point, name, claim)
    return f"{shown.value:.3f}{in_brackets(shown.interval)} on {shown.split} rows"


def score_by_split(point: Point, name: str, claim: Claim) -> str:
    """Return a score of a point, that of test rows first where they are scored, and that of validation rows."""
    mean, is_tested = mean_in_words(point, name), name in (point.test or {})
    chose = f", {value_text(point, name)} on validation rows{mean}" if is_tested else mean
    return f"{name} {shown_text(point, name, claim)}{chose}"


def best_of_trial(front: FrontRecord, trial: str) -> Point | None:
    """Return the point of a trial that a reader would take: as `best_by_trial`, in the first objective but epsilon."""
    judged = next((one for one in front.objectives if one.name != "epsilon"), None)
    points = [point for point in front.points if point.trial == trial]
    return None if judged is None else best_by_trial(points, judged).get(trial)


def best_by_trial(points: Iterable[Point], judged: Objective) -> dict[str, Point]:
    """Return the point of each trial that is best in an objective, which another trial may keep off the front."""
    found: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        found[point.trial].append(point)
    taken = {trial: best(own, judged) for trial, own in found.items()}
    return {trial: point for trial, point in taken.items() if point is not None}


def spread(front: Sequence[Point], rows: int = MAX_ROWS, always: Sequence[Point] = ()) -> list[Point]:
    """Return at most ``rows`` points, ordered by epsilon and evenly picked, both ends among them, and ``always``."""
    ordered = sorted(front, key=lambda point: point.values["epsilon"])
    if len(ordered) <= rows:
        return ordered
    kept = {ordered[round(i * (len(ordered) - 1) / (rows - 1))].key for i in range(rows)}
    kept |= {point.key for point in always}
    return [point for point in ordered if point.key in kept]


def explain(front: Sequence[Point], named: Sequence[Highlight] = ()) -> list[str]:
    """Return what the words in a list of points mean, a line for each word that such a list has."""
    names = dict.fromkeys(name for point in front for name in point.values)
    certified = next((name for name in names if name.startswith("certified@")), None)
    made = dict.fromkeys(point.made_from for point in front if point.made_from)
    return [
        _HYPERVOLUME,
        *([FINALS_FIRST] if finals_first(front) else []),
        *([f"{certified}: {_CERTIFIED}"] if certified else []),
        *([_KNEE] if any(KNEE in one.titles for one in named) else []),
        *([f"{', '.join(sorted(made))}: {_FREE}"] if made else []),
    ]


def scores_in_words(point: Point, name: str, claim: Claim) -> str:
    """Return a score of a point on test and validation rows, and what a constant prediction reaches."""
    shown = shown_score(point, name, claim)
    between = shown.interval and f" (95 % interval {shown.interval[0]:.3f} to {shown.interval[1]:.3f})"
    mean, first = mean_in_words(point, name), f"{shown.value:.3f} on {shown.split} rows{between or ''}"
    is_tested = name in (point.test or {})
    chose = f", {value_text(point, name)} on the validation rows that chose it{mean}" if is_tested else mean
    against = claim.baselines.in_words(name, shown.split)
    return f"{first}{chose}" + (f"; {against}" if against else "")


def lead_lines(front: FrontRecord) -> list[str]:
    """Return the point that is best in the first objective beside epsilon, and its scores; none of an empty front."""
    judged = next((one for one in front.objectives if one.name != "epsilon"), None)
    point = None if judged is None else best(front.front_points, judged)
    if judged is None or point is None:
        return []
    why = why_first(point, front.front_points, judged)
    head = f"What pick takes ({why}): {point.label}" if why else f"Best {judged.name}: {point.label}"
    return [head, *score_lines(point, front)]


def score_lines(point: Point, front: FrontRecord) -> list[str]:
    """Return the scores of a point, a line each, and whether a constant prediction is as good."""
    names = [one.name for one in front.objectives if one.name != "epsilon" and one.name in point.values]
    doubted = doubt(point, names[0], front.claim) if names else ""
    scores = [f"{name} {scores_in_words(point, name, front.claim)}" for name in names]
    return [*scores, *([f"{doubted}."] if doubted else [])]


def point_lines(point: Point, front: FrontRecord) -> list[str]:
    """Return which point this is, and likewise what it reaches."""
    return [f"{front.sweep}: {point.label}", *(f"  {line}" for line in score_lines(point, front))]


def notable_points(points: Sequence[Point], objectives: Sequence[Objective]) -> list[Point]:
    """Return the points of a front that are shown in any case while a sweep runs: the best ones, and the knee.

    Afterwards a knee must beat a constant prediction; what ``pick`` takes is the best of one objective.
    """
    found = [*(best(points, one) for one in objectives), knee(points, objectives)]
    return [point for point in found if point is not None]


def _name_points(front: FrontRecord) -> list[tuple[str, Point]]:
    """Return titles and points; none is called the best beside a larger estimate."""
    found: list[tuple[str, Point | None]] = []
    for one in front.objectives:
        point = _first(front) if one.name == "epsilon" else best(front.front_points, one)
        if point is not None and not why_first(point, front.front_points, one):
            found.append((f"best {one.name}", point))
    found.append((KNEE, front.knee))
    with contextlib.suppress(PickError):
        point, utility = pick(front), next(one for one in front.objectives if one.name != "epsilon")
        found.append((picked_title(point, front.front_points, utility), point))
    return [(title, point) for title, point in found if point is not None]


def _first(front: FrontRecord) -> Point | None:
    """Return the point of the smallest epsilon, of several the one that is best in the first other objective."""
    least = min((point.values["epsilon"] for point in front.front_points), default=0.0)
    alike = [point for point in front.front_points if point.values["epsilon"] == least]
    utility = next((one for one in front.objectives if one.name != "epsilon"), None)
    return next(iter(alike), None) if utility is None else best(alike, utility)


def picked_title(point: Point, points: Iterable[Point], utility: Objective) -> str:
    """Return what a point that ``pick`` takes from these is called, with why it is first where others look better."""
    why = why_first(point, points, utility)
    return f"{PICKED} ({why})" if why else PICKED
