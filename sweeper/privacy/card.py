"""The privacy card: the statement that travels with a model, written for the person who signs it off.

``make_card`` collects the facts and prices them, `charged_to` finds what a trial was charged; ``card_text.py`` says
them in words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clipless.datasets import Evaluation
from clipless.privacy.events import Composed, Event, PoissonGaussian
from sweeper.adapters import dump
from sweeper.errors import RecordError
from sweeper.markup import rendered
from sweeper.privacy.baselines import warning
from sweeper.privacy.card_text import markdown, prices_in_words
from sweeper.privacy.claims import Claim
from sweeper.privacy.evaluation.paid_scores import planned_scores
from sweeper.privacy.exposures import expose_event
from sweeper.privacy.pricing import Price, steps_by, whole_event
from sweeper.records import Point, Trial, TrialPlan, TrialStatus
from sweeper.store.jsonl import replace_file, to_text

if TYPE_CHECKING:
    from clipless.audits.finding import Finding
    from sweeper.privacy.entries import Entry

CARD_VERSION = 1


@dataclass(frozen=True, slots=True)
class Card:
    """The facts of one card, as JSON values."""

    content: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return dict(self.content)

    def to_markdown(self) -> str:
        """Return the card in words."""
        return markdown(self.content)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the card in words."""
        return rendered(self.to_markdown())

    def prices(self) -> str:
        """Return in one line the price of the model, and its own epsilon."""
        return prices_in_words(self.content["guarantee"])

    def write(self, folder: str | Path) -> tuple[Path, Path]:
        """Write ``card.md`` and ``card.json`` into a folder.

        Raises:
            RecordError: not written.
        """
        text, data = Path(folder) / "card.md", Path(folder) / "card.json"
        replace_file(text, self.to_markdown())
        replace_file(data, to_text(self.content, indent=2) + "\n")
        return text, data


def make_card(
    *,
    sweep: str,
    trial: Trial,
    point: Point,
    claim: Claim,
    ledger: Mapping[str, Price],
    attempts: "Sequence[Entry]",
    last_epoch: int | None = None,
    audits: "Sequence[Finding]" = (),
) -> Card:
    """Collect the facts about one point.

    ``attempts`` is what the ledger charges to this trial: several trainings if one had to begin anew, none behind a
    private selection, whose ledger names no training. Where ``last_epoch`` of the trial is not known, every epoch of a
    trial that was ended early counts as the one at which it ended. ``audits`` is what audits found of this trial and of
    the whole sweep, of which the card takes the most that was attained of each kind.

    Raises:
        RecordError: the trial has no plan, or the point is none of its epochs.
    """
    plan = trial.plan
    if plan is None:
        raise RecordError(f"Expected a plan of trial {trial.id} to write its card from, got none; pick another trial")
    if point.trial != trial.id or not 1 <= point.epoch <= plan.epochs:
        wanted = f"an epoch of trial {trial.id} from 1 to {plan.epochs}"
        raise RecordError(f"Expected {wanted}, got trial {point.label}")
    event = plan.event
    kept = ("batch_size", "sampling_rate", "steps_per_epoch", "preliminary_steps")
    return Card(
        {
            "card_version": CARD_VERSION,
            "sweep": sweep,
            "trial": trial.id,
            "epoch": point.epoch,
            "made_from": point.made_from,
            "exploratory": claim.exploratory,
            "guarantee": {
                "delta": plan.delta,
                "relation": plan.relation.value,
                "unit": claim.unit,
                "population": claim.population,
                "fixed_in_advance": _priced(event.with_steps(steps_by(plan, point.epoch)), plan.delta),
                "chosen_afterwards": _priced(_charged(plan, attempts), plan.delta),
                "selected": _selected(ledger),
                "price": _price(ledger),
                "planned_epochs": plan.epochs,
                "repeats": plan.repeats,
                "trainings": _trainings(attempts),
                "ended_early": trial.reason if _is_where_it_ended(trial, point, last_epoch) else None,
            },
            "exposure": {
                "fixed_in_advance": _exposed(event.with_steps(steps_by(plan, point.epoch)), plan.delta),
                "chosen_afterwards": _exposed(_charged(plan, attempts), plan.delta),
            },
            "audits": _attained(audits),
            "sampling": {"kind": "poisson", **{key: getattr(plan, key) for key in kept}},
            "noise": {
                "noise_multiplier": plan.noise_multiplier,
                "allocation": plan.allocation,
                "secure_generator": claim.secure_generator,
            },
            "method": plan.method,
            "sensitivity_fraction": plan.sensitivity_fraction,
            "clip_norm": plan.clip_norm,
            "follow_weights": plan.follow_weights,
            "clipping": dict(plan.clipping),
            "count_std": plan.count_std,
            "freezing": plan.freezing,
            "parameters": [
                {"name": name, "sensitivity": sensitivity, "noise_std": plan.noise_stds[name]}
                for name, sensitivity in plan.sensitivities.items()
            ],
            "data": {"name": claim.data, "evaluation": claim.evaluation, "radius_unit": claim.radius_unit},
            "score_noise": _score_noise(plan, attempts),
            "public": list(claim.public),
            "ledger": {question: dump(answer) for question, answer in ledger.items()},
            "conditions": list(claim.conditions),
            "scores": {"validation": dict(point.values), "test": dict(point.test) if point.test else None},
            "noisy_scores": None if point.noisy is None else asdict(point.noisy),
            "classes": _by_class(point, claim),
            "curves": None if point.curves is None else asdict(point.curves),
            "config": dict(trial.config),
            "model": point.model,
        }
    )


