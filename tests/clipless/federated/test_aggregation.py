"""Secure aggregation: exact sums whoever drops out, views that say nothing, and a name for whoever cheats."""

import itertools

import numpy as np
import pytest
from scipy.stats import chisquare

from clipless.errors import FederationError
from clipless.federated.aggregation.party import AggregationParty, listed_names, pair_mask
from clipless.federated.aggregation.roster import RECORD_BYTES, ROUNDS, Roster, communication_bits
from clipless.federated.aggregation.server import AggregationServer
from clipless.federated.primitives import Identity, keystream
from clipless.federated.shamir import SHARE_BYTES, join, weights
from clipless.federated.ustat import Aggregation, answer, exact

SESSION = b"an aggregation's"
SIZE = 40
PLACES = range(0, 80, 16)  # of the tags of five parties
UNLIKELY = 1e-9


class Parties:
    """Some parties and their server, in one place."""

    def __init__(self, count=5, colluding=1, needed=0, session=SESSION, words=None, server_session=None):
        self.names = [f"p{number}" for number in range(count)]
        self.identities = {name: Identity() for name in self.names}
        keys = tuple(identity.public for identity in self.identities.values())
        self.roster = Roster(tuple(self.names), keys, colluding, needed)
        rng = np.random.default_rng(5)
        self.words = words or {name: rng.integers(0, 2**32, SIZE, dtype=np.uint32) for name in self.names}
        self.parties = {name: self.party(name, session) for name in self.names}
        self.server = AggregationServer(self.roster, server_session or session, SIZE)
        self.told = dict.fromkeys(self.names, b"")
        self.sent = {}

    def party(self, name, session=SESSION):
        return AggregationParty(name, self.identities[name], self.roster, session, self.words[name])

    def run(self, round_, absent=(), altered=lambda _, message: message):
        for name in sorted(self.server.expected - set(absent)):
            message = altered(name, answer(self.parties[name], round_, self.told[name]))
            self.sent[round_, name] = message
            self.server.take(name, message)
        self.told = self.server.close()

    def run_to(self, last):
        for round_ in ROUNDS[: ROUNDS.index(last)]:
            self.run(round_)
        return self

    def sum_of(self, names):
        return sum((self.words[name] for name in names), start=np.zeros(SIZE, dtype=np.uint32))


@pytest.mark.parametrize(("count", "colluding"), [(1, 0), (2, 0), (2, 1), (3, 1), (5, 2), (9, 3)])
def test_sums_of_any_words_are_exact(count, colluding):
    parties = Parties(count, colluding)
    for round_ in ROUNDS:
        parties.run(round_)
    assert (parties.server.total() == parties.sum_of(parties.names)).all()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("leaving", list(itertools.product((*ROUNDS, "never"), repeat=2)), ids=" ".join)
def test_sums_are_exact_whoever_drops_out_before_or_after_each_round(leaving):
    """Two of six leave; those are summed whose words came."""
    parties = Parties(6, colluding=1, needed=4)
    gone = set()
    for round_ in ROUNDS:
        gone |= {name for name, moment in zip(("p1", "p4"), leaving, strict=True) if moment == round_}
        parties.run(round_, gone)
    included = [
        name
        for name in parties.names
        if name not in ("p1", "p4") or leaving[("p1", "p4").index(name)] in ("agreements", "reveals", "never")
    ]
    assert list(parties.server.included) == included
    assert (parties.server.total() == parties.sum_of(included)).all()


@pytest.mark.parametrize("round_", ROUNDS)
def test_too_few_parties_end_it_with_the_names_of_those_that_are_missing(round_):
    parties = Parties(5, colluding=1).run_to(round_)
    with pytest.raises(FederationError, match=rf"Expected 4 parties or more after {round_}, got 3; absent: p0, p3"):
        parties.run(round_, {"p0", "p3"})


def test_a_sum_is_not_taken_before_all_rounds_are_over():
    parties = Parties().run_to("reveals")
    with pytest.raises(FederationError, match="got 'reveals' open"):
        parties.server.total()


# What others see


def uniform(words):
    return min(chisquare(np.bincount((words >> shift) & 15, minlength=16)).pvalue for shift in (0, 9, 28)) > UNLIKELY


