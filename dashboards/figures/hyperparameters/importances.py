"""Which hyperparameters mattered: one panel per objective that they explain, one bar per parameter."""

from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureInfo, FigureKind, Table
from dashboards.figures._common import header, label, new_figure, short_names
from dashboards.figures._comparable import UNEXPLAINED, mark
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.hyperparameters._compared import compare, explained_in_words, order, remarks_of
from dashboards.text import title_of
from sweeper.results.importance import FRONT, LEAST_TRIALS, MOST_TRIALS, Importance
from sweeper.rounding import number_of

_BAR_PIXELS = 24
_FEW_BARS = 4  # fewer do not become thicker
_NARROW_COLUMNS = 2
_BESIDE = (0.05, 0.1)  # between panels side by side, as a share of the width, on a page and in a column
_TICKS_BELOW, _LINE = 44, 18  # pixels below panels for their ticks, and for a line
_PAD = 0.08  # of an axis, beyond its whiskers
_LINE_BESIDE = 16  # pixels of a line beside a panel
_HOW_TO_READ = (
    "Permutation importance: R² lost when values are shuffled, with 95 % intervals "
    "(n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{}); grey: perhaps chance, or less than 5 % of R². "
    "It may exceed the R² above the bars."
)
_MOST_SAID = 3  # parameters below the figure, for each result
_LEAST_SHARE = 0.05  # of R², below which a loss that is sure is still of no use
_MOST_BESIDE = 24  # letters of names beside panels for which notes leave room
_LETTERS_BELOW, _LETTERS_BESIDE = (82, 42), 20  # of a line of it: on a page and in a column, and beside a panel
_ON_PAPER = {"xref": "paper", "yref": "paper", "showarrow": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportancesInfo(FigureInfo):
    """Numbers of the importances figure."""

    parameters: tuple[str, ...]  # dotted names, the one that matters most for the utility first
    importances: tuple[Importance, ...]  # one for each result; none with too few trials
    enough: bool  # whether there are as many trials as a forest needs
    seen: str  # how many trials or configurations the forest learnt from, in words
    note: str = ""  # what was compared, where that are not all trials

    @property
    def explained(self) -> tuple[Importance, ...]:
        """Those of results that the forest predicts better than their mean, one for each panel."""
        return tuple(one for one in self.importances if one.explained >= UNEXPLAINED)


def info(data: SweepData) -> ImportancesInfo:
    """Compute the importances; empty with fewer than `LEAST_TRIALS` trials, or where none is known.

    None is known where configurations explain no result: then a forest that has learnt nothing would be asked.
    """
    parameters, shown = order(data), compare(data, one_noise=True)
    return ImportancesInfo(
        **header(data, "what mattered"),
        parameters=parameters,
        importances=data.importances if parameters else (),
        enough=len(shown.reached) >= LEAST_TRIALS,
        seen=number_of(min(len(shown.reached), MOST_TRIALS), shown.subject),
        note=shown.note,
    )


def rows(info: ImportancesInfo) -> Table:
    """The numbers of the figure: one row per panel and parameter."""
    return [
        {
            "target": one.target,
            "r_squared": one.explained,
            "parameter": name,
            "permutation_importance": one.losses[name],
            "standard_error": one.errors.get(name),
        }
        for one in info.importances
        for name in info.parameters
    ]


def plot(info: ImportancesInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the importances side by side, on one scale; results that are not explained are named below."""
    rows = -(-len(info.explained) // _NARROW_COLUMNS) if info.narrow else 1
    top = 92 + (28 if info.narrow else 16) * bool(info.note) + _more(info)
    between = _TICKS_BELOW + 3 * _LINE + _more(info)  # rows of panels, for ticks and titles
    panel = _BAR_PIXELS * max(4, len(info.parameters)) + (54 if rows < 2 else 0)
    inner = max(rows, 1) * panel + max(rows - 1, 0) * between
    figure = new_figure(
        info,
        theme,
        empty=not info.importances,
        height=top + inner + _TICKS_BELOW,
        showlegend=False,
        margin={"t": top, "b": _TICKS_BELOW},
    )
    if not info.importances:
        why = f"{info.seen} say nothing of it" if info.enough else f"fewer than {LEAST_TRIALS} trials"
        figure.update_annotations(selector={"text": "no points yet"}, text=why)
        return figure
    columns = min(_NARROW_COLUMNS, len(info.explained)) if info.narrow else len(info.explained)
    _draw(figure, info, theme, columns=columns, rows=rows, gap=between / inner)
    room = (panel + _TICKS_BELOW) // _LINE_BESIDE if len(info.explained) % columns else 0
    _say_how_to_read(figure, info, theme, has_room=len(wrap(_how_to_read(info), _LETTERS_BESIDE)) <= room)
    figure.update_yaxes(
        autorange="reversed", type="category", dtick=1, showgrid=False, showline=False, ticks="", ticklabelstandoff=6
    )
    longest = max(map(len, info.parameters), default=0)
    up = (52 if info.narrow else 48) + _more(info)
    mark(figure, info.note, theme, up=up, narrow=info.narrow, beside=min(longest, _MOST_BESIDE))
    return figure


def _more(info: ImportancesInfo) -> int:
    """Pixels that the titles of panels take beyond two lines."""
    return _LINE * max((_title(one).count("<br>") for one in info.explained), default=0)


def _say_how_to_read(figure: go.Figure, info: ImportancesInfo, theme: Theme, *, has_room: bool) -> None:
    """Write what a bar is: in the place of a panel where the last row has room for one, else below the panels."""
    place: dict[str, Any] = {"x": 0.5, "y": 0.0, "yanchor": "top", "yshift": -32}
    letters = _LETTERS_BELOW[info.narrow]
    if has_room:
        letters = _LETTERS_BESIDE
        lower = figure.layout[f"yaxis{len(figure.data) // _NARROW_COLUMNS + 1}"].domain
        place = {"x": 1.0, "xanchor": "right", "y": lower[1], "yanchor": "top", "align": "left"}
    lines = wrap(_how_to_read(info), letters)
    if not has_room:
        more = _LINE * len(lines)
        figure.update_layout(margin={"b": _TICKS_BELOW + more}, height=figure.layout.height + more)
    figure.add_annotation(
        name="terms",
        text="<br>".join(lines),
        **place,
        **_ON_PAPER,
        font={"size": 11 if info.narrow else 13, "color": theme.muted},
    )


def _how_to_read(info: ImportancesInfo) -> str:
    """What a bar is, and which results have no panel."""
    silent = [label(one.target) for one in info.importances if one not in info.explained]
    words = f" Not explained by the configurations: {', '.join(silent)}." if silent else ""
    return _HOW_TO_READ.format(info.seen) + words


def _draw(figure: go.Figure, info: ImportancesInfo, theme: Theme, *, columns: int, rows: int, gap: float) -> None:
    """Add the panels, row by row from the top, each below its title; ``gap`` between rows as a share of the height."""
    labels = short_names(info.parameters, [one.target for one in info.importances])
    look = {"range": _ends(info), "tickformat": ".2~f", "nticks": 3 if info.narrow else 6}
    look |= {"zeroline": True, "zerolinecolor": theme.line, "zerolinewidth": 1}
    gap, beside = gap if rows > 1 else 0.0, _BESIDE[info.narrow]
    width, height = (1.0 - beside * (columns - 1)) / columns, (1.0 + gap) / rows
    for i, importance in enumerate(info.explained):
        row, column = divmod(i, columns)
        left, top = column * (width + beside), 1.0 - row * height
        bottom = max(top - height + gap, 0.0)
        x, y = (f"x{i + 1}", f"y{row + 1}") if i else ("x", "y")
        figure.update_layout({f"xaxis{i + 1}": {"domain": [left, min(left + width, 1.0)], "anchor": y, **look}})
        figure.update_layout({f"yaxis{row + 1}": {"domain": [bottom, top]}})
        names = [labels[name] for name in info.parameters]
        figure.add_trace(_bars(info, importance, names, theme).update(xaxis=x, yaxis=y))
        figure.add_annotation(
            text=f"{_title(importance)}<br>{_explained(info, importance)}",
            x=left,
            xanchor="left",
            y=top,
            yshift=4,
            yanchor="bottom",
            align="left",
            **_ON_PAPER,
            font={"size": 12, "color": theme.ink},
        )


def _ends(info: ImportancesInfo) -> list[float]:
    """The ends of the axis of losses: around 0 and all whiskers."""
    losses = [(loss, _half(one, name)) for one in info.explained for name, loss in one.losses.items()]
    low = min(0.0, *(loss - half for loss, half in losses))
    high = max(loss + half for loss, half in losses)
    pad = _PAD * (high - low)
    return [low - pad if low else 0.0, high + pad or 1.0]


def _half(importance: Importance, name: str) -> float:
    """Half the 95 % interval of a loss."""
    return 2.0 * importance.errors.get(name, 0.0)


def _is_sure(importance: Importance, name: str) -> bool:
    """Whether a loss is more than chance, and no trifle."""
    return importance.losses[name] > max(_half(importance, name), _LEAST_SHARE * importance.explained)


def _title(importance: Importance) -> str:
    return label(importance.target).replace(" at L2", "<br>at L2")


def _explained(info: ImportancesInfo, importance: Importance) -> str:
    return f"R² {importance.explained:.2f}" + ("" if info.narrow else " of the forest")


def _bars(info: ImportancesInfo, importance: Importance, labels: list[str], theme: Theme) -> go.Bar:
    losses = [importance.losses[name] for name in info.parameters]
    halves = [_half(importance, name) for name in info.parameters]
    return go.Bar(
        x=losses,
        y=[escape(text) for text in labels],
        orientation="h",
        marker={"color": [theme.blue if _is_sure(importance, name) else theme.faint for name in info.parameters]},
        error_x={"type": "data", "array": halves, "color": theme.ink, "thickness": 1.3, "width": 3},
        width=0.65 * min(1.0, len(losses) / _FEW_BARS),
        text=[
            f"<b>{escape(name)}</b><br>{_title(importance)}: R² lost {loss:.2f} ± {half:.2f}"
            for name, loss, half in zip(info.parameters, losses, halves, strict=True)
        ],
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
    )


def _hypervolume(data: SweepData) -> str:
    """What the last panel is, where it is that of the hypervolume."""
    has_panel = any(one.target == FRONT and one.explained >= UNEXPLAINED for one in data.importances)
    return " The last panel is the hypervolume of a trial's own points." if has_panel else ""


def _found(info: ImportancesInfo) -> str:
    """Which parameters matter beyond chance for each result that configurations explain, the largest losses first."""
    found = []
    for one in info.explained:
        sure = sorted((name for name in info.parameters if _is_sure(one, name)), key=lambda name: -one.losses[name])
        losses = ", ".join(f"{name} ({one.losses[name]:.2f})" for name in sure[:_MOST_SAID])
        found.append(f"{title_of(one.target)} (R² {one.explained:.2f}): {losses or 'none'}")
    return f"Beyond chance, from {info.seen}, matter for {'; for '.join(found)}." if found else ""


FIGURE: FigureKind[SweepData, ImportancesInfo] = FigureKind(
    name="importances",
    heading="What mattered",
    summary="which hyperparameters mattered for each objective",
    caption=(
        "Permutation importance: a random forest predicts the best point of trials it has not seen from their "
        "configurations (R² 1: exactly, 0: no better than their mean), and the bar is the R² that it loses when the "
        "values of one setting are shuffled. Bars compare settings with each other; they are no parts of the R² above "
        "them, and one may be longer than it. Whiskers: 95 % intervals, two standard errors over unseen trials. A grey "
        "bar, whose whisker reaches 0 or which is less than 5 % of the R², may be chance. This is about the trials "
        "that were tried, not about all that could be."
    ),
    position=90,
    found=_found,
    info=info,
    plot=plot,
    rows=rows,
    remarks=lambda data: _hypervolume(data) + remarks_of(data, MOST_TRIALS, one_noise=True),
    wide=True,
    awaits=f"Which settings mattered,<br>from {LEAST_TRIALS} trials on",
    needs=f"{LEAST_TRIALS} trials with points, and an R² of {UNEXPLAINED} or more for one result",
    lacks=explained_in_words,
)
