"""Findings of audits about a claim, and the test whether several of them contradict it.

Every finding has a p-value: the chance, were the claim true, of evidence at least as strong. Findings about one run are
judged together (`judge`), so that a correct run is accused with at most the stated chance, however many audits it
went through.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from clipless.errors import AuditError

ACCUSATION = 0.05
"""The chance with which a correct run may be accused, over all audits of it."""


class AuditKind(StrEnum):
    """The attacked part of a claim."""

    STEP = "step"
    ONE_RUN = "one-run"
    FINAL_MODEL = "final-model"
    NOISE = "noise"
    SELECTION = "private-selection"
    SWEEP = "sweep-price"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one audit of one claim.

    Attributes:
        kind: what was attacked.
        subject: whose claim it is, in words for people: "trial 12 at epoch 5".
        epsilon: the claim.
        delta: the delta of the claim and of ``attained``.
        attained: lower bound of epsilon that the audit attained at ``confidence``; 0 where it attained nothing.
        confidence: with which ``attained`` holds; 1 for what was computed and not drawn.
        p_value: chance of evidence as strong as this, were the claim true; 0 and 1 for what was computed.
        contradicted: whether the claim is refuted; `judge` decides it over all findings about a run.
        evidence: numbers and words that led there, as JSON values; of public rows only.

    Raises:
        AuditError: a number that no audit can find.
    """

    kind: AuditKind
    subject: str
    epsilon: float
    delta: float
    attained: float
    confidence: float
    p_value: float
    contradicted: bool
    evidence: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.epsilon >= 0.0 and self.attained >= 0.0 and 0.0 <= self.delta < 1.0):
            raise AuditError(
                f"Expected epsilon, attained >= 0 and 0 <= delta < 1, got {self.epsilon!r}, {self.attained!r} and "
                f"{self.delta!r}"
            )
        if not (0.0 < self.confidence <= 1.0 and 0.0 <= self.p_value <= 1.0):
            raise AuditError(
                f"Expected 0 < confidence <= 1 and 0 <= p_value <= 1, got {self.confidence!r} and {self.p_value!r}"
            )

    @property
    def ratio(self) -> float:
        """The attained share of the claim: near 1 says that both are tight. NaN where nothing finite is claimed."""
        return self.attained / self.epsilon if 0.0 < self.epsilon < math.inf else math.nan

    def to_json(self) -> dict[str, Any]:
        """Return the finding as strict JSON values; numbers that are not finite become texts."""
        evidence = {name: _strict(value) for name, value in self.evidence.items()}
        values = asdict(self) | {"kind": self.kind.value, "evidence": evidence}
        return {name: _strict(value) for name, value in values.items()}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Finding":
        """Read back what `to_json` wrote.

        Raises:
            AuditError: a key is missing or unknown, or holds a value that no finding can have.
        """
        try:
            numbers = {name: float(record[name]) for name in ("epsilon", "delta", "attained", "confidence", "p_value")}
            return cls(**{**record, **numbers, "kind": AuditKind(record["kind"])})
        except (KeyError, TypeError, ValueError) as error:
            raise AuditError(f"Expected the record of a finding, got {record!r}") from error


def _strict(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def judge(findings: Iterable[Finding], level: float = ACCUSATION) -> tuple[Finding, ...]:
    """Decide which findings contradict their claims, all of them together.

    By Holm's procedure: the smallest p-value is compared with ``level`` over the number of findings, the next one with
    ``level`` over one less, and so on up to the first that fails.

    Guarantees:
        Where all claims are true, any of them is contradicted with a chance of at most ``level``.
    """
    found = list(findings)
    verdicts = holm([one.p_value for one in found], level)
    return tuple(replace(one, contradicted=verdict) for one, verdict in zip(found, verdicts, strict=True))


def holm(p_values: Sequence[float], level: float) -> list[bool]:
    """Return which hypotheses Holm's procedure rejects at a family-wise level."""
    verdicts, rejecting = [False] * len(p_values), True
    for done, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        rejecting = rejecting and p_values[place] <= level / (len(p_values) - done)
        verdicts[place] = rejecting
    return verdicts
