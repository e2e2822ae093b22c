"""A party: computes scores and certified radii of its rows with the model, and takes part in the protocol.

Nothing of a row leaves the process but what the protocol sends.

Shape letters: N rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clipless.certificates.certify import row_by_row
from clipless.curves.tree import Floats
from clipless.datasets import NewRows
from clipless.datasets.splits import hash_rows
from clipless.datasets.tables.blocks import canonical_names, check_blocks
from clipless.datasets.tables.declarations import Ranges
from clipless.datasets.tables.encoding import canonical
from clipless.errors import DataError
from clipless.federated.aggregation.party import AggregationParty, contribution
from clipless.federated.aggregation.roster import OF_ROWS, ROUNDS
from clipless.federated.function_sharing import SERVERS, upload
from clipless.federated.primitives import Identity, to_words
from clipless.federated.query import PartyRows
from clipless.federated.ustat import answer
from clipless.privacy.randomness import RandomSource, SecureSource
from clipless.privacy.sampling import draw_rows
from sweeper.errors import SweeperError
from sweeper.federated.connection import Conversation
from sweeper.federated.federation import Federation
from sweeper.federated.keys import alone_in
from sweeper.federated.payment import Paid, Payment
from sweeper.federated.services import COUNTS, READY, UPLOAD
from sweeper.results.models.predict import Predictor, load_predictor

_LABELS = "y"


@dataclass(frozen=True, slots=True)
class TakenPart:
    """A part that was taken: the bits that were sent to and from the party, and the epsilons in its ledger."""

    bits: int
    spent: float


def take_part(
    federation: Federation, name: str, identity: Identity, model: Path, data: Path, payment: Payment
) -> TakenPart:
    """Take part in an evaluation to its end.

    Raises:
        SweeperError: there is no such party, it has another key, a server cannot be reached, or more would be spent
            than its user allows.
        AccountError: the account of its rows has no room for it; nobody was told anything.
        RecordError: its ledger or its account cannot be written to.
        clipless.errors.DataError: rows that the model does not take, or more than were declared.
        clipless.errors.FederationError: the protocol cannot go on.

    Guarantees:
        The evaluation is in the ledger of the party, and charged to the account of its rows where they have one, on the
        disk, before anything of a row is sent. Of several processes under its key one pays, the others are refused.
    """
    if federation.key_of(name) != identity.public:
        raise SweeperError(f"Expected the private key of {name!r}, got another one (--key)")
    federation.check_complete()
    predictor = load_predictor(model)
    check_curves(federation, predictor)
    read, labels_N = _read(predictor, data, federation.target, federation.unit, payment.block)
    rows = _count(federation, predictor, read, labels_N, SecureSource())
    if any(len(own) > federation.party(name).rows for own in rows):
        raise DataError(f"Expected {federation.party(name).rows} rows at most of {name!r}, got more; declare more")
    paid = _ask(federation, name, data, read, labels_N, payment)
    ends = [Conversation.to(federation, server.name, name, identity) for server in federation.servers]
    with alone_in(federation, payment.key):  # until the servers have its rows: they refuse who asks next
        for end in ends:
            end.ask(READY)
        match federation.protocol:
            case "curator":
                spent = paid.pay()
                _to_curator(federation, ends[0], rows)
            case "aggregation":
                spent = _aggregate(federation, name, identity, ends[0], rows, paid)
            case "function-sharing":
                spent = paid.pay()
                _send_keys(federation, name, ends, rows)
    return TakenPart(sum(end.bits for end in ends), spent)


def ask_account(federation: Federation, name: str, model: Path, data: Path, payment: Payment) -> Paid:
    """Return what a party would pay, or refuse what its account would, before any party of an evaluation pays.

    Raises: as `take_part`.
    """
    read, labels_N = _read(load_predictor(model), data, federation.target, federation.unit, payment.block)
    return _ask(federation, name, data, read, labels_N, payment)


def _ask(
    federation: Federation, name: str, data: Path, read: NewRows, labels_N: NDArray[np.int64], payment: Payment
) -> Paid:
    units_N = None if read.units is None else _number_units(read.units).numpy()
    ids = None if read.units is None else torch.from_numpy(hash_rows(id_.encode() for id_ in read.units))
    blocks_N = None if payment.block is None else _blocks(read, payment.block, units_N, data)
    return payment.ask(federation, name, read, labels_N, blocks_N, units_N, ids)


def _to_curator(federation: Federation, end: Conversation, rows: list[PartyRows]) -> None:
    counts = [
        release.query.sums(release.query.counts(own)).ravel()
        for release, own in zip(federation.releases, rows, strict=True)
    ]
    end.ask(COUNTS, to_words(np.concatenate(counts)).tobytes())


def _aggregate(
    federation: Federation, name: str, identity: Identity, end: Conversation, rows: list[PartyRows], paid: Paid
) -> float:
    """Take part in all rounds and return what the party has spent: it pays before that of its words, if enough came."""
    roster = federation.roster
    words = [contribution(release.query, own, roster) for release, own in zip(federation.releases, rows, strict=True)]
    party, told = AggregationParty(name, identity, roster, end.session, np.concatenate(words)), b""
    spent = 0.0
    for round_ in ROUNDS:
        message = answer(party, round_, told)
        if round_ == OF_ROWS:
            spent = paid.pay()
        told = end.ask(round_, message)
    return spent


def _send_keys(federation: Federation, name: str, ends: list[Conversation], rows: list[PartyRows]) -> None:
    uploads = [
        upload(name, own, federation.form(release)) for release, own in zip(federation.releases, rows, strict=True)
    ]
    for number in range(SERVERS):
        ends[number].ask(UPLOAD, b"".join(content[number] for content in uploads))


def rows_of(
    federation: Federation, predictor: Predictor, data: Path, source: RandomSource | None = None
) -> list[PartyRows]:
    """Return what each row counts in each release; of a unit with several rows one, drawn anew at each call.

    ``source`` draws it; a fresh secure one by default.

    Raises:
        clipless.errors.DataError: rows or labels that do not fit the model.
        SweeperError: a ROC curve of more than two classes.

    Guarantees:
        What a row counts is a function of that row and the model, and which row a unit sends depends on no other unit.
    """
    check_curves(federation, predictor)
    rows, labels_N = _read(predictor, data, federation.target, federation.unit)
    return _count(federation, predictor, rows, labels_N, source or SecureSource())


def _count(
    federation: Federation,
    predictor: Predictor,
    rows: NewRows,
    labels_N: NDArray[np.int64],
    source: RandomSource,
) -> list[PartyRows]:
    if rows.units is not None:
        rows_U = _draw_one_of_each(rows.units, source)
        not_taken = None if rows.not_taken is None else rows.not_taken[rows_U]
        rows = replace(rows, x=rows.x[rows_U], ids={}, raw=None, units=None, hashes=None, not_taken=not_taken)
        labels_N = labels_N[rows_U.numpy()]
    frame = predictor(rows)
    classes = predictor.form.classes
    right_N = frame["class"].to_numpy() == np.array(classes, dtype=object)[labels_N]
    counted = {"certified": lambda domain: domain.signed_radii(frame["certified_radius"].to_numpy(), right_N)}
    if len(classes) == 2:
        gaps_N = frame[f"score {classes[1]}"].to_numpy() - frame[f"score {classes[0]}"].to_numpy()
        scores_N = probability(gaps_N, predictor.temperature)
        counted["roc"] = lambda domain: domain.scores(scores_N, labels_N == 1)
    return [counted[release.curve](release.domain) for release in federation.releases]


def probability(gaps_N: Floats, temperature: float | None) -> Floats:
    """Return the probability of the second class, from how much its score exceeds that of the first."""
    scaled_N = torch.from_numpy(np.clip(gaps_N / (temperature or 1.0), -700.0, 700.0))
    found: Floats = row_by_row(lambda gaps: 1.0 / (1.0 + (-gaps).exp()), scaled_N).numpy()
    return found


def check_curves(federation: Federation, predictor: Predictor) -> None:
    """Refuse what a model has no curve of.

    Raises:
        SweeperError: a ROC curve of more than two classes.
    """
    if "roc" in federation.curves and len(predictor.form.classes) != 2:
        raise SweeperError(
            f"Expected a model of two classes for a ROC curve, got {len(predictor.form.classes)}; curves: [certified]"
        )


def _draw_one_of_each(names: Sequence[str], source: RandomSource) -> Tensor:
    """Return one row of each unit, (U,)."""
    units_N = _number_units(names)
    counts_U = units_N.bincount()
    offsets = torch.cat([counts_U.new_zeros(1), counts_U.cumsum(0)])
    return units_N.argsort(stable=True)[draw_rows(torch.arange(len(counts_U)), offsets, source)]


def _number_units(names: Sequence[str]) -> Tensor:
    """Return the number of the unit of each row, (N,)."""
    numbers: dict[str, int] = {}
    return torch.tensor([numbers.setdefault(name, len(numbers)) for name in names], dtype=torch.int64)


def _blocks(rows: NewRows, block: str, units_N: NDArray[np.int64] | None, data: Path) -> NDArray[np.str_]:
    """Return the block of each row, (N,).

    Raises:
        clipless.errors.DataError: a row without a block, or a unit with rows in two.
    """
    texts_N = np.array(canonical_names(["" if cell is None else str(cell) for cell in rows.ids[block]]))
    check_blocks(texts_N, units_N, f"({block} of {data}; --block)")
    return texts_N


def _read(
    predictor: Predictor, data: Path, target: str | None, unit: str | None, block: str | None = None
) -> tuple[NewRows, NDArray[np.int64]]:
    """Read rows with their labels: a column of a table, or the array ``y`` of an npz file.

    What the declarations do not know is encoded as in training: the other parties see whether this one takes part, and
    one row should not decide that.
    """
    classes = predictor.form.classes
    if target is not None:
        ids = [target, *(name for name in (unit, block) if name is not None)]
        rows = predictor.form.read(data, ids=ids, unit=unit, allow_unknown=True, hashed=True)
        cells = [str(cell) for cell in rows.ids[target]]
    else:
        rows = predictor.form.read(data, ids=() if block is None else (block,), allow_unknown=True, hashed=True)
        cells = [str(label) for label in _labels(data)]
    known = {canonical(name): number for number, name in enumerate(classes)}
    unknown = predictor.form.raw.unknown if isinstance(predictor.form.raw, Ranges) else None
    other = -1 if unknown is None else classes.index(unknown)
    labels = [known.get(canonical(cell), other) for cell in cells]
    if -1 in labels or len(labels) != len(rows.x):
        raise DataError(f"Expected one label for each row of {data}, out of {', '.join(classes)}, got others")
    return rows, np.array(labels, dtype=np.int64)


def _labels(data: Path) -> NDArray[np.generic]:
    try:
        with np.load(data, allow_pickle=False) as archive:
            return np.asarray(archive[_LABELS])
    except (OSError, ValueError, KeyError):
        raise DataError(f"Expected an array {_LABELS!r} of labels in {data}, or a target (target: COLUMN)") from None
