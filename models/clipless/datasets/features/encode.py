"""Encoding rows: a data set whose examples are features of a frozen public encoder, and the facts about it.

What an encoder makes of a row is a fixed map of that row alone, like any other map of an example: one row more or less
changes one row of features. Nothing is released, and nothing is paid. What the encoder learned is taken from public
data: the card states its name, its licence, its digest and what it was trained on.

Shape letters: N rows, F features.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from clipless.datasets.dataset import Dataset
from clipless.datasets.features.checks import check_rows_alone, check_unchanged, make_probes
from clipless.datasets.features.declaration import Features
from clipless.datasets.features.encoders import Encoder, RowKind, clip_features, open_encoder
from clipless.datasets.features.fingerprint import check_fingerprint, fingerprint_of, make_fixed_rows
from clipless.datasets.features.store import key_of, read_features, write_features
from clipless.datasets.metadata import FEATURE_UNIT, Metadata
from clipless.datasets.tables.declarations import TEXT_UNIT

_ROUNDING = 1e-6
FACT = (
    "Taken from public data: the encoder {name} ({licence}; SHA-256 {sha256}), trained on {pretrained_on}. It stays as "
    "it is and makes the features of each row of that row alone; longer features are scaled to norm {clip:g}."
)
RADII = (
    "Certified radii are in feature units, behind an encoder without a known Lipschitz constant: they bound no "
    "distance between {unit}."
)
PRETRAINED = (
    "The guarantee does not cover what the encoder {name} learned before: a row that was among its training data is "
    "not protected from that."
)
NO_WEIGHTS = (
    "The encoder {name} has no weights, so that its SHA-256 is that of nothing and tells it from no other encoder "
    "without weights."
)
_DIGEST_OF_NOTHING = hashlib.sha256().hexdigest()


@dataclass(frozen=True, slots=True)
class OpenFeatures:
    """An encoder that has passed its test, with the rows and features of that test."""

    encoder: Encoder
    probes: Tensor
    probed: Tensor

    def encode(self, rows: Tensor) -> Tensor:
        """Return the features (N, F) of rows, zeros of a row that the encoder does not take.

        Raises:
            DataError: the rows have changed the encoder.

        Guarantees:
            No row decides whether the others are encoded: that would be an unpaid release.
        """
        return self.encode_new(rows)[0]

    def encode_new(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return what `encode` returns of new rows, and which of them the encoder does not take (N,), bool.

        Which ones it does not take may not be told of private rows.
        """
        found = [self._features_of(row) for row in rows]
        check_unchanged(self.encoder, self.probes, self.probed)
        nothing = torch.zeros_like(self.probed[0])
        features_NF = torch.stack([nothing if row is None else row for row in found])
        return features_NF, torch.tensor([row is None for row in found])

    def _features_of(self, row: Tensor) -> Tensor | None:
        """The features (F,) of one row, None where the encoder has no such numbers, or none that are finite."""
        try:
            found = self.encoder.compute(row)
        except Exception:  # whatever an encoder raises, and its text, is of the row
            return None
        if found.shape != self.probed[0].shape or not bool(torch.isfinite(found).all()):
            return None
        return clip_features(found, self.encoder.features.clip)

    def with_fingerprint(self, kind: RowKind) -> "OpenFeatures":
        """Return it with the fingerprint of its encoder, for rows of a kind.

        Raises:
            DataError: another fingerprint is recorded.
        """
        features_NF, _ = self.encode_new(make_fixed_rows(kind))
        recorded = self.encoder.features
        found = replace(recorded, fingerprint=fingerprint_of(features_NF))
        check_fingerprint(recorded, found)
        return replace(self, encoder=replace(self.encoder, features=found))


def open_features(features: Features, kind: RowKind) -> OpenFeatures:
    """Open an encoder for rows of a kind and test it; one that this process has opened before stays open.

    Raises:
        DataError: it cannot be used, is another one than what is recorded of it, or does not treat each row alone.
    """
    stamp = None
    if features.file is not None and Path(features.file).is_file():
        seen = Path(features.file).stat()
        stamp = seen.st_mtime_ns, seen.st_size
    return _open(features, kind, stamp)


@lru_cache(maxsize=4)
def _open(features: Features, kind: RowKind, stamp: tuple[int, int] | None) -> OpenFeatures:
    del stamp  # a file that was exchanged is opened again
    encoder = open_encoder(features, kind)
    probes = make_probes(kind)
    opened = OpenFeatures(encoder, probes, check_rows_alone(encoder, probes))
    return opened if features.module is None else opened.with_fingerprint(kind)


def encode(dataset: Dataset, features: Features) -> Dataset:
    """Return the data set with the features of an encoder as its examples, and ``dataset`` as its `Dataset.raw`.

    Raises:
        DataError: an encoder that cannot be used for these rows, or does not treat each row alone.

    Guarantees:
        Row i of each split is a function of row i and of the encoder alone, of norm at most ``features.clip`` up to
        float32 rounding.
    """
    opened = open_features(features, RowKind.of(dataset.metadata))
    facts = feature_facts(dataset.metadata, opened.encoder.features, opened.probed.shape[1])
    splits = (dataset.train, dataset.validation, dataset.test)
    train, validation, test = (replace(part, x=_features_of(part.x, opened)) for part in splits)
    return Dataset(facts, train, validation, test, dataset.blocks, raw=dataset)


def _features_of(rows: Tensor, opened: OpenFeatures) -> Tensor:
    if not opened.encoder.features.cache:
        return opened.encode(rows)
    key = key_of(opened.encoder, opened.probed, rows)
    found = read_features(key, len(rows))
    if found is None:
        found = opened.encode(rows)
        write_features(key, found)
    return found


def feature_facts(facts: Metadata, features: Features, width: int) -> Metadata:
    """Return what is public of a data set behind an encoder that is open."""
    fact = FACT.format(
        name=features.name,
        licence=features.licence,
        sha256=features.sha256,
        pretrained_on=features.pretrained_on,
        clip=features.clip,
    )
    without_weights = (NO_WEIGHTS.format(name=features.name),) if features.sha256 == _DIGEST_OF_NOTHING else ()
    radii = RADII.format(unit="texts" if facts.radius_unit == TEXT_UNIT else facts.radius_unit)
    return replace(
        facts,
        input_shape=(width,),
        input_norm=features.clip * (1 + _ROUNDING),
        input_gain=1.0,
        radius_unit=FEATURE_UNIT + features.name,
        column_widths=(),
        public_facts=(*facts.public_facts, fact),
        conditions=(*facts.conditions, radii, PRETRAINED.format(name=features.name), *without_weights),
    )