@pytest.mark.sampled(3)
@pytest.mark.parametrize("content", [0, 1, 2**32 - 1])
def test_what_a_party_sends_is_uniform_whatever_its_words_are(content):
    names = [f"p{number}" for number in range(4)]
    drawn = []
    for _ in range(30):
        parties = Parties(4, words={name: np.full(SIZE, content, dtype=np.uint32) for name in names})
        parties.run_to("reveals")
        drawn.append(np.frombuffer(parties.sent["words", "p1"], dtype=np.uint32))
    assert uniform(np.concatenate(drawn))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("content", [0, 2**32 - 1])
def test_the_server_with_all_but_two_parties_sees_their_words_only_in_their_sum(content):
    """The coalition takes off every mask that it knows: of each of the two the mask between them is left.

    It knows its parties' keys with everyone, and the self masks of the two, which are revealed in the end.
    """
    drawn, sums = [], []
    for _ in range(40):
        words = {f"p{number}": np.full(SIZE, content, dtype=np.uint32) for number in range(4)}
        parties = Parties(4, colluding=1, words=words).run_to("reveals")
        left = []
        for name in ("p0", "p1"):
            seen = np.frombuffer(parties.sent["words", name], dtype=np.uint32).copy()
            seen -= keystream(parties.parties[name]._self_mask, SIZE)
            for friend in ("p2", "p3"):
                fresh = parties.parties[friend]._fresh
                key = parties.parties[name]._fresh.public
                seen += pair_mask(fresh, friend, name, key, parties.roster, SESSION, SIZE)
            left.append(seen)
        drawn.append(left[0])
        sums.append(left[0] + left[1])
    assert uniform(np.concatenate(drawn))
    assert (np.concatenate(sums) == np.uint32(2 * content % 2**32)).all()


def test_fewer_than_the_needed_shares_do_not_give_a_mask_of_a_party():
    """What three of the four needed hold of p0's self mask, put together as if it were enough."""
    parties = Parties(6, colluding=1, needed=4).run_to("reveals")
    holders = (2, 3, 4)
    shares = {holder: parties.parties[f"p{holder - 1}"]._held["p0"][0] for holder in holders}
    guessed = join(shares, dict(zip(holders, weights(holders), strict=True)))
    assert guessed != parties.parties["p0"]._self_mask
    holders = (2, 3, 4, 5)
    shares[5] = parties.parties["p4"]._held["p0"][0]
    joined = join(shares, dict(zip(holders, weights(holders), strict=True)))
    assert joined == parties.parties["p0"]._self_mask


def test_a_party_reveals_one_secret_of_each_other_and_once():
    parties = Parties(5, colluding=1).run_to("words")
    parties.run("words", {"p4"})
    parties.run("agreements")
    party, tags = parties.parties["p0"], parties.told["p0"]
    held = dict(party._held)
    revealed = party.reveals(tags)
    for number, name in enumerate(parties.names):
        share = revealed[number * SHARE_BYTES : (number + 1) * SHARE_BYTES]
        assert share == held[name][1 if name == "p4" else 0]
    with pytest.raises(FederationError, match="each round once and in order"):
        party.reveals(tags)


def test_a_party_reveals_nothing_if_fewer_are_left_than_are_needed():
    """Otherwise a server could have the words of one party, and less noise than is needed, by itself."""
    parties = Parties(5, colluding=1).run_to("agreements")
    with pytest.raises(FederationError, match="Expected 4 parties or more after words, got 3"):
        parties.parties["p0"].agreements(np.packbits([1, 1, 1, 0, 0]).tobytes())


def test_a_party_reveals_nothing_if_others_were_told_of_other_parties_that_are_left():
    """A server that says to each that others dropped out could have a sum of fewer than are needed."""
    parties = Parties(7, colluding=1, needed=5).run_to("agreements")
    for number, name in enumerate(parties.names):
        left = [not (number < 4 and other == 5) and not (number >= 4 and other == 0) for other in range(7)]
        if left[number]:
            parties.told[name] = np.packbits(left).tobytes()
    parties.run("agreements", {"p5"})
    assert sum(any(parties.told["p1"][at : at + 16]) for at in range(0, 112, 16)) == 5
    with blamed("server", "Expected 5 parties to agree on who is left, got 4"):
        parties.parties["p1"].reveals(parties.told["p1"])


