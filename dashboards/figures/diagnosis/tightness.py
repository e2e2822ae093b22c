"""How much of each bound rows reach: activations forward, cotangents backward, gradients of parameters."""

from collections.abc import Callable
from dataclasses import dataclass

import plotly.graph_objects as go

from clipless.diagnostics import Diagnostics
from dashboards.figures._base import FigureInfo, FigureKind
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures._ticks import log_ticks
from dashboards.figures.diagnosis._header import MomentValues, header, moment, moment_marks, panels
from dashboards.text import number
from sweeper.results.models.diagnosis import Diagnosis

_ROW_PIXELS = 24


@dataclass(frozen=True, slots=True)
class Family:
    """Bounds of one kind: their names, and what is reached at each moment."""

    title: str
    names: tuple[str, ...]
    reached: tuple[MomentValues, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TightnessInfo(FigureInfo):
    """Numbers of the tightness figure; a kind without any bound is left out."""

    families: tuple[Family, ...]


def info(diagnosis: Diagnosis) -> TightnessInfo:
    """Collect the shares of the three kinds of bounds."""
    first = diagnosis.snapshots[0].diagnostics
    layers = tuple(f"{layer.name} {layer.kind}" for layer in first.layers)
    parameters = tuple(parameter.name for parameter in first.parameters)
    kinds: tuple[tuple[str, tuple[str, ...], Callable[[Diagnostics], list[float | None]]], ...] = (
        ("activations: largest output of a layer / bound", layers, lambda d: [x.forward_tightness for x in d.layers]),
        ("cotangents: largest at a layer's output / bound", layers, lambda d: [x.backward_tightness for x in d.layers]),
        ("gradients: largest of a row / worst case", parameters, lambda d: [x.tightness for x in d.parameters]),
    )
    families = (
        Family(title, names, tuple(MomentValues(moment(s), tuple(shares(s.diagnostics))) for s in diagnosis.snapshots))
        for title, names, shares in kinds
    )
    return TightnessInfo(**header(diagnosis, "tightness of bounds"), families=tuple(filter(None, map(_held, families))))


def _held(family: Family) -> Family | None:
    kept = [i for i in range(len(family.names)) if any(reached.values[i] is not None for reached in family.reached)]
    if not kept:
        return None
    reached = tuple(MomentValues(r.moment, tuple(r.values[i] for i in kept)) for r in family.reached)
    return Family(family.title, tuple(family.names[i] for i in kept), reached)


def plot(info: TightnessInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the shares on one logarithmic axis: hollow marks for the first moment, full ones for the last."""
    sizes = [len(family.names) + 1 for family in info.families]
    figure = panels(
        info,
        theme,
        [family.title for family in info.families],
        sizes=sizes,
        height=130 + 48 * len(sizes) + _ROW_PIXELS * sum(sizes),
    )
    shares = [s for family in info.families for reached in family.reached for s in reached.values if s]
    ticks = log_ticks([*shares, 1.0], steps=(1, 2, 3, 5, 7))
    ticks["ticktext"] = [f"{number(100 * value)} %" for value in ticks["tickvals"]]
    for row, family in enumerate(info.families, start=1):
        for index, reached in enumerate(family.reached):
            texts = ["" if share is None else f"{number(100 * share)} % of the bound" for share in reached.values]
            look = {"marker_size": 9, "legendgroup": reached.moment, "showlegend": row == 1}
            marks = moment_marks(reached, family.names, texts, theme, late=index > 0, **look)
            figure.add_trace(marks, row=row, col=1)
        figure.add_vline(x=1.0, line={"color": theme.ink, "width": 1, "dash": "dot"}, row=row, col=1)
        figure.update_xaxes(type="log", **ticks, showticklabels=row == len(sizes), row=row, col=1)
        figure.update_yaxes(autorange="reversed", type="category", row=row, col=1)
    if info.families:
        figure.update_xaxes(title={"text": "share of the bound that is reached"}, row=len(sizes), col=1)
    return figure


FIGURE: FigureKind[Diagnosis, TightnessInfo] = FigureKind(
    name="tightness",
    heading="How much of each bound is reached",
    summary="how much of each bound the rows reach",
    caption=(
        "Every bound is true of all inputs and all weights that the constraints allow; marks show how close any row of "
        "this data came, at the initial weights and at this point. A mark at 10 % means that the noise could be ten "
        "times smaller if the bound were tight here. Activations and cotangents multiply to the gradients below them."
    ),
    position=10,
    info=info,
    plot=plot,
)
