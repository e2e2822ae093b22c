"""One sweep, ready to be drawn: its result, and what a figure or a page asks of it.

Nothing here writes, trains, or imports Plotly.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite, nan
from pathlib import Path
from typing import Any

from sweeper.config import flatten
from sweeper.front import Front, FrontTrial, read_front
from sweeper.objectives import auroc_radius_text, needs_two_classes, radius, radius_text
from sweeper.records import Direction, Objective, Point
from sweeper.store import SweepFolder


@dataclass(frozen=True, kw_only=True)
class SweepData:
    """One sweep, ready to be drawn.

    Names in it (of the sweep, of columns, of trials) are what users wrote: escape them wherever markup is
    understood.

    Attributes:
        result: the contents of ``front.json``, completed by newer rows of the folder.
        sweep: the contents of ``sweep.json`` (resolved spec, versions, status), empty if there is none.
        directory: the sweep folder, for the commands that the report shows.
    """

    result: Front
    sweep: Mapping[str, Any] = field(default_factory=dict)
    directory: str = ""

    @property
    def name(self) -> str:
        """Name of the sweep."""
        return self.result.sweep

    @property
    def trials(self) -> Mapping[str, FrontTrial]:
        """Trial by id, in the order they were proposed."""
        return self.result.trials

    @property
    def points(self) -> tuple[Point, ...]:
        """Every recorded point."""
        return self.result.points

    @cached_property
    def front_points(self) -> tuple[Point, ...]:
        """The points that no other point dominates, from small to large epsilon."""
        return self.result.front_points

    @property
    def utility(self) -> str:
        """The objective that ``sweeper pick`` maximises: the first one that is not epsilon."""
        return next((o.name for o in self.result.objectives if o.name != "epsilon"), "accuracy")

    @cached_property
    def certificates(self) -> tuple[str, ...]:
        """Names of all certificates of the utility's kind that any point reports, by radius."""
        kind = auroc_radius_text if needs_two_classes(self.utility) else radius_text
        names = {name for point in self.points for name in point.values if kind(name) is not None}
        radii = {name: found for name in names if (found := radius(name)) is not None}
        return tuple(sorted(radii, key=lambda name: (radii[name], name)))

    @property
    def certificate(self) -> str | None:
        """The certified accuracy that colours the front: an objective if one is, else the smallest radius."""
        objectives = [o.name for o in self.result.objectives if radius(o.name) is not None]
        return next((name for name in (*objectives, *self.certificates) if name != self.utility), None)

    @property
    def deltas(self) -> tuple[float, ...]:
        """The distinct deltas of the trials, ascending."""
        return tuple(sorted({trial.delta for trial in self.trials.values() if trial.delta is not None}))

    @property
    def relations(self) -> tuple[str, ...]:
        """The distinct neighbouring relations of the trials."""
        return tuple(sorted({trial.relation for trial in self.trials.values() if trial.relation}))

    def direction(self, name: str) -> Direction:
        """Which way ``name`` improves, whether it is an objective of this sweep or not."""
        known = {objective.name: objective for objective in self.result.objectives}
        return known.get(name, Objective.named(name)).direction


def read(directory: str | Path) -> SweepData:
    """Read a sweep folder, finished or not.

    ``front.json`` is the result; rows of ``trials.jsonl`` and ``points.jsonl`` that it does not hold yet are
    added, and not on the front until it is written again.

    Raises:
        RecordError: no ``front.json``, or a file that is not what it should be.
    """
    folder = SweepFolder(directory)
    front = read_front(folder.front)
    trials = {id_: FrontTrial.of(trial) for id_, trial in folder.trials().items()}
    points = folder.points() | {point.key: point for point in front.points}
    known = {key: point for key, point in points.items() if key[0] in trials or key[0] in front.trials}
    return SweepData(
        result=replace(front, trials=trials | dict(front.trials), points=tuple(known.values())),
        sweep=folder.read_sweep() if (folder.path / "sweep.json").exists() else {},
        directory=str(directory),
    )


def varying(trials: Mapping[str, FrontTrial]) -> tuple[str, ...]:
    """Dotted names of the configuration values that differ between trials, in the order of the spec."""
    flats = [flatten(trial.config) for trial in trials.values()]
    names = dict.fromkeys(name for flat in flats for name in flat)
    return tuple(name for name in names if len({repr(flat.get(name)) for flat in flats}) > 1)


def finite(point: Point, *names: str) -> bool:
    """Whether the point has a finite number for every name."""
    return all(isfinite(point.values.get(name, nan)) for name in names)
