"""The one source of batch membership and noise: secret, unlogged, unseeded.

Batch membership is as secret as the noise (Poisson subsampling amplifies only while it stays unknown), so
both come from one source: on the host AES-256 in counter mode under a key from the operating system, never stored or
logged; for another device ChaCha20 there (`clipless.privacy.keystream`), under keys of its own, so that nothing is
copied to it during a step. Tests inject a generator of their own; a plan's card then says so.

Normal samples are Box-Muller transforms in float64, of radii from 75-bit uniforms and angles from 53-bit ones. What
adds them to a sum rounds them to the grid of the sum, so that their last bits tell nothing of it (Mironov 2012):
downwards, because then sum and noise rounded together are the sum and the rounded noise. Rounding to the nearest takes
the even one of two that are equally near, which happens to doubles, and makes even outcomes of even sums likelier.
Then the noisy sum is rounded once more, to the steps of what is released (`clipless.privacy.noise_grid`).
"""

import os
from abc import ABC, abstractmethod
from math import tau
from typing import final

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from torch import Tensor

from clipless.privacy.keystream import Keystream, Purpose
from clipless.privacy.noise_grid import check_steps, released_step, round_to

_MANTISSA_BITS, _SPARE_BITS = 53, 11  # of a word: in an angle or the first bits of a radius, and in its last ones
_CACHED = 2**14  # pairs of normals that a CPU makes at once: three times as fast as passes over all of them


