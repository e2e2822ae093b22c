"""What figures over hyperparameters compare: the trials, or the rehearsed configurations where these are more.

Where configurations are rehearsed, few of them are trained, and what hyperparameters do shows in the rehearsals alone.
Where a budget is cut into stages, trials differ in noise, which hides what hyperparameters do: some figures compare
the trials of one stage alone. A figure says either in itself: pictures of it are shown without the page around them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.data import SweepData, finite
from dashboards.figures._base import omitted
from dashboards.figures._comparable import noise_note
from dashboards.figures.hyperparameters._axes import declared_ranges
from dashboards.text import rehearsed_text
from sweeper.records import Objective
from sweeper.results.highlights import best_by_trial
from sweeper.specification.fields.nested import flatten

_DIGITS = 2  # of importances that differ; a smaller difference is chance
UNEXPLAINED = 0.1  # R squared below which a forest has learnt nothing worth showing


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Configurations, and what each reached at its best point: the one that a reader would take."""

    subject: str  # what one of them is called in a table
    objectives: tuple[str, ...]
    settings: Mapping[str, Mapping[str, Any]]  # dotted values by id, of those that reached every objective
    reached: Mapping[str, Mapping[str, float]]  # values by objective, by id
    note: str = ""  # what they are; empty where they are all trials


def compare(data: SweepData, *, one_noise: bool = False) -> Compared:
    """Return the trials of a sweep, those of one stage of its budget with ``one_noise``; its rehearsals if more."""
    return _rehearsals(data) if data.compares_rehearsals else _trials(data, one_noise=one_noise)


def remarks_of(data: SweepData, limit: int, *, one_noise: bool = False) -> str:
    """Return what a caption adds: what is compared where that are not all trials, and how many of them are drawn."""
    if data.compares_rehearsals:
        return f" {_note(data)}."
    note, count = (noise_note(data), len(data.comparable)) if one_noise else ("", len(data.trials))
    return f"{f' {note}.' if note else ''}{omitted(limit, count, 'trials')}"


def order(data: SweepData) -> tuple[str, ...]:
    """Return dotted names of hyperparameters, the most important one for the utility first.

    Where a forest explains the utility too little, the largest importance for any other result counts. Ranges of the
    spec come before others that matter as much. Nothing where a forest explains none: then no order means anything.
    """
    found = {one.target: one for one in data.importances if one.explained >= UNEXPLAINED}
    judges = [found[data.utility]] if data.utility in found else list(found.values())
    losses = {name: max(one.losses[name] for one in judges) for one in judges for name in one.losses}
    ranges = declared_ranges({} if data.manifest is None else data.manifest.spec)
    return tuple(sorted(losses, key=lambda name: (-round(losses[name], _DIGITS), name not in ranges, -losses[name])))


def _trials(data: SweepData, *, one_noise: bool) -> Compared:
    objectives = tuple(objective.name for objective in data.result.objectives)
    utility = Objective(data.utility, data.direction(data.utility))
    known = (point for point in data.points if finite(point, data.utility, *objectives))
    best = best_by_trial(known, data.result.on_front, utility)
    ids = [id_ for id_ in (data.comparable if one_noise else data.trials) if id_ in best]
    return Compared(
        subject="trial",
        objectives=objectives,
        settings={id_: data.settings[id_] for id_ in ids},
        reached={id_: best[id_].values for id_ in ids},
        note=noise_note(data) if one_noise else "",
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