def run_again(parties, session, last, fresh=False):
    """The same parties once more, up to the round ``last``: with fresh keys of their own, or those of the first time."""
    again = Parties(len(parties.names), colluding=1, session=session)
    again.identities, again.roster, again.words = parties.identities, parties.roster, parties.words
    again.parties = {name: again.party(name, session) for name in again.names}
    for name in () if fresh else again.names:
        again.parties[name]._fresh = parties.parties[name]._fresh
    again.server = AggregationServer(again.roster, session, SIZE)
    return again.run_to(last)


@pytest.mark.parametrize("what", ["missing", "of another party", "of another session", "of an earlier run"])
def test_tags_that_nobody_made_for_this_party_do_not_count(what):
    parties = Parties(5, colluding=1).run_to("reveals")
    tags = bytearray(parties.told["p0"])
    other, earlier = run_again(parties, b"another", "reveals"), run_again(parties, SESSION, "reveals", fresh=True)
    for at in (16, 32):
        tags[at : at + 16] = {
            "missing": bytes(16),
            "of another party": parties.told["p3"][at : at + 16],
            "of another session": other.told["p0"][at : at + 16],
            "of an earlier run": earlier.told["p0"][at : at + 16],
        }[what]
    with blamed("server", "Expected 4 parties to agree on who is left, got 3"):
        parties.parties["p0"].reveals(bytes(tags))


def test_tags_of_runs_that_ended_give_no_sum_of_fewer_than_are_needed():
    """A server that begins the same session again collects tags of three lists, and tells each party one of them.

    Every two of these have only p0 and p1 in common. If each party took the tags for its list, one secret of each
    would be revealed: the own masks of p0 and p1, and the keys of the others, which give the sum of these two.
    """
    parties = Parties(5, colluding=0)
    lists = [["p0", "p1", left] for left in ("p2", "p3", "p4")]
    bitmaps = [np.packbits([name in some for name in parties.names]).tobytes() for some in lists]
    replayed = []
    for some, bitmap in zip(lists, bitmaps, strict=True):
        ended = run_again(parties, SESSION, "agreements", fresh=True)
        made = {name: ended.parties[name].agreements(bitmap) for name in some}
        replayed.append([b"".join(made.get(name, bytes(80))[at : at + 16] for name in parties.names) for at in PLACES])
    last = run_again(parties, SESSION, "agreements", fresh=True)
    for number, (name, told) in enumerate({"p0": 0, "p1": 1, "p2": 0, "p3": 1, "p4": 2}.items()):
        last.parties[name].agreements(bitmaps[told])
        with blamed("server", "Expected 3 parties to agree on who is left, got 1"):
            last.parties[name].reveals(replayed[told][number])


def test_parties_that_were_told_of_different_keys_of_a_third_have_nothing_in_common():
    """Of a party that came twice, say: a server could tell some of the first time, and some of the second."""
    parties = Parties(5, colluding=1).run_to("shares")
    other = Identity().public
    parties.told["p1"] = parties.told["p1"][:-32] + other
    parties.run("shares")
    with blamed("p1", "Expected its sealed shares, got some that it did not make"):
        parties.parties["p0"].mask(parties.told["p0"])
    ann, bob = (parties.parties[name] for name in ("p0", "p1"))
    ann._left = bob._left = b"x"
    assert ann._tag("p0", "p1") != bob._tag("p0", "p1")


def test_a_party_that_is_told_that_it_is_not_left_agrees_to_nothing():
    parties = Parties(5, colluding=0).run_to("agreements")
    with blamed("server", "Expected those who are left to have shared, this party among them"):
        parties.parties["p0"].agreements(np.packbits([0, 1, 1, 1, 1]).tobytes())


def test_a_party_masks_nothing_if_fewer_shared_than_are_needed():
    parties = Parties(5, colluding=1).run_to("words")
    record = bytes(RECORD_BYTES)
    records = parties.told["p0"][: 3 * RECORD_BYTES] + 2 * record
    with pytest.raises(FederationError, match="Expected 4 parties or more after shares, got 3; absent: p3, p4"):
        parties.parties["p0"].mask(records)


def test_a_party_shares_nothing_if_fewer_sent_keys_than_are_needed():
    parties = Parties(5, colluding=1).run_to("shares")
    with pytest.raises(FederationError, match="Expected 4 parties or more after keys, got 3"):
        parties.parties["p0"].shares(parties.told["p0"][:96] + bytes(64))


