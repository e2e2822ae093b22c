"""The front in its three dimensions: epsilon, utility and certified accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from math import log10
from typing import Any

import plotly.graph_objects as go

from dashboards.data import SweepData, finite
from dashboards.figures._base import FigureInfo, FigureKind, Table, Topic
from dashboards.figures._common import (
    LOG,
    color_bar,
    color_ends,
    header,
    hover_texts,
    label,
    marks,
    new_figure,
    percent_axis,
    point_name,
    point_rows,
    title_below,
    value_axis,
)
from dashboards.figures._front_marks import scale_of
from dashboards.figures._scores import error_bars, scores_in_words
from dashboards.figures._shades import differ, shaded_marker
from dashboards.figures._staircases import EXPLORER, own_epsilon
from dashboards.figures._tested import ON_TEST, gap_in_words
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures._ticks import log_ticks, rounded_ticks, texts_of
from dashboards.summary import best_of
from dashboards.text import number, short_title, show, show_test, title_of, whole
from sweeper.privacy.pricing import OWN
from sweeper.records import Point
from sweeper.results.highlights import finals_first
from sweeper.rounding import number_of

_LARGE_MARKS = 200  # points
_FAINT = 40  # points: the lines of more are fainter, or they would hide them
_EYE = {"x": 1.05, "y": -1.9, "z": 0.66}  # from where no two axes have their ticks along one side
_CENTER = {"x": 0.0, "y": 0.0, "z": -0.3}
_CORNER: dict[str, Any] = {
    "x": 0.01,
    "y": 0.01,
    "xref": "paper",
    "yref": "paper",
    "xanchor": "left",
    "yanchor": "bottom",
    "align": "left",
    "showarrow": False,
}
_FAR_ABOVE = 0.3  # of a height, above 0
_APART = 0.12  # share of an axis between two ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class Front3dInfo(FigureInfo):
    """Numbers of the three-dimensional front."""

    utility: str  # name on the second axis
    certificate: str | None  # name on the third axis; None when no point has a certificate, and nothing is drawn
    front: tuple[Point, ...]  # points of the front for which all three numbers are finite
    hover: tuple[str, ...]  # one text for each
    on_test: tuple[str, ...]  # what is known of scores on test rows, in words
    each: tuple[str, ...]  # how sure scores on the second and on the third axis are, in words


def info(data: SweepData, *, certificate: str | None = None) -> Front3dInfo:
    """Compute the three-dimensional front, with ``certificate`` on the third axis; the sweep's own by default."""
    certificate = certificate or data.certificate
    names = ("epsilon", data.utility, certificate or "")
    front = tuple(point for point in data.front_points if finite(point, *names))
    return Front3dInfo(
        **header(data, "privacy, utility and robustness", *filter(None, names[1:])),
        utility=data.utility,
        certificate=certificate,
        front=front,
        hover=hover_texts(data, front),
        on_test=tuple(_on_test(data, [name for name in names[1:] if name])),
        each=tuple(scores_in_words(data.result, [name]) for name in names[1:] if name),
    )


def _on_test(data: SweepData, names: Sequence[str]) -> list[str]:
    """How far scores lie lower on test rows, on average; of noisy ones what the best model has there."""
    found = [f"{label(name)}: {words}" for name in names if (words := gap_in_words(data.result, name))]
    whose, best = "on average", best_of(data, data.utility)
    if best is not None and best.noisy is not None:
        whose = f"the model of best {label(data.utility)}"
        found = [f"{label(name)}: {show_test(best, name)}" for name in names if best.test_interval(name)]
    return [f"{ON_TEST}, {whose}:", *found] if found else []


def rows(info: Front3dInfo) -> Table:
    """The numbers of the figure: one row per point."""
    return point_rows(info.front, info.utility, *([info.certificate] if info.certificate else []))


