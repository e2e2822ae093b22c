"""The fronts of several sweeps in one plane, with certified accuracy on the vertical axis."""

from dataclasses import replace

from dashboards.figures._base import FigureKind
from dashboards.figures.comparison.fronts import OverlayInfo, overlay, plot, rows
from sweeper.records import Objective
from sweeper.results.comparison import Comparison
from sweeper.specification.objectives import radius, smoothed_radius


def certified(comparison: Comparison) -> Objective | None:
    """Return the first certificate among the objectives that all sweeps have, None without one."""
    kinds = (radius, smoothed_radius)
    found = (one for one in comparison.objectives if any(kind(one.name) is not None for kind in kinds))
    return next((one for one in found if one != comparison.utility), None)


def info(comparison: Comparison) -> OverlayInfo:
    """Compute the overlay of the fronts; without lines where the sweeps share no certificate."""
    objective = certified(comparison)
    found = overlay(comparison, objective or comparison.utility)
    return found if objective is not None else replace(found, lines=())


FIGURE: FigureKind[Comparison, OverlayInfo] = FigureKind(
    name="certified-fronts",
    heading="The fronts in certified accuracy",
    summary="the certified accuracy of all sweeps in one plane",
    caption=(
        "As above, with certified accuracy on the vertical axis: a line picks its own models, the best certified ones "
        "within each epsilon, which are not those of the figure above."
    ),
    position=15,
    info=info,
    plot=plot,
    rows=rows,
    epsilon_axis=True,
    needs="a certified accuracy among the objectives of all sweeps",
)
