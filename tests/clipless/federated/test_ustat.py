"""Every protocol gives the exact sums and the noise that it states, and none without noise."""

from itertools import product
from math import sqrt

import numpy as np
import pytest
from scipy.stats import ks_2samp

from clipless.curves.hierarchy import Hierarchy, best_hierarchy
from clipless.curves.release import Laplace
from clipless.curves.tree import Change, Tree
from clipless.errors import AccountingError, FederationError
from clipless.federated.aggregation.party import contribution
from clipless.federated.aggregation.roster import Roster
from clipless.federated.primitives import Identity, check_no_wrap, from_words, to_words
from clipless.federated.query import PartyRows, Query, SharedLaplace, places
from clipless.federated.ustat import Aggregation, Curator, FunctionSharing, exact
from clipless.privacy.discrete_noise import scale_at_least
from clipless.privacy.events import Relation
from clipless.testing import SeededSource

PROTOCOLS = {
    "curator": (Curator(), 1.0),
    "aggregation": (Aggregation(), 7 / 4),
    "aggregation against three": (Aggregation(3), 7 / 3),
    "function sharing": (FunctionSharing(6), 2.0),
}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_sums_are_exact_but_for_noise(rows, query, name):
    found = PROTOCOLS[name][0].release(query, rows)
    assert found.included == tuple(rows)
    assert np.allclose(found.counts, exact(query, rows), atol=1e-9)
    assert found.bits > 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "groups"),
    [
        pytest.param(name, groups, marks=[pytest.mark.long] * (groups == 2 or name == "aggregation against three"))
        for name, groups in product(PROTOCOLS, (1, 2))
    ],
)
def test_the_noise_of_sums_has_the_stated_deviation_and_copies_of_what_is_needed(rows, name, groups):
    protocol, copies = PROTOCOLS[name]
    query = Query((3, 30, 63), groups, 0.5)
    own = {party: PartyRows(one.places, one.groups % groups) for party, one in rows.items()}
    found = [protocol.release(query, own) for _ in range(200)]
    errors = np.array([one.counts - exact(query, own) for one in found])
    assert float(found[0].mechanism.power) == pytest.approx(copies)
    stated = found[0].mechanism.deviation(3, query.change)
    assert stated == pytest.approx(copies**0.5 * Laplace(0.5).deviation(3, query.change))
    assert errors.std() == pytest.approx(stated, rel=0.3)
    assert abs(errors.mean()) < 0.5 * stated


