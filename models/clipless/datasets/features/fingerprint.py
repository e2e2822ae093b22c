"""The fingerprint of an encoder: numbers by which another one is known that has the same weights, or none.

A digest of weights says nothing of the code that uses them, and of a module without weights nothing at all. So a few
fixed rows go through the encoder, and weighted sums of their features are recorded beside the digest.

The numbers themselves are recorded, not a digest of them. One encoder rounds otherwise on another machine, with other
threads or by another version of PyTorch, by about 1e-6 of its features, and a digest would refuse it. Sums are the
same where they differ by at most 1e-3 of the largest one. A change that the fixed rows do not show, or that is smaller
than that, is not found. The rows follow from a formula and not from a generator, whose numbers another version may
change; they and the weights stay as they are, for sweeps have recorded what came of them.

Shape letters: N rows, F features, K sums.
"""

import torch
from torch import Tensor

from clipless.datasets.features.declaration import Features
from clipless.datasets.features.encoders import RowKind
from clipless.datasets.tables.texts import encode_texts
from clipless.errors import DataError

_COUNT = 5  # rows
_SUMS = 4  # of the features of each row
_DIGITS = 7  # of a recorded number
_TOLERANCE = 1e-3
_TEXTS = ("", "a", "The film was good.", "Zwölf Sätze, 50 % länger: こんにちは!", "\N{BULLET} x " * 40)


def make_fixed_rows(kind: RowKind) -> Tensor:
    """Return the rows of a kind whose features are recorded: texts, or numbers in the range of the data."""
    if kind.is_text:
        return torch.from_numpy(encode_texts(_TEXTS, kind.shape[0]))
    waves = _waves(_COUNT, torch.Size(kind.shape).numel()).view(_COUNT, *kind.shape)
    return ((1.0 + waves) / 2.0 if kind.is_picture else waves).float()


def fingerprint_of(features_NF: Tensor) -> tuple[float, ...]:
    """Return the fingerprint of an encoder that has these features of the fixed rows."""
    sums_NK = features_NF.double() @ _waves(_SUMS, features_NF.shape[1]).T
    return tuple(float(f"{number:.{_DIGITS}g}") for number in sums_NK.flatten().tolist())


def check_fingerprint(recorded: Features, found: Features) -> None:
    """Refuse an encoder that computes other features than the recorded one; where nothing is recorded, none.

    Raises:
        DataError: it does.
    """
    before, now = recorded.fingerprint, found.fingerprint
    if not before:
        return
    largest = max(map(abs, (*before, *now)))
    near = len(before) == len(now) and all(
        abs(one - other) <= _TOLERANCE * largest for one, other in zip(before, now, strict=True)
    )
    if not near:
        raise DataError(
            f"Expected the encoder {recorded.name!r} that was recorded, got one with other features of the same "
            "made-up rows: bring the code and the weights that were recorded, or start another sweep (data.features)"
        )


def _waves(count: int, length: int) -> Tensor:
    """Return ``count`` waves of ``length`` numbers in (-1, 1), float64."""
    return torch.cos(torch.outer(torch.arange(1.0, count + 1).double(), torch.arange(1.0, length + 1).double()))
