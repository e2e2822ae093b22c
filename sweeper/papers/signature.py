"""Cards, written and signed: Ed25519 over the bytes of ``card.json``, and with it over the hashes that are in it.

The key is one that ``sweeper federated key`` makes. Signatures have a key of their own that is derived from it, so that
no signature says anything about the key by which parties agree on secrets.
"""

from pathlib import Path

from clipless.federated.primitives import KEY_BYTES, Identity, is_signed
from sweeper.errors import RecordError
from sweeper.papers.files import CARD_NAME, SIGNATURE_NAME, SUMS_NAME, hashes_of, sums_of
from sweeper.privacy.card.make import Card
from sweeper.store.jsonl import read_object, replace_file, to_text

_CONTEXT = b"sweeper privacy card 1\n"
_ALGORITHM = "Ed25519"


def sign_card(folder: Path, identity: Identity) -> None:
    """Sign the card in a folder.

    Raises:
        RecordError: it cannot be read, or the signature not be written.
    """
    signature = identity.sign(_CONTEXT + _card(folder))
    replace_file(folder / SIGNATURE_NAME, _text(identity.signing_public, signature))


def write_card(folder: Path, card: Card, identity: Identity | None = None) -> Card:
    """Write the card of the files in a folder, the hashes of all of them, and a signature where there is a key.

    Returns:
        The card with the hashes.

    Raises:
        RecordError: not written, or a file that it needs is not there.
    """
    found = Card(card.content.model_copy(update={"files": hashes_of(folder)}))
    found.write(folder)
    replace_file(folder / SUMS_NAME, sums_of(folder))
    if identity is not None:
        sign_card(folder, identity)
    return found


def signer_of(folder: Path, expected: bytes | None = None) -> bytes | None:
    """Return the public key of who signed the card in a folder, ``None`` where nobody did.

    Args:
        folder: what ``sweeper pick`` wrote.
        expected: the public key that must have signed it, ``None`` where any may have.

    Raises:
        RecordError: a signature of another card, or of another key, or none where one is expected.

    Guarantees:
        Only the owner of the private key of what is returned can have signed these bytes of the card.
    """
    path = folder / SIGNATURE_NAME
    if not path.exists():
        if expected is not None:
            raise RecordError(f"Expected a signature by {expected.hex()} in {path}, got none; sign with --sign KEY")
        return None
    content = read_object(path)
    try:
        public, signature = bytes.fromhex(content["public_key"]), bytes.fromhex(content["signature"])
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"Expected public_key and signature in {path}, but {error!r}; sign the card again") from None
    if path.read_bytes() != _text(public, signature).encode():
        raise RecordError(f"Expected algorithm, public_key and signature alone in {path}; sign the card again")
    if expected is not None and public != expected:
        raise RecordError(f"Expected public_key {expected.hex()} in {path}, got {public.hex()}; ask who signed it")
    if not is_signed(_CONTEXT + _card(folder), signature, public):
        raise RecordError(
            f"Expected a signature of these bytes of {folder / CARD_NAME} by {public.hex()}, got another (signature in "
            f"{path})"
        )
    return public


def read_public(text: str) -> bytes:
    """Return the public key that an option names.

    Raises:
        RecordError: not one.
    """
    try:
        public = bytes.fromhex(text)
    except ValueError:
        public = b""
    if len(public) != KEY_BYTES:
        raise RecordError(f"Expected {2 * KEY_BYTES} hexadecimal digits, got {text!r}; sweeper pick prints it (--key)")
    return public


def _text(public: bytes, signature: bytes) -> str:
    content = {"algorithm": _ALGORITHM, "public_key": public.hex(), "signature": signature.hex()}
    return to_text(content, indent=2) + "\n"


def _card(folder: Path) -> bytes:
    path = folder / CARD_NAME
    try:
        return path.read_bytes()
    except OSError as error:
        raise RecordError(f"Cannot read {path}: {error.strerror or error}") from error
