"""Norms of what single rows contribute to the gradient of each parameter, beside the norm they are clipped at."""

from dashboards.figures._base import FigureKind
from dashboards.figures.diagnosis._header import header, moment
from dashboards.figures.diagnosis._norms import CurveKind, Mark, NormPanel, NormsInfo, histogram_curve, plot
from dashboards.text import number
from sweeper.results.models.diagnosis import Diagnosis


def info(diagnosis: Diagnosis) -> NormsInfo:
    """Contributions to each parameter: exact norms at each moment, and what the guard takes the last ones to be."""
    before, now = diagnosis.snapshots[0], diagnosis.snapshots[-1]
    when = moment(now)
    found = []
    for earlier, parameter in zip(before.diagnostics.parameters, now.diagnostics.parameters, strict=True):
        curves = (
            histogram_curve(when, CurveKind.NOW, parameter.own.histogram),
            histogram_curve(moment(before), CurveKind.BEFORE, earlier.own.histogram),
            histogram_curve(f"{when}, as the guard sees it", CurveKind.GUARD, parameter.guard_bound.histogram),
        )
        marks = [("clips at", parameter.sensitivity), ("worst case", parameter.worst_case)]
        found.append(
            NormPanel(
                f"{parameter.name}, {parameter.size} entries; {number(100 * parameter.acted)} % of rows are scaled at "
                f"{when}",
                tuple(filter(None, curves)),
                tuple(Mark(name, value) for name, value in marks if value is not None),
            )
        )
    return NormsInfo(
        **header(diagnosis, "norms of gradients"),
        panels=tuple(found),
        axis="norm of one row's contribution to the gradient",
        logarithmic=True,
    )


FIGURE: FigureKind[Diagnosis, NormsInfo] = FigureKind(
    name="gradients",
    heading="Gradients of single rows",
    summary="norms of what single rows contribute to the gradient of each parameter",
    caption=(
        "Norms of what one row contributes to the gradient of a parameter. The guard scales what it takes to be larger "
        "than the line it clips at; it sees norms from above, without forming gradients, so its curve lies at or right "
        "of the exact one. The noise is proportional to that line."
    ),
    position=20,
    info=info,
    plot=plot,
)
