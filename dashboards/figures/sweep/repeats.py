"""What the repeats of one sweep attain: bands over its first, second, ... training of every configuration."""

from dataclasses import replace

from dashboards.data import SweepData
from dashboards.figures._base import FigureKind
from dashboards.figures._common import header
from dashboards.figures._scores import scores_in_words
from dashboards.figures.comparison.attainment import AttainmentInfo, Band, plot, right_end, rows
from sweeper.pareto.attainment import attainment
from sweeper.records import Objective, Point


def info(data: SweepData) -> AttainmentInfo:
    """Compute what the repeats of one sweep attain: its first, second, ... training of every configuration."""
    outcomes = [point for point in data.points if len(point.repeats.get(data.utility, ())) > 1]
    count = min((len(point.repeats[data.utility]) for point in outcomes), default=0)
    runs = [[_outcome(point, data.utility, number) for point in outcomes] for number in range(count)]
    surfaces = attainment(runs, Objective(data.utility, data.direction(data.utility)))
    bands = (Band(data.name, count, surfaces),) if surfaces else ()
    return AttainmentInfo(
        **header(data, "what the repeats attain")
        | {"scores": scores_in_words(data.result, [data.utility], means=False)},
        utility=data.utility,
        bands=bands,
        runs="repeats",
        is_named=False,
        right_end=right_end(bands),
    )


def _outcome(point: Point, name: str, number: int) -> Point:
    """The point as one of its repeats alone would be."""
    return replace(point, values={**point.values, name: point.repeats[name][number]})


FIGURE: FigureKind[SweepData, AttainmentInfo] = FigureKind(
    name="repeats",
    heading="How much is luck",
    summary=(
        "with `search.repeats`: what at least half of the repeats attain, between what all and what one of them attain"
    ),
    caption=(
        "Every point above is the mean of several trainings of one configuration. The solid line is attained by at "
        "least half of these repeats, the band reaches from what all of them attain to what the best of them does."
    ),
    position=30,
    info=info,
    plot=plot,
    rows=rows,
    epsilon_axis=True,
    needs="points with `search.repeats` of two or more",
)
