"""The bias of clipping: the angle between the clipped mean gradient and the unclipped one, method beside method.

As figure 5.3.3 of the thesis "Enhancing differentially private machine learning", with both methods at the same noise:
what is left of the direction, and of how many rows it was bent.
"""

from dataclasses import dataclass
from html import escape
from math import acos, degrees, isfinite

import plotly.graph_objects as go

from clipless.diagnostics import ClippingBias
from clipless.plans.method import Method
from dashboards.figures._base import FigureInfo, FigureKind
from dashboards.figures._common import DASHES, SYMBOLS
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.diagnosis._header import header, log_axis, moment, panels
from dashboards.text import number
from sweeper.results.models.diagnosis import Diagnosis

_LEGENDS = {Method.DP_SGD: "flat clipping (dp-sgd)", Method.LIP_DP_SGD: "guard (lip-dp-sgd)"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of clipping."""

    noise: float  # norm of its noise, relative to the largest of the figure
    level: str  # in words
    angle: float  # in degrees, between clipped and unclipped mean
    acted: float  # share of rows that were scaled
    in_use: bool  # whether the training used it


@dataclass(frozen=True, slots=True)
class MethodLine:
    """One method, at one moment or for one parameter, from little noise to much."""

    name: str
    method: Method
    late: bool
    settings: tuple[Setting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippingInfo(FigureInfo):
    """Numbers of a figure of clipping: lines by panel."""

    panels: tuple[tuple[str, tuple[MethodLine, ...]], ...]
    shares: bool


def info(diagnosis: Diagnosis) -> ClippingInfo:
    """Compare the methods, all parameters together, at each moment."""
    lines = [
        MethodLine(f"{legend(method)}, {moment(snapshot)}", method, index > 0, settings_of(biases, method))
        for index, snapshot in enumerate(diagnosis.snapshots)
        for biases in [snapshot.diagnostics.clipping]
        for method in methods_of(biases)
    ]
    titles = ("angle between the clipped and the unclipped mean gradient", "rows of which something is clipped")
    return ClippingInfo(
        **header(diagnosis, "bias of clipping"),
        panels=tuple((title, tuple(lines)) for title in titles if lines),
        shares=True,
    )


def legend(method: Method) -> str:
    """Return the name of a method in the legend."""
    return _LEGENDS.get(method, "guard (clipless)")


def methods_of(biases: tuple[ClippingBias, ...]) -> list[Method]:
    """Return the methods that were compared, in order."""
    return list(dict.fromkeys(bias.method for bias in biases))


def settings_of(biases: tuple[ClippingBias, ...], method: Method, parameter: int | None = None) -> tuple[Setting, ...]:
    """Return the settings of one method by noise: of the whole gradient, or of the parameter at this index."""
    largest = max(bias.noise_norm for bias in biases)
    chosen = sorted((bias for bias in biases if bias.method is method), key=lambda bias: bias.noise_norm)
    return tuple(
        Setting(
            noise=bias.noise_norm / largest,
            level=f"{'clip norm' if method is Method.DP_SGD else 'fraction'} {number(bias.level)}",
            angle=_angle(bias.cosine if parameter is None else bias.parameters[parameter].cosine),
            acted=bias.acted if parameter is None else bias.parameters[parameter].acted,
            in_use=bias.in_use,
        )
        for bias in chosen
    )


def _angle(cosine: float) -> float:
    return degrees(acos(cosine)) if isfinite(cosine) else float("nan")


def plot(info: ClippingInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw angles, and shares of rows below them, over the noise that each setting needs."""
    figure = panels(info, theme, [title for title, _ in info.panels], height=150 + 190 * max(len(info.panels), 1))
    values = [setting.noise for _, lines in info.panels for line in lines for setting in line.settings]
    angles = [setting.angle for _, lines in info.panels for line in lines for setting in line.settings]
    widest = max((angle for angle in angles if isfinite(angle)), default=0.0) or 1.0
    shown: set[str] = set()
    for row, (_, lines) in enumerate(info.panels, start=1):
        shares = info.shares and row == 2
        for index, line in enumerate(lines):
            trace = _trace(line, index, theme, shares=shares, by_method=info.shares)
            trace.showlegend = line.name not in shown
            shown.add(line.name)
            figure.add_trace(trace, row=row, col=1)
        figure.update_xaxes(**log_axis(values), showticklabels=row == len(info.panels), row=row, col=1)
        if shares:
            figure.update_yaxes(tickformat=".0%", range=[-0.06, 1.08], row=row, col=1)
        else:
            figure.update_yaxes(ticksuffix="°", range=[-0.06 * widest, 1.08 * widest], row=row, col=1)
    if info.panels:
        title = "norm of the noise, relative to that of the gentlest setting"
        figure.update_xaxes(title={"text": title}, row=len(info.panels), col=1)
    return figure


def _trace(line: MethodLine, index: int, theme: Theme, *, shares: bool, by_method: bool) -> go.Scatter:
    flat = line.method is Method.DP_SGD
    color = (theme.orange if flat else theme.blue) if by_method else theme.hue(index)
    dash = ("solid" if line.late else "dot") if by_method else DASHES[index % len(DASHES)]
    symbol = ("square" if flat else "circle") if by_method else SYMBOLS[index % len(SYMBOLS)]
    return go.Scatter(
        x=[setting.noise for setting in line.settings],
        y=[setting.acted if shares else _finite(setting.angle) for setting in line.settings],
        mode="lines+markers",
        line={"width": 2, "color": color, "dash": dash},
        marker={
            "symbol": symbol if line.late else f"{symbol}-open",
            "size": [14 if setting.in_use else 7 for setting in line.settings],
            "color": color,
            "line": {"width": [2 if setting.in_use else 1 for setting in line.settings], "color": theme.ink},
        },
        text=[
            f"{setting.level}{' (in use)' if setting.in_use else ''}<br>angle {number(setting.angle)}°, "
            f"{number(100 * setting.acted)} % of rows"
            for setting in line.settings
        ],
        hovertemplate="%{text}<extra>" + escape(line.name) + "</extra>",
        name=escape(line.name),
        legendgroup=escape(line.name),
    )


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


FIGURE: FigureKind[Diagnosis, ClippingInfo] = FigureKind(
    name="clipping",
    heading="What clipping does to the direction",
    summary="the angle between the clipped and the unclipped mean gradient, method beside method",
    caption=(
        "Noise averages out over steps, a bent mean does not. The guard per layer and flat clipping of the whole "
        "gradient are set to need the same noise; large marks are the setting in use. Further left: less noise, more "
        "clipping."
    ),
    position=40,
    info=info,
    plot=plot,
)
