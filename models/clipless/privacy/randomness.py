"""The one source of batch membership and noise: secret, unlogged, unseeded.

Batch membership is as secret as the noise (Poisson subsampling amplifies only while it stays unknown), so
both come from one keystream: AES-256 in counter mode under a key from the operating system, never stored or
logged. Tests inject a generator of their own; a plan's card then says so.

Normal samples are Box-Muller transforms of 53-bit uniforms in float64. What adds them to a sum rounds them to the grid
of the sum, so that their last bits tell nothing of it (Mironov 2012).
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

_MANTISSA_BITS = 53


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
        if not 0.0 <= probability <= 1.0:
            raise ValueError(f"Expected 0 <= probability <= 1, got probability={probability!r}")
        threshold = np.uint64(int(probability * 2**32))
        words = np.frombuffer(self.random_bytes(4 * count), dtype=np.uint32)
        return words.astype(np.uint64) < threshold

    def normal(self, count: int, device: torch.device | str = "cpu") -> Tensor:
        """Return ``count`` independent standard normals, float64 on ``device``."""
        pairs = (count + 1) // 2
        words = torch.frombuffer(self.random_bytes(16 * max(pairs, 1)), dtype=torch.int64).to(device)
        uniform = ((words & (2**_MANTISSA_BITS - 1)) + 1).double() * 2.0**-_MANTISSA_BITS  # in (0, 1]
        first, second = uniform.chunk(2)
        radius, angle = (-2.0 * first.log()).sqrt_(), second * tau
        return torch.cat((radius * angle.cos(), radius * angle.sin()))[:count]

    def noise(self, count: int, std: float, step: float, device: torch.device | str = "cpu") -> Tensor:
        """Return ``count`` independent normals of deviation ``std``, each rounded to a whole number of steps."""
        return (self.normal(count, device).double() * (std / step)).round_() * step


@final
class SecureSource(RandomSource):
    """AES-256-CTR keystream under a fresh key from ``os.urandom``. Cannot be seeded, copied or pickled."""

    def __init__(self) -> None:
        self._new_stream()

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

    def __reduce__(self) -> str:
        raise TypeError("A SecureSource is never copied or pickled: two users of one keystream share their noise")
