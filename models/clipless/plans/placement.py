"""Placement of the rows of a batch in the passes of a step.

One behind the other, in passes of one size that rows of zeros fill up: right where a pass treats each row alone,
wherever it stands, which is tested before anything is drawn (`clipless.row_independence`). Otherwise, and on devices
whose kernels choose by themselves how they round, in random slots (`clipless.privacy.sampling`): then nothing is asked
of kernels but that what other rows hold changes nothing in place.

Shape letters: B drawn rows, S places of a pass.
"""

from collections.abc import Iterator, Sequence
from math import ceil, sqrt
from typing import Protocol, final

import torch
from torch import Tensor

from clipless.errors import UnsupportedError
from clipless.privacy.randomness import RandomSource
from clipless.privacy.sampling import RandomPlacement, slots_for
from clipless.row_independence import VECTOR, Kinks, Pass, PassShape, is_alone, is_apart


def even_size(batch_size: float, sampling_rate: float, most: int) -> int:
    """Return the number of rows per pass, at most ``most``: passes of one size, with little padding."""
    return evenly(ceil(batch_size + 2.0 * sqrt(batch_size * (1.0 - sampling_rate))), most)


def slotted_size(population: int, sampling_rate: float, most: int) -> int:
    """Return the number of rows per pass, at most ``most``, where batches have slots."""
    return evenly(slots_for(population, sampling_rate), most)


def usual_size(batch_size: float, population: int, most: int, device: torch.device) -> int:
    """Return the number of rows per pass, at most ``most``, on a device whose kernels treat rows alone."""
    rate = batch_size / population
    return even_size(batch_size, rate, most) if is_tested(device) else slotted_size(population, rate, most)


def is_tested(device: torch.device) -> bool:
    """Whether a test decides if batches have slots; where kernels choose how they round, batches always have."""
    return device.type == "cpu"


def evenly(rows: int, most: int) -> int:
    """Return the size of passes, at most ``most``, that take so many rows: whole vectors, if there is room for one."""
    even = ceil(rows / ceil(rows / most))
    full = even + -even % VECTOR
    return full if full <= most else max(most - most % VECTOR, min(most, VECTOR))


class Spread(Protocol):
    """Spreads batches over slots: `RandomPlacement`, or an audit's replacement."""

    @property
    def count(self) -> int:
        """M."""

    def place(self, rows_B: Tensor) -> Tensor:
        """Return the content of each slot, (M,): a row index, or -1 for nothing."""


@final
class Placement:
    """Puts drawn rows into passes of one size.

    Args:
        size: S.
        slots: over which batches are spread; None for one row behind the other.
    """

    def __init__(self, size: int, slots: Spread | None) -> None:
        self.size, self.slots = size, slots

    @classmethod
    def random(cls, size: int, population: int, sampling_rate: float, source: RandomSource) -> "Placement":
        """Return places in slots, of whole passes."""
        passes = ceil(slots_for(population, sampling_rate) / size)
        return cls(size, RandomPlacement(passes * size, source))

    def passes(self, rows_B: Tensor) -> Iterator[Tensor]:
        """Yield (S,) row indices for each pass, or fewer; -1 for a place without a row."""
        yield from (rows_B if self.slots is None else self.slots.place(rows_B)).split(self.size)


def needs_slots(passed: Pass, form: PassShape, kinks: Kinks | None = None, weights: Sequence[Tensor] = ()) -> bool:
    """Whether batches need slots in passes of this form; tests the passes.

    Args:
        passed: the pass.
        form: of its rows, copies included.
        kinks: the first layer, see `clipless.row_independence.is_alone`.
        weights: of the pass, see there.

    Raises:
        UnsupportedError: what other rows hold changes what is computed for a row.

    Guarantees:
        No row of any data is looked at, so the answer is no release.
    """
    if is_tested(form.device) and is_alone(passed, form, kinks, weights):
        return False
    if not is_apart(passed, form):
        raise UnsupportedError("Expected a network that treats each row of a batch alone, got one that mixes rows")
    return True


def whole(chosen: Tensor, size: int) -> Tensor:
    """Return the rows of a pass with -1 behind, (S,)."""
    return torch.cat([chosen, chosen.new_full((size - len(chosen),), -1)])


def take_rows(x: Tensor, chosen_S: Tensor) -> Tensor:
    """Return the chosen rows of ``x`` (N, ...), zeros in the places without one, (S, ...)."""
    taken = x[chosen_S.clamp(min=0)]
    return torch.where((chosen_S >= 0).view(-1, *[1] * (x.dim() - 1)), taken, taken.new_zeros(())).contiguous()
