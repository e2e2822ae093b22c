"""By which scores the lines of parallel coordinates are coloured, and which settings go with them.

Best points of trials that a scheduler stopped, or of other stages of a budget, have other epsilons, and a larger one
raises scores. So colours are for scores that can be compared: of all trials at an epsilon that all of them reached;
else of the trials whose epsilons are near each other, the most of them.

A setting is said to go with scores where its rank correlation with them (Spearman) is beyond chance: of its normal
approximation, with variance 1 / (n - 1), by Bonferroni's bound for all settings together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

import numpy as np
from scipy.stats import rankdata

from dashboards.figures._common import color_ends, label
from dashboards.figures.hyperparameters._axes import Axis
from dashboards.figures.hyperparameters._content import APART, COMMON, ConfigurationsInfo
from dashboards.text import show_epsilon
from sweeper.privacy.pricing import OWN

RHO = "\N{GREEK SMALL LETTER RHO}"
_FEWEST = 8  # lines of which something is said
_BY_CHANCE = 0.05  # of all settings together


@dataclass(frozen=True, slots=True)
class Judged:
    """Scores that lines are compared by.

    Attributes:
        title: of what they are.
        scores: one of each line, by its place; those of other noise have none.
        ends: of the colours.
    """

    title: str
    scores: dict[int, float]
    ends: tuple[float, float]

    def share(self, i: int) -> float:
        """Return the place of a score between the ends of the colours."""
        low, high = self.ends
        return min(max((self.scores[i] - low) / (high - low), 0.0), 1.0)


def judge(info: ConfigurationsInfo) -> Judged:
    """Return the scores that the lines of parallel coordinates can be compared by."""
    rehearsed = "rehearsed " * bool(info.trained)
    title, common = f"{rehearsed}{label(info.color_name)}", _axis(info, COMMON)
    if common is not None:
        return Judged(common.title, dict(enumerate(common.values)), _ends(common.values))
    epsilons = [] if (axis := _axis(info, "epsilon")) is None else list(axis.values)
    alike = _largest_group(epsilons) if epsilons else list(range(len(info.colors)))
    scores = {i: info.colors[i] for i in alike}
    if len(alike) < len(info.colors):
        own = [show_epsilon(end) for end in (min(epsilons[i] for i in alike), max(epsilons[i] for i in alike))]
        title += f" at {OWN} {' to '.join(dict.fromkeys(own))}"
    best = max(range(len(info.colors)), key=info.colors.__getitem__)
    if best not in scores or info.sure is None or not min(scores.values()) < info.sure[0] < scores[best]:
        return Judged(title, scores, _ends(list(scores.values())))
    low = min(min(scores.values()), 2 * info.sure[0] - info.sure[1])  # small differences below it look small
    return Judged(title, scores, _ends([low, info.sure[0]]))


def correlations(judged: Judged, axes: Sequence[Axis]) -> dict[str, float] | None:
    """Return the rank correlations of settings with scores that are beyond chance, by name; ``None`` of few lines.

    Settings without an order, which are texts, have none.
    """
    lines = list(judged.scores)
    if len(lines) < _FEWEST:
        return None
    scores = rankdata([judged.scores[i] for i in lines])
    found: dict[str, float] = {}
    for axis in axes:
        places = rankdata([axis.positions[i] for i in lines])
        if np.ptp(places) > 0.0 and np.ptp(scores) > 0.0 and not any(isinstance(one, str) for one in axis.values):
            found[axis.name] = float(np.corrcoef(places, scores)[0, 1])
    least = NormalDist().inv_cdf(1.0 - _BY_CHANCE / 2.0 / max(len(axes), 1)) / sqrt(len(lines) - 1)
    return {name: value for name, value in found.items() if abs(value) > least}


def correlations_in_words(judged: Judged, found: dict[str, float] | None) -> str:
    """Return what stands below the lines of the settings that go with scores."""
    count = len(judged.scores)
    if found is None:
        return f"{count} coloured lines are too few to tell which settings matter"
    if not found:
        return f"no setting goes with the colours beyond chance (rank correlations of {count} lines)"
    return f"{RHO}: rank correlation of a setting with the colours of {count} lines, where it is beyond chance"


def _axis(info: ConfigurationsInfo, name: str) -> Axis | None:
    return next((axis for axis in info.axes if axis.name == name), None)


def _largest_group(epsilons: Sequence[float]) -> list[int]:
    """Return the most lines whose epsilons are near each other; of as many those of larger ones."""
    groups = [[i for i, one in enumerate(epsilons) if least <= one <= APART * least] for least in sorted(epsilons)]
    return max(reversed(groups), key=len)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    ends = color_ends(list(values))
    return ends["cmin"], ends["cmax"]
