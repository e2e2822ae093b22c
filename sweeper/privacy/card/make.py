"""The privacy card: the statement that travels with a model, written for the person who signs it off.

``make_card`` collects the facts and prices them, `charged_to` finds what a trial was charged; ``text.py`` says
them in words.
"""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from clipless.datasets import Evaluation
from clipless.plans.method import Method
from sweeper.adapters import dump
from sweeper.errors import RecordError
from sweeper.markup import rendered
from sweeper.privacy.baselines import warning
from sweeper.privacy.card.content import (
    AccountFacts,
    AuditRow,
    CardContent,
    ClassTable,
    DataFacts,
    EventRow,
    FreezingFacts,
    Guarantee,
    Noise,
    ParameterNoise,
    PriceFacts,
    QuantileClipping,
    Sampling,
    ScheduledClipping,
    ScoreNoiseRow,
    Scores,
    SmoothedTable,
)
from sweeper.privacy.card.prices import charged_entries, point_exposure, point_prices, price_scores
from sweeper.privacy.card.text import markdown, prices_in_words, unproven_of
from sweeper.privacy.claims import Claim
from sweeper.privacy.evaluation.paid_scores import planned_scores
from sweeper.privacy.held_out import doubt, interval_on_test
from sweeper.privacy.pricing import Price, steps_by
from sweeper.records import Point, Trial, TrialPlan, TrialStatus
from sweeper.store.jsonl import plain, replace_file, to_text

if TYPE_CHECKING:
    from clipless.audits.finding import Finding
    from sweeper.privacy.entries import Entry

CARD_VERSION: Literal[1] = 1
PACKAGES = ("sweeper", "torch", "numpy", "autodp", "dp-accounting")


