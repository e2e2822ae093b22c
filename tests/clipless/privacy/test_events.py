"""Events refuse what cannot have happened, and survive JSON."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clipless.errors import AccountingError
from clipless.privacy.events import Composed, PoissonGaussian, Relation
from tests.clipless.factories import event

NAN, INF = math.nan, math.inf
quick = settings(max_examples=100, deadline=None, derandomize=True, database=None)
events = st.builds(
    PoissonGaussian,
    noise_multiplier=st.floats(0.0, INF),
    sampling_rate=st.floats(0.0, 1.0),
    steps=st.integers(0, 10**9),
    relation=st.just(Relation.ADD_OR_REMOVE_ONE),
)


@pytest.mark.parametrize(
    ("field", "value"),
    [(f, v) for f in ("noise_multiplier", "sampling_rate", "steps") for v in (NAN, -1, -1e-9, "1", None, True)]
    + [("sampling_rate", 1.0000001), ("sampling_rate", INF), ("steps", 1.0), ("steps", INF)]
    + [("relation", "replace-one"), ("relation", None)],
)
def test_what_cannot_have_happened_is_refused_by_name(field, value):
    with pytest.raises(AccountingError, match=f"{field}.* got"):
        event(**{field: value})


@pytest.mark.parametrize(
    "edges", [{"noise_multiplier": 0}, {"noise_multiplier": INF}, {"sampling_rate": 1}, {"steps": 0}]
)
def test_the_edges_of_the_ranges_are_events(edges):
    assert event(**edges) == event(**edges)


@quick
@given(events)
def test_json_returns_the_same_event(original):
    text = json.dumps(original.to_json(), allow_nan=False)
    assert PoissonGaussian.from_json(json.loads(text)) == original


def test_both_relations_survive_json():
    for relation in Relation:
        assert PoissonGaussian.from_json(event(relation=relation).to_json()).relation is relation
        assert Composed((event(relation=relation),)).relation is relation


def test_events_are_frozen_keys():
    assert {event(): 1}[event()] == 1
    assert {Composed((event(),)): 1}[Composed((event(),))] == 1
    with pytest.raises(AttributeError):
        event().steps = 3


def test_with_steps_changes_nothing_else_and_validates():
    assert event().with_steps(7) == event(steps=7)
    with pytest.raises(AccountingError, match="steps"):
        event().with_steps(-1)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "laplace"},
        {"steps": None},
        {"steps": "10"},
        {"noise_multiplier": "nan"},
        {"noise_multiplier": NAN},
        {"relation": "add-one"},
        {"extra": 1},
    ],
)
def test_records_that_fit_no_event_are_refused(change):
    with pytest.raises(AccountingError, match="Expected"):
        PoissonGaussian.from_json(event().to_json() | change)


@pytest.mark.parametrize("record", [{}, [], None, {"kind": "poisson-gaussian"}])
def test_records_of_the_wrong_shape_are_refused(record):
    with pytest.raises(AccountingError, match="Expected"):
        PoissonGaussian.from_json(record)


@pytest.mark.parametrize("several", [(), [event()], event(), None])
def test_a_composition_is_a_tuple_of_events(several):
    with pytest.raises(AccountingError, match="at least one event"):
        Composed(several)


@pytest.mark.parametrize("member", [3, None, Composed((event(),))])
def test_a_composition_holds_plain_events_only(member):
    with pytest.raises(AccountingError, match="Expected PoissonGaussian"):
        Composed((event(), member))


def test_a_composition_has_one_relation():
    with pytest.raises(AccountingError, match="one relation"):
        Composed((event(), event(relation=Relation.REPLACE_ONE)))
