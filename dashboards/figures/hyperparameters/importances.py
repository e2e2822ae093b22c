"""Which hyperparameters mattered: one panel per objective, one bar per parameter."""

from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureInfo, FigureKind, Table
from dashboards.figures._common import header, label, new_figure, short_names
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.hyperparameters._compared import compare, mark, omitted_of, shows_rehearsals
from sweeper.results.importance import FRONT, LEAST_TRIALS, MOST_TRIALS, Importance, importances, rehearsed_importances

UNEXPLAINED = 0.1  # below this share of the variance a panel is drawn pale
_BAR_PIXELS = 24
_FEW_BARS = 4  # fewer do not become thicker
_NARROW_COLUMNS = 2
_GAP = 0.2  # between rows of panels, as a share of the height
_ON_PAPER = {"xref": "paper", "yref": "paper", "showarrow": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportancesInfo(FigureInfo):
    """Numbers of the importances figure."""

    parameters: tuple[str, ...]  # dotted names, the one that matters most in any panel first
    importances: tuple[Importance, ...]  # one for each panel; none with too few trials
    note: str = ""  # what was compared, where that are no trials


def info(data: SweepData) -> ImportancesInfo:
    """Compute the importances; empty with fewer than `LEAST_TRIALS` trials, or where none is known.

    None is known where configurations explain no result: then every share is that of a forest that has learnt nothing.
    """
    rehearsed = shows_rehearsals(data)
    found = rehearsed_importances(data.rehearsals, data.result.objectives) if rehearsed else importances(data.result)
    if all(importance.explained < UNEXPLAINED for importance in found):
        found = ()
    names = dict.fromkeys(name for importance in found for name in importance.shares)
    largest = {name: max(importance.shares[name] for importance in found) for name in names}
    return ImportancesInfo(
        **header(data, "what mattered"),
        parameters=tuple(sorted(names, key=lambda name: -largest[name])),
        importances=found,
        note=compare(data).note,
    )


def rows(info: ImportancesInfo) -> Table:
    """The numbers of the figure: one row per panel and parameter."""
    return [
        {"target": one.target, "explained": one.explained, "parameter": name, "share": one.shares[name]}
        for one in info.importances
        for name in info.parameters
    ]


def plot(info: ImportancesInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the importances side by side, on one scale; a panel whose results are not explained is pale."""
    rows = -(-len(info.importances) // _NARROW_COLUMNS) if info.narrow else 1
    figure = new_figure(
        info,
        theme,
        empty=not info.importances,
        height=190 + _BAR_PIXELS * max(4, len(info.parameters)) * max(rows, 1),
        showlegend=False,
        margin={"t": (140 if info.narrow else 116) if info.note else 92, "b": 76},
    )
    if not info.importances:
        figure.update_annotations(
            selector={"text": "no points yet"}, text=f"fewer than {LEAST_TRIALS} trials, or nothing to learn from them"
        )
        return figure
    _draw(figure, info, theme, columns=_NARROW_COLUMNS if info.narrow else len(info.importances), rows=rows)
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False, ticks="", ticklabelstandoff=6)
    figure.add_annotation(
        text="share of the variance" if info.narrow else "share of the variance that goes with the parameter",
        x=0.5,
        y=0.0,
        yshift=-40,
        yanchor="top",
        **_ON_PAPER,
        font={"size": 13, "color": theme.muted},
    )
    mark(figure, info.note, theme, up=72 if info.narrow else 56, narrow=info.narrow)
    return figure


def _draw(figure: go.Figure, info: ImportancesInfo, theme: Theme, *, columns: int, rows: int) -> None:
    """Add the panels, row by row from the top, each below its title."""
    labels = short_names(info.parameters, [importance.target for importance in info.importances])
    largest = max(max(importance.shares.values()) for importance in info.importances)
    ends = {"range": [0.0, 1.08 * (largest or 1.0)], "tickformat": ".0%", "nticks": 3 if info.narrow else 4}
    gap = _GAP if rows > 1 else 0.0
    width, height = 1.0 / columns, (1.0 + gap) / rows
    for i, importance in enumerate(info.importances):
        row, column = divmod(i, columns)
        left, top = column * width, 1.0 - row * height
        right = left + width - (0.05 if column < columns - 1 else 0.0)
        bottom = max(top - height + gap, 0.0)
        x, y = (f"x{i + 1}", f"y{row + 1}") if i else ("x", "y")
        figure.update_layout({f"xaxis{i + 1}": {"domain": [left, right], "anchor": y, **ends}})
        figure.update_layout({f"yaxis{row + 1}": {"domain": [bottom, top]}})
        names = [labels[name] for name in info.parameters]
        figure.add_trace(_bars(info, importance, names, theme).update(xaxis=x, yaxis=y))
        figure.add_annotation(
            text=f"{_title(info, importance)}<br>{_in_percent(info, importance)}",
            x=left,
            xanchor="left",
            y=top,
            yshift=4,
            yanchor="bottom",
            align="left",
            **_ON_PAPER,
            font={"size": 12, "color": theme.ink},
        )


def _title(info: ImportancesInfo, importance: Importance) -> str:
    if importance.target != FRONT:
        return label(importance.target).replace(" at radius", "<br>at radius")
    return "hypervolume" if info.note else "front of the trial"  # a rehearsal has no place on a front


def _in_percent(info: ImportancesInfo, importance: Importance) -> str:
    if importance.explained < UNEXPLAINED:
        return "not explained" if info.narrow else "not explained by the configuration"
    return f"{importance.explained:.0%} explained"


def _bars(info: ImportancesInfo, importance: Importance, labels: list[str], theme: Theme) -> go.Bar:
    shares = [importance.shares[name] for name in info.parameters]
    return go.Bar(
        x=shares,
        y=[escape(text) for text in labels],
        orientation="h",
        marker={"color": theme.faint if importance.explained < UNEXPLAINED else theme.blue},
        width=0.65 * min(1.0, len(shares) / _FEW_BARS),
        text=[
            f"<b>{escape(name)}</b><br>{_title(info, importance)}: {share:.1%}"
            for name, share in zip(info.parameters, shares, strict=True)
        ],
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
    )


FIGURE: FigureKind[SweepData, ImportancesInfo] = FigureKind(
    name="importances",
    heading="What mattered",
    summary="which hyperparameters mattered for each objective",
    caption=(
        "Share of the differences between trials, in their best points, that goes with each setting, as a random "
        "forest learnt it and predicts trials it has not seen; the last panel is the hypervolume of a trial's own "
        "points. It speaks of the trials that were tried, not of all that could be. Where more configurations were "
        "rehearsed than trained, it is about those."
    ),
    position=90,
    info=info,
    plot=plot,
    rows=rows,
    omitted=lambda data: omitted_of(data, MOST_TRIALS),
    wide=True,
    awaits=f"Which settings mattered,<br>from {LEAST_TRIALS} trials on",
    needs=f"{LEAST_TRIALS} trials with points, whose hyperparameters explain a tenth of a result",
)
