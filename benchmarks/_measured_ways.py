"""What a budget buys, by the way to spend it: accuracy and certified accuracy when everything costs the budget."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import plotly.graph_objects as go

from dashboards.figures._base import FigureInfo, FigureKind, Table
from dashboards.figures._common import SYMBOLS, log_ticks, new_figure
from dashboards.figures._theme import LIGHT, Theme
from dashboards.text import number

# By the name of a way in the tables of benchmarks/price.py, in the order of the legend.
_LABELS: Mapping[str, str] = {
    "rehearsed": "rehearsed on public rows, then one final",
    "affordable": "affordable sweep: quiet explorers, one final",
    "total P": "ordinary sweep of that total",
    "selection": "private selection",
    "random": "one fixed configuration",
    "each P": "every trial may spend it: costs several times as much",
}
_DEARER = "each P"
_OBJECTIVES = ("accuracy", "certified accuracy")
_DASHES = ("solid", "dash", "dashdot", "longdash", "longdashdot", "dot")  # dots are for what is no way to spend it
_APART = 1.05  # between two ways at one budget, so that their bars do not hide each other


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over seeds with its standard error, None of a single seed."""

    value: float
    error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What one way to spend a budget came to on one task."""

    task: str  # its name
    epsilon: float  # the budget, which is the price of everything; of `each P`, that of one trial
    way: str  # a name that this figure has a label for
    accuracy: Mean  # best validation accuracy
    certified: Mean  # best certified validation accuracy

    @property
    def means(self) -> tuple[Mean, Mean]:
        """The objectives, in the order of the panels."""
        return self.accuracy, self.certified


@dataclass(frozen=True, slots=True, kw_only=True)
class WaysInfo(FigureInfo):
    """Numbers of the figure: the spendings of each task."""

    tasks: Mapping[str, tuple[Spending, ...]]

    def line(self, task: str, way: str) -> tuple[Spending, ...]:
        """What one way came to on one task, by ascending budget."""
        return tuple(sorted((one for one in self.tasks[task] if one.way == way), key=lambda one: one.epsilon))


def info(spendings: Sequence[Spending]) -> WaysInfo:
    """Sort spendings by task."""
    tasks: dict[str, tuple[Spending, ...]] = {}
    for one in spendings:
        tasks[one.task] = (*tasks.get(one.task, ()), one)
    return WaysInfo(
        title="What a budget buys, by the way to spend it",
        epsilon_title="epsilon of everything",
        exploratory=False,
        tasks=tasks,
    )


def rows(info: WaysInfo) -> Table:
    """The numbers of the figure: one row per task, budget and way."""
    return [
        {
            "task": one.task,
            "epsilon": one.epsilon,
            "way": one.way,
            "accuracy": one.accuracy.value,
            "accuracy_error": one.accuracy.error,
            "certified": one.certified.value,
            "certified_error": one.certified.error,
        }
        for found in info.tasks.values()
        for one in found
    ]


def plot(info: WaysInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw one column of panels per task: accuracy above, certified accuracy below, one line per way."""
    legend = {"orientation": "h", "x": 0, "y": -0.14, "yanchor": "top"}
    margin = {"t": 66, "b": 120}
    figure = new_figure(info, theme, empty=not info.tasks, height=560, legend=legend, margin=margin)
    if not info.tasks:
        return figure
    figure.set_subplots(
        rows=len(_OBJECTIVES),
        cols=len(info.tasks),
        column_titles=[escape(task) for task in info.tasks],
        shared_xaxes=True,
        horizontal_spacing=0.045,
        vertical_spacing=0.06,
    )
    figure.update_annotations(font={"size": 13, "color": theme.muted})
    for column, task in enumerate(info.tasks, start=1):
        for number_of_way, way in enumerate(_LABELS):
            _draw(figure, info.line(task, way), number_of_way, column, theme)
    figure.update_xaxes(_axis(info))
    figure.update_xaxes({"title": {"text": info.epsilon_title}}, row=len(_OBJECTIVES))
    for row, objective in enumerate(_OBJECTIVES, start=1):
        figure.update_yaxes({"tickformat": ".0%", "nticks": 6}, row=row)
        figure.update_yaxes({"title": {"text": objective}}, row=row, col=1)
    return figure


def _axis(info: WaysInfo) -> dict[str, Any]:
    budgets = sorted({one.epsilon for found in info.tasks.values() for one in found})
    between = (budgets[0] / _APART**6, budgets[-1] * _APART**6)
    ticks = {"tickvals": budgets, "ticktext": [number(budget) for budget in budgets]}
    return {"type": "log", **log_ticks(between), **ticks}


def _draw(figure: go.Figure, line: Sequence[Spending], way: int, column: int, theme: Theme) -> None:
    for row in range(len(_OBJECTIVES) if line else 0):
        figure.add_trace(_trace(line, row, way, theme, legend=(row, column) == (0, 1)), row=row + 1, col=column)


def _trace(line: Sequence[Spending], row: int, way: int, theme: Theme, *, legend: bool) -> go.Scatter:
    name, means = line[0].way, [one.means[row] for one in line]
    color = theme.ink if name == _DEARER else theme.hue(way)
    return go.Scatter(
        x=[one.epsilon * _APART ** (way - (len(_LABELS) - 1) / 2) for one in line],
        y=[mean.value for mean in means],
        error_y={"array": [mean.error or 0.0 for mean in means], "thickness": 1.2, "width": 0, "color": color},
        mode="lines+markers",
        line={"width": 1.2 if name == _DEARER else 1.8, "color": color, "dash": _DASHES[way]},
        marker={"size": 6, "color": color, "symbol": "circle-open" if name == _DEARER else SYMBOLS[way]},
        name=_LABELS[name],
        legendgroup=name,
        showlegend=legend,
        text=[_text(one, mean) for one, mean in zip(line, means, strict=True)],
        hovertemplate="%{text}<extra></extra>",
    )


def _text(one: Spending, mean: Mean) -> str:
    error = "" if mean.error is None else f" ± {mean.error:.1%}"
    return f"{escape(one.task)}, epsilon {number(one.epsilon)}<br>{_LABELS[one.way]}<br>{mean.value:.1%}{error}"


FIGURE: FigureKind[Sequence[Spending], WaysInfo] = FigureKind(
    name="ways",
    heading="What a budget buys, by the way to spend it",
    summary="best accuracy and best certified accuracy at a price of everything, for each way to spend it",
    caption=(
        "The best of what may leave when everything costs the budget, on validation rows, which choose; bars are "
        "standard errors over seeds. The dotted line is no way to spend that budget: every one of its sixteen trials "
        "may spend all of it."
    ),
    position=10,
    info=info,
    plot=plot,
    rows=rows,
    wide=True,
)