def plot(info: Front3dInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the three-dimensional front; points drop lines to the floor so that depth can be read.

    In a picture, which nobody can turn, the own epsilon is the colour of points on a plane.
    """
    if info.still:
        return _flat(info, theme)
    epsilons = [point.values["epsilon"] for point in info.front]
    utilities = [point.values[info.utility] for point in info.front]
    name = info.certificate or ""
    certified = [point.values[name] for point in info.front]
    height = _ends(name, _from_floor(certified))
    scene = {
        "xaxis": {
            "type": "log",
            "tickangle": 0,
            **_few(log_ticks(epsilons, steps=(1, 2, 5))),
            "title": {"text": f"{OWN}{LOG}"},
        },
        "yaxis": {**_ends(info.utility, utilities), "title": {"text": escape(short_title(info.utility))}},
        "zaxis": {**height, "title": {"text": escape(name)}},
        "camera": {"eye": _EYE, "center": _CENTER},
        "aspectratio": {"x": 1.9, "y": 1.2, "z": 0.9},
    }
    margin = {"l": 8, "r": 8, "t": 40, "b": 8}
    figure = new_figure(info, theme, empty=not epsilons, height=520, scene=scene, margin=margin, showlegend=False)
    if not epsilons:
        return figure
    said = "<br>".join([*_terms(info), info.scores, *info.on_test])  # titles that turn have no room; fits a phone
    figure.add_annotation(name="terms", text=said, **_CORNER, font={"size": 12, "color": theme.muted})
    figure.add_trace(_lines_to_the_floor(epsilons, utilities, certified, height["range"][0], theme))
    figure.add_trace(
        go.Scatter3d(
            x=epsilons,
            y=utilities,
            z=certified,
            mode="markers",
            marker={
                "size": 3.0 if len(epsilons) > _LARGE_MARKS else 4.5,
                **_shapes(info.front, theme),
                "color": certified,
                **color_ends(certified),
                "colorscale": theme.colorscale(),
                "colorbar": color_bar(label(name), certified),
            },
            customdata=[point_name(point) for point in info.front],
            text=info.hover,
            hovertemplate="%{text}<extra></extra>",
            name=label(info.certificate or ""),
        )
    )
    return figure


def _flat(info: Front3dInfo, theme: Theme) -> go.Figure:
    """Draw certified accuracy over utility, coloured by own epsilon."""
    name = info.certificate or ""
    on_test = f"{info.on_test[0]} {', '.join(info.on_test[1:])}" if info.on_test else ""
    sure = "" if info.narrow else f" ({info.each[0]})"
    shown = f"{number_of(len(info.front), 'point')} of the front"
    terms = [f"{label(info.utility)}{sure}", shown, *_terms(info), on_test]
    title = title_below("; ".join(filter(None, terms)), info)
    second = replace(info, scores=info.each[-1])
    xaxis = {"title": {"text": title}, **percent_axis(info.utility)}
    figure = new_figure(info, theme, empty=not info.front, height=520, xaxis=xaxis, yaxis=value_axis(second, name))
    if info.front:
        best = [max(info.front, key=lambda point: point.values[one]).key for one in (info.utility, name)]
        # the smallest epsilon above others, and the best above all
        front = sorted(info.front, key=lambda point: (point.key in best, -own_epsilon(point)))
        own = [own_epsilon(point) for point in front]
        look = {"size": 9.0 * scale_of(len(front), narrow=info.narrow), "opacity": 1, **_shapes(front, theme)}
        look |= shaded_marker(own, theme, "points") if differ(own) else {"color": theme.blue}
        x, y = ([point.values[one] for point in front] for one in (info.utility, name))
        bars = {f"error_{axis}": error_bars(front, one, theme) for axis, one in (("x", info.utility), ("y", name))}
        drawn = marks(x, y, [point_name(point) for point in front], look, showlegend=False, **bars)
        figure.add_trace(drawn.update(cliponaxis=False))
    return figure


def _terms(info: Front3dInfo) -> list[str]:
    """What holds for all points: the terms of their epsilons, and what open marks are."""
    _, _, terms = info.epsilon_title.partition(", ")
    return [terms, *(["open marks: explorers"] if finals_first(info.front) else [])]


def _shapes(points: Sequence[Point], theme: Theme) -> dict[str, Any]:
    is_told = finals_first(points)
    symbols = [EXPLORER if is_told and not point.is_final else "circle" for point in points]
    return {"symbol": symbols, "line": {"color": theme.paper, "width": 1}}


def _from_floor(certified: Sequence[float]) -> list[float]:
    """The heights that an axis shows: from 0, or from the lowest one where that is far above."""
    return [0.0, *certified] if certified and min(certified) < _FAR_ABOVE else [*certified]


def _few(axis: dict[str, Any]) -> dict[str, Any]:
    """A logarithmic axis with so few ticks that they do not meet those of the next axis, nor each other."""
    if not axis:
        return axis
    low, high = axis["range"]
    kept: list[float] = []
    for tick in axis["tickvals"]:
        at = log10(tick)
        if low + _APART * (high - low) / 2 <= at and (not kept or at - log10(kept[-1]) >= _APART * (high - low)):
            kept.append(tick)
    return {**axis, "tickvals": kept, "ticktext": [number(tick) for tick in kept]}


def _ends(name: str, values: Sequence[float]) -> dict[str, Any]:
    """Range and ticks of a linear axis; no tick stands at its ends, where axes meet."""
    if not values:
        return {}
    low, high = min(values), max(values)
    pad = _APART * ((high - low) or 0.1) / 2
    ticks = [tick for tick in rounded_ticks(low, high) if tick >= low + (pad if low else 2 * pad)] or [high]
    return {"range": [low - pad, high + pad], "tickvals": ticks, "ticktext": texts_of(ticks, name)}


def _lines_to_the_floor(
    epsilons: list[float], utilities: list[float], certified: list[float], floor: float, theme: Theme
) -> go.Scatter3d:
    return go.Scatter3d(
        x=[x for x in epsilons for _ in range(3)],
        y=[y for y in utilities for _ in range(3)],
        z=[value for z in certified for value in (floor, z, None)],
        mode="lines+markers",
        line={"color": theme.faint, "width": 1.5},
        opacity=min(1.0, _FAINT / len(epsilons)),
        marker={"size": [2.5, 0, 0] * len(epsilons), "color": theme.muted},  # where they meet it
        hoverinfo="skip",
    )


def _found(info: Front3dInfo) -> str:
    spans = []
    for name in ("epsilon", info.utility, info.certificate or ""):
        values = [point.values[name] for point in info.front]
        title = OWN if name == "epsilon" else title_of(name)
        spans.append(f"{title} from {show(name, min(values))} to {show(name, max(values))}")
    return whole(f"{number_of(len(info.front), 'point')}: {', '.join(spans)}.")


FIGURE: FigureKind[SweepData, Front3dInfo] = FigureKind(
    name="front-3d",
    heading="Privacy, utility and robustness together",
    summary="own epsilon, utility and certified accuracy in space; in pictures the own epsilon is the colour",
    caption="The points of the front. Scores are of validation rows, which chose the models.",
    gestures=" Drag to turn.",
    remarks=lambda data: " Below the axes: what is known of test rows." if info(data).on_test else "",
    position=60,
    found=_found,
    info=info,
    plot=plot,
    rows=rows,
    info_at=lambda data, certificate: info(data, certificate=certificate),
    topic=Topic.FRONT,
    epsilon_axis=True,
    awaits=("The points of the front in space,<br>as soon as a trial has finished its first epoch"),
    needs="points of the front with a certificate",
)
