"""ROC curves of private test rows: one release for each point, with a band."""

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureKind, Table, Topic
from dashboards.figures._common import percent_axis
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.held_out import _released
from dashboards.figures.held_out._released import HeldOutCurve, LinesInfo
from sweeper.records import Point, ReleasedCurves, ScoreCurves


def info(data: SweepData) -> LinesInfo:
    """Collect the curves of a few points of the front."""
    return _released.collected(data, "ROC of private test rows", _scores, _line)


def rows(info: LinesInfo) -> Table:
    """One row per threshold of each point."""
    return _released.rows(info, "false_positive_rate", "true_positive_rate", corners=True)


def plot(info: LinesInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the figure; nothing for a sweep without curves of two classes."""
    yaxis = {"title": {"text": "true positive rate (test)"}, **percent_axis("accuracy"), "range": [0, 1.02]}
    title = {"title": {"text": f"false positive rate (test); bands at {info.confidence:.0%}"}}
    xaxis = {**title, **percent_axis("accuracy"), "range": [-0.005, 1.005]}
    axes = {"xaxis": xaxis, "yaxis": yaxis}
    return _released.draw(info, theme, axes, height=520, diagonal=True, corner="bottom right")


def _scores(curves: ReleasedCurves) -> ScoreCurves | None:
    return curves.scores


def _line(point: Point, scores: ScoreCurves) -> HeldOutCurve:
    low, middle, high = (f"{value:.3f}" for value in scores.auroc)
    name = _released.legend(point, f"AUROC {middle} [{low}, {high}]")
    below, above = (scores.false_high, scores.true_low), (scores.false_low, scores.true_high)
    return HeldOutCurve(point, name, scores.false_rates, scores.true_rates, below, above)


FIGURE: FigureKind[SweepData, LinesInfo] = FigureKind(
    name="roc",
    heading="ROC curves of private test rows",
    summary="true over false positive rates of private test rows, released as one curve for each point",
    caption=(
        "Released once for each point of the front, with noise that the ledger holds. The true curve of the "
        "distribution that the rows come from lies in the band at all thresholds at once with the stated confidence; "
        "so does the area under it between its two bounds. Chance is the dotted diagonal."
    ),
    position=44,
    info=info,
    plot=plot,
    rows=rows,
    remarks=lambda data: _released.left_out(data, _scores),
    topic=Topic.FRONT,
    needs="points of the front that released curves of two classes",
)
