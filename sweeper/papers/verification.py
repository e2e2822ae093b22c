"""Checking a picked model by its papers alone: schema, hashes, signature, and every claim against the ledger."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from clipless.datasets.catalog import SOURCES
from clipless.datasets.metadata import units_word
from clipless.errors import CliplessError
from sweeper.adapters import dump
from sweeper.errors import RecordError, SweeperError
from sweeper.papers.files import (
    CARD_NAME,
    CONFIG_NAME,
    HASHED,
    LEDGER_NAME,
    REQUIRED,
    SPEC_NAME,
    SUMS_NAME,
    WORDS_NAME,
    config_text,
    file_hash,
    sums_of,
)
from sweeper.papers.recomputation import compare_claims, first_difference
from sweeper.papers.signature import signer_of
from sweeper.papers.stated_spec import unlike_its_spec
from sweeper.privacy.card.content import CardContent
from sweeper.privacy.card.make import Card
from sweeper.privacy.card.person import GUARANTEES
from sweeper.privacy.claims import EXPLORATORY
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import prices_by_release
from sweeper.rounding import round_up
from sweeper.specification.yaml_file import read_mapping
from sweeper.store.input_format import DATA_NAME
from sweeper.store.jsonl import read_object, to_text

_ROW = "row"
_UNIT_FACT = "The privacy unit is "  # begins `clipless.datasets.metadata.counts_fact` where it is no row
_COUNTED = "The number of training "  # begins the fact of `sweeper.privacy.claims` that has N
_MEANING = "and what it means to a person"
_EXACT = "all of these numbers are those of the ledger to the last bit"
_DECLARED = (
    "scores and released curves, what audits attained, how sensitivities are divided, which epoch the model is of, "
    "rows held back, the budget of an account, what data and people declare"
)
_ROUNDED = "prices are those of the ledger to the last digit shown; digits behind it differ as between processors"
# of content that keeps to the schema and makes no sense
_FAILURES = (SweeperError, CliplessError, KeyError, TypeError, ValueError, ArithmeticError, OSError)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: what holds, or why it does not; one of both is empty."""

    holds: str = ""
    failure: str = ""


def verify_papers(path: Path, public: bytes | None = None) -> Iterator[Check]:
    """Check a picked model by what lies beside it, and yield each check as it is made.

    Args:
        path: a folder that ``sweeper pick`` wrote, or the ``card.json`` in it.
        public: the key that must have signed the card, ``None`` where any or nobody may have.

    Guarantees:
        If no check fails, model, configuration, ledger and spec are those whose hashes the card has; every price, every
        epsilon of the point is that of the ledger in all digits shown, and what they mean to a person follows from it,
        see `sweeper.papers.recomputation`; and who is named as signer signed these bytes. Without a signature anybody
        can have written all of it.
    """
    folder = path.parent if path.name == CARD_NAME else path
    try:
        card = read_card(folder)
    except RecordError as error:
        yield Check(failure=str(error))
        return
    yield Check(holds=f"{CARD_NAME} keeps to the schema of cards, version {card.card_version}")
    checks: tuple[Callable[[Path, CardContent], str], ...] = (
        _check_sums,
        _check_hashes,
        lambda where, _: _check_signature(where, public),
        _check_words,
        _check_sources,
    )
    sound = True
    for check in checks:
        try:
            yield Check(holds=check(folder, card))
        except _FAILURES as error:
            sound = False
            yield Check(failure=_in_words(error, folder))
    if sound:  # of files that are others, nothing is computed
        yield from _check_claims(folder, card)


