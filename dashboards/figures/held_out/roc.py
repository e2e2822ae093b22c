"""ROC curves of private test rows: one release for each point, with a band."""

from itertools import pairwise

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureKind, Table, Topic
from dashboards.figures._common import percent_axis
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.held_out import _released
from dashboards.figures.held_out._released import HeldOutCurve, LinesInfo
from sweeper.records import Point, ReleasedCurves, ScoreCurves

_FAR = 0.15  # in either rate, between two thresholds
_CHANCE = 0.5  # the area under the curve of a model that guesses


def info(data: SweepData) -> LinesInfo:
    """Collect the curves of a few points of the front."""
    return _released.collected(data, "ROC of private test rows", _scores, _line)


def rows(info: LinesInfo) -> Table:
    """One row per threshold of each point, with the area under its curve."""
    areas = [_area(line.point) for line in info.lines for _ in line.x]
    found = _released.rows(info, "false_positive_rate", "true_positive_rate", corners=True)
    return [row | area for row, area in zip(found, areas, strict=True)]


def _area(point: Point) -> dict[str, float]:
    scores = None if point.curves is None else point.curves.scores
    return {} if scores is None else dict(zip(("auroc_low", "auroc", "auroc_high"), scores.auroc, strict=True))


def plot(info: LinesInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the figure; nothing for a sweep without curves of two classes."""
    gap = "<br>" if info.narrow else " "
    yaxis = {
        "title": {"text": f"true positive rate{gap}(class {_released.class_of(info)}, test)"},
        **percent_axis("accuracy"),
        "range": [-0.01, 1.01],
    }
    xaxis = {**percent_axis("accuracy"), "range": [-0.01, 1.01], "nticks": 4}
    figure = _released.panels(info, theme, xaxis, yaxis, title="false positive rate (test)", note=_chance(info))
    _released.make_square(figure)
    for i, line in enumerate(info.lines):
        for trace in (*_band(line, theme), _released.reference((0, 1), (0, 1), theme)):
            figure.add_trace(trace, **_released.place(info, i))
    return figure


def _band(line: HeldOutCurve, theme: Theme) -> list[go.Scatter]:
    """The curve in its band; thin where it joins thresholds that are far apart."""
    inside, outline, curve = _released.band(line, theme.blue)
    released: list[tuple[float | None, float | None]] = [(line.x[0], line.y[0])]
    far: list[tuple[float | None, float | None]] = []
    for before, after in pairwise(zip(line.x, line.y, strict=True)):
        if max(abs(a - b) for a, b in zip(before, after, strict=True)) > _FAR:
            far += [before, after, (None, None)]
            released.append((None, None))
        released.append(after)
    look = {"mode": "lines", "line": {"color": theme.blue, "width": 1}, "hoverinfo": "skip"}
    thin = go.Scatter(x=[x for x, _ in far], y=[y for _, y in far], **look)
    return [inside, outline, curve.update(x=[x for x, _ in released], y=[y for _, y in released]), thin]


def _chance(info: LinesInfo) -> str:
    """What is said where a model may be no better than chance; nothing where none may be."""
    lowest = min((_area(line.point).get("auroc_low", 1.0) for line in info.lines), default=1.0)
    doubt = "; an interval that contains 0.5: that model may be no better than chance" if lowest <= _CHANCE else ""
    said = f"thin: no threshold was released between; dotted: chance; [ ]: 95 % interval of AUROC{doubt}"
    return said if info.lines else ""


def _scores(curves: ReleasedCurves) -> ScoreCurves | None:
    return curves.scores


def _line(point: Point, scores: ScoreCurves) -> HeldOutCurve:
    low, middle, high = (f"{value:.3f}" for value in scores.auroc)
    area = f"AUROC {middle}", f"[{low}, {high}]"
    below, above = (scores.false_high, scores.true_low), (scores.false_low, scores.true_high)
    return HeldOutCurve(point, area, scores.false_rates, scores.true_rates, below, above)


FIGURE: FigureKind[SweepData, LinesInfo] = FigureKind(
    name="roc",
    heading="ROC curves of private test rows",
    summary="true over false positive rates of private test rows, released as one curve for each point",
    caption=(
        "Released once for each point of the front, with noise that the ledger holds; a panel for each, the best one "
        "first. The true curve of the distribution that the rows come from lies in the band at all thresholds at once "
        "with the stated confidence; so does the area under it between its two bounds. Curve and area are those of "
        "scores rounded to the released thresholds: straight lines join them, as ties count one half. The thickest "
        "line is what was released. Chance is the dotted diagonal: where the band contains all of it, the model may "
        "be no better than chance."
    ),
    position=44,
    info=info,
    plot=plot,
    rows=rows,
    remarks=lambda data: _released.left_out(data, _scores),
    topic=Topic.FRONT,
    wide=True,
    needs="points of the front that released curves of two classes",
)
