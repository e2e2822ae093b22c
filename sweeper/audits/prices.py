"""The price of a sweep under attack: everything that its records say it released, against what its ledger charges.

What was drawn is taken from the records of trials and points, not from the ledger: a training, a score or a curve that
the ledger forgot is simulated all the same, and held against nothing at all too. Nothing is trained and no row is read:
the worst neighbouring rows of Gaussian slots are known.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

import torch

from clipless.audits.finding import AuditKind, Finding
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.events import PoissonGaussian
from sweeper.audits.losses import runs_for, scores
from sweeper.audits.lower_bound import CONFIDENCE, Attack, RunScores, attack
from sweeper.audits.released import SKETCH, SPLITS, TEST, TRAINING, VALIDATION, TrialRelease, of_split, releases, unpaid
from sweeper.audits.selection import selection_scores
from sweeper.errors import RecordError
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.selection import WINNER_TRIAL
from sweeper.records import Point, Trial

_DELTAS = (1e-3, 1e-2)  # beside the claim's own, for the price is one at every delta and counts reach these
_UNPAID_RUNS = 20_000  # what was not paid for is held against an epsilon of 0
SEED = 0


def audit_price(
    ledger: Ledger,
    trials: Sequence[Trial],
    points: Iterable[Point],
    delta: float,
    *,
    sketch: PoissonGaussian | None = None,
    repetitions: Repetitions | None = None,
    seed: int = SEED,
) -> tuple[Finding, ...]:
    """Attack the price of a sweep, explorers and finals together, or of a private selection and its final.

    Attacked are a training row, and, where their scores or curves are paid for, a validation row and a test row: each
    by everything that was released of its split.

    Args:
        ledger: whose price is claimed.
        trials: as they were recorded; of a private selection that held, the winner and its final.
        points: what was released of them.
        delta: of the claim.
        sketch: of the training rows, as it was recorded.
        repetitions: the law of the number of candidates, as the spec says it.
        seed: of the simulation.

    Returns:
        What the adversary attained, not judged yet: nothing where nothing finite is claimed or nothing was drawn. One
        finding more where something was released that no entry of the ledger covers.

    Raises:
        RecordError: the ledger says that a private selection held, and the spec that there was none.
    """
    found = releases(trials, points, sketch)
    generator = torch.Generator().manual_seed(seed)
    whole = _of_everything(ledger, trials, found, delta, repetitions, generator)
    free = _of_nothing(unpaid(found, ledger), delta, generator)
    return tuple(replace(one, evidence={**one.evidence, "seed": seed}) for one in (whole, free) if one is not None)


def _of_everything(
    ledger: Ledger,
    trials: Sequence[Trial],
    found: Sequence[TrialRelease],
    delta: float,
    repetitions: Repetitions | None,
    generator: torch.Generator,
) -> Finding | None:
    """Attack the price of the sweep."""
    selected = ledger.held is not None
    if selected and repetitions is None:
        raise RecordError("Expected the law of the private selection that the ledger has priced, got none in the spec")
    question = "winner" if selected else "everything"
    claims = {
        at: ledger.answers(at, tight=True)[question].epsilon for at in (delta, *(d for d in _DELTAS if d > delta))
    }
    finite = {at: claim for at, claim in claims.items() if claim < inf}
    steps = sum(one.event.steps for one in found)
    if not (finite and steps):
        return None
    if selected and repetitions is not None:
        seen = _of_selection(trials, found, repetitions, generator)
    else:
        seen = {
            split: scores(events, runs_for(steps), generator) for split in SPLITS if (events := of_split(found, split))
        }
    how, attained = attack(seen, finite)
    trainings = sum(one.split == TRAINING and one.trial != SKETCH for one in found)
    evidence = {"attack": how, "trainings": trainings, "steps": steps}
    for split in (VALIDATION, TEST):
        if split in seen:
            evidence[f"releases seen by {split}"] = sum(event.steps for event in of_split(found, split))
            evidence[f"attained by {split}"] = attack({split: seen[split]}, finite)[1].epsilon
    return _finding(AuditKind.SELECTION if selected else AuditKind.SWEEP, attained, evidence)


def _of_selection(
    trials: Sequence[Trial], found: Sequence[TrialRelease], repetitions: Repetitions, generator: torch.Generator
) -> dict[str, RunScores]:
    """Return runs of the selection and its final as a training row and a validation row see them, and of test rows."""
    winner = next((trial for trial in trials if trial.id == WINNER_TRIAL), None)
    if winner is None or winner.plan is None:
        raise RecordError(f"Expected the winner {WINNER_TRIAL} of the private selection among the trials, got none")
    seen: dict[str, RunScores] = {}
    for split in (TRAINING, VALIDATION):
        own = [one for one in found if one.split == split]
        candidate = next((one.event for one in own if one.trial == WINNER_TRIAL), None)
        if candidate is None:
            continue
        if split == TRAINING:  # every candidate trained to its end
            candidate = winner.plan.event
        final = next((one.event for one in own if one.trial != WINNER_TRIAL), None)
        steps = repetitions.mean * candidate.steps + (0 if final is None else final.steps)
        orders = selection_scores(candidate, repetitions, runs_for(steps), generator, final)
        seen |= {order if split == TRAINING else f"{split}, {order}": one for order, one in orders.items()}
    tests = of_split(found, TEST)
    return seen | ({TEST: scores(tests, runs_for(len(tests)), generator)} if tests else {})


def _of_nothing(free: Sequence[TrialRelease], delta: float, generator: torch.Generator) -> Finding | None:
    """Attack what nobody has paid for: whatever it tells contradicts the ledger."""
    if not free:
        return None
    evidence = {"releases": "; ".join(_in_words(one) for one in free)}
    if any(one.event.noise_multiplier == 0.0 for one in free):
        nothing = Attack(epsilon=inf, claim=0.0, delta=delta, p_value=0.0, hits=0, alarms=0, runs=0)
        return _finding(AuditKind.SWEEP, nothing, evidence, "what no entry of the ledger covers")
    seen = {split: scores(events, _UNPAID_RUNS, generator) for split in SPLITS if (events := of_split(free, split))}
    _, attained = attack(seen, dict.fromkeys({delta, *_DELTAS}, 0.0))
    return _finding(AuditKind.SWEEP, attained, evidence, "what no entry of the ledger covers")


def _in_words(one: TrialRelease) -> str:
    if one.trial == SKETCH:
        return SKETCH
    point = f", epoch {one.epoch}" if one.epoch else ""
    return f"{one.event.steps} of {one.split}, trial {one.trial}{point}"


def _finding(kind: AuditKind, found: Attack, evidence: Mapping[str, object], subject: str | None = None) -> Finding:
    counts = {"hits": found.hits, "alarms": found.alarms, "runs": found.runs}
    return Finding(
        kind=kind,
        subject=subject or ("the private selection" if kind is AuditKind.SELECTION else "the price"),
        epsilon=found.claim,
        delta=found.delta,
        attained=found.epsilon,
        confidence=CONFIDENCE,
        p_value=found.p_value,
        contradicted=False,
        evidence={**evidence, **counts},
    )
