"""The rows of a ledger: frozen values inside, JSON in the file; the only module that reads or writes that JSON.

Rows have no version of their own: ``format`` in ``sweep.json`` is that of the whole folder.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clipless.privacy.events import PoissonGaussian
from sweeper.errors import RecordError
from sweeper.privacy.evaluation.paid_scores import PaidScores
from sweeper.privacy.selection import Terms
from sweeper.privacy.spending import Budget, read_budget


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRow:
    """A training is entered before its first noise is drawn."""

    trial: str
    attempt: int  # 1 for its first training, 2 when it was started again, ...
    event: PoissonGaussian  # what is planned, without the steps that are kept
    kept: int = 0  # steps of earlier attempts that this one goes on from
    ends: tuple[int, ...] = ()  # steps of the trial after which it may be ended, where a budget refunds the others
    # what is planned for scores of private validation rows, ``None`` where they are free
    scores: PaidScores | None = None
    stage: int | None = None  # whose slot it fills, from 0, where the budget is cut into slots
    drawn: bool = True  # whether it is charged from now on; otherwise a `DrawRow` follows before its first noise


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawRow:
    """A training is about to draw its first noise, or noise that its account lets it draw from now on.

    ``until`` is the number of steps of the whole training that it may draw before it asks again, those that it goes on
    from included; ``None`` where it asks nobody.
    """

    trial: str
    attempt: int
    until: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseRow:
    """A training has ended after ``steps`` steps and ``scored`` releases of scores, ``None`` where not known."""

    trial: str
    attempt: int
    steps: int
    scored: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionRow:
    """The terms of a private selection."""

    terms: Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchRow:
    """A private sketch of the training rows is entered before its noise is drawn."""

    event: PoissonGaussian


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoresRow:
    """Scores of private test rows of one point are entered before their noise is drawn."""

    trial: str
    epoch: int
    scores: PaidScores


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow:
    """The budget of the sweep: the first row, written before any training."""

    budget: Budget


LedgerRow = OpenRow | DrawRow | CloseRow | SelectionRow | SketchRow | ScoresRow | BudgetRow


def row_to_json(row: LedgerRow) -> dict[str, Any]:
    """Return a row as JSON values."""
    match row:
        case OpenRow():
            content = {"record": "open", "trial": row.trial, "attempt": row.attempt, "event": row.event.to_json()}
            content |= {"kept": row.kept} if row.kept else {}
            content |= {"ends": list(row.ends)} if row.ends else {}
            content |= {} if row.scores is None else {"scores": row.scores.to_json()}
            content |= {} if row.stage is None else {"stage": row.stage}
            return content | ({} if row.drawn else {"drawn": False})
        case DrawRow():
            content = {"record": "draw", "trial": row.trial, "attempt": row.attempt}
            return content | ({} if row.until is None else {"until": row.until})
        case CloseRow():
            content = {"record": "close", "trial": row.trial, "attempt": row.attempt, "steps": row.steps}
            return content | ({} if row.scored is None else {"scored": row.scored})
        case SelectionRow():
            return {"record": "selection", "terms": row.terms.to_json()}
        case SketchRow():
            return {"record": "sketch", "event": row.event.to_json()}
        case ScoresRow():
            return {"record": "test", "trial": row.trial, "epoch": row.epoch, "scores": row.scores.to_json()}
        case BudgetRow():
            return {"record": "budget", **row.budget.to_json()}


def row_from_json(content: Mapping[str, Any]) -> LedgerRow:
    """Read back what `row_to_json` wrote.

    Raises:
        KeyError, TypeError, ValueError, RecordError, AccountingError: something else.

    Guarantees:
        An entry that does not say that it has not drawn is charged.
    """
    kind = content.get("record")
    if kind == "selection":
        return SelectionRow(terms=Terms.from_json(content["terms"]))
    if kind == "sketch":
        return SketchRow(event=PoissonGaussian.from_json(content["event"]))
    if kind == "test":
        paid = PaidScores.from_json(content["scores"])
        return ScoresRow(trial=str(content.get("trial")), epoch=int(content.get("epoch", 0)), scores=paid)
    if kind == "budget":
        return BudgetRow(budget=read_budget(content))
    trial, attempt = str(content["trial"]), int(content["attempt"])
    if kind == "open":
        return OpenRow(
            trial=trial,
            attempt=attempt,
            event=PoissonGaussian.from_json(content["event"]),
            kept=content.get("kept", 0),
            ends=tuple(content.get("ends", ())),
            scores=PaidScores.from_json(content["scores"]) if "scores" in content else None,
            stage=content.get("stage"),
            drawn=content.get("drawn", True) is not False,
        )
    if kind == "draw":
        return DrawRow(trial=trial, attempt=attempt, until=content.get("until"))
    if kind == "close":
        return CloseRow(trial=trial, attempt=attempt, steps=content["steps"], scored=content.get("scored"))
    raise RecordError(f"record is {content['record']!r}")
