"""By which scores the lines of parallel coordinates are coloured, and which settings go with them.

Best points of trials that a scheduler stopped, or of other stages of a budget, have other epsilons, and a larger one
raises scores. There colours are for what compares: how far a point is behind the best one at an epsilon no larger than
its own, which is how far it is from the front.

A setting is said to go with colours where its rank correlation with them (Spearman) is beyond chance: of its normal
approximation, with variance 1 / (n - 1), by Bonferroni's bound for all settings together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from statistics import NormalDist

import numpy as np
from scipy.stats import rankdata

from dashboards.figures._common import color_ends, label
from dashboards.figures.hyperparameters._axes import Axis
from dashboards.figures.hyperparameters._content import ConfigurationsInfo
from sweeper.privacy.pricing import OWN

RHO = "\N{GREEK SMALL LETTER RHO}"
_FEWEST = 8  # lines of which something is said
_BY_CHANCE = 0.05  # of all settings together


@dataclass(frozen=True, slots=True)
class Judged:
    """What lines are compared by.

    Attributes:
        title: of what it is.
        scores: one of each line that compares, by its place.
        ends: of the colours, the worst first.
    """

    title: str
    scores: Mapping[int, float]
    ends: tuple[float, float]

    def share(self, i: int) -> float:
        """Return the place of a score between the ends of the colours."""
        worst, best = self.ends
        return min(max((self.scores[i] - worst) / (best - worst), 0.0), 1.0)


def judge(info: ConfigurationsInfo) -> Judged:
    """Return what the lines of parallel coordinates can be compared by."""
    title, best = label(info.color_name), max(info.colors)
    low, high = info.sure or (best, best)
    if info.behind:  # what lies within the interval of the best is at most half the way to the worst colour
        behind = {i: gap for i, gap in enumerate(info.behind) if isfinite(gap)}
        worst = max(color_ends([*behind.values(), 0.0])["cmax"], 2.0 * (best - low))
        return Judged(f"{title} behind the best of no larger {OWN}", behind, (worst, 0.0))
    title, scores = f"{'rehearsed ' * bool(info.trained)}{title}", dict(enumerate(info.colors))
    ends = color_ends(info.colors)
    if not ends["cmin"] < low < best:
        return Judged(title, scores, (ends["cmin"], ends["cmax"]))
    # none that lie in the interval of the best are told apart, and small differences below it look small
    return Judged(title, scores, (min(ends["cmin"], 2 * low - high), low))


def correlations(judged: Judged, axes: Sequence[Axis]) -> dict[str, float] | None:
    """Return the rank correlations of settings with what is better, where beyond chance, by name; none of few lines.

    Of settings without an order, which are texts, those of two values have one, with the upper one of their axis.
    """
    lines = list(judged.scores)
    if len(lines) < _FEWEST:
        return None
    scores = rankdata([judged.share(i) for i in lines])
    found: dict[str, float] = {}
    for axis in axes:
        places = rankdata([axis.positions[i] for i in lines])
        has_order = len(set(axis.values)) == 2 or not any(isinstance(one, str) for one in axis.values)
        has_order = has_order and None not in axis.values  # of a choice's own parameter: what was chosen has one
        if np.ptp(places) > 0.0 and np.ptp(scores) > 0.0 and has_order:
            found[axis.name] = float(np.corrcoef(places, scores)[0, 1])
    least = NormalDist().inv_cdf(1.0 - _BY_CHANCE / 2.0 / max(len(axes), 1)) / sqrt(len(lines) - 1)
    return {name: value for name, value in found.items() if abs(value) > least}


def correlations_in_words(judged: Judged, found: dict[str, float] | None, *, listed: bool) -> str:
    """Return what stands below the lines of the settings that go with scores; ``listed`` by name, if axes have none."""
    count = len(judged.scores)
    if found is None:
        return f"{count} coloured lines are too few to tell which settings matter"
    if not found:
        return f"no setting goes with the colours beyond chance (rank correlations of {count} lines)"
    each = ", ".join(f"{name} {rho:+.2f}".replace("-", "\N{MINUS SIGN}") for name, rho in found.items())
    which = f"{RHO} of {each}; " if listed else ""
    sign = f"{RHO} > 0: larger values go with better colours"
    return f"{which}{sign} (rank correlations of {count} lines, where beyond chance)"
