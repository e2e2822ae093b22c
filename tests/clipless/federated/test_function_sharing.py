"""Two key servers: they count without the parties, within the budget, and notice keys that do not belong together."""

from math import sqrt

import numpy as np
import pytest

from clipless.curves.hierarchy import best_hierarchy
from clipless.errors import FederationError
from clipless.federated import function_sharing
from clipless.federated.comparison import from_bytes, key_bits
from clipless.federated.function_sharing import KeyServer, Upload, agreed_parties, combine, communication_bits, upload
from clipless.federated.query import PartyRows, Query
from clipless.federated.ustat import FunctionSharing, exact

LOUD = 200.0
FORM = Upload(6, 2, tuple((f"p{number}", 12) for number in range(7)))


def servers(rows, epsilon=LOUD, form=FORM):
    both = KeyServer(0, form, epsilon), KeyServer(1, form, epsilon)
    for party, own in rows.items():
        for server, content in zip(both, upload(party, own, form), strict=True):
            server.take(party, content)
    return both


def asked(both, query, parties):
    return query.reconcile(combine((both[0].evaluate(query, parties), both[1].evaluate(query, parties))))


def test_thresholds_that_are_chosen_after_all_keys_were_sent_are_counted(rows):
    both = servers(rows, 2 * LOUD)
    for thresholds in ((3, 17), (0, 1, 2, 62, 63)):
        query = Query(thresholds, 2, LOUD)
        assert np.allclose(asked(both, query, tuple(rows)), exact(query, rows))


def test_sums_over_some_of_the_parties_are_theirs(rows, query):
    some = {name: rows[name] for name in ("p1", "p4")}
    assert np.allclose(asked(servers(rows), query, ("p1", "p4")), exact(query, some))


@pytest.mark.parametrize("count", [0, 1, 12])
def test_a_party_sends_as_many_bytes_whatever_the_number_of_its_rows(count):
    rows = PartyRows(np.arange(count), np.ones(count, dtype=np.int64))
    for content in upload("p0", rows, FORM):
        assert 8 * len(content) == 12 * key_bits(6, 2)


def test_keys_beyond_the_rows_count_nothing(query):
    rows = {"p0": PartyRows(np.array([5]), np.array([1]))}
    assert np.allclose(asked(servers(rows), query, ("p0",)), exact(query, rows))


def test_more_rows_than_a_party_declared_are_refused_without_telling_how_many():
    rows = PartyRows(np.arange(13), np.zeros(13, dtype=np.int64))
    with pytest.raises(FederationError, match="Party 'p0': Expected 12 rows at most, got more; declare more") as told:
        upload("p0", rows, FORM)
    assert "13" not in str(told.value)


@pytest.mark.parametrize("group", [-1, 2])
def test_a_group_that_there_is_none_of_is_refused(group):
    with pytest.raises(FederationError, match="Party 'p0': Expected groups below 2"):
        upload("p0", PartyRows(np.array([1]), np.array([group])), FORM)


def test_queries_beyond_the_budget_are_refused_whatever_came_before(rows):
    first, _ = servers(rows, epsilon=1.0)
    parties = tuple(rows)
    first.evaluate(Query((1, 2), 2, 0.5), parties)
    with pytest.raises(FederationError, match=r"Expected queries of epsilon 1 in all, got 0\.75 beyond 0\.5"):
        first.evaluate(Query((1, 2), 2, 0.75), parties)
    first.evaluate(Query((1, 2), 2, 0.5), parties)
    with pytest.raises(FederationError, match=r"got 0\.001 beyond 1"):
        first.evaluate(Query((1, 2), 2, 0.001), parties)


def test_a_query_that_is_asked_again_has_new_noise_and_is_paid_for_again(rows):
    first, _ = servers(rows, epsilon=0.2)
    answers = [first.evaluate(Query(tuple(range(60)), 2, 0.1), tuple(rows)) for _ in range(2)]
    assert (answers[0] != answers[1]).mean() > 0.8


