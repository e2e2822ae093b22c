"""Temperature of the loss against radius and membership, as table 1 of Bethune et al.

One row per temperature, one column per radius, radius 0 first: the best value of any point of that row within one
epsilon, so every cell picks its own model. Beside them, what membership inference learns from the row's best model at
radius 0. A cold loss fits the rows that it sees; a hot one keeps logits apart, which certifies.

References:
    Bethune et al. (2024), DP-SGD without clipping, https://arxiv.org/abs/2305.16202
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite, log10
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go

from dashboards.data import SweepData, finite
from dashboards.figures._base import FigureInfo, FigureKind, Table, Topic
from dashboards.figures._common import SMALL, color_bar, header, hover_texts, label, new_figure
from dashboards.figures._comparable import UNEXPLAINED, mark, noise_note
from dashboards.figures._scores import half_width
from dashboards.figures._theme import LIGHT, Theme
from dashboards.text import number, radius_of, show, show_epsilon, title_of
from sweeper.privacy.pricing import OWN
from sweeper.records import MEMBERSHIP, Point, PointKey
from sweeper.specification.objectives import attack_radius, auroc_radius_text, needs_two_classes, radius, radius_text

TEMPERATURE = "training.loss.temperature"
BUDGETS = (3.0, 8.0)
MOST_ROWS = 8
_LEAST_TRIALS = 4  # of fewer, rows differ by what else their trials have, unless attacks tell them apart
_ROW_PIXELS = 46
_LINE = 19  # pixels of a line below the figure
_LETTERS = 63  # of a small one, which fits a phone


@dataclass(frozen=True, slots=True)
class Cell:
    """One value, the point that has it, and the smallest accuracy that an attack left it at this radius."""

    value: float
    point: Point
    attacked: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """The trials of one temperature, or of a range ``low <= temperature <= high``."""

    low: float  # smallest temperature of the row
    high: float  # largest one
    trials: tuple[str, ...]  # their ids
    cells: tuple[Cell | None, ...]  # one for each column, None where no point is within the budget
    # one for each attack, of the point in the first cell; None where it was not computed
    membership: tuple[float | None, ...]

    @property
    def label(self) -> str:
        """The temperature or its range."""
        return " to ".join(dict.fromkeys((number(self.low), number(self.high))))


@dataclass(frozen=True, slots=True, kw_only=True)
class TemperatureInfo(FigureInfo):
    """Numbers of the temperature figure; no rows without two temperatures, a radius and trials to compare."""

    budget: float  # every cell has an epsilon of at most this
    radius_unit: str  # units of the radii
    columns: tuple[str, ...]  # names of the values, that of radius 0 first
    sure: tuple[float, ...]  # how wide the widest 95 % interval in each column is, 0 where that is not known
    attacks: tuple[str, ...]  # names of the membership metrics
    rows: tuple[Row, ...]  # by temperature
    hover: Mapping[PointKey, str]  # one text for each point in a cell, by its key
    note: str = ""  # which trials are compared, where that are not all


def info(data: SweepData, *, epsilon: float | None = None) -> TemperatureInfo:
    """Compute the temperature figure.

    The budget ``epsilon`` is by default the first of `BUDGETS` at which every row has a point, else the largest
    epsilon; that always where the trials of one stage alone are compared.
    """
    clean = "auroc" if needs_two_classes(data.utility) else "accuracy"
    certificates = {radius(name): name for name in reversed(data.certificates)}
    columns = (clean, *reversed(certificates.values()))
    points = [point for point in data.points if finite(point, "epsilon", clean)]
    attacks = tuple(name for name in MEMBERSHIP if any(name in point.values for point in points))
    groups = _groups(data, {point.trial for point in points}) if certificates else []
    note = noise_note(data)
    of_trial: dict[str, list[Point]] = {}
    for point in points:
        of_trial.setdefault(point.trial, []).append(point)
    inside = [[point for id_ in ids for point in of_trial[id_]] for _, _, ids in groups]
    budget = _budget(inside, at_most=bool(note)) if epsilon is None else epsilon
    rows = []
    for (low, high, ids), candidates in zip(groups, inside, strict=True):
        within = [point for point in candidates if point.values["epsilon"] <= budget]
        cells = tuple(_best(data, within, name) for name in columns)
        rows.append(Row(low, high, ids, cells, tuple(_membership(cells[0], name) for name in attacks)))
    if not attacks and (sum(len(row.trials) for row in rows) < _LEAST_TRIALS or _unexplained(data)):
        rows = []
    shown = list({cell.point.key: cell.point for row in rows for cell in row.cells if cell}.values())
    return TemperatureInfo(
        **header(data, f"{_subject(attacks)} at {OWN} ≤\N{NO-BREAK SPACE}{show_epsilon(budget)}", *columns),
        budget=budget,
        radius_unit=data.result.claim.radius_unit,
        columns=columns,
        sure=tuple(2.0 * (half_width(data.result, [name]) or 0.0) for name in columns),
        attacks=attacks if shown else (),
        rows=tuple(rows) if shown else (),
        note=note if shown else "",
        hover={point.key: text for point, text in zip(shown, hover_texts(data, shown), strict=True)},
    )


def _unexplained(data: SweepData) -> str:
    """How little hyperparameters explain any result of the trials, whose rows then differ by chance; empty if more."""
    best = max((one.explained for one in data.importances), default=UNEXPLAINED)
    if data.compares_rehearsals or best >= UNEXPLAINED:
        return ""
    return f"trials of which hyperparameters explain no result (an R² of {best:.2f} at most)"


def rows(info: TemperatureInfo) -> Table:
    """The numbers of the figure: one row per cell."""
    return [
        {
            "temperature_low": row.low,
            "temperature_high": row.high,
            "trials": len(row.trials),
            "max_epsilon": info.budget,
            "value": name,
            "best": cell.value,
            "attacked": cell.attacked,
            "trial": cell.point.trial,
            "epoch": cell.point.epoch,
            "made_from": cell.point.made_from,
            "epsilon": cell.point.values["epsilon"],
            **dict(zip(info.attacks, row.membership, strict=True)),
        }
        for row in info.rows
        for name, cell in zip(info.columns, row.cells, strict=True)
        if cell is not None
    ]


def plot(info: TemperatureInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the temperature figure: two heat maps side by side that share their rows."""
    below = _caption(info)
    room = 50 + _LINE * len(below)
    share = len(info.columns) / (len(info.columns) + len(info.attacks))
    figure = new_figure(
        info,
        theme,
        empty=not info.rows,
        height=102 + room + _ROW_PIXELS * max(2, len(info.rows)),
        margin={"b": room, **({"t": 84} if info.note else {})},
        xaxis={
            **_axis(theme),
            "title": {"text": "<br>".join(below)},
            "domain": [0.0, share - 0.02 * bool(info.attacks)],
        },
        yaxis={
            **_axis(theme),
            "autorange": "reversed",
            "ticklabelstandoff": 6,
            "tickvals": [row.label for row in info.rows],
            "ticktext": [f"{row.label} ({len(row.trials)})" for row in info.rows],
            "title": {"text": "temperature of the loss (trials)"},
        },
    )
    if not info.rows:
        return figure
    mark(figure, info.note, theme)
    figure.add_trace(_values(info, theme))
    if info.attacks:
        figure.add_trace(_leaks(info, theme))
        figure.update_layout(xaxis2={**_axis(theme), "domain": [share + 0.02, 1.0], "anchor": "y"})
    return figure