def test_a_party_reveals_nothing_of_who_never_shared():
    parties = Parties(6, colluding=0, needed=4).run_to("shares")
    parties.run("shares", {"p5"})
    parties.run("words")
    with pytest.raises(FederationError, match="Expected those who are left to have shared"):
        parties.parties["p0"].agreements(np.packbits([1] * 6).tobytes())


def test_masks_of_one_session_are_of_no_use_in_another():
    ann, bob = Identity(), Identity()
    roster = Roster(("ann", "bob"), (ann.public, bob.public))
    masks = [pair_mask(ann, "ann", "bob", bob.public, roster, session, SIZE) for session in (b"1", b"2")]
    assert (masks[0] != masks[1]).sum() > SIZE - 3
    opposite = pair_mask(bob, "bob", "ann", ann.public, roster, b"1", SIZE)
    assert (masks[0] + opposite == 0).all()


def test_no_secret_is_used_in_two_aggregations():
    first, second = Parties(3), Parties(3)
    keys = [parties.parties["p0"].keys() for parties in (first, second)]
    assert keys[0] != keys[1]
    assert first.parties["p0"]._self_mask != second.parties["p0"]._self_mask


# Who cheats, or was tampered with


def flipped(who, place):
    def alter(name, message):
        if name != who:
            return message
        changed = bytearray(message)
        changed[place] ^= 1
        return bytes(changed)

    return alter


def blamed(party, sentence):
    return pytest.raises(FederationError, match=rf"Party '{party}': {sentence}")


@pytest.mark.parametrize("round_", ROUNDS)
@pytest.mark.parametrize("length", [0, -1, 1])
def test_a_message_of_another_length_names_its_sender(round_, length):
    parties = Parties().run_to(round_)

    def alter(name, message):
        return message if name != "p2" else (message[:length] if length <= 0 else message + b"x")

    with blamed("p2", f"Expected {round_} of "):
        parties.run(round_, altered=alter)


@pytest.mark.parametrize("round_", ROUNDS)
def test_a_second_message_names_its_sender(round_):
    parties = Parties().run_to(round_)
    message = answer(parties.parties["p1"], round_, parties.told["p1"])
    parties.server.take("p1", message)
    with blamed("p1", f"Expected one message of the round '{round_}', got a second"):
        parties.server.take("p1", message)


def test_a_message_of_a_round_that_is_over_names_its_sender():
    parties = Parties(5, colluding=0)
    late = parties.parties["p0"].keys()
    parties.run("keys", {"p0"})
    with blamed("p0", "Expected no message of it any more"):
        parties.server.take("p0", late)


def test_a_stranger_is_named():
    with blamed("eve", "Expected a party of the roster"):
        Parties().server.take("eve", bytes(32))


@pytest.mark.parametrize("place", [0, 30, RECORD_BYTES - 20, RECORD_BYTES - 1])
def test_shares_that_were_altered_on_the_way_name_their_owner(place):
    parties = Parties().run_to("shares")
    parties.run("shares", altered=flipped("p3", place))  # its record for p0
    with blamed("p3", "Expected its sealed shares, got some that it did not make"):
        parties.parties["p0"].mask(parties.told["p0"])


def test_shares_of_an_earlier_session_or_of_another_party_are_refused():
    """The fresh keys of both are in the key under which shares are sealed, and the session, and both names."""
    parties = Parties().run_to("words")
    records = bytearray(parties.told["p0"])
    records[RECORD_BYTES : 2 * RECORD_BYTES] = records[2 * RECORD_BYTES : 3 * RECORD_BYTES]
    with blamed("p1", "Expected its sealed shares"):
        parties.parties["p0"].mask(bytes(records))
    again = Parties()
    again.identities, again.roster = parties.identities, parties.roster
    again.parties = {name: again.party(name) for name in again.names}
    again.server = AggregationServer(again.roster, SESSION, SIZE)
    again.run_to("words")
    records = bytearray(again.told["p0"])
    at = slice(RECORD_BYTES, 2 * RECORD_BYTES)
    records[at] = parties.told["p0"][at]
    with blamed("p1", "Expected its sealed shares"):
        again.parties["p0"].mask(bytes(records))


def test_shares_that_are_not_those_that_were_announced_name_their_owner(monkeypatch):
    parties = Parties().run_to("shares")
    cheat = parties.parties["p2"]
    honest = cheat._digests
    monkeypatch.setattr(cheat, "_digests", lambda owner, holder, shares: honest(owner, holder, shares[::-1]))
    parties.run("shares")
    with blamed("p2", "Expected the shares that it announced, got others"):
        parties.parties["p0"].mask(parties.told["p0"])


