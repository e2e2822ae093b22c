"""What figures over hyperparameters compare: the trials, or the rehearsed configurations where these are more.

Where configurations are rehearsed, few of them are trained, and what hyperparameters do shows in the rehearsals alone.
A figure of rehearsals says so in itself: pictures of it are shown without the page around them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from dashboards.data import SweepData, finite
from dashboards.figures._base import omitted
from dashboards.figures._theme import Theme
from dashboards.text import rehearsed_text
from sweeper.records import Objective, Point
from sweeper.results.pick import rank
from sweeper.specification.fields.nested import flatten


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Configurations, and what each reached at its best point: the one that a reader would take."""

    subject: str  # what one of them is called in a table
    objectives: tuple[str, ...]
    settings: Mapping[str, Mapping[str, Any]]  # dotted values by id, of those that reached every objective
    reached: Mapping[str, Mapping[str, float]]  # values by objective, by id
    note: str = ""  # what they are; empty of trials


def shows_rehearsals(data: SweepData) -> bool:
    """Whether figures over hyperparameters compare the rehearsals of a sweep."""
    return sum(one.place is not None for one in data.rehearsals) > len(data.trials)


def compare(data: SweepData) -> Compared:
    """Return the trials of a sweep, or its rehearsals where these are more."""
    return _rehearsals(data) if shows_rehearsals(data) else _trials(data)


def omitted_of(data: SweepData, limit: int) -> str:
    """Return what a caption adds: that rehearsals are shown, or how many of the trials."""
    return f" {_note(data)}." if shows_rehearsals(data) else omitted(limit, len(data.trials), "trials")


def mark(figure: go.Figure, note: str, theme: Theme, *, up: float = 18, narrow: bool = False) -> None:
    """Write above a figure what it compares, so many pixels above its axes; nothing where these are trials."""
    if note:
        note = note.replace("; ", ";<br>") if narrow else note
        place = {"x": 0, "y": 1, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
        font = {"size": 11 if narrow else 12, "color": theme.orange}
        figure.add_annotation(name="rehearsed", text=note, showarrow=False, yshift=up, font=font, align="left", **place)


def _trials(data: SweepData) -> Compared:
    objectives = tuple(objective.name for objective in data.result.objectives)
    utility = Objective(data.utility, data.direction(data.utility))
    best: dict[str, Point] = {}
    for point in data.points:
        if finite(point, data.utility, *objectives):
            best[point.trial] = max(best.get(point.trial, point), point, key=lambda one: rank(one, utility))
    ids = [id_ for id_ in data.trials if id_ in best]
    return Compared(
        subject="trial",
        objectives=objectives,
        settings={id_: data.settings[id_] for id_ in ids},
        reached={id_: best[id_].values for id_ in ids},
    )


def _rehearsals(data: SweepData) -> Compared:
    objectives = tuple(objective.name for objective in data.result.objectives if objective.name != "epsilon")
    found = {one.id: one for one in data.rehearsals if one.place is not None and one.best is not None}
    best = {id_: one.best.values for id_, one in sorted(found.items()) if one.best is not None}
    return Compared(
        subject="configuration",
        objectives=objectives,
        settings={id_: flatten(found[id_].configuration.config) for id_ in best},
        reached=best,
        note=_note(data),
    )


def _note(data: SweepData) -> str:
    return rehearsed_text(data.rehearsal_source)
