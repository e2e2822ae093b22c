"""The test that an encoder makes each row's features of that row alone, on made-up rows, before and after real ones.

Rows go through one by one, so that a batch has no other row. What is left are encoders that remember (statistics that
are updated, a generator, a cache), that behave as in training, or that would use other rows if a batch had any.

* A module in training mode, or a batch normalisation without statistics of its own, is refused by name.
* Made-up rows go through in some order, then in the reverse order with wild rows between them (nan, inf, huge numbers);
  every feature has to be the same, bit by bit.
* Where the encoder takes a batch of two, the features of its first row may not change by one bit when the second row
  is exchanged.
* An encoder need not take wild rows; one that does not take other made-up rows is refused.
* After the real rows the made-up ones go through again, and the state has to have the digest that it had.

Nothing here proves an encoder right: one that remembers in another way than these is not found. Its code is chosen, and
trusted, by who names it.
"""

import contextlib

import torch
from torch import Tensor, nn

from clipless.datasets.features.encoders import Encoder, RowKind
from clipless.datasets.tables.texts import encode_texts
from clipless.errors import DataError
from clipless.row_independence import PassShape, make_rows

_COUNT = 5  # made-up rows
_WARM = 3  # passes before the first that counts: engines optimise themselves on the first ones
_WILD = (float("nan"), float("inf"), -1e30)
_SAYINGS = ("", "a", "The film was good.", "Ein völlig anderer Satz, 50 % länger: こんにちは!", "\N{BULLET} x " * 200)


def find_batch_dependence(module: nn.Module) -> str:
    """Return why a module would not treat each row alone, as its flags say; empty if they do not."""
    for name, part in module.named_modules():
        where = f"layer {name or 'top'} ({type(part).__name__})"
        if getattr(part, "training", False):
            return f"{where} is in training mode: return the module after .eval()"
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is None:
            return f"{where} normalises by statistics of the batch: give it statistics of its own"
    return ""


def make_probes(kind: RowKind) -> Tensor:
    """Return made-up rows of a kind."""
    if kind.is_text:
        return torch.from_numpy(encode_texts(_SAYINGS, kind.shape[0]))
    generator = torch.Generator().manual_seed(_COUNT)
    if kind.is_picture:
        return torch.rand((_COUNT, *kind.shape), generator=generator)
    return make_rows(_COUNT, PassShape(None, 1, kind.shape, torch.device("cpu")), generator)


def check_rows_alone(encoder: Encoder, probes: Tensor) -> Tensor:
    """Return the features of made-up rows, once they have passed the test of this module.

    Raises:
        DataError: it does not take them, or they depend on another row, on what went through before, or on chance.
    """
    if encoder.module is not None and (why := find_batch_dependence(encoder.module)):
        raise _refusal(encoder, why)
    try:
        return _encode_alone(encoder, probes)
    except DataError:
        raise
    except Exception as error:  # of whatever engine
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DataError(
            f"Expected the encoder {encoder.features.name!r} to take rows of the data set, but it does not take "
            f"made-up ones: {reason} (data.features)"
        ) from None


def _encode_alone(encoder: Encoder, probes: Tensor) -> Tensor:
    for _ in range(_WARM):
        found = encode_rows(encoder, probes)
    wild = torch.tensor(_WILD).repeat(len(probes))[: len(probes)]
    for number in reversed(range(len(probes))):
        if not encoder.texts:
            with contextlib.suppress(Exception):  # a row that it does not take has zeros as its features
                encoder(torch.full_like(probes[number], float(wild[number])))
        if not _equal(encoder(probes[number]), found[number]):
            raise _refusal(encoder, "its features of a row change with the rows before it, or by chance")
    if _heeds_companions(encoder, probes):
        raise _refusal(encoder, "its features of a row change with another row of its batch")
    return found


def check_unchanged(encoder: Encoder, probes: Tensor, before: Tensor) -> None:
    """Refuse an encoder that real rows have changed.

    Raises:
        DataError: made-up rows have other features than before, or its state has another digest.
    """
    same_state = encoder.features.sha256 == encoder.digest()
    try:
        same_features = _equal(encode_rows(encoder, probes), before)
    except Exception:  # its text may tell of the rows
        same_features = False
    if not (same_state and same_features):
        raise _refusal(encoder, "rows that went through have changed it")


def encode_rows(encoder: Encoder, rows: Tensor) -> Tensor:
    """Return the features of rows, which go through one by one."""
    first = encoder(rows[0])
    found = first.new_empty((len(rows), len(first)))
    found[0] = first
    for number in range(1, len(rows)):
        found[number] = encoder(rows[number])
    return found


def _heeds_companions(encoder: Encoder, probes: Tensor) -> bool:
    """Whether the first row of a batch of two has other features beside another row; not where none is taken."""

    def beside(other: Tensor) -> Tensor:
        both = encoder.prepare(probes[0]), encoder.prepare(other)
        return encoder.forward([*both[0], *both[1]] if encoder.texts else torch.cat(both))[0]

    with torch.inference_mode():
        try:
            found = [beside(other) for other in (*probes[1:], *([] if encoder.texts else [100.0 * probes[1]]))]
        except Exception:  # of whatever engine, which takes one row at a time
            return False
    return not all(_equal(one, found[0]) for one in found)


def _equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same bits."""
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


def _refusal(encoder: Encoder, why: str) -> DataError:
    return DataError(
        f"Expected the encoder {encoder.features.name!r} to make the features of each row of that row alone, but {why} "
        "(data.features)"
    )
