"""``rehearsals.jsonl``: what configurations have shown before the first trial, one row per training.

A configuration is trained several times, each time on one part of the rows that it is rehearsed on and scored on
another; what it has shown are the means over these trainings. A rehearsal is no trial: its rows have no epsilon, no
price and no model, and what reads trials, points or the front does not read them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sweeper.adapters import read
from sweeper.records import ConfigValues, RehearsalSource, Scalar
from sweeper.store.jsonl import JsonlFile

Values = Mapping[str, float]
FIRST = "c0001"  # the configuration that was proposed first


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalRecord:
    """A training that has ended: a row of the file."""

    rehearsal: str  # ``r0001``; unique within the sweep
    configuration: str  # ``c0001``, which its other trainings share
    trainings: int  # of the configuration, this one among them
    source: RehearsalSource  # the rows that it was trained and scored on
    proposal: Mapping[str, Scalar]  # values of open dimensions by name
    config: ConfigValues
    reason: str = ""  # why it has no points
    # values by objective of each epoch, ``epsilon`` not among them: the noise is that of a final, on fewer rows
    points: Mapping[str, Values] = field(default_factory=dict)  # under ``12``, or ``12 slow-midpoint``


@dataclass(frozen=True, slots=True)
class RehearsedEpoch:
    """What a configuration has shown at an epoch."""

    epoch: int
    made_from: str  # name of what the model was made from, see `sweeper.trials.free_points`; empty for the epoch's own
    values: Values  # means over the trainings, by objective; no epsilon

    @property
    def moment(self) -> str:
        """The epoch, and what the model was made from, in words."""
        return f"{self.epoch}, {self.made_from}" if self.made_from else f"{self.epoch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedConfiguration:
    """A configuration of which every training has ended.

    Attributes:
        id: ``c0001``, in the order in which they were proposed.
        source: the rows that it was trained and scored on.
        proposal: values of open dimensions by name.
        config: all values.
        epochs: what it has shown; nothing where one of its trainings failed.
        parts: what each of its trainings has shown, of which ``epochs`` are the means.
        reason: why it has shown nothing.
    """

    id: str
    source: RehearsalSource
    proposal: Mapping[str, Scalar]
    config: ConfigValues
    epochs: tuple[RehearsedEpoch, ...] = ()
    parts: tuple[tuple[Values, ...], ...] = ()
    reason: str = ""


def read_rehearsals(path: Path) -> tuple[RehearsedConfiguration, ...]:
    """Return the configurations that have been rehearsed; none without the file.

    Raises:
        RecordError: the file is broken.
    """
    return join_trainings(rehearsals_of(JsonlFile(path).read(), path))


def rehearsals_of(rows: Iterable[Mapping[str, object]], path: Path, first: int = 1) -> list[RehearsalRecord]:
    """Return rows of ``rehearsals.jsonl`` as records.

    ``path`` and ``first``, the number of the first row, are for errors.

    Raises:
        RecordError: a row that is no rehearsal.
    """
    numbered = enumerate(rows, start=first)
    return [read(RehearsalRecord, row, f"on line {number} of {path}", "restore the file") for number, row in numbered]


def join_trainings(records: Iterable[RehearsalRecord]) -> tuple[RehearsedConfiguration, ...]:
    """Return the configurations of which every training is there, in the order in which they were proposed."""
    trainings: dict[str, dict[str, RehearsalRecord]] = {}
    for record in records:
        trainings.setdefault(record.configuration, {})[record.rehearsal] = record
    whole = [one for one in trainings.values() if len(one) == next(iter(one.values())).trainings]
    return tuple(sorted((_joined(list(one.values())) for one in whole), key=lambda one: one.id))


def _joined(records: Sequence[RehearsalRecord]) -> RehearsedConfiguration:
    first = records[0]
    return RehearsedConfiguration(
        id=first.configuration,
        source=first.source,
        proposal=first.proposal,
        config=first.config,
        epochs=mean_epochs([record.points for record in records]),
        parts=tuple(tuple(record.points.values()) for record in records),
        reason=next((record.reason for record in records if record.reason), ""),
    )


def mean_epochs(shown: Sequence[Mapping[str, Values]]) -> tuple[RehearsedEpoch, ...]:
    """Return the means over trainings, of every epoch that all of them have."""
    first, *others = shown
    common = [key for key in first if all(key in points for points in others)]
    return tuple(
        _epoch(key, {name: sum(points[key][name] for points in shown) / len(shown) for name in first[key]})
        for key in common
    )


def _epoch(key: str, values: Values) -> RehearsedEpoch:
    epoch, _, made_from = key.partition(" ")
    return RehearsedEpoch(int(epoch), made_from, values)