def _groups(data: SweepData, known: set[str]) -> list[tuple[float, float, tuple[str, ...]]]:
    """Trials of one noise by temperature: one group each if few, else ranges of equal width in the logarithm."""
    found = {id_: data.settings[id_].get(TEMPERATURE) for id_ in data.comparable if id_ in known}
    numbers = {id_: float(t) for id_, t in found.items() if isinstance(t, int | float) and isfinite(t) and t > 0}
    distinct = sorted(set(numbers.values()))
    if len(distinct) < 2:
        return []
    place = {value: i for i, value in enumerate(distinct)}
    if len(distinct) > MOST_ROWS:
        low, span = log10(distinct[0]), log10(distinct[-1] / distinct[0])
        place = {value: min(MOST_ROWS - 1, int(MOST_ROWS * (log10(value) - low) / span)) for value in distinct}
    groups = []
    for i in dict.fromkeys(place.values()):
        members = {id_: value for id_, value in numbers.items() if place[value] == i}
        groups.append((min(members.values()), max(members.values()), tuple(members)))
    return groups


def _subject(attacks: Sequence[str]) -> str:
    return "temperature, radius and membership" if attacks else "temperature and radius"


def _budget(rows: Sequence[Sequence[Point]], *, at_most: bool) -> float:
    """The first of `BUDGETS` at which every row has a point, else the largest epsilon: that of one stage always."""
    smallest = [min(point.values["epsilon"] for point in row) for row in rows]
    largest = max((point.values["epsilon"] for row in rows for point in row), default=BUDGETS[0])
    budgets = () if at_most else BUDGETS
    return next((budget for budget in budgets if all(epsilon <= budget for epsilon in smallest)), largest)