class RandomSource(ABC):
    """Draws Bernoulli masks and standard normals from random bytes."""

    @property
    @abstractmethod
    def secure(self) -> bool:
        """Whether the bytes are cryptographically secure and secret."""

    @abstractmethod
    def random_bytes(self, count: int) -> bytearray:
        """Return ``count`` fresh uniform bytes."""

    def bernoulli(self, count: int, probability: float) -> NDArray[np.bool_]:
        """Return ``count`` independent booleans, true with ``probability`` rounded down to 32 bits."""
        threshold = np.uint64(_threshold(probability))
        words = np.frombuffer(self.random_bytes(4 * count), dtype=np.uint32)
        return words.astype(np.uint64) < threshold

    def words(self, count: int, device: torch.device | str, purpose: Purpose) -> Tensor:
        """Return ``count`` fresh uniform words, int64 on ``device``; 1 or more."""
        del purpose  # one stream serves every purpose, as its words come once
        return torch.frombuffer(self.random_bytes(8 * count), dtype=torch.int64).to(device)

    def members(self, count: int, probability: float, device: torch.device | str) -> Tensor:
        """Return the indices of a Bernoulli batch, as `bernoulli`, made on ``device``."""
        threshold = _threshold(probability)
        words = self.words((count + 1) // 2, device, Purpose.BATCHES).view(torch.int32)[:count]
        return (words.long() & (2**32 - 1)) < threshold

    def permutation(self, count: int, device: torch.device | str = "cpu") -> Tensor:
        """Return the numbers below ``count`` in random order, int64 on ``device``; 1 or more.

        Sorted by keys of 128 bits: the order is uniform but for a probability of ``count**2 / 2**129`` that two tie.
        """
        keys_2C = self.words(2 * count, device, Purpose.BATCHES).view(2, count)
        order_C = keys_2C[0].argsort()
        return order_C[keys_2C[1, order_C].argsort(stable=True)]

    def normal(self, count: int, device: torch.device | str = "cpu") -> Tensor:
        """Return ``count`` independent standard normals, float64 on ``device``."""
        pairs = max((count + 1) // 2, 1)
        words_2P = self.words(2 * pairs, device, Purpose.NOISE).view(2, pairs)
        size = _CACHED if words_2P.device.type == "cpu" else pairs
        normals_2P = torch.empty_like(words_2P, dtype=torch.float64)
        for words, normals in zip(words_2P.split(size, dim=1), normals_2P.split(size, dim=1), strict=True):
            _box_muller(words, normals)
        return normals_2P.flatten()[:count]

    def noise(self, count: int, std: float, step: float, device: torch.device | str = "cpu") -> Tensor:
        """Return ``count`` independent normals of deviation ``std``, each cut downwards to a whole number of steps.

        Raises:
            AccountingError: so many steps that they leave gaps; nothing is drawn.
        """
        check_steps(std, step)
        return (self.normal(count, device).double() * (std / step)).floor_() * step

    def noisy(self, sums: Tensor, std: float, step: float) -> Tensor:
        """Return exact sums, float64 in whole steps, with noise of deviation ``std``, rounded to what is released.

        Raises:
            AccountingError: as `noise`.
        """
        noise = self.noise(sums.numel(), std, step, sums.device).view_as(sums)
        return round_to(sums + noise, released_step(std, step))


def _threshold(probability: float) -> int:
    if not 0.0 <= probability <= 1.0:
        raise ValueError(f"Expected 0 <= probability <= 1, got probability={probability!r}")
    return int(probability * 2**32)


def _box_muller(words_2P: Tensor, normals_2P: Tensor) -> None:
    """Write normals made of words, all of whose bits count.

    A radius is made of 53 bits and below them the spare bits of both words, 75 in all and rounded to a double. Where
    the uniform number is small, radii made of 53 would lie further apart than what is released, and tell the sum.
    Where it is near 1, its logarithm is that of what it lacks, which keeps its bits: rounded to a double, a uniform
    number of 1 - 2^-31 would be off by 2^-39 of a deviation.

    Guarantees:
        Each normal is off by at most 2^-47 from that of its words in exact arithmetic.
    """
    first_2P = (words_2P & (2**_MANTISSA_BITS - 1)).double()
    spare_2P = (words_2P >> _MANTISSA_BITS) & (2**_SPARE_BITS - 1)
    last_P = ((spare_2P[0] << _SPARE_BITS) + spare_2P[1] + 1).double().mul_(2.0 ** (-2 * _SPARE_BITS))  # in (0, 1]
    lack_P = (2.0**_MANTISSA_BITS - 1.0 - first_2P[0]).add_(1.0 - last_P).mul_(2.0**-_MANTISSA_BITS)  # of 1, to a bit
    uniform_P = first_2P[0].add_(last_P).mul_(2.0**-_MANTISSA_BITS)  # in (0, 1]
    logarithm_P = torch.where(lack_P < 0.5, lack_P.neg().log1p_(), uniform_P.log_())
    radius_P, angle_P = logarithm_P.mul_(-2.0).sqrt_(), first_2P[1].mul_(tau * 2.0**-_MANTISSA_BITS)
    torch.mul(radius_P, angle_P.cos(), out=normals_2P[0])
    torch.mul(radius_P, angle_P.sin(), out=normals_2P[1])


@final
class SecureSource(RandomSource):
    """Keystreams under fresh keys from ``os.urandom``: AES-256-CTR, and ChaCha20 on other devices than the host.

    Cannot be seeded, copied or pickled.
    """

    def __init__(self) -> None:
        self._new_stream()
        self._elsewhere: dict[tuple[torch.device, Purpose], Keystream] = {}

    def _new_stream(self) -> None:
        self._process = os.getpid()
        self._stream = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16))).encryptor()

    @property
    def secure(self) -> bool:
        """True: a keystream under a secret key."""
        return True

    def random_bytes(self, count: int) -> bytearray:
        """Return the next ``count`` bytes of the keystream."""
        if self._process != os.getpid():  # a forked process must not repeat its parent's noise
            self._new_stream()
        buffer = bytearray(count + 15)
        self._stream.update_into(bytes(count), buffer)
        del buffer[count:]
        return buffer

    def words(self, count: int, device: torch.device | str, purpose: Purpose) -> Tensor:
        """Return ``count`` fresh uniform words, made on ``device``: nothing is copied between it and the host."""
        device = torch.device(device)
        if device.type == "cpu":
            return super().words(count, device, purpose)
        if (device, purpose) not in self._elsewhere:
            self._elsewhere[device, purpose] = Keystream(device, purpose)
        return self._elsewhere[device, purpose].words(count)

    def __reduce__(self) -> str:
        raise TypeError("A SecureSource is never copied or pickled: two users of one keystream share their noise")
