"""The bias of clipping by parameter: the angle of the mean gradient of each parameter alone."""

from dashboards.figures._base import FigureKind
from dashboards.figures.diagnosis._header import header, moment
from dashboards.figures.diagnosis.clipping import ClippingInfo, MethodLine, legend, methods_of, plot, settings_of
from sweeper.results.models.diagnosis import Diagnosis


def info(diagnosis: Diagnosis) -> ClippingInfo:
    """Compare the parameters, method by method, at the last moment."""
    last = diagnosis.snapshots[-1]
    biases = last.diagnostics.clipping
    found = []
    for method in methods_of(biases):
        lines = [
            MethodLine(parameter.name, method, True, settings_of(biases, method, index))
            for index, parameter in enumerate(last.diagnostics.parameters)
        ]
        found.append((f"{legend(method)}, {moment(last)}: angle of each parameter's mean gradient", tuple(lines)))
    return ClippingInfo(**header(diagnosis, "bias of clipping by parameter"), panels=tuple(found), shares=False)


FIGURE: FigureKind[Diagnosis, ClippingInfo] = FigureKind(
    name="clipping-parameters",
    heading="What clipping does to each parameter",
    summary="the same angle for each parameter alone",
    caption=(
        "The same settings, the angle measured for each parameter alone: without what a guard per layer changes in the "
        "lengths of the layers' gradients against each other, which an optimiser such as Adam largely undoes."
    ),
    position=50,
    info=info,
    plot=plot,
)