def _by_class(point: Point, claim: Claim) -> dict[str, Any] | None:
    """Return how public test rows were decided by class, and what the majority-class baseline reaches."""
    counts = point.classes
    if counts is None or claim.evaluation not in (Evaluation.PUBLIC.value, Evaluation.EXPLORATORY.value):
        return None
    return {
        "names": list(claim.baselines.classes) or [str(label) for label in range(len(counts.rows))],
        **{name: list(found) for name, found in asdict(counts).items()},
        "balanced_accuracy": counts.balanced_accuracy,
        "constant_answer": claim.baselines.constant("accuracy", "test"),
        "warning": warning(counts, claim.baselines.classes),
    }


def _attained(audits: "Sequence[Finding]") -> list[dict[str, Any]]:
    """Return the finding of each kind that attained the largest share of its claim; one that contradicts it first."""
    most: dict[str, Finding] = {}
    for one in audits:
        best = most.get(one.kind.value)
        if best is None or (one.contradicted, one.ratio) > (best.contradicted, best.ratio):
            most[one.kind.value] = one
    kept = ("kind", "epsilon", "delta", "attained", "confidence", "contradicted")
    return [{name: value for name, value in one.to_json().items() if name in kept} for one in most.values()]


def charged_to(trial: str, ledger: Path) -> "tuple[Entry, ...]":
    """Return what a ledger charges to a trial.

    Raises:
        RecordError: the file is broken.
    """
    from sweeper.privacy.ledger import Ledger  # takes seconds, as below

    return tuple(entry for entry in Ledger(ledger).entries() if entry.trial == trial and entry.drawn)


def _selected(ledger: Mapping[str, Price]) -> float | None:
    """Return the price of a winner that was selected privately, None where everything may leave."""
    return None if all(answer.released for answer in ledger.values()) else ledger["winner"].epsilon


def _price(ledger: Mapping[str, Price]) -> dict[str, Any] | None:
    """Return the price of a model of the sweep, None where it is not known."""
    price = ledger.get("winner")
    return None if price is None or not price.released else {"epsilon": price.epsilon, "fixed": price.fixed}


def _charged(plan: TrialPlan, attempts: "Sequence[Entry]") -> Event:
    return _together([entry.charged for entry in attempts] or [whole_event(plan)])


def _trainings(attempts: "Sequence[Entry]") -> int:
    """Return how often a trial was begun: attempts that go on from each other are one training."""
    return sum(not entry.goes_on for entry in attempts) or 1


def _score_noise(plan: TrialPlan, attempts: "Sequence[Entry]") -> dict[str, Any] | None:
    paid = planned_scores(plan)
    if paid is None or plan.scores is None:
        return None
    charged = _together([event for entry in attempts for event in entry.charged_scores] or [paid.event])
    return {**asdict(plan.scores), "of_the_trial": _priced(charged, plan.delta)}


def _together(events: Sequence[PoissonGaussian]) -> Event:
    """Return the composition, where all are of one mechanism as one event of it."""
    steps: dict[PoissonGaussian, int] = {}
    for event in events:
        mechanism = event.with_steps(0)
        steps[mechanism] = steps.get(mechanism, 0) + event.steps
    parts = tuple(mechanism.with_steps(count) for mechanism, count in steps.items())
    return parts[0] if len(parts) == 1 else Composed(parts)


def _is_where_it_ended(trial: Trial, point: Point, last_epoch: int | None) -> bool:
    """Whether the point is the last one of a trial that was ended early, so that scores chose its epoch."""
    return trial.status is TrialStatus.STOPPED and last_epoch in (None, point.epoch)


def _exposed(event: Event, delta: float) -> dict[str, Any]:
    return dump(expose_event(event, delta))


def _priced(event: Event, delta: float) -> dict[str, Any]:
    from clipless.privacy.accounting.claim import claim  # takes seconds, and few who read sweeps make cards

    priced = claim(event, delta)
    steps = sum(part.steps for part in (event.events if isinstance(event, Composed) else (event,)))
    return {"epsilon": priced.epsilon, "rdp": priced.rdp, "pld": priced.pld, "steps": steps}
