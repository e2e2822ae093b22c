"""What the spec beside a card says of its configuration, and of what results chose of its sweep."""

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from pydantic_core import PydanticCustomError

from sweeper.privacy.card.content import CardContent
from sweeper.privacy.claims import (
    CHOSEN_POINT,
    FIXED_COURSE,
    FLOATING_NOISE,
    INJECTED_GENERATOR,
    LARGE_DELTA,
    MEMBERSHIP,
    TRUSTED_MACHINE,
)
from sweeper.privacy.pricing import state_unproven
from sweeper.specification.dimensions import flatten_choices, proposal
from sweeper.specification.objectives import reads_training_rows
from sweeper.specification.spec import Spec, chosen_by_results


def unlike_its_spec(card: CardContent, written: Mapping[str, Any]) -> Iterator[str]:
    """Yield where a card says something that a sweep of this spec does not do, or leaves out what it would have said.

    Args:
        card: of a point of the sweep.
        written: the resolved spec, without where its account lies.

    Raises:
        SpecError: it is none, or names plug-ins that are not installed.
    """
    privacy = {name: value for name, value in written["privacy"].items() if name != "account"}
    spec = Spec.from_mapping({**written, "privacy": privacy})
    yield from _other_configuration(card, spec)
    chosen = chosen_by_results(spec)
    for question, price in card.ledger.items():
        told = price.unproven or ""
        if isfinite(price.epsilon) and not price.fixed and not all(name in told for name in chosen):
            yield f"Expected ledger.{question}.unproven = {state_unproven(chosen)!r}, got {price.unproven!r}"
    for condition in _standing(card, spec):
        if condition not in card.conditions:
            yield f"Expected conditions to state {condition[:60]!r}, got others"


def _other_configuration(card: CardContent, spec: Spec) -> Iterator[str]:
    try:
        proposal(spec.dimensions, card.config)
    except PydanticCustomError as error:
        context = error.context or {}
        yield f"Expected {error} as config.{context['path']}, got {context['got']!r}"
    have = {name for name, _ in flatten_choices(card.config)}
    lacking = [one.name for one in spec.dimensions if one.when is None and one.name not in have]
    if lacking:
        yield f"Expected config to have {', '.join(lacking)}, got nothing there"


def _standing(card: CardContent, spec: Spec) -> Sequence[str]:
    """Return conditions that follow from a spec and from what else a card says."""
    facts, is_fixed = card.guarantee, card.winner is not None and card.winner.fixed
    found = [TRUSTED_MACHINE, FLOATING_NOISE, *(() if is_fixed else (CHOSEN_POINT, FIXED_COURSE))]
    found += [] if card.noise.secure_generator else [INJECTED_GENERATOR]
    found += [MEMBERSHIP] if reads_training_rows(spec.search.metrics) else []
    if not facts.delta < 1 / facts.population:
        found.append(LARGE_DELTA.format(delta=facts.delta, population=facts.population))
    return found
