"""One look for every figure, on paper and on screen: colours, fonts, and the template made of them.

Hues are Okabe and Ito's (2008), which colour-blind readers tell apart; the scale is viridis, whose lightness
is monotone, so that it survives a black-and-white printer. In both themes more ink (contrast to the
background) means a larger value. Line dashes and marker shapes repeat what colours say.

A figure drawn in one theme becomes the other by exchanging colour strings (`exchange`): the report draws
once and lets the reader's browser choose.
"""

from dataclasses import dataclass, fields
from functools import cache

import plotly.graph_objects as go

FONT = (
    '-apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "Liberation Sans", Arial, system-ui, sans-serif'
)
MONOSPACE = 'ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace'


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """Named colours. No two names of one theme share a colour, so that themes can be exchanged."""

    name: str
    paper: str  # background
    clear: str  # the same, wholly transparent: where it begins to fade what it covers
    panel: str  # background of cards and hover labels
    ink: str  # text and the front
    muted: str  # secondary text
    line: str  # axes and rules
    grid: str
    faint: str  # dominated points
    watermark: str
    blue: str
    orange: str
    green: str
    purple: str
    red: str
    scale: tuple[str, ...]  # from small to large values

    def colors(self) -> tuple[str, ...]:
        """Every colour, in a fixed order."""
        named = [getattr(self, f.name) for f in fields(self) if f.name not in ("name", "scale")]
        return (*named, *self.scale)

    def hue(self, index: int) -> str:
        """The colour of one of several things that are told apart, by its place among them."""
        return (self.blue, self.orange, self.green, self.purple, self.red)[index % 5]

    def colorscale(self) -> list[list[float | str]]:
        """The scale as Plotly takes it."""
        return [[i / (len(self.scale) - 1), color] for i, color in enumerate(self.scale)]


LIGHT = Theme(
    name="light",
    paper="#ffffff",
    clear="rgba(255, 255, 255, 0)",
    panel="#f6f7f9",
    ink="#16202c",
    muted="#566270",
    line="#aab4bf",
    grid="#e6eaee",
    faint="#909ba7",
    watermark="rgba(196, 60, 0, 0.24)",
    blue="#0072b2",
    orange="#c25e00",
    green="#00815f",
    purple="#a8518a",
    red="#b3261e",
    scale=("#bddf26", "#75d054", "#35b779", "#1f9e89", "#26828e", "#31688e", "#3e4989", "#440154"),
)

DARK = Theme(
    name="dark",
    paper="#11161d",
    clear="rgba(17, 22, 29, 0)",
    panel="#1a212b",
    ink="#e9edf2",
    muted="#9fabb8",
    line="#4a5663",
    grid="#252e39",
    faint="#67737f",
    watermark="rgba(255, 150, 90, 0.28)",
    blue="#4db2ec",
    orange="#f0a04b",
    green="#3ecfa3",
    purple="#df92c4",
    red="#ff8a80",
    scale=("#454a92", "#3a6496", "#2f7f93", "#25998b", "#3cb67a", "#7bd152", "#c0e02e", "#fde725"),
)


def exchange(source: Theme, target: Theme) -> dict[str, str]:
    """Which colour of ``target`` stands for each colour of ``source``."""
    return dict(zip(source.colors(), target.colors(), strict=True))


@cache
def template(theme: Theme) -> go.layout.Template:
    """Axes, fonts, hover labels and margins of every figure."""
    axis = {
        "gridcolor": theme.grid,
        "linecolor": theme.line,
        "tickcolor": theme.line,
        "zeroline": False,
        "showline": True,
        "ticks": "outside",
        "ticklen": 4,
        "automargin": True,
        "title": {"font": {"size": 13, "color": theme.muted}, "standoff": 12},
    }
    scene_axis = {
        "gridcolor": theme.line,
        "linecolor": theme.muted,
        "zerolinecolor": theme.line,
        "backgroundcolor": theme.panel,
        "showbackground": True,
        "tickfont": {"size": 11},
        "title": {"font": {"size": 13, "color": theme.ink}},
    }
    return go.layout.Template(
        # In a small picture simplified steps are slopes, and bands are narrower than they are.
        data={"scatter": [go.Scatter(line={"simplify": False})]},
        layout={
            "font": {"family": FONT, "size": 13, "color": theme.ink},
            "title": {
                "font": {"size": 17},
                "x": 0.01,
                "xref": "container",
                "xanchor": "left",
                "y": 0.98,
                "yanchor": "top",
            },
            "paper_bgcolor": theme.paper,
            "plot_bgcolor": theme.paper,
            "colorway": [theme.hue(i) for i in range(5)],
            "margin": {"l": 8, "r": 20, "t": 64, "b": 56},
            "xaxis": axis,
            "yaxis": axis,
            "scene": {"xaxis": scene_axis, "yaxis": scene_axis, "zaxis": scene_axis},
            "legend": {
                "orientation": "h",
                "x": 0,
                "xanchor": "left",
                "y": 1.02,
                "yanchor": "bottom",
                "font": {"size": 12, "color": theme.muted},
                "bgcolor": "rgba(0,0,0,0)",
            },
            "hoverlabel": {
                "bgcolor": theme.panel,
                "bordercolor": theme.line,
                "align": "left",
                "font": {"family": FONT, "size": 12, "color": theme.ink},
            },
            "hovermode": "closest",
        },
    )
