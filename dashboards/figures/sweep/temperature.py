"""Temperature of the loss against radius and membership, as table 1 of Bethune et al.

One kind of mark for radius 0 and one for each certified radius: the best value of each range of temperatures within
one epsilon, so every mark picks its own model; small open marks are the best of the other trials. Below them, what
membership inference learns from the best models at radius 0. A cold loss fits the rows that it sees; a hot one keeps
logits apart, which certifies.

References:
    Bethune et al. (2024), DP-SGD without clipping, https://arxiv.org/abs/2305.16202
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, log10, sqrt
from typing import Any

import plotly.graph_objects as go

from dashboards.data import SweepData, finite
from dashboards.figures._base import FigureInfo, FigureKind, Table, Topic
from dashboards.figures._common import (
    LOG,
    SYMBOLS,
    bar_key,
    header,
    hover_texts,
    interval_bars,
    interval_row,
    label,
    new_figure,
    percent_axis,
    title_below,
    with_room,
    zoom,
)
from dashboards.figures._comparable import UNEXPLAINED, legend_above, mark, noise_note, room_above
from dashboards.figures._scores import interval_of
from dashboards.figures._staircases import rows_axis
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures._ticks import log_ticks, minor_ticks
from dashboards.figures.sweep.robustness import legend_name, looks
from dashboards.text import in_sentence, number, show_epsilon
from sweeper.privacy.pricing import OWN
from sweeper.records import MEMBERSHIP, Interval, Point, PointKey
from sweeper.specification.objectives import attack_radius, needs_two_classes, radius, radius_text

TEMPERATURE = "training.loss.temperature"
BUDGETS = (3.0, 8.0)
MOST_ROWS = 8
_LEAST_TRIALS = 4  # of fewer, rows differ by what else their trials have, unless attacks tell them apart
_HEIGHT = 460
_MEMBERSHIP_HEIGHT = 130  # pixels of the second panel
_GAP = 0.06  # between the panels


@dataclass(frozen=True, slots=True)
class Cell:
    """One value, the point that has it, and the smallest accuracy that an attack left it at this radius."""

    value: float
    temperature: float
    point: Point
    interval: Interval | None  # for new rows, where it is known
    attacked: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """The trials of one temperature, or of a range ``low <= temperature <= high``."""

    low: float  # smallest temperature of the row
    high: float  # largest one
    trials: tuple[str, ...]  # their ids
    cells: tuple[Cell | None, ...]  # the best for each name, None where no point is within the budget
    others: tuple[tuple[Cell, ...], ...]  # for each name the best of every other trial
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
    names: tuple[str, ...]  # of the values, that of radius 0 first
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
    names = (clean, *reversed(certificates.values()))
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
        found = [_cells(data, within, name) for name in names]
        cells = tuple(next(iter(one), None) for one in found)
        others = tuple(tuple(one[1:]) for one in found)
        rows.append(Row(low, high, ids, cells, others, tuple(_membership(cells[0], name) for name in attacks)))
    if not attacks and (sum(len(row.trials) for row in rows) < _LEAST_TRIALS or _unexplained(data)):
        rows = []
    shown = list({cell.point.key: cell.point for row in rows for cell in row.cells if cell}.values())
    return TemperatureInfo(
        **header(data, f"{_subject(attacks)} at {OWN} ≤\N{NO-BREAK SPACE}{show_epsilon(budget)}", *names),
        budget=budget,
        radius_unit=data.result.claim.radius_unit,
        names=names,
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
            "temperature": cell.temperature,
            "best": cell.value,
            **interval_row(cell.interval),
            "attacked": cell.attacked,
            "trial": cell.point.trial,
            "epoch": cell.point.epoch,
            "made_from": cell.point.made_from,
            "epsilon": cell.point.values["epsilon"],
            **dict(zip(info.attacks, row.membership, strict=True)),
        }
        for row in info.rows
        for name, cell in zip(info.names, row.cells, strict=True)
        if cell is not None
    ]


def plot(info: TemperatureInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the temperature figure: marks for each name, and membership in a panel of its own below."""
    panel, legend = _MEMBERSHIP_HEIGHT * bool(info.attacks), legend_above(info)
    figure = new_figure(
        info,
        theme,
        empty=not info.rows,
        height=_HEIGHT + panel,
        margin=room_above(info.note, legend=legend, narrow=info.narrow),
        xaxis=_axis(info),
        yaxis=rows_axis(info, *info.names) | {"range": _span(info)},
    )
    if not info.rows:
        return figure
    mark(figure, info.note, theme, up=6 + legend, narrow=info.narrow)
    colored = looks(info.names, theme)
    for i, look in enumerate(colored):
        figure.add_traces(_best(info, i, *look))
    for i, look in enumerate(colored):  # above the best, which would hide those near them
        figure.add_trace(_other(info, i, *look))
    if any(cells for row in info.rows for cells in row.others):
        key = {"size": 5, "symbol": "circle-open", "color": theme.muted}
        figure.add_trace(go.Scatter(x=[None], y=[None], mode="markers", marker=key, name="open: other trials"))
    if any(cell and cell.interval for row in info.rows for cell in row.cells):
        figure.add_trace(bar_key("bars: 95 % CI", theme.muted))
    for one, other in pairwise(info.rows):
        border = {"color": theme.line, "width": 1, "dash": "dash"}
        figure.add_vline(x=sqrt(one.high * other.low), line=border, layer="below")
    if info.attacks:
        share = panel / (_HEIGHT + panel)
        below = {"domain": [0.0, share - _GAP], "title": {"text": "membership"}, **percent_axis(*info.attacks)}
        figure.update_layout(
            xaxis={"anchor": "y2"}, yaxis={"domain": [share, 1.0]}, yaxis2=below | {"rangemode": "tozero"}
        )
        figure.add_traces(_leaks(info, theme))
    return with_room(figure, info)


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