def _best(data: SweepData, points: Sequence[Point], name: str) -> Cell | None:
    """The point with the best value; of equals the one of smallest epsilon."""
    usable = [point for point in points if finite(point, name)]
    if not usable:
        return None
    sign = data.direction(name).sign
    best = min(usable, key=lambda p: (-sign * p.values[name], p.values["epsilon"], p.key))
    at_radius = [value for other, value in best.values.items() if _attacks(other, name)]
    return Cell(best.values[name], best, min(at_radius, default=None))


def _attacks(name: str, certificate: str) -> bool:
    """Whether ``name`` is the accuracy under an attack at the radius of ``certificate``."""
    return radius_text(certificate) is not None and attack_radius(name) == radius(certificate)


def _membership(cell: Cell | None, name: str) -> float | None:
    value = None if cell is None else cell.point.values.get(name)
    return value if value is not None and isfinite(value) else None


def _axis(theme: Theme) -> dict[str, object]:
    # Texts stay texts: a radius of 0.25 is a name here, not a place.
    return {"type": "category", "showgrid": False, "ticks": "", "showline": False, "tickfont": {"color": theme.ink}}


def _caption(info: TemperatureInfo) -> list[str]:
    """What a cell is, how sure it is, and what it costs: three lines in a picture, more for a phone."""
    sure = info.scores.replace(" %", "\N{NO-BREAK SPACE}%")
    what = [
        f"Euclidean radius in {info.radius_unit};".replace(", ", ",\N{NO-BREAK SPACE}"),
        f"each cell: best of its temperature, by itself ({sure})",
    ]
    within = f"at {info.epsilon_title}".replace(OWN, f"{OWN} ≤ {show_epsilon(info.budget)}", 1)
    if info.still:
        return list(map(escape, [*what, within]))
    promised, sign, price = within.partition("; ")
    parts = [*what, promised + sign.strip(), price]
    return [SMALL.format(escape(line)) for part in parts for line in wrap(part, _LETTERS, break_on_hyphens=False)]


def _heatmap(info: TemperatureInfo, **options: Any) -> go.Heatmap:
    return go.Heatmap(
        y=[row.label for row in info.rows],
        texttemplate="%{text}",
        textfont={"size": 13},  # without a colour Plotly takes one that can be read on the cell
        hovertemplate="%{customdata}<extra></extra>",
        hoverongaps=False,
        xgap=2,
        ygap=2,
        **options,
    )


