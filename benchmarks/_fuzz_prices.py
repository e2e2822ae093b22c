"""What a ledger costs, computed anew from the lines of its file: nothing here imports ``sweeper.privacy``.

The rules are those of the guide. A training is charged once its draws are marked: the steps that it planned, or those
that it ran if another attempt goes on from it. Scores of validation rows likewise; scores of test rows once for each
line. Without a budget the price is that of the composition, the largest of a split where rows choose their split
alone; with one it is that of all slots, or the filter's epsilon; of a private selection that of repeat-and-select.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dp_accounting
from dp_accounting.rdp import RdpAccountant

from clipless.privacy.accounting.claim import claim
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.accounting.renyi import rdp_epsilon
from clipless.privacy.accounting.selection_composed import explored_epsilon
from clipless.privacy.accounting.selection_price import selection_epsilon
from clipless.privacy.events import Composed, PoissonGaussian, Relation

SLACK_OF_ONE = 1e-4  # of delta, which each training that only a slot dominates may add
LEAST_NOISE = 1.0 - 2e-9  # of a candidate of a private selection, relative


@dataclass(kw_only=True)
class Attempt:
    """One training as the lines tell it."""

    trial: str
    event: PoissonGaussian
    kept: int = 0
    drawn: bool = True
    steps: int | None = None
    goes_on: bool = False
    stage: int | None = None
    scores: PoissonGaussian | None = None
    scores_kept: int = 0
    scored: int | None = None
    apart: bool = True

    @property
    def charged(self) -> int:
        """The steps that it is charged."""
        planned = 0 if self.goes_on else self.event.steps
        return max(planned, self.steps or 0) if self.drawn else 0

    @property
    def ran(self) -> int:
        """The steps that it drew, as far as that is known."""
        return self.event.steps if self.steps is None else self.steps

    @property
    def charged_scores(self) -> int:
        """The releases of scores that it is charged."""
        if self.scores is None or not self.drawn:
            return 0
        planned = 0 if self.goes_on and self.scored is not None else self.scores.steps
        return max(planned, self.scored or 0)


@dataclass
class Account:
    """The lines of one ledger."""

    attempts: list[Attempt] = field(default_factory=list)
    tests: list[tuple[str, int, PoissonGaussian, bool]] = field(default_factory=list)
    budget: Mapping[str, Any] | None = None
    selection: Mapping[str, Any] | None = None
    sketch: PoissonGaussian | None = None
    odd: list[str] = field(default_factory=list)

    def of(self, trial: str) -> list[Attempt]:
        """Return the attempts of a trial."""
        return [one for one in self.attempts if one.trial == trial]

    def spends(self) -> bool:
        """Whether anything was drawn."""
        return any(one.drawn for one in self.attempts) or bool(self.tests) or bool(self.selection or self.sketch)


def read_account(path: Path) -> Account:
    """Read the lines of a ledger; a torn last one counts as none."""
    account = Account()
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            row = json.loads(line)
        except ValueError:
            if number < len(lines):
                account.odd.append(f"line {number} of the ledger is torn")
            continue
        _take(account, row)
    return account


def _take(account: Account, row: Mapping[str, Any]) -> None:
    kind = row["record"]
    if kind == "budget":
        account.budget = row
    elif kind == "selection":
        account.selection = row["terms"]
    elif kind == "sketch":
        event = PoissonGaussian.from_json(row["event"])
        if account.sketch is not None or account.budget is None or account.budget.get("sketch") != row["event"]:
            account.odd.append("a sketch that the budget does not hold, or a second one")
        account.sketch = event
    elif kind == "test":
        paid = row["scores"]
        event = PoissonGaussian.from_json(paid["event"])
        account.tests.append((row["trial"], row["epoch"], event, paid["apart"]))
    elif kind == "open":
        _open(account, row)
    else:
        mine = account.of(row["trial"])
        if not mine or row["attempt"] != len(mine):
            account.odd.append(f"{kind} of {row['trial']}, attempt {row['attempt']}, which is not the last one")
        elif kind == "draw":
            _draw(account, mine)
        else:
            if row["steps"] > 0 and not mine[-1].drawn:
                _draw(account, mine)
            mine[-1].steps, mine[-1].scored = row["steps"], row.get("scored", mine[-1].scored)


def _open(account: Account, row: Mapping[str, Any]) -> None:
    scores = row.get("scores")
    attempt = Attempt(
        trial=row["trial"],
        event=PoissonGaussian.from_json(row["event"]),
        kept=row.get("kept", 0),
        drawn=False,
        stage=row.get("stage"),
        scores=None if scores is None else PoissonGaussian.from_json(scores["event"]),
        scores_kept=0 if scores is None else scores["kept"],
        apart=scores is None or scores["apart"],
    )
    account.attempts.append(attempt)
    if row.get("drawn", True):
        _draw(account, account.of(row["trial"]))


def _draw(account: Account, mine: Sequence[Attempt]) -> None:
    *before, last = mine
    earlier = [one for one in before if one.drawn]
    if last.kept and not last.drawn:
        if not earlier:
            account.odd.append(f"{last.trial} goes on from {last.kept} steps that no attempt has drawn")
        else:
            earlier[-1].goes_on = True
    last.drawn = True


def price_of(account: Account, delta: float, *, tight: bool) -> float:
    """Return what everything costs that may be released; a private selection: its winner.

    ``tight`` is how the price of a sweep that has ended is computed: the smaller of two bounds.
    """
    if account.budget is not None and not _is_broken(account):
        return _of_budget(account, account.budget, delta)
    if account.selection is not None and not _is_broken(account):
        return _of_selection(account, account.selection, delta)
    splits = splits_of(account)
    every = [event for events in splits for event in events]
    adds = all(event.relation is Relation.ADD_OR_REMOVE_ONE for event in every)
    together = splits if adds and _apart(account) else [every]
    return max((composed(events, delta, tight=tight) for events in together if events), default=0.0)


def splits_of(account: Account) -> list[list[PoissonGaussian]]:
    """Return what is charged on training, validation and test rows."""
    charged = [one for one in account.attempts if one.drawn]
    return [
        [one.event.with_steps(one.charged) for one in charged],
        [one.scores.with_steps(one.charged_scores) for one in charged if one.scores is not None],
        [event for _, _, event, _ in account.tests],
    ]


def _apart(account: Account) -> bool:
    return all(one.apart for one in account.attempts if one.drawn) and all(apart for *_, apart in account.tests)


def _is_broken(account: Account) -> bool:
    return account.selection is not None and bool(account.selection["broken"])


def composed(events: Sequence[PoissonGaussian], delta: float, *, tight: bool) -> float:
    """Return the epsilon of events together."""
    if not events:
        return 0.0
    whole = Composed(tuple(events))
    if tight or len(events) == 1 or whole.relation is not Relation.ADD_OR_REMOVE_ONE:
        return claim(whole, delta).epsilon
    return rdp_epsilon(whole, delta)


def _of_budget(account: Account, budget: Mapping[str, Any], delta: float) -> float:
    if budget["accounting"] == "filter":
        return float(budget["epsilon"])
    pools = []
    filled = 0
    for one in budget["stages"]:
        slot = PoissonGaussian.from_json(one["slot"])
        steps = one["trials"] * slot.steps + one["spare"]
        pools.append(slot.with_steps(steps))
        filled += steps // slot.steps
    if "sketch" in budget:
        pools.append(PoissonGaussian.from_json(budget["sketch"]))
    usable = delta - budget["delta"] + budget["delta"] * (1.0 - SLACK_OF_ONE * filled) * (1.0 - 2.0**-50)
    others = [PoissonGaussian.from_json(budget[name]["event"]) for name in ("scores", "tests") if name in budget]
    alone = [claim(Composed((event,)), delta).epsilon for event in others]
    if "selection" not in budget:
        return max([claim(Composed(tuple(pools)), usable).epsilon, *alone])
    if account.selection is None:
        return math.inf
    terms = budget["selection"]
    law = Repetitions.from_json(terms["repetitions"])
    costs = [explored_epsilon(_candidate(terms), law, Composed(tuple(pools)), usable)]
    if terms["scores"] is not None:
        scores = PoissonGaussian.from_json(terms["scores"])
        final = others[0] if "scores" in budget else scores.with_steps(0)
        costs.append(explored_epsilon(scores, law, final, delta))
    return max([*costs, *alone])


def _candidate(terms: Mapping[str, Any]) -> PoissonGaussian:
    event = PoissonGaussian.from_json(terms["event"])
    return replace(event, noise_multiplier=event.noise_multiplier * LEAST_NOISE)


def _of_selection(account: Account, terms: Mapping[str, Any], delta: float) -> float:
    law = Repetitions.from_json(terms["repetitions"])
    costs = [selection_epsilon(_candidate(terms), law, delta)]
    if terms["scores"] is not None:
        costs.append(selection_epsilon(PoissonGaussian.from_json(terms["scores"]), law, delta))
    return max([*costs, composed([event for _, _, event, _ in account.tests], delta, tight=False)])


def rdp_bound(events: Sequence[PoissonGaussian], delta: float) -> float:
    """Return what dp-accounting's Renyi accountant says of events together, under add-or-remove-one."""
    orders = [*range(2, 64), 128, 256, 512]
    accountant = RdpAccountant(orders, dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for event in events:
        if not event.steps:
            continue
        if event.noise_multiplier == 0.0:
            return math.inf
        gaussian = dp_accounting.GaussianDpEvent(event.noise_multiplier)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(event.sampling_rate, gaussian), event.steps)
    return float(accountant.get_epsilon(delta))


def spent_of_filter(account: Account) -> list[tuple[float, float]]:
    """Return, for each split, what everything a filter has let run costs as a fixed list, and its budget."""
    budget = account.budget
    assert budget is not None
    charged = [one for one in account.attempts if one.drawn]
    training = [one.event.with_steps(one.ran) for one in charged]
    splits = [training, *splits_of(account)[1:]]
    groups = splits if _apart(account) else [[event for events in splits for event in events]]
    return [
        (claim(Composed(tuple(events)), float(budget["delta"])).epsilon, budget["epsilon"])
        for events in groups
        if events
    ]
