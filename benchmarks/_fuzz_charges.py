"""What must hold of what a fuzzed sweep was charged: its ledger, its prices and its budget, against what was drawn.

Each check yields a sentence for what does not hold.
"""

from collections import Counter
from collections.abc import Iterator

import _fuzz_prices as prices
from _fuzz_left import Left

from clipless.privacy.events import PoissonGaussian, Relation

EXACT = 1e-9
LOOSE = 1e-3  # between accountants of other grids


def check_ledger(left: Left) -> Iterator[str]:
    """The ledger holds what trials plan, loses no line, and closes what has ended."""
    yield from left.account.odd
    before = b""
    for number, after in enumerate(left.history.ledgers):
        if after and not left.selects and not after.startswith(before[: before.rfind(b"\n") + 1]):
            yield f"step {number} changed lines that the ledger had"
        before = after or before
    for one in left.account.attempts:
        trial = left.trials.get(one.trial)
        plan = None if trial is None else trial["plan"]
        if plan is None:
            if one.drawn:
                yield f"{one.trial} was charged and has no plan"
            continue
        planned = PoissonGaussian.from_json(plan["event"])
        whole = planned.with_steps(plan["repeats"] * planned.steps)
        if one.event.with_steps(one.kept + one.event.steps) != whole:
            yield f"{one.trial} is entered with {one.event} and {one.kept} kept steps, its plan is {whole}"
        if left.has_ended and one.drawn and one.steps is None:
            yield f"{one.trial} is open in a sweep that has ended"
        paid = plan.get("scores")
        if (paid is None) != (one.scores is None):
            yield f"{one.trial} is entered {'without' if one.scores is None else 'with'} scores, unlike its plan"
        elif one.scores is not None:
            releases = one.scores.steps + one.scores_kept
            if (releases, one.scores.noise_multiplier) != (plan["repeats"] * plan["epochs"], paid["noise_multiplier"]):
                yield f"{one.trial} is entered with scores {one.scores}, {one.scores_kept} kept"
    yield from _completed_is_charged(left)


def _completed_is_charged(left: Left) -> Iterator[str]:
    for name, trial in left.trials.items():
        mine = [one for one in left.account.of(name) if one.drawn]
        if left.selects and not mine:
            continue
        if trial["status"] == "completed" and not mine:
            yield f"{name} is completed and not charged"
        elif trial["status"] == "completed":
            whole = mine[-1].kept + (mine[-1].steps or 0)
            plan = trial["plan"]
            if whole != plan["repeats"] * plan["event"]["steps"]:
                yield f"{name} is completed with {whole} steps of {plan['repeats']} x {plan['event']['steps']}"


def check_draws(left: Left) -> Iterator[str]:
    """What was drawn is what the ledger says, counted by another file."""
    if left.selects:
        return
    for name, trial in left.trials.items():
        plan, count = trial["plan"], left.history.drawn.get(name, Counter())
        mine = left.account.of(name)
        if plan is None or any(one.get("how") == "workers" for one in left.history.steps):
            continue
        said = sum(one.steps if one.steps is not None else one.event.steps for one in mine)
        if count["."] > said:
            yield f"{name} drew {count['.']} steps, the ledger says {said}"
        undisturbed = not left.history.was_disturbed and trial["status"] == "completed"
        private = plan["event"]["noise_multiplier"] != 0
        expected = plan["repeats"] * plan["epochs"] * plan["steps_per_epoch"] if private else 0
        if undisturbed and count["."] != expected:
            yield f"{name} drew {count['.']} steps of {expected}"
        scored = sum(one.charged_scores for one in mine)
        releases = count["r"] - 0
        if plan.get("scores") and plan["preliminary_steps"] == 0 and releases > scored:
            yield f"{name} released {releases} scores, {scored} are charged"


