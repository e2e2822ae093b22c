"""What a sweep records: objectives, trials and points, as plain frozen values.

These are the rows that the runner writes, the ledger and the front are computed from, and the
dashboards read. Nothing here imports Ray, Optuna, MLflow or torch.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import stdev
from typing import Any


class Direction(enum.Enum):
    """Which way an objective improves."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


MEMBERSHIP = ("membership-auroc", "membership-advantage")


@dataclass(frozen=True, slots=True)
class Objective:
    """One axis of the front, such as ``epsilon``, ``accuracy`` or ``certified@R``, or a metric beside them."""

    name: str
    direction: Direction

    @classmethod
    def named(cls, name: str) -> "Objective":
        """Epsilon and what an attacker gains are better when smaller; everything else when larger."""
        return cls(name, Direction.MINIMIZE if name in ("epsilon", *MEMBERSHIP) else Direction.MAXIMIZE)


class TrialStatus(enum.Enum):
    """How a trial stands or ended."""

    RUNNING = "running"
    COMPLETED = "completed"
    STOPPED = "stopped"  # ended early by a decision of the scheduler or a budget
    FAILED = "failed"  # raised, or reported a NaN
    INTERRUPTED = "interrupted"  # the sweep was interrupted


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One configuration trained once.

    Attributes:
        id: ``t0007``; unique within the sweep.
        config: the resolved spec values of this trial, nested as in the spec.
        plan: JSON form of the training plan: event, delta, relation, accountant data, sensitivities.
        run_id: MLflow run, when tracking is on.
        placed: the ``node`` and ``device`` that trained it last; empty before its first plan.
        status: how the trial stands or ended, and ``reason`` in one sentence.
    """

    id: str
    config: Mapping[str, Any]
    plan: Mapping[str, Any] | None = None
    run_id: str | None = None
    placed: Mapping[str, str] = field(default_factory=dict)
    status: TrialStatus = TrialStatus.RUNNING
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One (trial, epoch).

    Attributes:
        trial: id of the trial.
        epoch: 1-based; the point holds the model after this epoch.
        values: validation numbers by objective name, ``epsilon`` among them (``math.inf`` without privacy).
        accountants: epsilon by accountant, ``{"rdp": ..., "pld": ...}``; a missing one was not computed.
        repeats: what the values of a point are the means of, the outcome of each repeat by name; none without repeats.
        test: test numbers, present for points of the final front only.
        model: path of the saved model relative to the sweep folder, if kept.
    """

    trial: str
    epoch: int
    values: Mapping[str, float]
    accountants: Mapping[str, float] = field(default_factory=dict)
    repeats: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    test: Mapping[str, float] | None = None
    model: str | None = None

    @property
    def key(self) -> tuple[str, int]:
        """Identity within the sweep."""
        return (self.trial, self.epoch)

    def deviation(self, name: str) -> float | None:
        """Return the standard deviation of a value over the repeats, None without several."""
        outcomes = self.repeats.get(name, ())
        return stdev(outcomes) if len(outcomes) > 1 else None
