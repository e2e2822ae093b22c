"""``audits.jsonl``: what audits of a sweep found; the only module that reads or writes it.

The file grows by one row for each finding, and nothing is taken back: an audit that finds nothing with a mended program
says nothing of the training that ran before. Drivers and ``sweeper audit`` write to it, one after another. Each row has
a version; another one is refused rather than guessed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from clipless.audits.finding import Finding
from sweeper.adapters import dump, read
from sweeper.errors import RecordError
from sweeper.rounding import round_down, round_up
from sweeper.store.jsonl import JsonlFile, append_alone

EVIDENCE_NAME = "audits.jsonl"
VERSION = 1
WHOLE_SWEEP = ""  # in the place of a trial: the claim is about every point


def _finding(content: Any) -> Any:
    return Finding.from_json(content) if isinstance(content, Mapping) else content


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A finding about the points of one trial, or of all."""

    trial: str  # id of the trial; empty for every point of the sweep
    found: str  # when, in UTC
    program: str  # version that audited
    finding: Annotated[Finding, BeforeValidator(_finding), PlainSerializer(Finding.to_json)]


def append_evidence(folder: Path, rows: Iterable[Evidence]) -> None:
    """Write findings, each on the disk before the next.

    Raises:
        RecordError: not written.
    """
    for row in rows:
        append_alone(folder / EVIDENCE_NAME, {"version": VERSION, **dump(row)}, durable=True)


def read_evidence(folder: Path) -> tuple[Evidence, ...]:
    """Return what audits of a sweep found, in that order; nothing without a file.

    Raises:
        RecordError: the file is broken, or of another version.
    """
    path = folder / EVIDENCE_NAME
    return tuple(_from_json(row, f"line {number} of {path}") for number, row in enumerate(JsonlFile(path).read(), 1))


def read_refusals(folder: Path) -> dict[str, str]:
    """Return why points are refused, by trial, or under `WHOLE_SWEEP`: the first finding that contradicts a claim.

    Raises:
        RecordError: as `read_evidence`.
    """
    return refusals_of(read_evidence(folder))


def findings_about(trial: str, rows: Iterable[Evidence]) -> tuple[Finding, ...]:
    """Return what was found of the points of a trial, and of all."""
    return tuple(row.finding for row in rows if row.trial in (trial, WHOLE_SWEEP))


def refusals_of(rows: Iterable[Evidence]) -> dict[str, str]:
    """Return why points are refused, as `read_refusals`, by all rows of evidence from the first."""
    found: dict[str, str] = {}
    for number, row in enumerate(rows, start=1):
        if row.finding.contradicted:
            why = f"refused by an audit: {in_words(row.finding)} (evidence: line {number} of {EVIDENCE_NAME})"
            found.setdefault(row.trial, why)
    return found


def refusal(refused: Mapping[str, str], trial: str) -> str | None:
    """Return why the points of a trial are refused, ``None`` if they are not."""
    return refused.get(trial, refused.get(WHOLE_SWEEP))


def in_words(finding: Finding) -> str:
    """Return a finding as a clause."""
    sure = "" if finding.confidence == 1.0 else f" at {100 * finding.confidence:g} % confidence"
    ratio = "" if isnan(finding.ratio) else f", {finding.ratio:.3g} of it"
    return (
        f"the {finding.kind.value} audit of {finding.subject} attained epsilon {round_down(finding.attained)}{sure} "
        f"where {round_up(finding.epsilon)} is claimed at delta {finding.delta!r}{ratio}"
    )


def _from_json(row: Mapping[str, object], where: str) -> Evidence:
    if row.get("version") != VERSION:
        raise RecordError(
            f"Expected version {VERSION} of evidence, got {row.get('version')!r} ({where}); read it with the version "
            "of sweeper that wrote it"
        )
    return read(Evidence, row, f"on {where}", "restore the file")
