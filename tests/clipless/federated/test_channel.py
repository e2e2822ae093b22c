"""Sealed messages are read once, in order, by whom they are for, and by nobody else."""

import pytest

from clipless.errors import FederationError
from clipless.federated.channel import OVERHEAD_BYTES, Channel
from clipless.federated.primitives import Identity, derive, keystream, random_blocks, seal, unseal

SESSION = b"a session of its"
ANN, BOB = Identity(), Identity()


def ends(session=SESSION):
    return (
        Channel.between(ANN, "ann", "bob", BOB.public, session),
        Channel.between(BOB, "bob", "ann", ANN.public, session),
    )


def refused(end, kind, sealed, sentence):
    with pytest.raises(FederationError, match=sentence) as told:
        end.open(kind, sealed)
    assert told.value.party == end.other
    assert str(told.value).startswith(f"Party {end.other!r}: ")


def test_messages_arrive_in_both_directions_and_hide_their_content():
    ann, bob = ends()
    for text in (b"", b"rows", bytes(5000)):
        sealed = ann.seal("words", text)
        assert len(sealed) == len(text) + OVERHEAD_BYTES
        assert text not in sealed or not text
        assert bob.open("words", sealed) == text
        assert ann.open("words", bob.seal("words", text)) == text


@pytest.mark.parametrize("place", [0, 7, 8, 19, 20, -1])
def test_a_message_that_was_altered_anywhere_is_refused(place):
    ann, bob = ends()
    sealed = bytearray(ann.seal("words", b"rows"))
    sealed[place] ^= 1
    refused(bob, "words", bytes(sealed), "one that it did not make")


@pytest.mark.parametrize("length", [0, 5, 8, 12, 20, 35])
def test_a_message_that_was_cut_is_refused(length):
    ann, bob = ends()
    refused(bob, "words", ann.seal("words", b"rows")[:length], "one that it did not make")


def test_a_message_is_read_once():
    ann, bob = ends()
    sealed = ann.seal("words", b"rows")
    bob.open("words", sealed)
    refused(bob, "words", sealed, "one that is repeated")


def test_a_message_that_overtakes_another_tells_that_one_is_missing():
    ann, bob = ends()
    first, second = ann.seal("words", b"1"), ann.seal("words", b"2")
    refused(bob, "words", second, "one is missing")
    assert bob.open("words", first) == b"1"
    assert bob.open("words", second) == b"2"


def test_a_message_of_another_kind_is_refused():
    ann, bob = ends()
    refused(bob, "keys", ann.seal("words", b"rows"), "one that it did not make")


def test_a_message_of_another_session_is_refused():
    (ann, _), (_, bob) = ends(), ends(b"one more session")
    refused(bob, "words", ann.seal("words", b"rows"), "one that it did not make")


def test_a_message_that_comes_back_to_its_sender_is_refused():
    ann, _ = ends()
    refused(ann, "words", ann.seal("words", b"rows"), "one that it did not make")


@pytest.mark.parametrize(("own", "other"), [("eve", "bob"), ("ann", "eve")])
def test_a_message_under_another_name_is_refused(own, other):
    _, bob = ends()
    forged = Channel.between(ANN, own, other, BOB.public, SESSION)
    refused(bob, "words", forged.seal("words", b"rows"), "one that it did not make")


def test_a_message_of_another_key_is_refused():
    _, bob = ends()
    forged = Channel.between(Identity(), "ann", "bob", BOB.public, SESSION)
    refused(bob, "words", forged.seal("words", b"rows"), "one that it did not make")


@pytest.mark.parametrize("public", [bytes(32), b"short"])
def test_a_public_key_that_is_none_names_its_owner(public):
    with pytest.raises(FederationError, match="Party 'bob': Expected a public key"):
        Channel.between(ANN, "ann", "bob", public, SESSION)


def test_the_same_message_never_looks_the_same():
    assert len({Channel.between(ANN, "ann", "bob", BOB.public, SESSION).seal("k", b"rows") for _ in range(50)}) == 50


def test_no_key_is_shown():
    ann, _ = ends()
    assert ANN.private.hex() not in repr(ANN)
    assert repr(ann) == "Channel(own='ann', other='bob', _sent=0, _received=0)"


def test_parts_of_contexts_do_not_run_into_each_other():
    keys = {derive(bytes(32), *parts) for parts in [(b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"abc", b""), ()]}
    assert len(keys) == 5


def test_keystreams_of_different_seeds_differ_and_of_one_seed_begin_alike():
    assert (keystream(bytes(32), 9) == keystream(bytes(32), 20)[:9]).all()
    assert (keystream(bytes(32), 9) != keystream(bytes(31) + b"1", 9)).any()


def test_what_is_sealed_is_bound_to_what_it_is_about():
    sealed = seal(bytes(32), b"rows", b"this")
    assert unseal(bytes(32), sealed, b"this") == b"rows"
    assert unseal(bytes(32), sealed, b"that") is None


def test_random_blocks_can_be_written_to_and_do_not_repeat():
    blocks = random_blocks(100)
    blocks ^= random_blocks(100)
    assert len({bytes(block) for block in blocks}) == 100
