"""What spec and ledger beside a card say of its configuration, of its budget, and of what results chose."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from math import isfinite
from typing import Any

from sweeper.privacy.card.content import CardContent
from sweeper.privacy.claims import (
    CHOSEN_POINT,
    COPIED,
    FIXED_COURSE,
    FLOATING_NOISE,
    INJECTED_GENERATOR,
    LARGE_DELTA,
    MEMBERSHIP,
    SKETCHED,
    TRUSTED_MACHINE,
)
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import ENDED, EXTENDED, OF_COPY, state_unproven
from sweeper.specification.dimensions import Dimension
from sweeper.specification.fields.nested import leaves
from sweeper.specification.objectives import reads_training_rows
from sweeper.specification.spec import Spec, chosen_by_results


def unlike_its_spec(card: CardContent, written: Mapping[str, Any], ledger: Ledger) -> Iterator[str]:
    """Yield where a card says something that a sweep of this spec does not do, or leaves out what it would have said.

    Args:
        card: of a point of the sweep.
        written: the resolved spec, without where its account lies.
        ledger: what the sweep has spent.

    Raises:
        SpecError: it is none, or names plug-ins that are not installed.
    """
    privacy = {name: value for name, value in written["privacy"].items() if name != "account"}
    spec = Spec.from_mapping({**written, "privacy": privacy})
    asked, kept = spec.privacy.sweep_epsilon, None if ledger.budget is None else ledger.budget.epsilon
    if asked != kept:
        yield f"Expected privacy.sweep_epsilon = {kept!r} in the spec, by the ledger, got {asked!r}"
    yield from _other_configuration(card, spec)
    yield from _other_doubt(card, spec, ledger)
    for condition in _standing(card, spec, ledger):
        if condition not in card.conditions:
            yield f"Expected conditions to state {condition[:60]!r}, got others"


def _other_doubt(card: CardContent, spec: Spec, ledger: Ledger) -> Iterator[str]:
    """Yield where a card does not mark a price as not proven as a sweep does that results steer."""
    trained = len({entry.trial for entry in ledger.entries()})
    is_longer = trained > spec.trials and spec.search.repetitions is None  # of which the number is drawn
    chosen = chosen_by_results(spec.with_search(trials=trained) if is_longer else spec)
    words: list[str | None] = [] if chosen or is_longer else [None]
    words += _doubts(chosen, spec.space.open_costs, is_longer=is_longer)
    copied: list[str | None] = [OF_COPY] if COPIED in card.conditions else []
    words = [" ".join(filter(None, [*copied, one])) or None for one in words]
    for question, price in card.ledger.items():
        if not isfinite(price.epsilon):
            continue
        allowed = (copied or [price.unproven]) if price.fixed else words
        if price.unproven not in allowed:
            yield f"Expected ledger.{question}.unproven = {allowed[0]!r}, got {price.unproven!r}"


def _doubts(chosen: Sequence[str], costs: Sequence[str], *, is_longer: bool) -> Iterator[str | None]:
    """Yield what may be said of a sweep that results steer: more costs may have been enqueued, and its course."""
    others = [one for one in costs if one not in chosen]
    courses = [(EXTENDED,), (EXTENDED, ENDED)] if is_longer else [(), (EXTENDED,), (ENDED,), (EXTENDED, ENDED)]
    for count in range(len(others) + 1):
        for more in permutations(others, count):
            yield from (state_unproven([*chosen, *more, *late]) for late in courses if chosen or more or late)


def _other_configuration(card: CardContent, spec: Spec) -> Iterator[str]:
    """Yield where a configuration is none that the spec allows, by the names that values have in configurations."""
    values = {name: value for name, value in leaves(card.config) if value is not None}
    keys = {one.name: one.key for one in spec.dimensions}
    known: dict[str, list[Dimension]] = {}
    for one in spec.dimensions:
        if one.when is None or values.get(keys[one.when.parent]) in one.when.values:
            known.setdefault(one.key, []).append(one)
    for name in values.keys() - known.keys():
        yield f"Expected a hyperparameter of the spec as config.{name}, got {values[name]!r}"
    for name, chosen in known.items():
        if not any(_allows(one, values.get(name)) for one in chosen):
            allowed = " or ".join(str(one.value if one.space is None else one.space.to_plain()) for one in chosen)
            yield f"Expected {allowed} by the spec as config.{name}, got {values.get(name, 'nothing')!r}"


def _allows(dimension: Dimension, value: Any) -> bool:
    fixed = list(dimension.value) if isinstance(dimension.value, tuple) else dimension.value
    return value == fixed if dimension.space is None else value is not None and value in dimension.space


def _standing(card: CardContent, spec: Spec, ledger: Ledger) -> Sequence[str]:
    """Return conditions that follow from a spec and from what else a card says."""
    facts, is_fixed = card.guarantee, card.winner is not None and card.winner.fixed
    found = [TRUSTED_MACHINE, FLOATING_NOISE, *(() if is_fixed else (CHOSEN_POINT, FIXED_COURSE))]
    found += [] if card.noise.secure_generator else [INJECTED_GENERATOR]
    found += [MEMBERSHIP] if reads_training_rows(spec.search.metrics) else []
    found += [] if ledger.sketch is None else [SKETCHED.format(noise=ledger.sketch.noise_multiplier)]
    if not facts.delta < 1 / facts.population:
        found.append(LARGE_DELTA.format(delta=facts.delta, population=facts.population))
    return found