@dataclass(frozen=True, slots=True, repr=False)
class Card:
    """One card: its facts, and the words for them."""

    content: CardContent

    def to_json(self) -> dict[str, Any]:
        """Return JSON values, as ``card.json`` has them."""
        content: dict[str, Any] = plain(dump(self.content))
        return content

    def to_markdown(self) -> str:
        """Return the card in words."""
        return markdown(self.content)

    def __repr__(self) -> str:
        """Return what a terminal shows: whose card it is, and the price; ``print`` shows all of it."""
        whole = "print(card) shows the card, card.to_json() has its facts"
        return f"{self.to_markdown().partition(chr(10))[0].removeprefix('# ')}\n{self.prices()}\n{whole}"

    def __str__(self) -> str:
        """Return the card in words."""
        return self.to_markdown()

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the card in words."""
        return rendered(self.to_markdown())

    def prices(self) -> str:
        """Return in one line the price of the model, and its own epsilon."""
        return " ".join(filter(None, [prices_in_words(self.content.guarantee), unproven_of(self.content)]))

    def write(self, folder: str | Path) -> tuple[Path, Path]:
        """Write ``card.md`` and ``card.json`` into a folder.

        Raises:
            RecordError: not written.
        """
        text, data = Path(folder) / "card.md", Path(folder) / "card.json"
        replace_file(text, self.to_markdown())
        replace_file(data, to_text(self.to_json(), indent=2) + "\n")
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
    event, steps = plan.event, steps_by(plan, point.epoch)
    prices = point_prices(event, steps, plan.repeats, plan.delta, ledger, attempts)
    return Card(
        CardContent(
            card_version=CARD_VERSION,
            sweep=sweep,
            trial=trial.id,
            epoch=point.epoch,
            made_from=point.made_from,
            exploratory=claim.exploratory,
            guarantee=Guarantee(
                delta=plan.delta,
                relation=plan.relation,
                unit=claim.unit,
                population=claim.population,
                fixed_in_advance=prices.fixed_in_advance,
                chosen_afterwards=prices.chosen_afterwards,
                selected=prices.selected,
                price=prices.price,
                trainings=prices.trainings,
                planned_epochs=plan.epochs,
                repeats=plan.repeats,
                ended_early=trial.reason if _is_where_it_ended(trial, point, last_epoch) else None,
            ),
            exposure=point_exposure(event, steps, plan.repeats, plan.delta, attempts),
            audits=_attained(audits),
            event=EventRow.model_validate(event.to_json()),
            sampling=Sampling(
                kind="poisson",
                batch_size=plan.batch_size,
                sampling_rate=plan.sampling_rate,
                steps_per_epoch=plan.steps_per_epoch,
                preliminary_steps=plan.preliminary_steps,
            ),
            noise=Noise(
                noise_multiplier=plan.noise_multiplier,
                allocation=plan.allocation,
                secure_generator=claim.secure_generator,
            ),
            method=Method(plan.method),
            sensitivity_fraction=plan.sensitivity_fraction,
            clip_norm=plan.clip_norm,
            follow_weights=plan.follow_weights,
            clipping=_clipping(plan),
            count_std=plan.count_std,
            freezing=None if plan.freezing is None else FreezingFacts.model_validate(plan.freezing),
            parameters=[
                ParameterNoise(name=name, sensitivity=sensitivity, noise_std=plan.noise_stds[name])
                for name, sensitivity in plan.sensitivities.items()
            ],
            data=DataFacts(name=claim.data, evaluation=Evaluation(claim.evaluation), radius_unit=claim.radius_unit),
            score_noise=_score_noise(plan, attempts),
            public=claim.public,
            ledger={question: PriceFacts.model_validate(dump(answer)) for question, answer in ledger.items()},
            conditions=claim.conditions,
            scores=_scores(point, claim),
            noisy_scores=point.noisy,
            classes=_by_class(point, claim),
            curves=point.curves,
            smoothed=None if point.smoothed is None else SmoothedTable(kind="smoothed", **asdict(point.smoothed)),
            config=trial.config,
            model=point.model,
            account=None if claim.account is None else AccountFacts(**asdict(claim.account)),
            deployment=claim.deployment,
            versions=program_versions(),
        )
    )


def program_versions() -> dict[str, str]:
    """Return the versions of what computes the numbers of a card; clipless comes with sweeper, under its version."""
    found = {name: metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **found, "clipless": found["sweeper"]}


def _clipping(plan: TrialPlan) -> ScheduledClipping | QuantileClipping:
    kind = QuantileClipping if plan.clipping["kind"] == "adaptive" else ScheduledClipping
    return kind.model_validate(plan.clipping)


def _scores(point: Point, claim: Claim) -> Scores:
    """Return the scores, the intervals of test scores of public rows, and whether a constant prediction is as good."""
    known = {name: interval_on_test(point, name, claim) for name in point.test or {}} if point.noisy is None else {}
    utility = next((name for name in point.values if name != "epsilon"), None)
    return Scores(
        validation=point.values,
        test=point.test or None,
        test_intervals={name: ends for name, ends in known.items() if ends is not None} or None,
        doubt=None if utility is None else doubt(point, utility, claim) or None,
    )


def _by_class(point: Point, claim: Claim) -> ClassTable | None:
    """Return how public test rows were decided by class, and what the majority-class baseline reaches."""
    counts = point.classes
    if counts is None or claim.evaluation not in (Evaluation.PUBLIC.value, Evaluation.EXPLORATORY.value):
        return None
    return ClassTable(
        names=claim.baselines.classes or [str(label) for label in range(len(counts.rows))],
        rows=counts.rows,
        decided=counts.decided,
        correct=counts.correct,
        balanced_accuracy=counts.balanced_accuracy,
        constant_answer=claim.baselines.constant("accuracy", "test"),
        warning=warning(counts, claim.baselines.classes),
    )


def _attained(audits: "Sequence[Finding]") -> list[AuditRow]:
    """Return the finding of each kind that attained the largest share of its claim; one that contradicts it first."""
    most: dict[str, Finding] = {}
    for one in audits:
        best = most.get(one.kind.value)
        if best is None or (one.contradicted, one.ratio) > (best.contradicted, best.ratio):
            most[one.kind.value] = one
    return [
        AuditRow(
            kind=kind,
            epsilon=one.epsilon,
            delta=one.delta,
            attained=one.attained,
            confidence=one.confidence,
            contradicted=one.contradicted,
        )
        for kind, one in most.items()
    ]


def charged_to(trial: str, ledger: Path) -> "tuple[Entry, ...]":
    """Return what a ledger charges to a trial.

    Raises:
        RecordError: the file is broken.
    """
    from sweeper.privacy.ledger import Ledger  # takes seconds, as below

    return charged_entries(Ledger(ledger), trial)


def _score_noise(plan: TrialPlan, attempts: "Sequence[Entry]") -> ScoreNoiseRow | None:
    paid = planned_scores(plan)
    if paid is None or plan.scores is None:
        return None
    return ScoreNoiseRow(**asdict(plan.scores), of_the_trial=price_scores(paid.event, plan.delta, attempts))


def _is_where_it_ended(trial: Trial, point: Point, last_epoch: int | None) -> bool:
    """Whether the point is the last one of a trial that was ended early, so that scores chose its epoch."""
    return trial.status is TrialStatus.STOPPED and last_epoch in (None, point.epoch)
