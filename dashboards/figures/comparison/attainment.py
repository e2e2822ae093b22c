"""Attainment bands: what the best, the median and the worst run reach at every epsilon.

Runs are the sweeps of one spec in a comparison, or the repeats of every configuration in one sweep.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from dashboards.figures._base import FigureInfo, FigureKind, Table
from dashboards.figures._common import compared, over_epsilon, reached, said_in_legend
from dashboards.figures._theme import LIGHT, Theme
from sweeper.pareto.attainment import Surface
from sweeper.results.comparison import Comparison

_OPACITY = 0.18
_BEYOND = 1.04  # how far surfaces are drawn beyond their last step


@dataclass(frozen=True, slots=True)
class Band:
    """The surfaces of one spec."""

    spec: str
    runs: int
    surfaces: tuple[Surface, ...]
    hue: int = 0  # the place of its colour

    def surface(self, name: str) -> Surface | None:
        """The best, the median or the worst one."""
        return next((surface for surface in self.surfaces if surface.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttainmentInfo(FigureInfo):
    """Numbers of the attainment figure: one band per spec with at least two runs."""

    utility: str  # name on the vertical axis
    bands: tuple[Band, ...]  # by spec
    runs: str  # what the runs are, in words
    alone: tuple[str, ...] = ()  # specs with one run, which attain nothing together
    is_named: bool = True  # whether the legend says what a band is of
    right_end: float  # of the bands, a little beyond the last step of any


def info(comparison: Comparison) -> AttainmentInfo:
    """Compute the attainment bands."""
    runs = {group.name: len(group.runs) for group in comparison.groups}
    hues = {group.name: i for i, group in enumerate(comparison.groups)}  # as in the other figures
    bands = tuple(Band(name, runs[name], surfaces, hues[name]) for name, surfaces in comparison.surfaces().items())
    named = " and ".join(escape(band.spec) for band in bands)
    return AttainmentInfo(
        **compared(comparison, "what the runs attain") | ({"title": f"{named}: what the runs attain"} if bands else {}),
        utility=comparison.utility.name,
        bands=bands,
        runs="runs",
        alone=tuple(name for name, count in runs.items() if count == 1),
        right_end=right_end(bands),
    )


def right_end(bands: Sequence[Band]) -> float:
    """Return an epsilon a little beyond the last step of any surface, so that it is seen to be level; 1 without any."""
    return _BEYOND * max(_epsilons(bands), default=1.0 / _BEYOND)


def _epsilons(bands: Sequence[Band]) -> list[float]:
    return [epsilon for band in bands for surface in band.surfaces for epsilon, _ in surface.steps]


def rows(info: AttainmentInfo) -> Table:
    """The numbers of the figure: one row per step of each surface."""
    return [
        {"name": band.spec, "runs": band.runs, "surface": surface.name, "at_least": surface.count}
        | {"epsilon": epsilon, info.utility: value}
        for band in info.bands
        for surface in band.surfaces
        for epsilon, value in surface.steps
    ]


def plot(info: AttainmentInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the bands between best and worst, and the medians of three runs or more as lines."""
    epsilons = _epsilons(info.bands)
    figure = over_epsilon(info, theme, epsilons, info.utility, height=460)
    if not epsilons:
        figure.update_annotations(selector={"text": "no points yet"}, text=f"no spec with two {info.runs}")
    for band in info.bands:
        color = theme.hue(band.hue)
        figure.add_traces(_band(info, band, color))
        for name, width in (("best", 0.7), ("worst", 0.7), ("median", 2.2)):
            surface = band.surface(name)
            if surface is not None:
                figure.add_trace(_line(info, band, surface, color, width))
    if info.bands and info.alone:
        name = f"not shown, though in the price: {escape(', '.join(info.alone))} (one run)"
        figure.add_trace(said_in_legend(name, theme))
    return figure


def _path(surface: Surface, right_end: float) -> tuple[list[float], list[float]]:
    xs: list[float] = []
    ys: list[float] = []
    for epsilon, value in surface.steps:
        xs += [epsilon] * (2 if ys else 1)
        ys += [*ys[-1:], value]
    return [*xs, right_end], [*ys, ys[-1]]


def _band(info: AttainmentInfo, band: Band, color: str) -> list[go.Scatter]:
    """The area between best and worst; where no worst surface is yet, the band is not filled."""
    best, worst = band.surface("best"), band.surface("worst")
    if best is None or worst is None:
        return []
    start = worst.steps[0][0]
    inside = Surface(best.name, best.count, ((start, best.at(start) or 0.0), *(s for s in best.steps if s[0] > start)))
    (low_x, low_y), (high_x, high_y) = _path(worst, info.right_end), _path(inside, info.right_end)
    return [
        go.Scatter(
            x=[*high_x, *low_x[::-1]],
            y=[*high_y, *low_y[::-1]],
            mode="lines",
            fill="toself",
            line={"width": 0, "color": color},
            fillcolor=color,
            opacity=_OPACITY,
            hoverinfo="skip",
            name=f"{_named(info, band)}from worst to best of {band.runs} {info.runs}",
            legendgroup=escape(band.spec),
        )
    ]


def _named(info: AttainmentInfo, band: Band) -> str:
    """The name of what a band is of, in front of what it is."""
    return f"{escape(band.spec)}: " if info.is_named else ""


def _line(info: AttainmentInfo, band: Band, surface: Surface, color: str, width: float) -> go.Scatter:
    xs, ys = _path(surface, info.right_end)
    is_key = surface.name == "median" or (band.surface("median") is None and band.surface("worst") is None)
    return go.Scatter(
        x=xs,
        y=ys,
        mode="lines",
        line={"color": color, "width": width},
        text=[
            f"{_named(info, band)}{surface.name}: attained by {surface.count} of {band.runs} {info.runs}<br>"
            f"{reached(x, info.utility, y)}"
            for x, y in zip(xs, ys, strict=True)
        ],
        hovertemplate="%{text}<extra></extra>",
        name=f"{_named(info, band)}{surface.name} of {band.runs} {info.runs}",
        legendgroup=escape(band.spec),
        showlegend=is_key,
    )


FIGURE: FigureKind[Comparison, AttainmentInfo] = FigureKind(
    name="attainment",
    heading="What the runs attain",
    summary=(
        "for each name with several sweeps: what at least half of them attain, between what all and what one "
        "of them attain ([empirical attainment function](https://doi.org/10.1007/3-540-44719-9_15))"
    ),
    caption=(
        "For each name with several sweeps: the band reaches from what all of them attain to what the best of them "
        "does; of three or more, the solid line is attained by at least half. Nothing is averaged."
    ),
    position=20,
    info=info,
    plot=plot,
    rows=rows,
    epsilon_axis=True,
    needs="two sweeps of one name",
)
