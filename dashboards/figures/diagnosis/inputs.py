"""Norms of inputs, beside the bound that the data declare and the input ball."""

from dashboards.figures._base import FigureKind
from dashboards.figures.diagnosis._header import header
from dashboards.figures.diagnosis._norms import CurveKind, Mark, NormPanel, NormsInfo, histogram_curve, plot
from dashboards.text import number
from sweeper.results.models.diagnosis import Diagnosis


def info(diagnosis: Diagnosis) -> NormsInfo:
    """Inputs as trained on, with the input ball, and in every colour space that there is."""
    found = []
    for index, one in enumerate(diagnosis.inputs):
        marks = [Mark("declared bound", one.bound)]
        if index == 0 and diagnosis.input_radius is not None:
            marks.append(Mark("input ball", diagnosis.input_radius))
        curve = histogram_curve("rows", CurveKind.NOW, one.norms.histogram)
        title = f"{one.space}: median {number(one.norms.median)}, largest {number(one.norms.largest)}"
        found.append(NormPanel(title, () if curve is None else (curve,), tuple(marks)))
    return NormsInfo(
        **header(diagnosis, "norms of inputs"), panels=tuple(found), axis="norm of one row", logarithmic=False
    )


FIGURE: FigureKind[Diagnosis, NormsInfo] = FigureKind(
    name="inputs",
    heading="Norms of inputs",
    summary="norms of inputs against the bound that the data declare",
    caption=(
        "What the bounds start from: rows far below the declared bound, or below the input ball, make every bound "
        "behind them loose; rows beyond the ball are scaled down to it. Colour spaces differ in the bound that holds "
        "for any image and in what images use of it."
    ),
    position=60,
    info=info,
    plot=plot,
)