def _values(info: TemperatureInfo, theme: Theme) -> go.Heatmap:
    """Accuracy and certificates: more ink is better."""
    cells, (low, high) = [row.cells for row in info.rows], _ends(info)
    return _heatmap(
        info,
        x=[_column_name(name) for name in info.columns],
        z=[[None if cell is None else cell.value for cell in row] for row in cells],
        text=[[_cell_text(name, cell) for name, cell in zip(info.columns, row, strict=True)] for row in cells],
        customdata=[[_hover(info, cell) for cell in row] for row in cells],
        colorscale=theme.colorscale(),
        zmin=low,
        zmax=high,
        showscale=not info.attacks,  # the membership of models would stand between
        colorbar=color_bar("", [low, high]),
    )


def _column_name(name: str) -> str:
    kind = "certified AUROC, " if auroc_radius_text(name) else ""
    return f"{kind}radius {escape(text)}" if (text := radius_of(name)) else escape(title_of(name))


def _ends(info: TemperatureInfo) -> tuple[float, float]:
    """The ends of the scale of colours, the same for all cells.

    They are at least as far apart as the widest 95 % interval is wide: what may be chance looks alike.
    """
    found = [cell.value for row in info.rows for cell in row.cells if cell is not None]
    low, high = min(found), max(found)
    return low, max(high, low + max(info.sure))


def _cell_text(name: str, cell: Cell | None) -> str:
    if cell is None:
        return ""
    attacked = "" if cell.attacked is None else f", attacked {show('accuracy', cell.attacked)}"
    return f"{show(name, cell.value)}<br><sup>{OWN} {show_epsilon(cell.point.values['epsilon'])}{attacked}</sup>"


def _leaks(info: TemperatureInfo, theme: Theme) -> go.Heatmap:
    """Membership inference: paper for guessing, orange for certainty."""
    found = [list(zip(info.attacks, row.membership, strict=True)) for row in info.rows]
    return _heatmap(
        info,
        x=[label(name).replace("membership ", "membership<br>") for name in info.attacks],
        z=[[_leak(name, value) for name, value in row] for row in found],
        text=[["" if value is None else show(name, value) for name, value in row] for row in found],
        customdata=[[_hover(info, row.cells[0])] * len(info.attacks) for row in info.rows],
        colorscale=[[0.0, theme.panel], [1.0, theme.orange]],
        zmin=0.0,
        zmax=1.0,
        showscale=False,
        xaxis="x2",
    )


def _leak(name: str, value: float | None) -> float | None:
    """How far from guessing, in [0, 1]: an AUROC of 0.5 is guessing."""
    if value is None or name == "membership-advantage":
        return value
    return max(0.0, 2.0 * value - 1.0)


def _hover(info: TemperatureInfo, cell: Cell | None) -> str:
    return "" if cell is None else info.hover[cell.point.key]


def _remarks(data: SweepData) -> str:
    found, said = info(data), ""
    if any(cell is not None and cell.attacked is not None for row in found.rows for cell in row.cells):
        said += " Below a certified accuracy stands what an attack left of the accuracy of that model."
    if found.attacks:
        said += (
            " Beside them, how well membership inference tells training rows from validation rows on the most accurate "
            "model of the row: an AUROC of 50 % is guessing, and so is an advantage of a few percent of few rows."
        )
    return said + (f" {found.note}." if found.note else "")


FIGURE: FigureKind[SweepData, TemperatureInfo] = FigureKind(
    name="temperature",
    heading="Temperature, radius and membership",
    summary=("the best accuracy and certificate of each temperature of the loss, and what membership inference learns"),
    caption=(
        "One row per temperature of the loss. Every cell picks its own model: the best accuracy, and the best "
        "certified score at each radius; the darker, the better, on one scale that spans the 95 % interval of a score "
        "at least. The best of more trials is the better one by chance too: their number stands behind the temperature."
    ),
    position=50,
    info=info,
    plot=plot,
    rows=rows,
    remarks=_remarks,
    topic=Topic.ROBUSTNESS,
    for_paper=False,
    lacks=_unexplained,
    needs=f"{_LEAST_TRIALS} trials of two temperatures with certificates, or two with membership inference",
)