@pytest.mark.sampled(2)
@pytest.mark.parametrize("server", [0, 1])
def test_each_server_alone_adds_all_the_noise_that_is_needed(server, monkeypatch):
    """The words of one server with and without its noise, from the same keys."""
    rows = {"p0": PartyRows(np.arange(10), np.zeros(10, dtype=np.int64))}
    both = servers(rows, epsilon=1e6)
    query = Query((0, 9, 30), 2, 0.5)
    with monkeypatch.context() as patched:
        patched.setattr(Query, "noise", lambda self, _: np.zeros((self.groups, self.size // self.groups), int))
        plain = both[server].evaluate(query, ("p0",))
    drawn = np.array([combine((both[server].evaluate(query, ("p0",)), -plain)) for _ in range(300)])
    expected = sqrt(2.0) * best_hierarchy(3).laplace_change(query.change) / 0.5
    assert drawn.std() == pytest.approx(expected, rel=0.2)


def test_keys_after_an_evaluation_are_refused(rows, query):
    first, _ = servers({"p0": rows["p0"]})
    first.evaluate(query, ("p0",))
    with pytest.raises(FederationError, match="Party 'p1': Expected keys before the first evaluation"):
        first.take("p1", upload("p1", rows["p1"], FORM)[0])


def test_keys_that_come_again_are_refused(rows):
    first, _ = servers(rows)
    with pytest.raises(FederationError, match="Party 'p2': Expected its keys once, got them again"):
        first.take("p2", upload("p2", rows["p2"], FORM)[0])


def test_a_stranger_is_named(rows):
    first, _ = servers({})
    with pytest.raises(FederationError, match="Party 'eve': Expected a party of the roster"):
        first.take("eve", upload("p2", rows["p2"], FORM)[0])
    with pytest.raises(FederationError, match="Party 'p1': Expected its keys, got none"):
        first.evaluate(Query((1,), 2, 1.0), ("p1",))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda content: content[:-1], "Expected keys of"),
        (lambda content: content[: len(content) // 12], "Expected 12 keys, got 1"),
        (lambda content: b"\xff" + content[1:], "Expected keys, got bits that no key has set"),
        (lambda _: b"", "Expected 12 keys, got 0"),
    ],
    ids=["cut", "too few", "no key", "empty"],
)
def test_malformed_keys_name_their_party(rows, change, sentence):
    first, _ = servers({})
    with pytest.raises(FederationError, match=f"Party 'p2': {sentence}"):
        first.take("p2", change(upload("p2", rows["p2"], FORM)[0]))


def test_keys_of_two_different_uploads_name_their_party(rows):
    first, second = servers({"p0": rows["p0"]})
    for server in (first, second):
        server.take("p1", upload("p1", rows["p1"], FORM)[server.number])
    with pytest.raises(FederationError, match="Party 'p1': Expected keys that belong together"):
        agreed_parties(first.list_held(), second.list_held())


def test_a_party_whose_keys_are_missing_on_one_server_is_left_out(rows):
    first, second = servers({"p0": rows["p0"]})
    first.take("p1", upload("p1", rows["p1"], FORM)[0])
    assert agreed_parties(first.list_held(), second.list_held()) == ("p0",)
    assert agreed_parties(second.list_held(), first.list_held()) == ("p0",)


@pytest.mark.parametrize(
    ("query", "parties"),
    [(Query((1, 64), 2, 1.0), ("p0",)), (Query((1,), 1, 1.0), ("p0",)), (Query((1,), 2, 1.0), ())],
    ids=["beyond the domain", "other groups", "nobody"],
)
def test_a_query_that_does_not_fit_the_keys_is_refused_before_anything_is_spent(rows, query, parties):
    first, _ = servers(rows, epsilon=1.0)
    with pytest.raises(FederationError, match="Expected a query of these groups and this domain over some parties"):
        first.evaluate(query, parties)
    first.evaluate(Query((1,), 2, 1.0), ("p0",))


@pytest.mark.parametrize("parties", [("p0", "p0"), ("p0", "p1", "p0")])
def test_a_party_that_is_named_twice_is_refused_before_anything_is_spent(rows, parties):
    """Its rows would count twice beneath noise for once."""
    first, _ = servers(rows, epsilon=1.0)
    with pytest.raises(FederationError, match=f"Expected each party once, got {', '.join(parties)}"):
        first.evaluate(Query((1,), 2, 1.0), parties)
    first.evaluate(Query((1,), 2, 1.0), ("p0",))


def test_sums_that_might_wrap_are_refused():
    form = Upload(6, 2, (("p0", 12), ("huge", 2**31)))
    server = KeyServer(0, form, 1.0)
    server._keys = {"p0": None, "huge": None}
    with pytest.raises(FederationError, match="Expected sums below 2\\^31"):
        server.evaluate(Query((1,), 2, 1.0), ("p0", "huge"))


def test_as_many_bits_are_sent_as_the_formula_says(rows, query):
    found = FunctionSharing(6, capacity=20).release(query, rows)
    assert found.bits == communication_bits(20 * len(rows), 6, query)


def test_absent_parties_are_left_out(rows, query):
    found = FunctionSharing(6, absent=("p0", "p6")).release(query, rows)
    kept = {name: own for name, own in rows.items() if name not in ("p0", "p6")}
    assert found.included == tuple(kept)
    assert np.allclose(found.counts, exact(query, kept), atol=1e-9)


def test_uploads_of_the_same_rows_share_nothing(rows):
    first, second = (from_bytes(upload("p2", rows["p2"], FORM)[0], 0, 6, 2) for _ in range(2))
    assert (first.roots != second.roots).all()
    assert (first.corrections[:, :, 1] != second.corrections[:, :, 1]).all()


def test_there_are_two_servers():
    assert function_sharing.SERVERS == 2
