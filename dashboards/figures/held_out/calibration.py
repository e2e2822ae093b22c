"""Calibration of predicted probabilities on private test rows: released with the ROC curve, at no further cost."""

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureKind, Table, Topic
from dashboards.figures._common import percent_axis
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.held_out import _released
from dashboards.figures.held_out._released import HeldOutCurve, LinesInfo
from dashboards.text import number
from sweeper.records import Point, ReleasedCurves, ScoreCurves


def info(data: SweepData) -> LinesInfo:
    """Collect the groups of a few points of the front."""
    return _released.collected(data, "calibration on private test rows", _scores, _line)


def rows(info: LinesInfo) -> Table:
    """One row per group of each point."""
    return _released.rows(info, "predicted", "observed")


def plot(info: LinesInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the figure; nothing for a sweep without curves of two classes."""
    yaxis = {"title": {"text": "share of class 1 (test)"}, **percent_axis("accuracy"), "range": [-0.02, 1.02]}
    gap = "<br>" if info.narrow else " "
    title = f"mean predicted probability of a group;{gap}bands at {info.confidence:.0%}"
    xaxis = {"title": {"text": title}, **percent_axis("accuracy"), "range": [-0.02, 1.02]}
    axes = {"xaxis": xaxis, "yaxis": yaxis}
    return _released.draw(info, theme, axes, height=520, diagonal=True, marked=True, corner="top left")


def _scores(curves: ReleasedCurves) -> ScoreCurves | None:
    return curves.scores


def _line(point: Point, scores: ScoreCurves) -> HeldOutCurve:
    fit = f"Hosmer-Lemeshow {number(scores.hosmer_lemeshow, 3)}, p {number(scores.p_value, 2)}"
    x = scores.group_predicted
    ends = (x, scores.group_low), (x, scores.group_high)
    return HeldOutCurve(point, _released.legend(point, fit), x, scores.group_rates, *ends)


FIGURE: FigureKind[SweepData, LinesInfo] = FigureKind(
    name="calibration",
    heading="Calibration on private test rows",
    summary="observed shares over predicted probabilities of private test rows, and the Hosmer-Lemeshow statistic",
    caption=(
        "Ten groups of about equal size by predicted probability, from the counts that the ROC curve was released "
        "with. A calibrated model is on the dotted diagonal. The band covers the noise: the share among these rows is "
        "in it, for all groups at once. The p-value is that of calibrated models under the same noise, and small where "
        "the model is not calibrated."
    ),
    position=46,
    info=info,
    plot=plot,
    rows=rows,
    remarks=lambda data: _released.left_out(data, _scores),
    topic=Topic.FRONT,
    needs="points of the front that released curves of two classes",
)
