import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.live.view import MOST_COMPARED, Tab, View
from sweeper.records import MADE_FROM

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="="), min_size=1, max_size=20)
NUMBERS = st.sampled_from([0.5, 1.0, 3.25, 1e-5, 100.0])


@given(
    st.builds(
        View,
        sweep=NAMES,
        tab=st.sampled_from(Tab),
        solid=st.booleans(),
        radius=NAMES,
        linear=st.booleans(),
        max_epsilon=st.none() | NUMBERS,
        minimum=st.dictionaries(NAMES, NUMBERS, max_size=3),
        point=st.none() | st.tuples(NAMES, st.integers(1, 999), st.sampled_from(["", *MADE_FROM])),
        compared=st.lists(NAMES, max_size=4, unique=True).map(tuple),
        anyway=st.booleans(),
    )
)
def test_an_address_says_the_whole_view(view):
    assert View.parse(view.query()) == view


def test_the_plain_page_has_a_plain_address():
    assert View().query() == ""
    assert View(sweep="digits").query() == "?sweep=digits"


@pytest.mark.parametrize(
    "query",
    [
        "?tab=nonsense",
        "?max-epsilon=nan",
        "?max-epsilon=inf",
        "?max-epsilon=three",
        "?min=accuracy",
        "?min==0.3",
        "?min=accuracy=high",
        "?point=t0001",
        "?point=.3",
        "?point=t0001.three",
        "?point=t0001.9999999999999",
        "?point=t0001.\u0663",
        "?view=4d",
        "?anyway=yes",
        "&".join(f"a{i}=1" for i in range(100)),
        "?%ff%fe",
    ],
)
def test_what_an_address_says_wrongly_is_as_if_it_were_not_there(query):
    assert View.parse(query) == View()


def test_the_trial_of_a_point_may_hold_dots():
    assert View.parse("?point=a.b.12").point == ("a.b", 12, "")
    assert View.parse("?point=a.7.b.12.slow-midpoint").point == ("a.7.b", 12, "slow-midpoint")


def test_a_comparison_names_each_sweep_once_and_not_too_many():
    assert View.parse("?compare=a&compare=b&compare=a").compared == ("a", "b")
    many = "&".join(f"compare=s{i}" for i in range(40))
    assert len(View.parse(many).compared) == MOST_COMPARED


def test_a_sweep_is_no_comparison():
    assert View(compared=("a", "b")).compares
    assert not View(sweep="a", compared=("a", "b")).compares
    assert not View().compares