def read_card(folder: Path) -> CardContent:
    """Return the card of a picked model, given its folder or the ``card.json`` in it.

    Raises:
        RecordError: none, or one that does not keep to its schema; the first field that does not is named.
    """
    path = folder if folder.name == CARD_NAME else folder / CARD_NAME
    try:
        text = path.read_text(encoding="utf-8")
        card = CardContent.model_validate_json(text)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise RecordError(f"Cannot read {path}: {why}; take the model with sweeper pick") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise RecordError(f"Expected a card in {path}, but {first['msg']} ({field or 'the whole'})") from None
    false = first_difference(json.loads(text), dump(card))  # a text where a number belongs, and the like
    if false is not None:
        raise RecordError(f"{false} in {path}; take the model with sweeper pick")
    return card


def _in_words(error: Exception, folder: Path) -> str:
    if isinstance(error, SweeperError | CliplessError):
        return str(error)
    return f"Expected a card that makes sense in {folder / CARD_NAME}, but {error!r}; take the model with sweeper pick"


def _check_sums(folder: Path, _card: CardContent) -> str:
    path = folder / SUMS_NAME
    expected = sums_of(folder)
    try:
        found = path.read_bytes()
    except OSError as error:
        raise RecordError(f"Cannot read {path}: {error.strerror or error}; take the model with sweeper pick") from error
    if found != expected.encode():
        listed = set(found.decode(errors="replace").splitlines())
        others = [line.split("  ")[1] for line in expected.splitlines() if line not in listed]
        which = ", ".join(str(folder / name) for name in others) or str(path)
        raise RecordError(f"Expected the hashes in {path}, got another of {which}; restore the file")
    return f"{SUMS_NAME} has the hash of each of the {len(expected.splitlines())} files"


def _check_hashes(folder: Path, card: CardContent) -> str:
    stated = card.files or {}
    wanted = [name for name in HASHED if name in REQUIRED or name in stated or (folder / name).exists()]
    others = sorted(set(stated) - set(HASHED))
    if others:
        raise RecordError(f"Expected files of {', '.join(HASHED)} in {folder / CARD_NAME}, got {others[0]!r} (files)")
    for name in wanted:
        expected, found = stated.get(name), file_hash(folder / name)
        if found != expected:
            got = f"{found} of {folder / name}"
            raise RecordError(f"Expected SHA-256 {expected} by files.{name} in {folder / CARD_NAME}, got {got}")
    return f"{', '.join(wanted)} are those of the card"


def _check_signature(folder: Path, public: bytes | None) -> str:
    signer = signer_of(folder, public)
    if signer is None:
        return "the card is not signed: sweeper pick --sign KEY says who stands for it"
    compared = "" if public else "; ask the signer for the key and name it by --key"
    return f"{signer.hex()} has signed the card{compared}"


def _check_words(folder: Path, card: CardContent) -> str:
    text = (folder / CARD_NAME).read_text(encoding="utf-8")
    if text != to_text(json.loads(text), indent=2) + "\n":
        raise RecordError(f"Expected each field once in {folder / CARD_NAME}, as sweeper pick writes it; take it again")
    path = folder / WORDS_NAME
    if path.read_bytes() != Card(card).to_markdown().encode():
        raise RecordError(f"Expected the words of {folder / CARD_NAME} in {path}, got others; read {CARD_NAME}")
    return f"{WORDS_NAME} says in words what {CARD_NAME} says"


