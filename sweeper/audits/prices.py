"""The price of a sweep under attack: everything that its records say it released, against what its ledger charges.

What was drawn is taken from the records of trials and points, not from the ledger: a training that the ledger forgot is
simulated all the same. Nothing is trained and no row is read: the worst neighbouring rows of Gaussian slots are known.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf

import torch

from clipless.audits.finding import Finding, Kind
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.audits.losses import runs_for, scores
from sweeper.audits.lower_bound import CONFIDENCE, Attack, attack
from sweeper.audits.selection import selection_attack
from sweeper.errors import RecordError
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.selection import WINNER_TRIAL
from sweeper.records import PointKey, Trial

_DELTAS = (1e-3, 1e-2)  # beside the claim's own, for the price is one at every delta and counts reach these
SEED = 0

Released = Mapping[str, list[PoissonGaussian]]
"""What trials spent, by whose row it was."""


def audit_price(
    ledger: Ledger,
    trials: Sequence[Trial],
    points: Iterable[PointKey],
    delta: float,
    *,
    repetitions: Repetitions | None = None,
    seed: int = SEED,
) -> Finding | None:
    """Attack the price of a sweep, explorers and finals together, or of a private selection and its final.

    Args:
        ledger: whose price is claimed.
        trials: as they were recorded; of a private selection that held, the winner and its final.
        points: keys of what was released of them.
        delta: of the claim.
        repetitions: the law of the number of candidates, as the spec says it.
        seed: of the simulation.

    Returns:
        What the adversary attained, not judged yet; ``None`` where nothing finite is claimed or nothing was drawn.

    Raises:
        RecordError: the ledger says that a private selection held, and the spec that there was none.
    """
    selected = ledger.selection is not None and not ledger.selection.broken
    if selected and repetitions is None:
        raise RecordError("Expected the law of the private selection that the ledger has priced, got none in the spec")
    question = "winner" if selected else "everything"
    claims = {
        at: ledger.answers(at, tight=True)[question].epsilon for at in (delta, *(d for d in _DELTAS if d > delta))
    }
    finite = {at: claim for at, claim in claims.items() if claim < inf}
    released = _released(trials, points)
    steps = sum(event.steps for events in released.values() for event in events)
    if not (finite and steps):
        return None
    generator = torch.Generator().manual_seed(seed)
    if selected and repetitions is not None:
        how, found = _attack_selection(trials, released, repetitions, finite, generator)
    else:
        runs = runs_for(steps)
        how, found = attack({whose: scores(events, runs, generator) for whose, events in released.items()}, finite)
    evidence = {"attack": how, "trainings": len(released[_TRAINING]), "steps": steps, "seed": seed}
    return _finding(Kind.SELECTION if selected else Kind.SWEEP, found, evidence)


_TRAINING, _VALIDATION = "a training row", "a validation row"


def _attack_selection(
    trials: Sequence[Trial],
    released: Released,
    repetitions: Repetitions,
    claims: Mapping[float, float],
    generator: torch.Generator,
) -> tuple[str, Attack]:
    winner = next((trial for trial in trials if trial.id == WINNER_TRIAL), None)
    if winner is None or winner.plan is None:
        raise RecordError(f"Expected the winner {WINNER_TRIAL} of the private selection among the trials, got none")
    final = next((event for event in released[_TRAINING][1:]), None)
    steps = repetitions.mean * winner.plan.event.steps + (0 if final is None else final.steps)
    return selection_attack(winner.plan.event, repetitions, claims, runs_for(steps), generator, final)


def _released(trials: Sequence[Trial], points: Iterable[PointKey]) -> Released:
    """Return what trials spent on training rows, and on validation rows where their scores are paid for."""
    last: dict[str, int] = {}
    for trial, epoch, _ in points:
        last[trial] = max(epoch, last.get(trial, 0))
    planned = [(trial.plan, last[trial.id]) for trial in trials if trial.plan is not None and trial.id in last]
    found = {
        _TRAINING: [
            plan.event.with_steps(plan.repeats * (plan.preliminary_steps + epochs * plan.steps_per_epoch))
            for plan, epochs in planned
        ]
    }
    paid = [
        PoissonGaussian(
            noise_multiplier=plan.scores.noise_multiplier,
            sampling_rate=1.0,
            steps=plan.repeats * epochs,
            relation=Relation.ADD_OR_REMOVE_ONE,
        )
        for plan, epochs in planned
        if plan.scores is not None
    ]
    return found | ({_VALIDATION: paid} if paid else {})


def _finding(kind: Kind, found: Attack, evidence: Mapping[str, object]) -> Finding:
    counts = {"hits": found.hits, "alarms": found.alarms, "runs": found.runs}
    return Finding(
        kind=kind,
        subject="the private selection" if kind is Kind.SELECTION else "the price of everything",
        epsilon=found.claim,
        delta=found.delta,
        attained=found.epsilon,
        confidence=CONFIDENCE,
        p_value=found.p_value,
        contradicted=False,
        evidence={**evidence, **counts},
    )