def _cells(data: SweepData, points: Sequence[Point], name: str) -> list[Cell]:
    """The point of each trial with the best value, the best first; of equals the one of smallest epsilon."""
    sign = data.direction(name).sign
    best: dict[str, Point] = {}
    for point in sorted(
        (point for point in points if finite(point, name)),
        key=lambda point: (-sign * point.values[name], point.values["epsilon"], point.key),
    ):
        best.setdefault(point.trial, point)
    return [_cell(data, point, name) for point in best.values()]


def _cell(data: SweepData, point: Point, name: str) -> Cell:
    at_radius = [value for other, value in point.values.items() if _attacks(other, name)]
    return Cell(
        point.values[name],
        float(data.settings[point.trial][TEMPERATURE]),
        point,
        point.interval(name) or interval_of(data.result, name, point.values[name]),
        min(at_radius, default=None),
    )


def _attacks(name: str, certificate: str) -> bool:
    """Whether ``name`` is the accuracy under an attack at the radius of ``certificate``."""
    return radius_text(certificate) is not None and attack_radius(name) == radius(certificate)


def _membership(cell: Cell | None, name: str) -> float | None:
    value = None if cell is None else cell.point.values.get(name)
    return value if value is not None and isfinite(value) else None


def _axis(info: TemperatureInfo) -> dict[str, Any]:
    """Temperatures on a logarithmic scale; the title says what a mark is, of how many trials, and what they cost."""
    found = [cell.temperature for row in info.rows for cell in (*filter(None, row.cells), *sum(row.others, ()))]
    ticks = log_ticks(found)
    trials = sum(len(row.trials) for row in info.rows)
    within = info.epsilon_title.replace(OWN, f"{OWN} ≤\N{NO-BREAK SPACE}{show_epsilon(info.budget)}", 1)
    ranges = f"best of each of {len(info.rows)} ranges (dashed borders), {trials} trials"
    unit = f"L2 radius in {info.radius_unit}".replace(", ", ",\N{NO-BREAK SPACE}")
    title = title_below(f"temperature of the loss{LOG}; {ranges}; {unit}; {within}", info)
    return {"type": "log", "title": {"text": title}, **ticks, **minor_ticks(ticks)}


def _span(info: TemperatureInfo) -> list[float] | None:
    """The range of the vertical axis: every mark, and the bars of the best."""
    ends = [end for row in info.rows for cell in row.cells if cell for end in cell.interval or (cell.value,)]
    attacked = [cell.attacked for row in info.rows for cell in row.cells if cell and cell.attacked is not None]
    return zoom([*ends, *attacked, *(cell.value for row in info.rows for cells in row.others for cell in cells)])