def _check_sources(folder: Path, card: CardContent) -> str:
    where = f"in {folder / CARD_NAME}"
    if (folder / CONFIG_NAME).read_bytes() != config_text(card.config).encode():
        raise RecordError(f"Expected the config {where} in {folder / CONFIG_NAME}, got another")
    spec = read_mapping(folder / SPEC_NAME)
    privacy, data = spec.get("privacy", {}), spec.get("data", {})
    follows: dict[str, Any] = {"deployment": spec.get("deployment", {})}
    account = privacy.get("account")
    follows["account"] = None if account is None else {"name": str(account).rpartition("#")[2]}
    if "delta" in privacy:
        follows["guarantee"] = {"delta": privacy["delta"]}
    follows["data"] = {name: data[name] for name in ("name", "evaluation") if name in data}
    unit = _stated_unit(data)
    if unit is not None:
        follows.setdefault("guarantee", {})["unit"] = unit
    false = first_difference(dump(card), follows) or _other_unit(card)
    if false is None and set(card.deployment) != set(follows["deployment"]):
        false = f"Expected deployment to have {sorted(follows['deployment'])}, got {sorted(card.deployment)}"
    if false is None and card.account and not card.account.to_claim().is_stated(card.conditions):
        false = "Expected conditions to state the claim of account, got others"
    false = false or next(unlike_its_spec(card, spec, Ledger(folder / LEDGER_NAME)), None)
    if false is not None:
        raise RecordError(f"{false} {where}, by {folder / SPEC_NAME}")
    if (folder / DATA_NAME).exists():
        name = read_object(folder / DATA_NAME).get("name")
        if name != card.data.name:
            raise RecordError(f"Expected data.name = {name!r} {where}, by {folder / DATA_NAME}")
    of_spec = "delta, account, deployment, of what chooses, and of the data as far as it states them"
    declared = "" if unit is not None else f"; privacy unit {card.guarantee.unit!r} is only declared (ranges file)"
    return f"{CONFIG_NAME} and {SPEC_NAME} say what the card says of configuration, {of_spec}{declared}"


def _stated_unit(data: Mapping[str, Any]) -> str | None:
    """Return the privacy unit that a spec states of its data, None where a ranges file or a plug-in may state another.

    Silence is a row.
    """
    unit = str(data.get("unit", _ROW))
    silent = unit == _ROW and ("ranges" in data or data.get("name") not in (None, *SOURCES))
    return None if silent else unit


def _other_unit(card: CardContent) -> str | None:
    """Say where what a card calls public of the units of its training is of another privacy unit."""
    facts = card.guarantee
    counted = f"{_COUNTED}{units_word(facts.unit)}, N = {facts.population}."
    other = next((one for one in card.public if one.startswith(_COUNTED) and one != counted), None)
    told = f"column {facts.unit!r}"
    other = other or next((one for one in card.public if one.startswith(_UNIT_FACT) and told not in one), None)
    if other is None and counted not in card.public:
        return f"Expected public to state {counted!r}, got other facts"
    return None if other is None else f"Expected guarantee.unit of which public says {other!r}, got {facts.unit!r}"


def _check_claims(folder: Path, card: CardContent) -> Iterator[Check]:
    path = folder / LEDGER_NAME
    try:
        found = compare_claims(card, path)
    except _FAILURES as error:
        yield Check(failure=_in_words(error, folder))
        return
    if found.false is not None:
        yield Check(failure=f"{found.false} in {folder / CARD_NAME}, computed from {path}")
        return
    facts, delta = card.guarantee, card.guarantee.delta
    yield Check(holds=f"the training is one that {LEDGER_NAME} charges, and the card's sampling and noise are its own")
    mark = f". {EXPLORATORY}" if card.exploratory else ""
    for words, priced in zip(GUARANTEES.values(), (facts.fixed_in_advance, facts.chosen_afterwards), strict=True):
        cost = f"epsilon {round_up(priced.epsilon)} at delta {delta!r}"
        yield Check(holds=f"guarantee of the training, {words}: {cost}, {_MEANING}{mark}")
    prices = {question: price.to_price() for question, price in card.ledger.items()}
    for what, price in prices_by_release(prices).items():
        cost = f"epsilon {round_up(price.epsilon)} at delta {delta!r}, {_MEANING}"
        doubt = f". {price.unproven}" if price.unproven else ""
        yield Check(holds=f"price of {what}: {cost if price.released else 'not released'}{doubt}{mark}")
    if card.score_noise is not None:
        epsilon = round_up(card.score_noise.of_the_trial.epsilon)
        yield Check(holds=f"score_noise: epsilon {epsilon} of validation rows")
    yield Check(holds=_EXACT if found.exact else _ROUNDED)
    yield Check(holds=f"not computed again, by whoever made the card: {_DECLARED}")
