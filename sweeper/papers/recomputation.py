"""The claims of a card, computed again from the ledger beside it.

From the event that the card states and the rows of the ledger follow both prices of the training, what the sweep costs,
what the scores cost, and what all of it means to a person. Scores, audits and what the data set declares do not follow
from them; a signature says who stands for those.
"""

from collections.abc import Iterator, Mapping
from math import hypot, isclose
from pathlib import Path
from typing import Any

from clipless.plans.method import Method
from clipless.privacy.events import PoissonGaussian
from clipless.privacy.noisy_counts import scores_event
from sweeper.adapters import dump
from sweeper.privacy.card_prices import charged_entries, point_exposure, point_guarantee, price_scores
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import Price
from sweeper.privacy.selection import WINNER_TRIAL
from sweeper.store.jsonl import plain

TOLERANCE = 1e-6
"""By how much numbers may differ, relatively, that other versions or machines have computed."""


def first_false_claim(card: Mapping[str, Any], path: Path) -> str | None:
    """Return in one sentence which claim of a card does not follow from a ledger, ``None`` if all do.

    Args:
        card: content of ``card.json``, as its schema says.
        path: of the ledger.

    Raises:
        RecordError: the ledger is broken.
    """
    ledger = Ledger(path)
    event = PoissonGaussian.from_json(card["event"])
    false = next((one for one in contradictions(card, event, ledger) if one is not None), None)
    if false is not None:
        return false
    prices = ledger.answers(card["guarantee"]["delta"])
    if sorted(card["ledger"]) != sorted(prices):
        answered = ", ".join(sorted(card["ledger"])) or "nothing"
        return f"Expected ledger to answer {', '.join(sorted(prices))}, got {answered}"
    loose = compute_claims(card, event, ledger, prices)
    if first_difference(card, loose) is None:
        return None
    tight = compute_claims(card, event, ledger, ledger.answers(card["guarantee"]["delta"], tight=True))
    return first_difference(card, tight)


def first_difference(stated: Any, computed: Any, field: str = "") -> str | None:
    """Return in one sentence where what is stated is not what was computed; only what was computed is looked at."""
    stated, computed = plain(stated), plain(computed)
    if isinstance(computed, Mapping) and isinstance(stated, Mapping):
        pairs = ((name, stated.get(name), value) for name, value in computed.items())
    elif isinstance(computed, list) and isinstance(stated, list) and len(stated) == len(computed):
        pairs = ((str(place), *both) for place, both in enumerate(zip(stated, computed, strict=True)))
    else:
        return None if _same(stated, computed) else f"Expected {field} = {computed!r}, got {stated!r}"
    found = (first_difference(one, other, f"{field}.{name}" if field else name) for name, one, other in pairs)
    return next((one for one in found if one is not None), None)


def compute_claims(
    card: Mapping[str, Any], event: PoissonGaussian, ledger: Ledger, prices: Mapping[str, Price]
) -> dict[str, Any]:
    """Return what a card has to say, by its fields, from its event and what a ledger charges to its trial."""
    facts, sampling = card["guarantee"], card["sampling"]
    attempts = charged_entries(ledger, card["trial"])
    steps = sampling["preliminary_steps"] + card["epoch"] * sampling["steps_per_epoch"]
    given = event, steps, facts["repeats"], facts["delta"]
    claims = {
        "guarantee": point_guarantee(*given, prices, attempts),
        "exposure": point_exposure(*given, attempts),
        "ledger": {question: dump(answer) for question, answer in prices.items()},
    }
    noise = card["score_noise"]
    if noise is None:
        return claims
    planned = scores_event(noise["noise_multiplier"], facts["repeats"] * len(noise["epochs"]), event.relation)
    return claims | {"score_noise": {"of_the_trial": price_scores(planned, facts["delta"], attempts)}}


def contradictions(card: Mapping[str, Any], event: PoissonGaussian, ledger: Ledger) -> Iterator[str | None]:
    """Yield what the fields of a card say of each other, and of the ledger, that cannot all be true."""
    facts, sampling = card["guarantee"], card["sampling"]
    planned = sampling["preliminary_steps"] + facts["planned_epochs"] * sampling["steps_per_epoch"]
    follows = {
        "guarantee": {"relation": event.relation.value, "delta": card["config"]["privacy"]["delta"]},
        "sampling": {"sampling_rate": event.sampling_rate},
        "noise": {"noise_multiplier": event.noise_multiplier},
        "event": {"steps": planned},
    }
    yield first_difference(card, follows)
    if not 1 <= card["epoch"] <= facts["planned_epochs"]:
        yield f"Expected epoch from 1 to guarantee.planned_epochs = {facts['planned_epochs']}, got {card['epoch']}"
    if not _same(sampling["batch_size"], event.sampling_rate * facts["population"]):
        expected = event.sampling_rate * facts["population"]
        yield f"Expected sampling.batch_size = {expected!r}, of guarantee.population, got {sampling['batch_size']!r}"
    if not card["exploratory"] and (
        card["data"]["evaluation"] == "exploratory" or not card["noise"]["secure_generator"]
    ):
        yield "Expected exploratory = True by data.evaluation and noise.secure_generator, got False"
    yield _too_little_noise(card, event)
    yield _another_training(card, event, ledger)


def _too_little_noise(card: Mapping[str, Any], event: PoissonGaussian) -> str | None:
    """Say where the noise of all parameters together is less than that of the event."""
    if card["method"] != Method.CLIPLESS.value or card["freezing"] is not None or event.noise_multiplier <= 0:
        return None
    signal = hypot(*(float(one["sensitivity"]) / float(one["noise_std"]) for one in card["parameters"]))
    if signal * event.noise_multiplier <= 1.0 + TOLERANCE:
        return None
    return f"Expected parameters with a noise multiplier of {event.noise_multiplier!r} together, got {1.0 / signal!r}"


def _another_training(card: Mapping[str, Any], event: PoissonGaussian, ledger: Ledger) -> str | None:
    """Say where the ledger has charged another training than that of the card, or none."""
    planned = event.with_steps(card["guarantee"]["repeats"] * event.steps)
    found = [entry.planned for entry in charged_entries(ledger, card["trial"])]
    if not found and ledger.held is not None and card["trial"] == WINNER_TRIAL:
        found = [ledger.held.event]
    if not found:
        return f"Expected what trial {card['trial']} spent in {ledger.path}, got nothing (trial)"
    return next(
        (one for one in (first_difference(planned.to_json(), spent.to_json(), "event") for spent in found) if one), None
    )


def _same(stated: object, computed: object) -> bool:
    if isinstance(stated, bool) or isinstance(computed, bool) or not isinstance(computed, int | float):
        return stated == computed and type(stated) is type(computed)
    return isinstance(stated, int | float) and isclose(stated, computed, rel_tol=TOLERANCE)
