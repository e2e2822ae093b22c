"""What the ledger of a sweep says was drawn, release by release, as its account is charged.

Each release has one name, under which the account charges it once: a training by trial and attempt, with the scores of
its validation rows, and one that goes on from a killed one what is more than that was charged; the test scores of each
row of the ledger; the sketch; a private selection as a whole, for the number of its candidates is secret. Its winner is
a release that costs nothing more. It is charged before anybody sees it, so that the account knows the ledger that is
shown: none of another winner, drawn anew, goes on from that.

Candidates of a selection whose conditions broke are shown, all of them, at what they cost by composition. What the
selection was charged counts for that: the account takes what is more on each side, and no less than either.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.events import Composed, Event
from clipless.privacy.gaussian import GaussianCost
from sweeper.account.cost import NOTHING, event_cost, left_of, selection_cost
from sweeper.account.entries import Side
from sweeper.privacy.entries import Entry
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.selection import Terms
from sweeper.store.sweep_folder import is_secret

SKETCH, SELECTION, WINNER, CANDIDATES = "sketch", "selection", "winner", "candidates"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One release.

    Attributes:
        what: its name.
        events: what it draws on each side; of a private selection what each of its candidates does.
        repetitions: the law of the number of these candidates, ``None`` of other releases.
        beyond: what was charged for the same noise before, and counts for this release.
    """

    what: str
    events: Mapping[Side, Event]
    repetitions: Repetitions | None = None
    beyond: "Draw | None" = None

    def costs(self, epsilon: float, delta: float) -> dict[Side, GaussianCost]:
        """Return what it takes of an account of ``(epsilon, delta)``."""
        repetitions, before = self.repetitions, {} if self.beyond is None else self.beyond.costs(epsilon, delta)
        if repetitions is not None:
            return {side: selection_cost(event, repetitions, epsilon, delta) for side, event in self.events.items()}
        whole = {side: event_cost(event, epsilon, delta) for side, event in self.events.items()}
        return {side: left_of(cost, before.get(side, NOTHING)) for side, cost in whole.items()}

    @property
    def alone(self) -> "Draw":
        """The release as if nothing had been charged for its noise before."""
        return replace(self, beyond=None)


def name_of_training(trial: str, attempt: int) -> str:
    """Return the name of a training."""
    return f"{trial}/{attempt}"


def draw_of_grant(entry: Entry) -> Draw:
    """Return the last grant of a training, which costs nothing: from then on its account knows that ledger alone."""
    return Draw(what=f"{name_of_training(entry.trial, entry.attempt)}/{entry.granted[-1]}", events={})


def name_of_test(number: int) -> str:
    """Return the name of the n-th release of test scores of a sweep, from 1."""
    return f"test/{number}"


def draws_of(ledger: Ledger) -> tuple[Draw, ...]:
    """Return everything that a ledger says was drawn or may have been.

    Of a private selection that has not ended, that is the selection, once a candidate has drawn.
    """
    entries, terms = [one for one in ledger.entries() if one.drawn], ledger.selection
    found = [] if ledger.sketch is None else [Draw(what=SKETCH, events={Side.TRAINING: ledger.sketch})]
    if terms is not None and (entries or not terms.broken):
        found.append(draw_of_selection(terms))
    if terms is not None and is_secret(ledger.path.parent):
        return tuple(found)
    if terms is not None and not terms.broken:
        found.append(Draw(what=WINNER, events={}))
    if terms is None or not terms.broken:
        found += [draw for one in entries for draw in (draw_of(one, entries), *_grants_of(one))]
    elif entries:
        found.append(draw_of_candidates(ledger, terms))
    tests = enumerate(ledger.tests(), start=1)
    found += [Draw(what=name_of_test(number), events={Side.TEST: row.scores.event}) for number, row in tests]
    return tuple(found)


def _grants_of(entry: Entry) -> list[Draw]:
    """Return all grants of a training but the first, which is a part of its charge."""
    return [draw_of_grant(replace(entry, granted=entry.granted[:count])) for count in range(2, len(entry.granted) + 1)]


def draw_of(entry: Entry, entries: Iterable[Entry] = ()) -> Draw:
    """Return what a training, of those in ``entries``, plans, which it is charged whatever it reaches.

    One that goes on from an earlier attempt that drew is charged what that ran and it plans beyond what that planned,
    if the account let the earlier one draw grant by grant; else in full.

    Guarantees:
        Of an attempt that goes on, the steps that the earlier one planned and did not run are paid: all attempts
        together are that event, then the further steps, an event of their own. Each is fixed before it begins, which
        the filter of an account asks for, whatever the outputs before had to do with the end of an attempt.
        No steps are taken for not run that another process runs: it draws no further than its last grant, up to which
        the earlier attempt is closed, and gets none once the account knows another ledger.
    """
    steps, scores = entry.event.steps, entry.scores
    releases = 0 if scores is None else scores.event.steps
    earlier = [one for one in entries if one.trial == entry.trial and one.attempt < entry.attempt and one.drawn]
    if entry.kept and earlier and earlier[-1].granted:
        before = replace(earlier[-1], goes_on=True)
        steps = max(steps + before.charged.steps - before.event.steps, 0)
        if before.scores is not None:
            made = sum(event.steps for event in before.charged_scores)
            releases = max(releases + made - before.scores.event.steps, 0)
    events: dict[Side, Event] = {Side.TRAINING: entry.event.with_steps(steps)}
    if scores is not None:
        events[Side.VALIDATION] = scores.event.with_steps(releases)
    return Draw(what=name_of_training(entry.trial, entry.attempt), events=events)


def draw_of_selection(terms: Terms) -> Draw:
    """Return a private selection as a whole, at the price of nobody seeing more of its candidates than the winner."""
    events = {Side.TRAINING: terms.priced} | ({} if terms.scores is None else {Side.VALIDATION: terms.scores})
    return Draw(what=SELECTION, events=events, repetitions=terms.repetitions)


def draw_of_candidates(ledger: Ledger, terms: Terms) -> Draw:
    """Return all candidates of a private selection of which a condition broke, composed."""
    entries = [one for one in ledger.entries() if one.drawn]
    scores = [one.scores.event for one in entries if one.scores is not None]
    events: dict[Side, Event] = {Side.TRAINING: Composed(tuple(one.event for one in entries))}
    events |= {Side.VALIDATION: Composed(tuple(scores))} if scores else {}
    return Draw(what=CANDIDATES, events=events, beyond=draw_of_selection(terms))


def read_draws(ledger: Path) -> dict[str, Draw]:
    """Return everything that the ledger in a file says was drawn, by name.

    Raises:
        RecordError: the file is broken.
    """
    return {draw.what: draw for draw in draws_of(Ledger(ledger))}