def test_what_all_but_the_colluding_parties_add_is_the_noise_that_is_needed():
    """Three of five collude and leave their own noise out: that of the other two is left, and enough."""
    roster = Roster(tuple("abcde"), tuple(Identity().public for _ in range(5)), colluding=3)
    assert (roster.needed, roster.enough) == (5, 2)
    query = Query((3, 30, 63), 1, 0.5)
    nothing = PartyRows(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    honest = [sum(from_words(contribution(query, nothing, roster)) for _ in range(roster.enough)) for _ in range(600)]
    expected = sqrt(2.0) * float(scale_at_least(best_hierarchy(3).laplace_change(Change.ADDED) / 0.5))
    assert np.std(honest) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(("contributors", "enough"), [(1, 1), (3, 3), (7, 4)])
def test_the_noise_of_all_at_once_is_distributed_as_that_of_each_added_up(contributors, enough):
    alone = Hierarchy(4000, 2, 1)  # noise of its own for each number of rows between thresholds
    mechanism = SharedLaplace(0.5, alone, contributors=contributors, enough=enough)
    source = SeededSource(9)
    whole = np.diff(mechanism.noise(4000, Change.ADDED, source), prepend=0.0)
    parts = sum(mechanism.of_one.blocks(4000, Change.ADDED, source) for _ in range(contributors))
    assert ks_2samp(whole, parts).pvalue > 1e-9
    expected = sqrt(2.0 * contributors / enough) * 2.0  # at this scale 2 % less, as numbers are whole
    assert whole.std() == pytest.approx(expected, rel=0.1)
    assert parts.std() == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(("contributors", "enough"), [(1, 2), (0, 1), (3, 0)])
def test_noise_of_fewer_than_are_needed_is_refused(contributors, enough):
    with pytest.raises(AccountingError, match="Expected noise of"):
        SharedLaplace(1.0, contributors=contributors, enough=enough)


@pytest.mark.parametrize("kind", [Tree(4, 2, 1), Hierarchy(5, 2, 2)])
def test_noise_that_cannot_be_shared_is_refused(kind):
    with pytest.raises(AccountingError, match="Expected the noise of a hierarchy for 4 counts"):
        SharedLaplace(1.0, kind).noise(4, Change.ADDED, SeededSource(0))


def test_the_relation_of_a_query_decides_what_a_row_changes():
    changes = {
        (groups, relation): Query((1,), groups, 1.0, relation).change for groups in (1, 2) for relation in Relation
    }
    assert changes == {
        (1, Relation.ADD_OR_REMOVE_ONE): Change.ADDED,
        (1, Relation.REPLACE_ONE): Change.MOVED,
        (2, Relation.ADD_OR_REMOVE_ONE): Change.ADDED,
        (2, Relation.REPLACE_ONE): Change.RELABELLED,
    }


@pytest.mark.parametrize(
    ("thresholds", "groups", "epsilon", "sentence"),
    [
        ((), 1, 1.0, "thresholds from 0"),
        ((-1, 3), 1, 1.0, "thresholds from 0"),
        ((3, 2**20), 1, 1.0, "thresholds from 0"),
        ((3, 3), 1, 1.0, "thresholds that increase"),
        ((3,), 3, 1.0, "1 or 2 groups"),
        ((3,), 1, 0.0, "epsilon"),
        ((3,), 1, float("nan"), "epsilon"),
        ((3,), 1, float("inf"), "epsilon"),
    ],
)
def test_a_query_that_cannot_be_asked_is_refused(thresholds, groups, epsilon, sentence):
    with pytest.raises((FederationError, AccountingError), match=sentence):
        Query(thresholds, groups, epsilon)


@pytest.mark.parametrize("number", [0, 1, -1, 2**31 - 1, -(2**31), 70_000, -70_000])
def test_numbers_come_back_from_words(number):
    assert from_words(to_words(np.array([number])))[0] == number


def test_sums_of_many_rows_do_not_wrap():
    """A million rows in one place, which shorter words would lose."""
    rows = {"big": PartyRows(np.zeros(1_000_000, dtype=np.int64), np.ones(1_000_000, dtype=np.int64))}
    query = Query((0, 1), 2, 200.0)
    assert np.allclose(Curator().release(query, rows).counts, [[0, 0], [1_000_000, 1_000_000]])


@pytest.mark.parametrize(("rows", "deviation"), [(2**31, 1.0), (10, 3e7), (10, float("nan"))])
def test_sums_without_room_are_refused(rows, deviation):
    with pytest.raises((FederationError, ValueError)):
        check_no_wrap(rows, deviation)


def test_values_are_placed_at_the_first_threshold_that_they_do_not_exceed():
    found = places(np.array([0.0, 0.5, 1.0]), [-3.0, 0.0, 0.1, 0.5, 0.7, 1.0, 9.0, float("nan"), float("inf")])
    assert found.tolist() == [0, 0, 1, 1, 2, 2, 2, 2, 2]


@pytest.mark.parametrize("count", [1, 2, 5, 100])
def test_sums_of_blocks_are_linear_and_agree_on_the_counts(count):
    rng = np.random.default_rng(count)
    query = Query(tuple(range(count)), 2, 1.0)
    first, second = np.cumsum(rng.integers(0, 9, (2, 2, count)), axis=2)
    assert (query.sums(first) + query.sums(second) == query.sums(first + second)).all()
    assert query.sums(first).size == query.size
    assert np.allclose(query.reconcile(query.sums(first)), first)


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("groups", [1, 2])
def test_a_row_changes_sums_by_no_more_than_their_noise_is_scaled_for(groups, relation):
    """Every pair of rows, or a row and none: the largest change of all sums together, in absolute value."""
    query = Query(tuple(range(20)), groups, 1.0, relation)
    rows = [
        query.sums(query.counts(PartyRows(np.array([place]), np.array([group]))))
        for place in range(20)
        for group in range(groups)
    ]
    others = rows if relation is Relation.REPLACE_ONE else [np.zeros_like(rows[0])]
    largest = max(np.abs(one - other).sum() for one in rows for other in others)
    assert largest == best_hierarchy(20).laplace_change(query.change)


@pytest.mark.parametrize("relation", Relation)
def test_the_noise_of_blocks_is_scaled_for_all_levels_that_a_row_is_in(relation):
    query = Query(tuple(range(1000)), 2, 0.5, relation)
    drawn = query.noise(query.noise_of(1, 1), SeededSource(3))
    scale = float(scale_at_least(best_hierarchy(1000).laplace_change(query.change) / 0.5))
    assert best_hierarchy(1000).levels >= 2
    assert drawn.size == query.size
    assert drawn.std() == pytest.approx(sqrt(2.0) * scale, rel=0.1)


def test_counts_of_all_parties_together_are_those_of_their_rows_together(rows, query):
    whole = PartyRows(
        np.concatenate([one.places for one in rows.values()]), np.concatenate([one.groups for one in rows.values()])
    )
    assert (query.counts(whole) == exact(query, rows)).all()
    expected = [
        [((whole.places <= threshold) & (whole.groups == group)).sum() for threshold in query.thresholds]
        for group in (0, 1)
    ]
    assert query.counts(whole).tolist() == expected
