"""What a trial reports while it trains: frozen values inside, one JSON text each on their way through Ray.

The first row of a trial is its `PlanRow`; its second says that its first noise is about to be drawn; every later one is
an epoch. A plan of another attempt says that the trial begins anew or goes on from an epoch.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from sweeper.adapters import dump, parse
from sweeper.records import ScoreErrors, TrialPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """A trial is ready to train."""

    KIND: ClassVar[str] = "plan"

    attempt: str  # unique to this attempt of the trial
    plan: TrialPlan
    kept: int = 0  # steps of its earlier attempts that it goes on from
    scores_kept: int = 0  # releases of scores of its earlier attempts that it does not make again
    placed: Mapping[str, str] = field(default_factory=dict)  # the ``node``, ``device`` and ``process`` that train it


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDrawRow:
    """A trial is about to draw its first noise."""

    KIND: ClassVar[str] = "draw"


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeRow:
    """A model that was made from the iterates up to an epoch.

    The others are as in `EpochRow`.
    """

    made_from: str  # name of the average that it is
    values: Mapping[str, float]  # validation numbers by objective name, without epsilon: that is the one of the epoch
    repeats: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    errors: ScoreErrors | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRow:
    """An epoch is done."""

    KIND: ClassVar[str] = "epoch"

    epoch: int  # 1-based
    values: Mapping[str, float]  # validation numbers by objective name
    # the outcome of each repeat by name; none without repeats
    repeats: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    model: str | None = None  # path of the saved model relative to the sweep folder, if kept
    done: bool = False
    errors: ScoreErrors | None = None  # of noisy scores, as a point has them
    free: tuple[FreeRow, ...] = ()  # models made from the iterates so far, see `sweeper.trials.free_points`

    @property
    def models(self) -> tuple[str, ...]:
        """The paths of the models that were saved at this epoch."""
        return tuple(model for model in (self.model, *(one.model for one in self.free)) if model is not None)


TrialRow = PlanRow | FirstDrawRow | EpochRow


def row_to_text(row: TrialRow) -> str:
    """Return a row as one JSON text; Ray would flatten a nested result and tear ``certified@36/255`` apart."""
    content = {one.name: getattr(row, one.name) for one in fields(row)}
    if isinstance(row, PlanRow):
        content["plan"] = dump(row.plan)
    if isinstance(row, EpochRow):
        content["free"] = [asdict(one) for one in row.free]
    return json.dumps({"kind": row.KIND, **content})


def row_from_text(text: str) -> TrialRow:
    """Read back what `row_to_text` wrote.

    Raises:
        KeyError, TypeError, ValueError: something else.
    """
    content: dict[str, Any] = json.loads(text)
    kind = content.pop("kind")
    if kind == PlanRow.KIND:
        return PlanRow(**content | {"plan": parse(TrialPlan, content["plan"])})
    if kind == EpochRow.KIND:
        free = tuple(FreeRow(**_with_tuples(one)) for one in content.pop("free"))
        return EpochRow(**_with_tuples(content), free=free)
    if kind == FirstDrawRow.KIND:
        return FirstDrawRow(**content)
    raise ValueError(f"Expected a row of a trial, got the kind {kind!r}")


def _with_tuples(content: Mapping[str, Any]) -> dict[str, Any]:
    repeats, errors = content["repeats"], content["errors"]
    return {
        **content,
        "repeats": {name: tuple(found) for name, found in repeats.items()},
        "errors": None if errors is None else {name: tuple(found) for name, found in errors.items()},
    }