@pytest.mark.parametrize("owner", range(5))
def test_a_false_share_in_the_end_names_who_gave_it(owner):
    parties = Parties(5, colluding=0).run_to("words")
    parties.run("words", {"p4"})
    parties.run("agreements")
    with blamed("p1", f"Expected the share that 'p{owner}' gave it, got another"):
        parties.run("reveals", altered=flipped("p1", owner * SHARE_BYTES + 9))


def test_a_server_that_changes_a_partys_key_is_found_out():
    parties = Parties().run_to("shares")
    with blamed("server", "Expected the key of this party among all, got another"):
        parties.parties["p0"].shares(flipped("p0", 3)("p0", parties.told["p0"]))
    parties = Parties().run_to("shares")
    other = flipped("p1", 40)("p1", parties.told["p1"])  # of p1, as p2 is told it
    parties.told["p2"] = other
    parties.run("shares")
    with blamed("p2", "Expected its sealed shares"):
        parties.parties["p1"].mask(parties.told["p1"])


def test_shares_of_somebody_without_a_key_are_refused():
    parties = Parties(5, colluding=0)
    parties.run("keys", {"p4"})
    parties.run("shares")
    records = bytearray(parties.told["p0"])
    records[-RECORD_BYTES:] = b"x" * RECORD_BYTES
    with blamed("p4", "Expected shares of those who sent a key"):
        parties.parties["p0"].mask(bytes(records))


@pytest.mark.parametrize("made", ["keys", "shares", "mask", "agreements", "reveals"])
def test_a_party_answers_each_round_once_and_in_order(made):
    parties = Parties()
    party = parties.parties["p0"]
    calls = {"keys": (), "shares": (b"",), "mask": (b"",), "agreements": (b"",), "reveals": (b"",)}
    if made != "keys":
        with blamed("server", "Expected each round once and in order"):
            getattr(party, made)(*calls[made])
    party.keys()
    with blamed("server", "Expected each round once and in order"):
        party.keys()


def test_a_list_of_who_is_left_has_its_length():
    with blamed("server", "Expected a list of who is left of 1 bytes, got 2"):
        listed_names(b"12", Parties().roster)


def test_an_unknown_round_has_no_answer():
    with pytest.raises(FederationError, match="Expected a round out of keys, shares, words, agreements, reveals"):
        answer(Parties().parties["p0"], "lunch", b"")


# Rosters


@pytest.mark.parametrize(
    ("count", "colluding", "needed"), [(4, 0, 2), (5, 1, 3), (5, 4, 4), (3, 3, 3), (3, -1, 2), (3, 0, 4), (10, 3, 6)]
)
def test_a_roster_whose_secrets_could_be_had_is_refused(count, colluding, needed):
    """With c colluding and a server that lies about who is left, both secrets of a party take 2 t <= n + c answers."""
    with pytest.raises(FederationError, match="more than half of parties and colluding together"):
        Parties(count, colluding, needed)


@pytest.mark.parametrize("count", range(1, 12))
def test_as_few_as_possible_are_needed_by_default(count):
    for colluding in range(count):
        roster = Parties(count, colluding).roster
        assert 2 * roster.needed > count + colluding
        assert 2 * (roster.needed - 1) <= count + colluding
        assert roster.enough == roster.needed - colluding >= 1


def test_names_that_repeat_are_refused():
    with pytest.raises(FederationError, match="Expected parties of different names"):
        Roster(("a", "a"), (bytes(32), bytes(32)))


@pytest.mark.parametrize("count", [1, 4, 9])
def test_as_many_bits_are_sent_as_the_formula_says(rows, query, count):
    some = {f"p{number}": rows["p0"] for number in range(count)}
    assert Aggregation().release(query, some).bits == communication_bits(count, query.size)


def test_parties_who_drop_out_are_left_out_of_the_released_sums(rows, query):
    leaves = {("keys", "p0"), ("words", "p3"), ("reveals", "p5")}
    found = Aggregation(leaves=lambda round_, party: (round_, party) in leaves).release(query, rows)
    kept = {name: own for name, own in rows.items() if name not in ("p0", "p3")}
    assert found.included == tuple(kept)
    assert np.allclose(found.counts, exact(query, kept), atol=1e-9)