def check_prices(left: Left) -> Iterator[str]:
    """The prices of the front are those of the ledger's lines."""
    shown = {name: float(one["epsilon"]) for name, one in left.front["ledger"].items()}
    lines = (
        (left.folder / "ledger.jsonl").read_bytes().count(b"\n") if left.account.spends() or left.account.budget else 0
    )
    if left.front["ledger_entries"] != lines and left.has_ended:
        yield f"front.json prices {left.front['ledger_entries']} lines of {lines}"
    if left.front["ledger_entries"] != lines:
        return
    tight = left.manifest["status"] != "interrupted"
    expected = prices.price_of(left.account, left.delta, tight=tight)
    if not _same(shown["winner"], expected):
        yield f"front.json says {shown['winner']}, the ledger costs {expected}"
    released = left.selects and left.account.selection and not left.account.selection["broken"]
    if not (released and left.account.budget is None) and len(set(shown.values())) != 1:
        yield f"prices differ: {shown}"
    if left.account.budget is None and left.account.selection is None:
        yield from _bounded(left, shown["winner"])


def _bounded(left: Left, shown: float) -> Iterator[str]:
    splits = prices.splits_of(left.account)
    every = [event for events in splits for event in events if event.steps]
    if every and all(event.relation is Relation.ADD_OR_REMOVE_ONE for event in every):
        bound = max(prices.rdp_bound(events, left.delta) for events in splits if events)
        apart = all(one.apart for one in left.account.attempts)
        if apart and not shown <= bound * (1 + LOOSE) + LOOSE:
            yield f"{shown} is above what dp-accounting's Renyi accountant says, {bound}"
    largest = max((float(point["values"]["epsilon"]) for point in left.points.values()), default=0.0)
    if not shown >= largest * (1 - EXACT):
        yield f"{shown} is below the epsilon {largest} of a point"


def check_budget(left: Left) -> Iterator[str]:
    """No budget is exceeded, by stage and on the whole."""
    given, budget = left.case.spec["privacy"].get("sweep_epsilon"), left.account.budget
    if (given is None) != (budget is None):
        yield f"sweep_epsilon is {given}, the ledger's budget {budget}"
    if given is None or budget is None:
        return
    shown = float(left.front["ledger"]["everything"]["epsilon"])
    broken = left.account.selection is not None and left.account.selection["broken"]
    waits = left.selects and left.account.selection is None
    if not (shown <= given or broken or waits):
        yield f"everything costs {shown} of a budget of {given}"
    if budget["accounting"] == "filter":
        for spent, had in prices.spent_of_filter(left.account):
            if not spent <= had * (1 + EXACT) + EXACT:
                yield f"the filter has admitted {spent} of {had}"
        return
    for index, stage in enumerate(budget["stages"]):
        slot = PoissonGaussian.from_json(stage["slot"])
        mine = [one for one in left.account.attempts if one.stage == index and one.drawn]
        alike = [one for one in mine if _is_part(one, slot)]
        last = {one.trial: one for one in mine}
        used = sum(one.charged if one is last[one.trial] else one.ran for one in alike)
        pool = stage["trials"] * slot.steps + stage["spare"]
        if used > pool:
            yield f"stage {index + 1} has used {used} steps of {pool}"
        if len({one.trial for one in mine}) > stage["trials"]:
            yield f"stage {index + 1} has {len(mine)} trainings in {stage['trials']} slots"
    for name, releases in (
        ("scores", sum(one.charged_scores for one in left.account.attempts)),
        ("tests", len(left.account.tests)),
    ):
        if name in budget and releases > budget[name]["event"]["steps"]:
            yield f"{releases} {name} of {budget[name]['event']['steps']} in the budget"


def _is_part(one: prices.Attempt, slot: PoissonGaussian) -> bool:
    """Whether a training is one of a slot's own mechanism, so that it takes the steps that it draws."""
    quiet = one.event.noise_multiplier >= slot.noise_multiplier
    return quiet and one.event.sampling_rate == slot.sampling_rate and one.kept + one.event.steps <= slot.steps


def _same(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= EXACT * max(abs(a), abs(b))
