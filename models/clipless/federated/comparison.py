r"""Function secret sharing of comparisons: two keys of which neither says where a row's value lies.

A row at place p of a domain of 2^n thresholds counts beta at every threshold x >= p. `share` splits this function into
two keys; `evaluate` gives, for each key, a word that is as good as random, and the two words sum to beta if x >= p and
to 0 otherwise, modulo 2^32. This is a distributed comparison function (Boyle, Gilboa, Ishai, "Function secret sharing:
improvements and extensions", 2016) in the form of Boyle, Chandran, Gilboa, Gupta, Ishai, Kumar and Rathee ("Function
secret sharing for mixed-mode and fixed-point secure computation", 2021, figure 1), with the sides of the comparison
exchanged and equality included.

Each key is a seed at the root of a binary tree of depth n. A node's seed s gives by four one-way functions the seeds
and the words of its children; the lowest bit of a seed is its control bit. On the path of p the two keys' seeds are
independent and their control bits differ; off it both are equal, because whoever has control bit 1 adds the correction
of the level, which is the same in both keys. The words on the way are corrected so that they sum to what the function
is beyond the path. To whom one key is given everything in it is as good as random: corrections are masked by what the
other key's seed gives.

A key of n levels and C groups has 128 + n (128 + 2 + 32 C) + 32 C bits, and up to 7 that fill the last byte of control
bits.

Shape letters: K keys, C groups, T thresholds, M nodes of a level, R bytes of a key.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from clipless.errors import FederationError
from clipless.federated.primitives import Blocks, Words, one_way, random_blocks

Places = NDArray[np.int64]
Bytes = NDArray[np.uint8]

MOST_GROUPS = 4  # words of a block
MOST_LEVELS = 32
_BLOCK, _WORD = 16, 4
_CONTROL = np.uint64(1)
_SEED = np.array([~_CONTROL, ~np.uint64(0)])  # of both words of a block: all but the control bit
_LEAF = 4  # number of the one-way function of leaves; 0 and 1 make seeds, 2 and 3 words
_CACHED = 2**15  # nodes of all keys that are looked at together: what fits into a processor's caches


@dataclass(frozen=True, eq=False)
class ComparisonKeys:
    """One server's keys of K rows."""

    server: int  # 0 or 1
    roots: Blocks  # (K, 2) seeds
    corrections: Blocks  # (n, K, 2) corrections of seeds, their lowest bits 0
    controls: NDArray[np.uint64]  # (n, 2, K) corrections of the control bits of left and right children, 0 or 1
    words: Words  # (n + 1, K, C) corrections of words; the last are those of leaves

    @property
    def levels(self) -> int:
        """The number of levels: n."""
        return len(self.corrections)

    @property
    def groups(self) -> int:
        """The number of groups: C."""
        return int(self.words.shape[2])

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self.roots)

    def some(self, rows: slice) -> "ComparisonKeys":
        """Return some of the keys."""
        return ComparisonKeys(
            self.server, self.roots[rows], self.corrections[:, rows], self.controls[:, :, rows], self.words[:, rows]
        )


