"""The points of a front as marks, by what they cost or risk: coloured by certificate, finals apart from explorers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

import plotly.graph_objects as go

from dashboards.figures._common import FIRST_IN_LEGEND, color_bar, color_ends, label, point_name
from dashboards.figures._scores import error_bars
from dashboards.figures._staircases import EXPLORER
from dashboards.figures._theme import Theme
from sweeper.records import Point

_SMALL = 0.55  # of a mark in a column, so that it hides neither the line nor its neighbours
_COLOURED = 9.0  # pixels of a mark with a certificate
_OPEN = 2.0  # pixels of the rim of an open mark
_PLAIN = (9.0, 6.5)  # without a certificate, on a page and in a column
_LARGE, _SMALLER = "most budget", "less budget"  # of a training, in a legend
_CROWDED = 200  # more points than this are drawn at half the size
_PALE = 0.45  # opacity of as many dominated ones


def scale_of(count: int, *, narrow: bool) -> float:
    """Return by what marks are smaller: those of very many points, and all of them in a column."""
    return (_SMALL if narrow else 1.0) * (1.0 if count <= _CROWDED else 0.5)


def dominated_look(count: int, theme: Theme, *, narrow: bool) -> dict[str, Any]:
    """Return the marks of dominated points; of very many they are paler, so that they do not outshine the front."""
    size = 5 * scale_of(0, narrow=narrow)
    return {"size": size, "color": theme.faint, "opacity": 1.0 if count <= _CROWDED else _PALE}


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMarks:
    """The points of a front in one figure."""

    points: Sequence[Point]
    texts: Sequence[str]  # one for each
    at: Callable[[Point], float]  # where a point stands on the horizontal axis
    utility: str  # what stands on the vertical one
    certificate: str | None  # what colours them
    certified_scores: str  # of which rows that is, and how sure where it is noisy
    finals_first: bool  # whether finals are told apart from explorers, which have open marks
    narrow: bool  # whether it is a column of a paper

    def traces(self, theme: Theme) -> list[go.Scatter]:
        """Points with a certificate by colour, points without one in a plain colour."""
        certified = [point.values.get(self.certificate or "", nan) for point in self.points]
        known = [i for i, value in enumerate(certified) if isfinite(value)]
        plain = [i for i, value in enumerate(certified) if not isfinite(value)]
        traces = []
        if known:
            values = [certified[i] for i in known]
            marker = {
                "color": values,
                "size": _COLOURED * scale_of(len(known), narrow=self.narrow),
                "colorscale": theme.colorscale(),
                **color_ends(values),
                "colorbar": color_bar(self._bar_title, values),
            }
            traces.append(self._trace(known, marker, theme))
        if plain:
            traces.append(self._trace(plain, {"size": _PLAIN[self.narrow], "color": theme.blue}, theme))
        return traces

    def keys(self, theme: Theme, counted: Callable[[str, Sequence[Point]], str]) -> list[go.Scatter]:
        """What the legend shows for the front, ``counted`` says how; of colours that are values a middle one."""
        marker: dict[str, Any] = {"size": _PLAIN[self.narrow], "color": theme.blue}
        if self.certificate:
            size = _COLOURED * scale_of(0, narrow=self.narrow)
            marker = {"size": size, "color": theme.scale[len(theme.scale) // 2]}
        name = "front (colour: certificate)" if self.certificate and not self.narrow else "front"
        kinds: dict[str, tuple[str, Sequence[Point]]] = {name: ("circle", self.points)}
        has_repeats = not self.narrow and any(point.repeats for point in self.points)
        if has_repeats and error_bars(self.points, self.utility, theme):
            kinds = {f"{name}, bars ±1 SD": ("circle", self.points)}
        if self.finals_first:
            finals, explorers = ([p for p in self.points if p.is_final is is_final] for is_final in (True, False))
            what = "" if self.narrow else "front, "
            kinds = {
                f"{what}finals ({_LARGE})": ("circle", finals),
                f"{what}explorers ({_SMALLER})": (EXPLORER, explorers),
            }
        rim = {"width": _OPEN * scale_of(0, narrow=self.narrow), "color": theme.paper}
        return [
            go.Scatter(
                x=[None],
                y=[None],
                mode="markers",
                marker={**marker, "symbol": symbol, "line": rim},
                name=counted(name, points),
                legendrank=FIRST_IN_LEGEND,
            )
            for name, (symbol, points) in kinds.items()
            if points
        ]

    @property
    def _bar_title(self) -> str:
        what, _, sure = self.certified_scores.partition(", ")
        if self.narrow:
            return f"{label(self.certificate or '')} ({sure.partition('≤ ')[2] or what})"
        gap, sure = ("<br>", f",<br>{sure}") if sure else (" ", "")  # of noisy scores, longer than the bar is high
        return f"{label(self.certificate or '')}{gap}({what}{sure})"

    def _trace(self, chosen: Sequence[int], marker: Mapping[str, object], theme: Theme) -> go.Scatter:
        points = [self.points[i] for i in chosen]
        return go.Scatter(
            x=[self.at(point) for point in points],
            y=[point.values[self.utility] for point in points],
            mode="markers",
            marker={"opacity": 1, **self._shapes(points, theme), **marker},
            error_y=error_bars(points, self.utility, theme),
            customdata=[point_name(point) for point in points],
            text=[self.texts[i] for i in chosen],
            hovertemplate="%{text}<extra>on the front</extra>",
            name="points of the front",
            cliponaxis=False,
            showlegend=False,
        )

    def _shapes(self, points: Sequence[Point], theme: Theme) -> dict[str, Any]:
        """Filled marks with a rim; open ones of explorers, where finals come first."""
        rim = scale_of(len(points), narrow=self.narrow)
        if not self.finals_first:
            return {"line": {"color": theme.paper, "width": rim}}
        widths = [rim if point.is_final else _OPEN * rim for point in points]
        symbols = ["circle" if point.is_final else EXPLORER for point in points]
        return {"symbol": symbols, "line": {"color": theme.paper, "width": widths}}
