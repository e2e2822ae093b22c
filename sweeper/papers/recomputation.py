"""The claims of a card, computed again from the ledger beside it.

From the event that the card states and the rows of the ledger follow both prices of the training, what the sweep costs,
what the scores cost, and what all of it means to a person; so do the claims that audits attacked. That the noise of
parameters and of scores is the one that was charged is checked by `sweeper.papers.stated_noise`. Scores, what audits
attained, single sensitivities, numbers of rows held back, which epoch a model is of and what the data set declares do
not follow from them; a signature says who stands for those.

On one kind of processor, with the same versions, all numbers are computed alike to the last bit, whatever the number of
threads. On another kind, exp, log and sums of products round differently: a divergence changes by a few 2^-53 for each
step, which add up like a random walk, and a price by as much relative to delta. So prices may differ by
``64 sqrt(steps) / delta`` units of last place, twice the most that was measured, as long as their digits shown are the
same. What is derived for several rows from the price of one takes the far end of its profile and magnifies this. What
is copied, like rates and numbers of steps, is compared exactly.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil, inf, isclose, sqrt
from pathlib import Path
from typing import Any

from clipless.audits.finding import AuditKind
from clipless.datasets import Evaluation
from clipless.privacy.events import PoissonGaussian
from clipless.privacy.noisy_counts import scores_event
from sweeper.adapters import dump
from sweeper.papers.stated_noise import other_parameters, other_releases, score_noise_of, settings_of
from sweeper.privacy.card.content import AuditRow, CardContent
from sweeper.privacy.card.prices import charged_entries, point_exposure, point_prices, price_event, price_scores
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import Price, price
from sweeper.privacy.selection import WINNER_TRIAL, same_event
from sweeper.privacy.spending._composition import earlier_statement
from sweeper.rounding import round_up
from sweeper.store.input_format import DATA_NAME
from sweeper.store.jsonl import plain, read_object

_STEP_ROUNDING = 2.0**-47  # 64 units of last place, of a divergence, times the root of the steps
_MEANING = 2.0**-20  # relative, of probabilities and of several rows' own epsilons; 2e-7 was measured
_DEVIATION = 2.0**-30  # relative, of deviations of scores, which are a product of three numbers
_BUDGET = 2.0**-10  # relative, of a budget that one sweep has filled
_DERIVED = 2.0**-11  # relative, of epsilons that several rows have by group privacy; 2e-4 was measured


@dataclass(frozen=True, slots=True)
class Tolerance:
    """By how much numbers may differ, relatively, that another kind of processor has computed."""

    price: float = 0.0
    meaning: float = 0.0  # of what a price means to a person, of which digits are not compared
    derived: float = 0.0

    @classmethod
    def across_processors(cls, delta: float, steps: int) -> "Tolerance":
        """Return it for prices at a delta, of a sweep of so many steps."""
        price = _STEP_ROUNDING * sqrt(steps) / delta
        return cls(price=price, meaning=max(price, _MEANING), derived=max(price, _DERIVED))


EXACT = Tolerance()


@dataclass(frozen=True, slots=True)
class Recomputed:
    """What a ledger says of the claims of a card: which is false, in one sentence, or whether all are exact."""

    false: str | None = None
    exact: bool = False


def compare_claims(card: CardContent, path: Path) -> Recomputed:
    """Compute the claims of a card again from a ledger.

    Args:
        card: what ``card.json`` says.
        path: of the ledger.

    Raises:
        RecordError: the ledger is broken.
    """
    ledger = Ledger(path)
    event = card.event.to_event()
    classes = _classes_beside(path)
    false = next((one for one in contradictions(card, event, ledger, classes) if one is not None), None)
    if false is not None:
        return Recomputed(false)
    stated, delta = dump(card), card.guarantee.delta
    prices = _in_words_of(card, ledger.answers(delta))
    if sorted(card.ledger) != sorted(prices):
        answered = ", ".join(sorted(card.ledger)) or "nothing"
        return Recomputed(f"Expected ledger to answer {', '.join(sorted(prices))}, got {answered}")
    steps = event.steps + sum(entry.planned.steps for entry in ledger.entries())
    tolerance = Tolerance.across_processors(delta, steps)
    computed = compute_claims(card, event, ledger, prices)
    false = first_difference(stated, computed, tolerance)
    if false is not None:
        computed = compute_claims(card, event, ledger, _in_words_of(card, ledger.answers(delta, tight=True)))
        false = first_difference(stated, computed, tolerance)
    return Recomputed(false, exact=false is None and first_difference(stated, computed) is None)


def _in_words_of(card: CardContent, prices: Mapping[str, Price]) -> dict[str, Price]:
    """Return prices in the words of earlier versions where the card has these."""
    stated = {question: price.statement for question, price in card.ledger.items()}
    earlier = {question: earlier_statement(price.statement) for question, price in prices.items()}
    return {
        question: replace(price, statement=earlier[question]) if stated.get(question) == earlier[question] else price
        for question, price in prices.items()
    }


def _classes_beside(path: Path) -> int:
    """Return the number of classes of the data by the file beside a ledger, 0 without one."""
    beside = path.parent / DATA_NAME
    return len(read_object(beside)["classes"]) if beside.exists() else 0


def first_difference(stated: Any, computed: Any, tolerance: Tolerance = EXACT) -> str | None:
    """Return in one sentence where what is stated is not what was computed; only what was computed is looked at."""
    return _difference(plain(stated), plain(computed), "", tolerance)


def _difference(stated: Any, computed: Any, field: str, tolerance: Tolerance) -> str | None:
    if isinstance(computed, Mapping) and isinstance(stated, Mapping):
        pairs = ((name, stated.get(name), value) for name, value in computed.items())
    elif isinstance(computed, list) and isinstance(stated, list) and len(stated) == len(computed):
        pairs = ((str(place), *both) for place, both in enumerate(zip(stated, computed, strict=True)))
    else:
        return None if _same(stated, computed, tolerance) else f"Expected {field} = {computed!r}, got {stated!r}"
    for name, one, other in pairs:
        allowed = _inside(name, computed, tolerance)
        found = _difference(one, other, f"{field}.{name}" if field else name, allowed)
        if found is not None:
            return found
    return None


def _inside(name: str, record: Any, tolerance: Tolerance) -> Tolerance:
    """Return the tolerance of one field of a record."""
    if name == "delta":
        return EXACT
    if name == "exposure":
        return Tolerance(meaning=tolerance.meaning, derived=tolerance.derived)
    if name == "epsilon" and record.get("own") is False:
        return Tolerance(meaning=tolerance.derived)
    return tolerance


def compute_claims(
    card: CardContent, event: PoissonGaussian, ledger: Ledger, prices: Mapping[str, Price]
) -> dict[str, Any]:
    """Return what a card has to say, by its fields, from its event and what a ledger charges to its trial."""
    facts, sampling = card.guarantee, card.sampling
    attempts = charged_entries(ledger, card.trial)
    steps = sampling.preliminary_steps + card.epoch * sampling.steps_per_epoch
    given = event, steps, facts.repeats, facts.delta
    own = point_prices(*given, prices, attempts)
    whole = price_event(event, facts.delta).epsilon
    claims: dict[str, Any] = {
        "guarantee": dump(own),
        "exposure": dump(point_exposure(*given, attempts)),
        "ledger": {question: dump(answer) for question, answer in prices.items()},
    }
    if "epsilon" in card.scores.validation:
        claims["scores"] = {"validation": {"epsilon": own.fixed_in_advance.epsilon}}
    if card.audits:
        claims["audits"] = [_attacked(one, whole, facts.delta) for one in card.audits]
    noise = card.score_noise
    if noise is not None:
        planned = scores_event(noise.noise_multiplier, facts.repeats * len(noise.epochs), event.relation)
        claims["score_noise"] = {"of_the_trial": dump(price_scores(planned, facts.delta, attempts))}
    return claims


def _attacked(row: AuditRow, epsilon: float, delta: float) -> dict[str, Any]:
    """Return the claim that an audit of a training has attacked; what it says of a sweep is compared with prices."""
    is_of_sweep = row.kind in (AuditKind.SWEEP.value, AuditKind.SELECTION.value)
    return {} if is_of_sweep else {"epsilon": epsilon, "delta": delta}


def contradictions(card: CardContent, event: PoissonGaussian, ledger: Ledger, classes: int = 0) -> Iterator[str | None]:
    """Yield what the fields of a card say of each other, and of the ledger, that cannot all be true.

    ``classes`` is the number of classes of the data, 0 where it is not known.
    """
    facts, sampling = card.guarantee, card.sampling
    planned = sampling.preliminary_steps + facts.planned_epochs * sampling.steps_per_epoch
    follows: dict[str, dict[str, Any]] = {
        "sampling": {
            "sampling_rate": event.sampling_rate,
            "steps_per_epoch": ceil(facts.population / sampling.batch_size),
        },
        "guarantee": {"relation": event.relation.value, "delta": card.config["privacy"]["delta"]},
        "noise": {"noise_multiplier": event.noise_multiplier},
        "event": {"steps": planned},
    }
    epochs = card.config["training"].get("epochs")
    if epochs is not None:
        follows["guarantee"]["planned_epochs"] = epochs
    yield first_difference(dump(card), follows)
    if not 1 <= card.epoch <= facts.planned_epochs:
        yield f"Expected epoch from 1 to guarantee.planned_epochs = {facts.planned_epochs}, got {card.epoch}"
    if not isclose(sampling.batch_size, event.sampling_rate * facts.population, rel_tol=2.0**-51):
        expected = event.sampling_rate * facts.population
        yield f"Expected sampling.batch_size = {expected!r}, of guarantee.population, got {sampling.batch_size!r}"
    if not card.exploratory and (card.data.evaluation is Evaluation.EXPLORATORY or not card.noise.secure_generator):
        yield "Expected exploratory = True by data.evaluation and noise.secure_generator, got False"
    yield first_difference(dump(card), settings_of(card))
    yield _another_training(card, event, ledger)
    yield other_parameters(card, event)
    yield _other_scores(card, ledger)
    yield first_difference(dump(card), score_noise_of(card, ledger, classes), Tolerance(meaning=_DEVIATION))
    yield from other_releases(card, ledger)
    yield _other_attacks(card, ledger)
    yield _less_than_spent(card, ledger)


def _less_than_spent(card: CardContent, ledger: Ledger) -> str | None:
    """Say where the budget of an account is less than what this sweep alone has released through it."""
    account = card.account
    if account is None:
        return None
    answers = ledger.answers(account.delta, tight=True)
    spent = answers["winner" if ledger.held is not None else "everything"].epsilon
    if spent == inf:  # a filter states no price at a smaller delta than its own: what was drawn has one
        drawn = [entry.spent for entry in ledger.entries() if entry.drawn and entry.spent.steps]
        spent = price(drawn, account.delta, tight=True).epsilon
    if spent <= account.epsilon * (1.0 + _BUDGET):
        return None
    return f"Expected account.epsilon >= {spent!r} at account.delta, the price of this sweep, got {account.epsilon!r}"


def _other_attacks(card: CardContent, ledger: Ledger) -> str | None:
    """Say where an audit is said to have attacked a price of the sweep that is larger than that of the ledger.

    A sweep that was extended after its audit costs more than what was attacked.
    """
    questions = {AuditKind.SWEEP.value: "everything", AuditKind.SELECTION.value: "winner"}
    for place, one in enumerate(card.audits):
        if one.kind in questions:
            most = ledger.answers(one.delta, tight=True)[questions[one.kind]].epsilon
            if not one.epsilon <= most * (1.0 + _MEANING):
                return f"Expected audits.{place}.epsilon <= {most!r}, the price at its delta, got {one.epsilon!r}"
    return None


def _another_training(card: CardContent, event: PoissonGaussian, ledger: Ledger) -> str | None:
    """Say where the ledger has charged another training than that of the card, or none."""
    planned = event.with_steps(card.guarantee.repeats * event.steps)
    found = [entry.planned for entry in charged_entries(ledger, card.trial)]
    if not found and ledger.held is not None and card.trial == WINNER_TRIAL:
        found = [planned if same_event(planned, ledger.held.event) else ledger.held.event]
    if not found:
        return f"Expected what trial {card.trial} spent in {ledger.path}, got nothing (trial)"
    others = (first_difference({"event": planned.to_json()}, {"event": spent.to_json()}) for spent in found)
    return next((one for one in others if one is not None), None)


def _other_scores(card: CardContent, ledger: Ledger) -> str | None:
    """Say where the ledger has charged scores of other noise than that of the card."""
    stated = None if card.score_noise is None else card.score_noise.noise_multiplier
    charged = (event for entry in charged_entries(ledger, card.trial) for event in entry.charged_scores)
    others = (first_difference(_noise(stated), _noise(event.noise_multiplier)) for event in charged)
    return next((one for one in others if one is not None), None)


def _noise(multiplier: float | None) -> dict[str, Any]:
    return {"score_noise": {"noise_multiplier": multiplier}}


def _same(stated: object, computed: object, tolerance: Tolerance) -> bool:
    if stated == computed and type(stated) is type(computed):
        return True
    if not isinstance(computed, float) or isinstance(stated, bool) or not isinstance(stated, int | float):
        return False
    if tolerance.price:
        return isclose(stated, computed, rel_tol=tolerance.price) and round_up(stated) == round_up(computed)
    return isclose(stated, computed, rel_tol=tolerance.meaning)
