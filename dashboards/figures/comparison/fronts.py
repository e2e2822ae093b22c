"""The fronts of several sweeps in one plane: one line per run, one colour and mark per spec."""

from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from dashboards.figures._base import FigureInfo, FigureKind, Table
from dashboards.figures._common import DASHES, SYMBOLS, Step, epsilon_axis, label, new_figure, staircase, value_axis
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.comparison._compared import colors, compared
from dashboards.text import show
from sweeper.results.comparison import Comparison


@dataclass(frozen=True, slots=True)
class Line:
    """The staircase of one run."""

    spec: str
    run: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayInfo(FigureInfo):
    """Numbers of the overlay: the lines by spec, in the order given; runs without a point are left out."""

    utility: str
    lines: tuple[Line, ...]


def info(comparison: Comparison) -> OverlayInfo:
    """Compute the overlay of the fronts."""
    utility = comparison.utility
    lines = [
        Line(group.name, run.label, staircase(run.front.points, utility.name, utility.direction))
        for group in comparison.groups
        for run in group.runs
    ]
    return OverlayInfo(
        **compared(comparison, f"{label(utility.name)} against epsilon"),
        utility=utility.name,
        lines=tuple(line for line in lines if line.steps),
    )


def rows(info: OverlayInfo) -> Table:
    """The numbers of the figure: one row per step of each line."""
    return [
        {
            "name": line.spec,
            "sweep": line.run,
            "epsilon": step.epsilon,
            info.utility: step.value,
            "trial": step.trial,
            "epoch": step.epoch,
        }
        for line in info.lines
        for step in line.steps
    ]


def plot(info: OverlayInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the overlay; the lines of one spec share a legend entry."""
    epsilons = [step.epsilon for line in info.lines for step in line.steps]
    figure = new_figure(
        info,
        theme,
        empty=not epsilons,
        height=480,
        xaxis=epsilon_axis(info.epsilon_title, epsilons),
        yaxis=value_axis(info.utility),
    )
    specs = list(dict.fromkeys(line.spec for line in info.lines))
    for i, line in enumerate(info.lines):
        first = info.lines.index(next(other for other in info.lines if other.spec == line.spec)) == i
        figure.add_trace(_line(info, line, specs.index(line.spec), max(epsilons), theme, named=first))
    return figure


def _line(info: OverlayInfo, line: Line, spec: int, right_end: float, theme: Theme, *, named: bool) -> go.Scatter:
    palette = colors(theme)
    texts = [
        f"<b>{escape(line.run)}</b><br>{escape(step.trial)}, epoch {step.epoch}<br>"
        f"epsilon {show('epsilon', step.epsilon)}: {label(info.utility)} {show(info.utility, step.value)}"
        for step in line.steps
    ]
    return go.Scatter(
        x=[*(step.epsilon for step in line.steps), right_end],
        y=[step.value for step in (*line.steps, line.steps[-1])],
        mode="lines+markers",
        line={
            "shape": "hv",
            "width": 1.8,
            "color": palette[spec % len(palette)],
            "dash": DASHES[spec % len(DASHES)],
        },
        marker={
            "size": [5] * len(line.steps) + [0],
            "symbol": SYMBOLS[spec % len(SYMBOLS)],
            "opacity": 1,
            "line": {"width": 0},
        },
        text=[*texts, texts[-1]],
        hovertemplate="%{text}<extra></extra>",
        name=escape(line.spec),
        legendgroup=escape(line.spec),
        showlegend=named,
    )


FIGURE: FigureKind[Comparison, OverlayInfo] = FigureKind(
    name="fronts",
    heading="The fronts",
    summary="the fronts of all sweeps in one plane",
    caption="One line per sweep: what is achievable at epsilon ≤ x. Sweeps of one name share colour, dash and mark.",
    position=10,
    info=info,
    plot=plot,
    rows=rows,
    epsilon_axis=True,
)
