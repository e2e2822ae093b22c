"""Lines to compare with: what the majority-class baseline reaches, and what was reached without privacy."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import plotly.graph_objects as go

from dashboards.data import SweepData, finite
from dashboards.figures._base import FigureInfo
from dashboards.figures._theme import Theme
from dashboards.text import in_parentheses, show
from sweeper.privacy.baselines import Baselines, MajoritySource
from sweeper.records import Interval
from sweeper.specification.objectives import AUROC, BALANCED

_CONSTANT = {AUROC: "chance", BALANCED: "chance"}
_ON_VALIDATION = " on validation rows"
_KNOWN_FROM: Mapping[MajoritySource | None, str] = {
    MajoritySource.DECLARED: ", as declared",
    MajoritySource.SKETCH: ", by the private sketch",
}


@dataclass(frozen=True, slots=True)
class Reference:
    """A value to compare with, and its words: escaped."""

    words: str
    value: float
    interval: Interval | None = None  # of a value that is known with noise


def references(data: SweepData, name: str) -> tuple[Reference, ...]:
    """Return what the majority-class baseline reaches where labels are open, and what was reached without privacy.

    A constant prediction has every radius: its share of rows is also what it reaches in any certified accuracy.
    """
    baselines = data.result.claim.baselines
    given = baselines.without_privacy.get(name)
    trained = [p.values[name] for p in data.points if p.values.get("epsilon") == inf and finite(p, name)]
    lines = [] if given is None else [Reference("without privacy, as given", given)]
    lines += [Reference("without privacy", max(trained))] if trained else []
    return (*constant_reference(baselines, name), *lines)


def constant_reference(baselines: Baselines, name: str) -> tuple[Reference, ...]:
    """Return what the majority-class baseline reaches, nothing where labels are not open."""
    constant = baselines.constant(name)
    has_counted = baselines.rows and baselines.majority_source in (MajoritySource.ROWS, None)
    how = _ON_VALIDATION if has_counted else _KNOWN_FROM.get(baselines.majority_source, "")
    how = how if "validation" in baselines.majority else ", at least"
    if constant is None:
        return ()
    return (Reference(_CONSTANT.get(name, f"majority class{how}"), constant, baselines.interval(name)),)


def draw_references(figure: go.Figure, info: FigureInfo, lines: tuple[Reference, ...], name: str, theme: Theme) -> None:
    """Draw the lines, and name in the legend, where a name covers no point, those on the axis as the figure opens."""
    line = {"color": theme.muted, "dash": "dashdot", "width": 1.2}  # lines of explorers are dotted
    low, high = figure.layout.yaxis.range or (-inf, inf)
    for one in lines:
        figure.add_hline(y=one.value, line=line)  # those beyond the axis are there for who zooms out
        if low <= one.value <= high:
            text = f"{one.words}: {show(name, one.value)}{in_parentheses(name, one.interval)}"
            text = text.replace(_ON_VALIDATION, "") if info.narrow else text
            figure.add_trace(go.Scatter(x=[None], y=[None], mode="lines", line=line, name=text))
