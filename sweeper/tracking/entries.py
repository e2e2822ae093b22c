"""What a tracker tells a store: frozen values, and their JSON in the outbox and its files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """Of a trial, or of the sweep where there is none, at so many milliseconds."""

    trial: str | None
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow(_Row):
    """A run starts."""

    OP: ClassVar[str] = "run"

    params: Mapping[str, str]
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsRow(_Row):
    """Metrics of one step; not finite ones are texts that ``float`` reads."""

    OP: ClassVar[str] = "metrics"

    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TagsRow(_Row):
    """Tags of a run."""

    OP: ClassVar[str] = "tags"

    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRow(_Row):
    """A run ends, with MLflow's name of its status."""

    OP: ClassVar[str] = "end"

    status: str
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactRow(_Row):
    """A file belongs to a run."""

    OP: ClassVar[str] = "artifact"

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRow(_Row):
    """A file that no folder has belongs to a run."""

    OP: ClassVar[str] = "text"

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRow(_Row):
    """A run learns from a data set, of which only what is declared of it is told."""

    OP: ClassVar[str] = "dataset"

    name: str
    digest: str  # of the declarations, at most 36 characters; no row enters it
    facts: Mapping[str, object]  # public facts, as JSON values


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalRow(_Row):
    """A configuration was rehearsed, under a run of its own that is none of a trial."""

    OP: ClassVar[str] = "rehearsal"

    configuration: str
    name: str  # of the run
    params: Mapping[str, str]
    tags: Mapping[str, str]
    metrics: Sequence[tuple[int, Mapping[str, float]]]  # of each step
    status: str  # MLflow's name of how it ended


TrackingRow = RunRow | MetricsRow | TagsRow | EndRow | ArtifactRow | TextRow | DatasetRow | RehearsalRow
_KINDS: dict[str, type[TrackingRow]] = {
    kind.OP: kind for kind in (RunRow, MetricsRow, TagsRow, EndRow, ArtifactRow, TextRow, DatasetRow, RehearsalRow)
}


def row_to_json(row: TrackingRow) -> dict[str, Any]:
    """Return a row as JSON values."""
    return {"op": row.OP, **{one.name: getattr(row, one.name) for one in fields(row)}}


def row_from_json(content: Mapping[str, Any]) -> TrackingRow:
    """Read back what `row_to_json` wrote."""
    kind = _KINDS[content["op"]]
    return kind(**{key: value for key, value in content.items() if key != "op"})
