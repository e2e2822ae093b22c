"""What the ledger of a sweep says was drawn, release by release, as its account is charged.

Each release has one name, under which the account charges it once: a training by trial and attempt, with the scores of
its validation rows; the test scores of each row of the ledger; the sketch; a private selection as a whole, for the
number of its candidates is secret.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clipless.privacy.events import PoissonGaussian
from sweeper.account.entries import Side
from sweeper.privacy.evaluation.paid_scores import PaidScores
from sweeper.privacy.ledger import Ledger

SKETCH, SELECTION = "sketch", "selection"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One release: its name, and what it draws on each side; nothing is said of the events of a private selection."""

    what: str
    events: Mapping[Side, PoissonGaussian]


def name_of_training(trial: str, attempt: int) -> str:
    """Return the name of a training."""
    return f"{trial}/{attempt}"


def name_of_test(number: int) -> str:
    """Return the name of the n-th release of test scores of a sweep, from 1."""
    return f"test/{number}"


def draws_of(ledger: Ledger) -> tuple[Draw, ...]:
    """Return everything that a ledger says was drawn or may have been."""
    found = [] if ledger.sketch is None else [Draw(what=SKETCH, events={Side.TRAINING: ledger.sketch})]
    found += [] if ledger.selection is None else [Draw(what=SELECTION, events={})]
    found += [draw_of(one.trial, one.attempt, one.event, one.scores) for one in ledger.entries() if one.drawn]
    tests = enumerate(ledger.tests(), start=1)
    found += [Draw(what=name_of_test(number), events={Side.TEST: row.scores.event}) for number, row in tests]
    return tuple(found)


def draw_of(trial: str, attempt: int, event: PoissonGaussian, scores: PaidScores | None) -> Draw:
    """Return what a training plans, which it is charged whatever it reaches."""
    events = {Side.TRAINING: event} if scores is None else {Side.TRAINING: event, Side.VALIDATION: scores.event}
    return Draw(what=name_of_training(trial, attempt), events=events)


def read_draws(ledger: Path) -> dict[str, Draw]:
    """Return everything that the ledger in a file says was drawn, by name.

    Raises:
        RecordError: the file is broken.
    """
    return {draw.what: draw for draw in draws_of(Ledger(ledger))}