def key_bits(levels: int, groups: int) -> int:
    """Return the length of one key as it is sent."""
    return 8 * (_BLOCK + levels * _BLOCK + -(-2 * levels // 8) + (levels + 1) * _WORD * groups)


def share(places_K: Places, betas_KC: Words, levels: int) -> tuple[ComparisonKeys, ComparisonKeys]:
    """Split the counts of rows into two keys each.

    Args:
        places_K: the first threshold at which each row counts, in [0, 2^levels).
        betas_KC: what it counts in each group.
        levels: n; the domain has 2^n thresholds.

    Guarantees:
        Either key alone is computationally indistinguishable from one of any other place and beta.

    Raises:
        FederationError: places outside of the domain, or shapes that do not fit.
    """
    _check(places_K, betas_KC, levels)
    count, groups = betas_KC.shape
    roots = [random_blocks(count) & _SEED for _ in range(2)]
    seeds, controls = list(roots), [np.zeros(count, np.uint64), np.ones(count, np.uint64)]
    sums_KC = np.zeros_like(betas_KC)
    found: list[tuple[Blocks, NDArray[np.uint64], Words]] = []
    for level in range(levels):
        right_K = ((places_K >> (levels - 1 - level)) & 1).astype(np.uint64)
        children = [np.stack([one_way(seed, 0), one_way(seed, 1)]) for seed in seeds]  # (left or right, K, 2)
        values = [np.stack([_words(seed, 2, groups), _words(seed, 3, groups)]) for seed in seeds]
        bits = [child[:, :, 0] & _CONTROL for child in children]
        kept = right_K.astype(np.intp), np.arange(count)
        lost = 1 - kept[0], kept[1]
        beyond = np.where(right_K[:, None] == 0, betas_KC, np.uint32(0))  # what lies to the right of p counts
        word = _apply_sign(controls[1], values[1][lost] - values[0][lost] - sums_KC + beyond)
        sums_KC = sums_KC - values[1][kept] + values[0][kept] + _apply_sign(controls[1], word)
        seed = (children[0][lost] ^ children[1][lost]) & _SEED
        control = np.stack([bits[0][0] ^ bits[1][0] ^ right_K ^ _CONTROL, bits[0][1] ^ bits[1][1] ^ right_K])
        seeds = [(own[kept] & _SEED) ^ (-on[:, None] & seed) for own, on in zip(children, controls, strict=True)]
        controls = [own[kept] ^ (on & control[kept]) for own, on in zip(bits, controls, strict=True)]
        found.append((seed, control, word))
    leaves = [_words(seed, _LEAF, groups) for seed in seeds]
    last = _apply_sign(controls[1], leaves[1] - leaves[0] - sums_KC + betas_KC)  # p itself counts
    corrections, control_bits, words = (np.stack(parts) for parts in zip(*found, strict=True))
    words = np.concatenate([words, last[None]])
    first, second = (ComparisonKeys(b, roots[b], corrections, control_bits, words) for b in range(2))
    return first, second


def evaluate(keys: ComparisonKeys, thresholds_T: Places) -> Words:
    """Return one server's words (T, C): for each threshold the sum over its keys; thresholds increase.

    The paths to all thresholds are walked together, each node once, for some of the keys at a time.

    Raises:
        FederationError: thresholds outside of the domain, or that do not increase.
    """
    steps, size = np.diff(thresholds_T), 2**keys.levels
    if not (len(thresholds_T) and thresholds_T[0] >= 0 and thresholds_T[-1] < size and (steps > 0).all()):
        raise FederationError(f"Expected increasing thresholds from 0 to {size - 1}, got others")
    plan = _walk(thresholds_T, keys.levels)
    chunk = max(1, _CACHED // len(thresholds_T))
    sums = np.zeros((len(thresholds_T), keys.groups), dtype=np.uint32)
    for start in range(0, len(keys), chunk):
        sums += _evaluate_some(keys.some(slice(start, start + chunk)), plan)
    return sums if keys.server == 0 else -sums


@dataclass(frozen=True, slots=True)
class _Level:
    """The parents of a level's left and right children, and the order of all of its nodes."""

    parents: tuple[NDArray[np.intp], NDArray[np.intp]]
    order: NDArray[np.intp]


def _walk(thresholds_T: Places, levels: int) -> tuple[_Level, ...]:
    nodes = [np.unique(thresholds_T >> (levels - depth)) for depth in range(levels + 1)]
    return tuple(_level(above, below) for above, below in pairwise(nodes))


def _level(above: Places, below: Places) -> _Level:
    left, right = (below[(below & 1) == side] for side in range(2))
    parents = np.searchsorted(above, left >> 1), np.searchsorted(above, right >> 1)
    return _Level(parents, np.argsort(np.concatenate([left, right])))


def _evaluate_some(keys: ComparisonKeys, plan: tuple[_Level, ...]) -> Words:
    seeds_MK2 = keys.roots[None]
    on_MK = -np.full((1, len(keys)), keys.server, dtype=np.uint64)  # all ones where the control bit is 1
    sums_MC = np.zeros((1, keys.groups), dtype=np.uint32)
    for level, step in enumerate(plan):
        parts = list(_children(keys, level, step, seeds_MK2, on_MK, sums_MC))
        seeds_MK2, sums_MC = (np.concatenate(both)[step.order] for both in zip(*parts, strict=True))
        on_MK = -(seeds_MK2[:, :, 0] & _CONTROL)
        seeds_MK2 &= _SEED
    return sums_MC + _total(_words(seeds_MK2, _LEAF, keys.groups), on_MK, keys.words[-1])


def _children(
    keys: ComparisonKeys, level: int, step: _Level, seeds_MK2: Blocks, on_MK: NDArray[np.uint64], sums_MC: Words
) -> Iterator[tuple[Blocks, Words]]:
    """Seeds with their control bits, and sums so far, of all left and of all right children."""
    for side, parents in enumerate(step.parents):
        seeds, on = seeds_MK2[parents], on_MK[parents]
        corrections = keys.corrections[level].copy()
        corrections[:, 0] |= keys.controls[level, side]
        words = _words(seeds, 2 + side, keys.groups)
        yield (
            one_way(seeds, side) ^ (on[:, :, None] & corrections),
            sums_MC[parents] + _total(words, on, keys.words[level]),
        )


def _total(words_MKC: Words, on_MK: NDArray[np.uint64], corrections_KC: Words) -> Words:
    """Sum over keys of words, corrected where the control bit is 1."""
    corrected = words_MKC + (on_MK.astype(np.uint32)[:, :, None] & corrections_KC)
    total: Words = corrected.sum(axis=1, dtype=np.uint32)
    return total


def _words(seeds: Blocks, number: int, groups: int) -> Words:
    return one_way(seeds, number).view(np.uint32)[..., :groups]


def _apply_sign(second_on_K: NDArray[np.uint64], words_KC: Words) -> Words:
    """Negate where the control bit of the second key is 1."""
    return np.where(second_on_K[:, None] == 1, -words_KC, words_KC)


def _check(places_K: Places, betas_KC: Words, levels: int) -> None:
    if not (betas_KC.ndim == 2 and 1 <= betas_KC.shape[1] <= MOST_GROUPS and betas_KC.dtype == np.uint32):
        raise FederationError(f"Expected words of 1 to {MOST_GROUPS} groups, got {betas_KC.dtype} {betas_KC.shape}")
    if not 1 <= levels <= MOST_LEVELS:
        raise FederationError(f"Expected 1 to {MOST_LEVELS} levels, got {levels!r}")
    if places_K.shape != betas_KC.shape[:1] or not ((places_K >= 0) & (places_K < 2**levels)).all():
        raise FederationError(f"Expected one place below 2^{levels} for each row, got others")


def to_bytes(keys: ComparisonKeys) -> Bytes:
    """Return the keys as they are sent, (K, R)."""
    count = len(keys)
    bits = np.packbits(keys.controls.reshape(-1, count).T.astype(np.uint8), axis=1)
    parts = (keys.roots, keys.corrections.swapaxes(0, 1), bits, keys.words.swapaxes(0, 1))
    return np.concatenate([np.ascontiguousarray(part).view(np.uint8).reshape(count, -1) for part in parts], axis=1)


def from_bytes(content: bytes, server: int, levels: int, groups: int) -> ComparisonKeys:
    """Read keys.

    Raises:
        FederationError: not a whole number of keys, or bits set that no key has.
    """
    size = key_bits(levels, groups) // 8
    if len(content) % size:
        raise FederationError(f"Expected keys of {size} bytes each, got {len(content)} bytes")
    rows = np.frombuffer(content, dtype=np.uint8).reshape(-1, size)
    ends = np.cumsum([_BLOCK, levels * _BLOCK, -(-2 * levels // 8)])
    roots, corrections, bits, words = (np.ascontiguousarray(part) for part in np.split(rows, ends, axis=1))
    count, spare = len(rows), np.unpackbits(bits, axis=1)[:, 2 * levels :]
    keys = ComparisonKeys(
        server,
        roots.view(np.uint64),
        np.ascontiguousarray(corrections.view(np.uint64).reshape(count, levels, 2).swapaxes(0, 1)),
        np.unpackbits(bits, axis=1)[:, : 2 * levels].T.reshape(levels, 2, count).astype(np.uint64),
        np.ascontiguousarray(words.view(np.uint32).reshape(count, levels + 1, groups).swapaxes(0, 1)),
    )
    if spare.any() or (keys.roots[:, 0] & _CONTROL).any() or (keys.corrections[:, :, 0] & _CONTROL).any():
        raise FederationError("Expected keys, got bits that no key has set")
    return keys