def _other(info: TemperatureInfo, index: int, color: str, symbol: str) -> go.Scatter:
    """The best of the trials that are not the best of their row."""
    cells = [cell for row in info.rows for cell in row.others[index]]
    return go.Scatter(
        x=[cell.temperature for cell in cells],
        y=[cell.value for cell in cells],
        mode="markers",
        marker={"color": color, "size": 5, "symbol": f"{symbol.removesuffix('-open')}-open"},
        hoverinfo="skip",
        name=f"{legend_name(info.names[index])}, other trials",
        showlegend=False,
    )


def _best(info: TemperatureInfo, index: int, color: str, symbol: str) -> list[go.Scatter]:
    """The best of every row with its interval, and below it what an attack left these models."""
    name = info.names[index]
    cells = sorted((cell for row in info.rows if (cell := row.cells[index])), key=lambda cell: cell.temperature)
    values = [cell.value for cell in cells]
    look: dict[str, Any] = {"x": [cell.temperature for cell in cells], "legendgroup": name}
    hover = {"text": [info.hover[cell.point.key] for cell in cells], "hovertemplate": "%{text}<extra></extra>"}
    best = go.Scatter(
        y=values,
        mode="markers",  # other models at each temperature: a line would say that it alone changes
        marker={"color": color, "symbol": symbol, "size": 9},
        error_y=interval_bars(values, [cell.interval for cell in cells], color),
        name=legend_name(name),
        **look,
        **hover,
    )
    if all(cell.attacked is None for cell in cells):
        return [best]
    attacked = go.Scatter(
        y=[cell.attacked for cell in cells],
        mode="markers",
        marker={"color": color, "symbol": "x-thin", "size": 8, "line": {"color": color, "width": 1.5}},
        name=f"{legend_name(name)}, attacked",
        **look,
        **hover,
    )
    return [best, attacked]


def _leaks(info: TemperatureInfo, theme: Theme) -> list[go.Scatter]:
    """What membership inference learns from the best models at radius 0; 50 % of AUROC is guessing."""
    known = [(cell, row.membership) for row in info.rows if (cell := row.cells[0])]
    known.sort(key=lambda pair: pair[0].temperature)
    return [
        go.Scatter(
            x=[cell.temperature for cell, _ in known],
            y=[found[i] for _, found in known],
            mode="markers",
            marker={"color": theme.orange, "symbol": SYMBOLS[i], "size": 7},
            text=[info.hover[cell.point.key] for cell, _ in known],
            hovertemplate="%{text}<extra></extra>",
            name=label(name),
            yaxis="y2",
        )
        for i, name in enumerate(info.attacks)
    ]


def _remarks(data: SweepData) -> str:
    found, said = info(data), ""
    if any(cell is not None and cell.attacked is not None for row in found.rows for cell in row.cells):
        said += " Crosses: what an attack left of the accuracy of these models."
    if found.attacks:
        said += (
            " Below, how well membership inference tells training rows from validation rows on the most accurate "
            "models: an AUROC of 50 % is guessing, and so is an advantage of a few percent of few rows."
        )
    return said + (f" {found.note}." if found.note else "")


def _found(info: TemperatureInfo) -> str:
    """The temperature of the best value of each name, of trials within the budget."""
    best = []
    for i, name in enumerate(info.names):
        cells = [cell for row in info.rows if (cell := row.cells[i])]
        if cells:
            cell = max(cells, key=lambda one: one.value)
            best.append(f"{in_sentence(name, cell.value, cell.interval)} at temperature {number(cell.temperature)}")
    within = f"within {OWN} {show_epsilon(info.budget)}"
    return f"The best of {len(info.rows)} temperatures or ranges of them, {within}: {'; '.join(best)}."


FIGURE: FigureKind[SweepData, TemperatureInfo] = FigureKind(
    name="temperature",
    heading="Temperature, radius and membership",
    summary=(
        "the best accuracy and certificate of each range of temperatures of the loss, with 95 % intervals, and what "
        "membership inference learns"
    ),
    caption=(
        "One mark for each range of temperatures of the loss, at the temperature of the model that it picks: the best "
        "accuracy, and the best certified score at each radius, with its 95 % interval; small open marks are the best "
        "of the other trials. The best of more trials is the better one by chance too."
    ),
    position=50,
    found=_found,
    info=info,
    plot=plot,
    rows=rows,
    remarks=_remarks,
    topic=Topic.ROBUSTNESS,
    lacks=_unexplained,
    needs=f"{_LEAST_TRIALS} trials of two temperatures with certificates, or two with membership inference",
)
