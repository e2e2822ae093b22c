"""The exports of a card by name: a record for a registry, and annexes in Markdown for two offices.

NIST SP 800-226 ("Guidelines for Evaluating Differential Privacy Guarantees", 2025) evaluates a claim as a pyramid:
epsilon and unit on top, which rest on algorithms, their utility, security and access, and those on how data were
collected. EDPB opinion 28/2024 (17 December 2024) asks whoever calls a model anonymous for its design, its analysis,
tests of its resistance to attacks, and documents.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from clipless.privacy.exposure import FALSE_ALARMS
from clipless.spelling import did_you_mean
from sweeper.errors import SweeperError
from sweeper.papers import statements
from sweeper.papers.registry_record import registry_record
from sweeper.papers.verification import read_card
from sweeper.privacy.card.content import CardContent
from sweeper.rounding import round_up

Chapter = tuple[str, Sequence[str]]

NIST = (
    "Privacy parameters",
    "Unit of privacy",
    "Variant and trust model",
    "Algorithms and correctness",
    "Hyperparameters and composition",
    "Utility and bias",
    "Security and access control",
    "Side channels",
    "Data collection exposure",
    "Answerable",
)
EDPB = (
    "The model and its purpose",
    "Design: sources, minimisation and training",
    "Measures on outputs",
    "Analysis of the model",
    "Tests of resistance to attacks",
    "Likelihood of identification",
    "Documents",
    "Not covered",
)


def nist_annex(card: CardContent) -> str:
    """Return the annex in the order of NIST SP 800-226, from the content of a card."""
    made, *uncovered = statements.implementation(card)
    paragraphs = (
        [statements.claim(card), statements.risk(card)],
        [statements.adjacency(card), *statements.several_rows(card)],
        ["Approximate differential privacy in the central model: whoever runs the training is trusted with the rows."],
        [*statements.mechanisms(card), made, *statements.attacks(card)],
        [statements.tuning(card), statements.composition(card), statements.post_processing(card), *card.conditions],
        list(_utility(card)),
        [f"Access to the rows: {statements.said(card, 'access')}", f"Retention: {statements.said(card, 'retention')}"],
        [*uncovered, "Taken as public, without noise:", *statements.unprotected(card)],
        [f"Collection: {statements.said(card, 'collection')}", "Differential privacy protects no row before training."],
        _answerable(card),
    )
    return _annex("Annex after NIST SP 800-226", card, zip(NIST, paragraphs, strict=True))


def edpb_annex(card: CardContent) -> str:
    """Return the annex for EDPB opinion 28/2024, from the content of a card.

    It states facts for an assessment and does not say that the model is anonymous, which a supervisory authority judges
    case by case.
    """
    paragraphs = (
        [
            f"Purpose: {statements.said(card, 'purpose')}",
            f"Intended use: {statements.said(card, 'intended_use')}",
            f"Controller: {statements.said(card, 'curator')}",
            f"Region: {statements.said(card, 'region')}",
        ],
        [
            f"Sources: `{card.data.name}`. {statements.said(card, 'collection')}",
            statements.data_domain(card),
            statements.claim(card),
            *statements.mechanisms(card),
            statements.tuning(card),
        ],
        [
            statements.post_processing(card),
            "Answers of the model are computed from its weights and read no private row.",
        ],
        [
            statements.composition(card),
            "Every price above can be computed again from the ledger beside the card: `sweeper verify`.",
        ],
        [
            "Tests of extraction and of membership, by audits that play the training's own attacker:",
            *statements.attacks(card),
            "An audit is a lower bound: it can refute a claim, not prove it. Attribute inference, regurgitation, model "
            "inversion and reconstruction were not tested one by one; the bounds below hold for any attack on a unit.",
        ],
        [statements.risk(card), *_caught(card), *statements.several_rows(card)],
        _answerable(card),
        list(card.conditions),
    )
    return _annex("Annex for EDPB opinion 28/2024", card, zip(EDPB, paragraphs, strict=True))


def _annex(title: str, card: CardContent, chapters: Iterator[Chapter]) -> str:
    blocks = [f"# {title}: {card.sweep}, trial {card.trial}, epoch {card.epoch}"]
    for number, (heading, sentences) in enumerate(chapters, start=1):
        blocks += [f"## {number}. {heading}", "\n".join(f"- {sentence}" for sentence in sentences)]
    return "\n\n".join(blocks) + "\n"


def _caught(card: CardContent) -> Iterator[str]:
    risk = statements.exposure_that_holds(card).risk
    for rate, found in zip(FALSE_ALARMS, risk.caught, strict=True):
        said = f"Accusing {100 * rate:g} % of innocents, an attacker finds a row with probability <= {round_up(found)}."
        yield statements.qualify(card, said)
    yield statements.qualify(card, f"Largest advantage of an attacker at any rate: {round_up(risk.advantage)}.")


def _utility(card: CardContent) -> Iterator[str]:
    tested = card.scores.test or {}
    for name, value in tested.items():
        yield f"{name} on test rows: {value:.4g}."
    if not tested:
        yield "Not known: the card has no scores of test rows."
    classes = card.classes
    if classes is None:
        yield "Recalls by class are not on the card, which has them of public rows only."
        return
    yield f"Balanced accuracy on test rows: {classes.balanced_accuracy:.4g}. {classes.warning}".strip()
    for name, rows, correct in zip(classes.names, classes.rows, classes.correct, strict=True):
        yield f"Class {name}: {correct} of {rows} test rows were decided for it."


def _answerable(card: CardContent) -> list[str]:
    hashes = [f"`{name}`: SHA-256 `{found}`" for name, found in (card.files or {}).items()]
    versions = ", ".join(f"{name} {version}" for name, version in card.versions.items())
    return [
        f"Curator: {statements.said(card, 'curator')}",
        f"Contact: {statements.said(card, 'contact')}",
        f"Published: {statements.said(card, 'published')}",
        f"Computed by {versions}.",
        *hashes,
    ]


EXPORTS: Mapping[str, Callable[[CardContent], str]] = {
    "registry": registry_record,
    "nist": nist_annex,
    "edpb": edpb_annex,
}


def export_card(path: Path, name: str) -> str:
    """Return an export of the card of a picked model.

    Args:
        path: a folder that ``sweeper pick`` wrote, or the ``card.json`` in it.
        name: one of `EXPORTS`.

    Raises:
        SweeperError: no such export.
        RecordError: no card, or one that does not keep to its schema.
    """
    if name not in EXPORTS:
        remedy = did_you_mean(name, EXPORTS) or "choose one of them"
        raise SweeperError(f"Expected --as to be one of {', '.join(EXPORTS)}, got {name!r}; {remedy}")
    return EXPORTS[name](read_card(path))
