"""What a card says of people: what its prices mean to one, in words and as a table, and who stands for the model."""

from collections.abc import Iterator
from math import isinf

from clipless.privacy.exposure import FALSE_ALARMS, GROUPS, Basis, GroupCost
from sweeper.privacy.card.content import CardContent, ExposureFacts, GroupRow
from sweeper.rounding import exactly, round_up

GUARANTEES = {"fixed_in_advance": "fixed in advance", "chosen_afterwards": "epoch chosen afterwards"}
_COLUMNS = {**GUARANTEES, "price": "at the price"}
GROUP_PRIVACY = (
    "Where the mechanism of several rows is not known, they are derived from that of one row by group privacy; an "
    "epsilon is not known where nothing follows at this delta."
)
_BASES = {
    Basis.PROFILE: "the whole privacy profile of what was done",
    Basis.RENYI: "its Renyi divergences",
    Basis.PAIR: "epsilon and delta alone, which allow more than most mechanisms do",
}


def person_in_words(card: CardContent) -> str:
    """Return one sentence on what the attacker finds who is shown this model, at the price that holds for it."""
    exposures = _exposures(card)
    found = exposures[[*exposures][-1]].risk.in_words()
    return found if card.winner is None else card.winner.to_price().qualify(found)


def person_table(card: CardContent) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the head and the rows of a table: what an attacker finds, and what several rows cost together."""
    exposures = _exposures(card)
    found = exposures.values()
    delta, several = card.guarantee.delta, _several(card.guarantee.unit)
    rows = [
        (f"finds a row, accusing {100 * rate:g} % of innocents", *(_percent(one.risk.caught[place]) for one in found))
        for place, rate in enumerate(FALSE_ALARMS)
    ]
    rows.append(("finds a row: largest advantage", *(_percent(one.risk.advantage) for one in found)))
    for place, count in enumerate(GROUPS):
        costs = (group_epsilon(one.groups[place]) for one in found)
        rows.append((f"epsilon of a person with {count} {several}, at delta {exactly(delta)}", *costs))
    for place, count in enumerate(GROUPS):
        shifts = (one.groups[place].shift for one in found)
        rows.append((f"{count} planted {several} move a probability by at most", *map(_percent, shifts)))
    doubt = "" if card.winner is None else card.winner.to_price().doubt
    heads = (f"{_COLUMNS[name]}{doubt if name == 'price' else ''}" for name in exposures)
    return ("an attacker who knows all other rows", *heads), rows


def group_epsilon(group: GroupCost | GroupRow) -> str:
    """Return what several rows cost: not known where group privacy says nothing of them, infinite where they do.

    >>> from dataclasses import replace
    >>> cost = GroupCost(rows=8, epsilon=float("inf"), shift=1.0, basis=Basis.PAIR, own=False)
    >>> group_epsilon(cost), group_epsilon(replace(cost, own=True)), group_epsilon(replace(cost, epsilon=7.0))
    ('not known', 'inf', '7')
    """
    return "not known" if isinf(group.epsilon) and not group.own else round_up(group.epsilon)


def basis_in_words(card: CardContent) -> str:
    """Return what the numbers are computed from, and when one is not known."""
    exposures = _exposures(card)
    found = dict.fromkeys(_BASES[one.risk.basis] for one in exposures.values())
    text = f"Upper bounds in both directions, from {'; '.join(found)}."
    if all(group.own for one in exposures.values() for group in one.groups):
        return text
    return f"{text} {GROUP_PRIVACY}"


def filing_in_words(card: CardContent) -> Iterator[str]:
    """Yield what people have said of the model, and by which hashes and versions it can be checked."""
    yield "## Whose it is, and how to check it"
    said = [f"- {name.replace('_', ' ')}: {' '.join(text.split())}" for name, text in card.deployment.items()]
    yield "\n".join(said) or "The spec says nothing of who answers for this model (`deployment`)."
    if card.files:
        hashes = [f"- `{name}`: SHA-256 `{found}`" for name, found in card.files.items()]
        yield "\n".join(["`sweeper verify` computes every price above again from these files:", "", *hashes])
    yield f"Computed by {', '.join(f'{name} {version}' for name, version in card.versions.items())}."


def _exposures(card: CardContent) -> dict[str, ExposureFacts]:
    """Return what each price means, in the order in which they hold for more and more uses; the last one holds."""
    own = dict(zip(GUARANTEES, (card.exposure.fixed_in_advance, card.exposure.chosen_afterwards), strict=True))
    winner = None if card.winner is None else card.winner.exposure
    if winner is None:
        return own
    return {"price": winner} if card.guarantee.selected is not None else {**own, "price": winner}


def _several(unit: str) -> str:
    return "rows" if unit == "row" else "units"


def _percent(probability: float) -> str:
    return f"{round_up(100.0 * probability, 3)} %"
