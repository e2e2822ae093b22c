"""The record of a diagnosis: one point of a sweep, looked at before its training and after. Numbers, no rows.

``diagnostics.json`` has a version; another version is refused rather than guessed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clipless.diagnostics import Diagnostics, InputNorms
from clipless.plans.method import Method
from sweeper.adapters import dump, read
from sweeper.errors import RecordError
from sweeper.papers.files import check_no_record, check_replaces
from sweeper.records import Point
from sweeper.store.jsonl import read_object, replace_file, to_text

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosedEpoch:
    """One moment of a training; epoch 0 has the initial weights."""

    epoch: int
    diagnostics: Diagnostics


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What a look at one point of a sweep found."""

    sweep: str
    trial: str
    epoch: int
    made_from: str = ""  # name of the average that the point is; empty for an iterate
    values: Mapping[str, float]
    delta: float
    exploratory: bool
    data: str  # name of the data set, whose public validation rows were looked at
    method: Method  # what bounds the contribution of one row
    loss: str
    batch_size: float  # b, expected
    noise_multiplier: float  # sigma
    epochs: int
    input_radius: float | None  # of the first input ball; None without one
    inputs: tuple[InputNorms, ...]  # norms of the rows, as the model gets them first
    snapshots: tuple[DiagnosedEpoch, ...]  # the initial weights, then the point's

    @property
    def name(self) -> str:
        """Identity of the point as one text, for names of files."""
        return Point(trial=self.trial, epoch=self.epoch, made_from=self.made_from, values={}).name

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``diagnostics.json``."""
        return {"schema_version": SCHEMA_VERSION, **dump(self)}

    def write(self, path: Path) -> Path:
        """Write the record to ``path`` and return it.

        Raises:
            RecordError: not written, a file that a sweep or a model is read from, or an object of something else.
        """
        check_no_record(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecordError(
                f"Cannot make the folder {path.parent}: {error.strerror or error}; choose another with --output"
            ) from error
        text = to_text(self.to_json(), indent=1) + "\n"
        check_replaces(path, text.encode())
        replace_file(path, text)
        return path


def read_diagnosis(path: Path) -> Diagnosis:
    """Read what `Diagnosis.write` wrote.

    Raises:
        RecordError: no such file, another version, or not a diagnosis.
    """
    content = dict(read_object(path))
    version = content.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise RecordError(
            f"Expected schema_version {SCHEMA_VERSION}, got {version!r} ({path}); diagnose the sweep again"
        )
    return read(Diagnosis, content, f"in {path}", "diagnose the sweep again")
