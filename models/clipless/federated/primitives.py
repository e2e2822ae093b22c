"""The one door to `cryptography`, and numbers modulo 2^32, in which sums are shared.

Fixed-key AES for trees of seeds, keystreams, key agreement, signatures, sealed messages; counts as words, none of
which wraps.

Shape letters: B blocks.
"""

import hashlib
import os
from math import ceil, log2
from typing import Final, final

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from clipless.errors import FederationError

Blocks = NDArray[np.uint64]  # (..., 2): 16 bytes each, little-endian
Words = NDArray[np.uint32]

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
SEAL_BYTES: Final = NONCE_BYTES + 16  # what sealing adds to a message
_BLOCK = 16
_FIXED_KEYS = tuple(hashlib.sha256(b"clipless.federated %d" % number).digest()[:_BLOCK] for number in range(5))


def one_way(blocks: Blocks, number: int) -> Blocks:
    """Return pi(x) XOR x of each block, pi being AES-128 under the fixed public key of that number, 0 to 4.

    Different numbers make the branches of a pseudorandom generator with a block as its seed (Matyas, Meyer, Oseas): as
    good as random if AES under a public key is as good as a random permutation (Guo, Katz, Wang, Yu, "Efficient and
    secure multiparty computation from fixed-key block ciphers", 2020).
    """
    data = np.ascontiguousarray(blocks)
    cipher = Cipher(algorithms.AES(_FIXED_KEYS[number]), modes.ECB()).encryptor()
    made = np.empty(data.nbytes + _BLOCK - 1, dtype=np.uint8)
    cipher.update_into(data.reshape(-1).view(np.uint8).data, made.data)
    mixed = made[: data.nbytes].view(np.uint64).reshape(data.shape)
    return np.bitwise_xor(mixed, data, out=mixed)


def random_blocks(count: int) -> Blocks:
    """Return ``count`` fresh blocks (B, 2) of the operating system's generator."""
    return np.frombuffer(os.urandom(_BLOCK * count), dtype=np.uint64).reshape(count, 2).copy()


def keystream(seed: bytes, count: int) -> Words:
    """Return ``count`` pseudorandom words of a seed of 32 bytes: AES-256 in counter mode. A seed serves once."""
    cipher = Cipher(algorithms.AES(seed), modes.CTR(bytes(_BLOCK))).encryptor()
    return np.frombuffer(cipher.update(bytes(4 * count)), dtype=np.uint32).copy()


def derive(secret: bytes, *context: bytes) -> bytes:
    """Return a key of 32 bytes for one context, by HKDF with SHA-256; parts of contexts cannot run into each other."""
    info = b"".join(len(part).to_bytes(4, "big") + part for part in (b"clipless.federated", *context))
    return HKDF(hashes.SHA256(), KEY_BYTES, None, info).derive(secret)


def digest(*parts: bytes) -> bytes:
    """Return 16 bytes that stand for the parts."""
    joined = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hashlib.sha256(joined).digest()[:_BLOCK]


def seal(key: bytes, message: bytes, about: bytes) -> bytes:
    """Encrypt and authenticate a message, and authenticate its context: AES-256-GCM under a random nonce."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, message, about)


def unseal(key: bytes, sealed: bytes, about: bytes) -> bytes | None:
    """Return the message, None if key, message or subject is another."""
    try:
        return AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], about)
    except (InvalidTag, ValueError):  # ValueError: a nonce that is too short
        return None


@final
class Identity:
    """A private key for key agreement (X25519), and for signatures."""

    def __init__(self, private: bytes | None = None) -> None:
        self.private = os.urandom(KEY_BYTES) if private is None else private
        self._key = X25519PrivateKey.from_private_bytes(self.private)

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    def agree(self, public: bytes) -> bytes:
        """Return the secret shared with the owner of a public key.

        Raises:
            ValueError: no such key.
        """
        return self._key.exchange(X25519PublicKey.from_public_bytes(public))

    @property
    def signing_public(self) -> bytes:
        """The public key of its signatures, 32 bytes."""
        return self._signing.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return a signature of 64 bytes (Ed25519), by a key that is derived for signatures alone."""
        return self._signing.sign(message)

    @property
    def _signing(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(derive(self.private, b"signature"))

    def __repr__(self) -> str:
        return f"Identity(public={self.public.hex()})"


def is_signed(message: bytes, signature: bytes, public: bytes) -> bool:
    """Whether the owner of a public key has signed a message."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


WORD_BITS = 32
_DEVIATIONS = 100.0  # of noise that is taken into account: more has a chance below 1e-40


def to_words(numbers: NDArray[np.int64]) -> Words:
    """Return whole numbers modulo 2^32."""
    words: Words = (numbers & (2**WORD_BITS - 1)).astype(np.uint32)
    return words


def from_words(words: Words) -> NDArray[np.int64]:
    """Return the numbers of least magnitude."""
    return words.astype(np.int32).astype(np.int64)


def check_no_wrap(rows: int, deviation: float) -> None:
    """Refuse sums over so many rows, with noise of such a deviation, that might wrap around.

    Raises:
        FederationError: a sum may exceed 2^31.
    """
    largest = rows + _DEVIATIONS * deviation
    if not largest < 2.0 ** (WORD_BITS - 1):
        raise FederationError(
            f"Expected sums below 2^{WORD_BITS - 1}, got up to 2^{ceil(log2(largest))}; fewer rows or a larger epsilon"
        )
