"""ChaCha20 in tensor operations: the vectors of RFC 8439, and that nothing comes twice."""

import copy
import os
import pickle

import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from clipless.errors import PlanError
from clipless.privacy import keystream
from clipless.privacy.keystream import Keystream, Purpose, chacha20
from clipless.privacy.randomness import SecureSource

KEY = bytes(range(32))
LAST_ONE = (2**0).to_bytes(32, "big")


@pytest.fixture(autouse=True)
def _short_segments(monkeypatch):
    monkeypatch.setattr(keystream, "_LEAST_BLOCKS", 8)


def words(data):
    return torch.frombuffer(bytearray(data), dtype=torch.int32)


def blocks(key, nonce, counters):
    return chacha20(words(key), words(nonce).tolist(), torch.tensor(counters, dtype=torch.int32)).numpy().tobytes()


def reference(key, nonce, count, counter=0):
    encryptor = Cipher(algorithms.ChaCha20(key, counter.to_bytes(4, "little") + nonce), mode=None).encryptor()
    return encryptor.update(bytes(count))


@pytest.mark.parametrize(
    ("key", "counter", "nonce", "expected"),
    [
        (KEY, 1, "000000090000004a00000000", "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"),
        (bytes(32), 0, "0" * 24, "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"),
        (bytes(32), 1, "0" * 24, "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"),
        (LAST_ONE, 1, "0" * 24, "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"),
        (bytes(32), 0, "0" * 23 + "2", "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"),
    ],
)
def test_blocks_are_those_of_the_rfc(key, counter, nonce, expected):
    """Section 2.3.2, and test vectors 1, 2, 3 and 5 of appendix A.1."""
    assert blocks(key, bytes.fromhex(nonce), [counter])[:32].hex() == expected


@pytest.mark.parametrize("counter", [0, 1, 255, 2**16, 2**31 - 4])
def test_blocks_are_those_of_another_implementation(counter):
    key, nonce = os.urandom(32), os.urandom(12)
    assert blocks(key, nonce, range(counter, counter + 3)) == reference(key, nonce, 192, counter)


def test_words_are_those_of_one_key_segment_by_segment(monkeypatch):
    """The nonce is purpose and number of the segment, the counter begins at 0."""
    monkeypatch.setattr(os, "urandom", lambda count: KEY[:count])
    monkeypatch.setattr(keystream, "_MOST_BLOCKS", 3)
    drawn = Keystream("cpu", Purpose.BATCHES)
    found = [drawn.words(count).numpy().tobytes() for count in (3, 60, 2, 100, 150)]
    segments = [
        reference(KEY, b"\x02\0\0\0" + number.to_bytes(8, "little"), 64 * size)
        for number, size in enumerate((8, 8, 8, 16))
    ]
    assert b"".join(found) == b"".join(segments)[: 8 * 315]


def test_the_key_comes_from_the_operating_system(monkeypatch):
    asked = []
    monkeypatch.setattr(os, "urandom", lambda count: asked.append(count) or bytes(count))
    Keystream("cpu", Purpose.NOISE)
    assert asked == [32]


def test_no_block_comes_twice_from_one_keystream():
    drawn = Keystream("cpu", Purpose.NOISE)
    found = torch.cat([drawn.words(count) for count in (1, 7, 8, 64, 65, 500, 3)])
    assert len(found.unique()) == len(found)


def test_two_keystreams_share_no_word():
    found = torch.cat([Keystream("cpu", Purpose.NOISE).words(2000) for _ in range(2)])
    assert len(found.unique()) == len(found)


def test_batches_and_noise_share_no_word_even_under_one_key(monkeypatch):
    monkeypatch.setattr(os, "urandom", bytes)
    found = torch.cat([Keystream("cpu", purpose).words(200) for purpose in Purpose])
    assert len(found.unique()) == len(found) == 400


def test_the_last_segment_is_the_end():
    drawn = Keystream("cpu", Purpose.NOISE)
    drawn._segment = 2**64 - 1
    drawn.words(64)
    for _ in range(2):
        with pytest.raises(PlanError, match="fewer random words"):
            drawn.words(1)


def test_a_segment_longer_than_its_counter_is_refused(monkeypatch):
    monkeypatch.setattr(keystream, "_SEGMENT_BLOCKS", 16)
    assert len(Keystream("cpu", Purpose.NOISE).words(128)) == 128
    with pytest.raises(PlanError, match="fewer random words"):
        Keystream("cpu", Purpose.NOISE).words(129)


def test_a_call_that_fails_wastes_its_segment(monkeypatch):
    monkeypatch.setattr(os, "urandom", bytes)
    drawn, other = (Keystream("cpu", Purpose.NOISE) for _ in range(2))
    with monkeypatch.context() as broken:
        broken.setattr(keystream, "chacha20", _lost)
        with pytest.raises(RuntimeError, match="lost"):
            drawn.words(5)
    other.words(64)
    assert torch.equal(drawn.words(5), other.words(5))


def _lost(*_):
    raise RuntimeError("device lost")


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_keystream_is_neither_copied_nor_pickled(duplicate):
    with pytest.raises(TypeError, match="never copied or pickled"):
        duplicate(Keystream("cpu", Purpose.NOISE))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_does_not_repeat_its_parents_words():
    drawn = Keystream("cpu", Purpose.NOISE)
    drawn.words(1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        os.write(writer, drawn.words(2).numpy().tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 16) != drawn.words(2).numpy().tobytes()


def test_a_secure_source_makes_what_another_device_needs_there(monkeypatch):
    monkeypatch.setattr(SecureSource, "random_bytes", lambda *_: pytest.fail("copied from the host"))
    drawn = SecureSource().normal(7, "meta")
    assert (drawn.shape, drawn.dtype, drawn.device.type) == ((7,), torch.float64, "meta")
    assert SecureSource().members(5, 0.5, "meta").device.type == "meta"


def test_a_source_has_one_keystream_for_a_device_and_purpose(monkeypatch):
    made = []
    monkeypatch.setattr("clipless.privacy.randomness.Keystream", lambda *key: made.append(key) or Keystream(*key))
    source = SecureSource()
    for _ in range(2):
        source.normal(7, "meta")
        source.members(7, 0.5, "meta")
    device = torch.device("meta")
    assert made == [(device, Purpose.NOISE), (device, Purpose.BATCHES)]
