"""ChaCha20 (RFC 8439) in tensor operations: secret uniform words that are made on the device that needs them.

A key from the operating system belongs to one `Keystream` and is never stored. Under it no block is computed twice:

* the first word of the nonce is the name of the keystream's purpose (`Purpose`), so that batches and noise under one
  key would share nothing,
* its second and third word count the segments, one for each call of the cipher, and are never set back,
* the block counter goes from 0 through the segment, of at most 2^31 blocks.

Words are handed out in order and once: what is left of a segment is kept for the next call. A device takes almost as
long for a few blocks as for a hundred thousand, so a segment is never small.

Shape letters: B blocks.
"""

import enum
import os
import struct
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from clipless.errors import PlanError

_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)  # "expand 32-byte k"
_LEAST_BLOCKS = 2**16  # of a segment: 4 MiB
_MOST_BLOCKS = 2**18  # computed at once: 16 MiB, which stays in the caches of a device
_SEGMENT_BLOCKS = 2**31
_SEGMENTS = 2**64
_WORDS_PER_BLOCK = 8  # of 64 bits


class Purpose(enum.IntEnum):
    """The purpose of a keystream: the first word of its nonces."""

    NOISE = 1
    BATCHES = 2


@final
class Keystream:
    """Uniform 64-bit words on a device. Cannot be seeded, copied or pickled.

    Guarantees:
        No block of the cipher is handed out twice: each has a key of this object and process, and a counter that only
        grows. Where that cannot be kept up, an error is raised and nothing is handed out.
    """

    def __init__(self, device: torch.device | str, purpose: Purpose) -> None:
        self._device, self._purpose = torch.device(device), purpose
        self._new_key()

    def _new_key(self) -> None:
        self._process, self._segment = os.getpid(), 0
        self._key_8 = torch.tensor(_to_signed(os.urandom(32)), dtype=torch.int32).to(self._device)
        self._spare = torch.empty(0, dtype=torch.int64, device=self._device)

    def words(self, count: int) -> Tensor:
        """Return the next ``count`` words, int64.

        Raises:
            PlanError: no segment is left, or one would be too long.
        """
        if self._process != os.getpid():  # a forked process must not repeat its parent's words
            self._new_key()
        missing = count - len(self._spare)
        if missing > 0:
            blocks = max(-(-missing // _WORDS_PER_BLOCK), _LEAST_BLOCKS)
            self._spare = torch.cat([self._spare, *self._next_segment(blocks)])
        taken, self._spare = self._spare[:count], self._spare[count:]
        return taken

    def _next_segment(self, blocks: int) -> list[Tensor]:
        segment = self._segment
        if not (blocks <= _SEGMENT_BLOCKS and segment < _SEGMENTS):
            raise PlanError("Expected fewer random words from one key; begin another training")
        self._segment = segment + 1  # before anything is computed: an interrupted call wastes the segment
        nonce = _to_signed(self._purpose.to_bytes(4, "little") + segment.to_bytes(8, "little"))
        parts = (range(first, min(first + _MOST_BLOCKS, blocks)) for first in range(0, blocks, _MOST_BLOCKS))
        return [self._compute(nonce, part) for part in parts]

    def _compute(self, nonce: Sequence[int], part: range) -> Tensor:
        counter_B = torch.arange(part.start, part.stop, dtype=torch.int32, device=self._device)
        return chacha20(self._key_8, nonce, counter_B).flatten().view(torch.int64)

    def __reduce__(self) -> str:
        raise TypeError("A Keystream is never copied or pickled: two users of one keystream share their noise")


def chacha20(key_8: Tensor, nonce: Sequence[int], counter_B: Tensor) -> Tensor:
    """Return the blocks (B, 16) of a key, a nonce and block counters, all of them int32 words, little-endian.

    What the host knows is filled in: nothing is copied to the device.
    """
    constants, words = ([torch.full_like(counter_B, word) for word in several] for several in (_CONSTANTS, nonce))
    start_16B = torch.stack([*constants, *key_8[:, None].expand(-1, len(counter_B)), counter_B, *words])
    rows = start_16B.clone().view(4, 4, -1).unbind(0)
    for _ in range(10):
        rows = _turn(_quarter_rounds(rows), 1)
        rows = _turn(_quarter_rounds(rows), -1)
    return torch.cat(rows).add_(start_16B).mT.contiguous()


Rows = tuple[Tensor, ...]


def _quarter_rounds(rows: Rows) -> Rows:
    """Four quarter rounds side by side, one for each column of the state."""
    a, b, c, d = rows
    d = _rotate(d ^ a.add_(b), 16)
    b = _rotate(b ^ c.add_(d), 12)
    d = _rotate(d ^ a.add_(b), 8)
    b = _rotate(b ^ c.add_(d), 7)
    return a, b, c, d


def _turn(rows: Rows, by: int) -> Rows:
    """Bring diagonals under each other, or back."""
    return tuple(row.roll(-by * place, 0) for place, row in enumerate(rows))


def _rotate(x: Tensor, bits: int) -> Tensor:
    """Rotate 32-bit words to the left; ``>>`` copies the sign, which is masked out."""
    low = (x >> (32 - bits)).bitwise_and_((1 << bits) - 1)
    return low.add_(x, alpha=1 << bits)


def _to_signed(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}i", data)
