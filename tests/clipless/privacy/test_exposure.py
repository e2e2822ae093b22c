"""What a price means to a person, in numbers by name and in words."""

import math

import pytest

from clipless.privacy.exposure import FALSE_ALARMS, Basis, Exposure, GroupCost, Risk


def risk(caught, basis=Basis.PROFILE):
    return Risk(caught=(0.0, caught, 1.0), advantage=caught, basis=basis)


@pytest.mark.parametrize(("caught", "found"), [(0.0511, 52), (0.051, 51), (0.0100001, 11), (1.0, 1000)])
def test_words_never_find_fewer_than_an_attacker_may(caught, found):
    assert f"accuses 1 in 100 innocents finds at most {found} on average" in risk(caught).in_words()


def test_the_smaller_of_two_bounds_counts_number_by_number():
    one = Risk(caught=(0.1, 0.2, 0.9), advantage=0.5, basis=Basis.PROFILE)
    other = Risk(caught=(0.2, 0.3, 0.8), advantage=0.6, basis=Basis.PAIR)
    both = one.at_most(other)
    assert both == Risk(caught=(0.1, 0.2, 0.8), advantage=0.5, basis=Basis.PROFILE)
    assert other.at_most(one).caught == both.caught
    assert risk(0.3).at_most(Risk(caught=(0.0, 0.2, 0.9), advantage=0.2, basis=Basis.PAIR)).basis is Basis.PROFILE
    louder = Risk(caught=(0.5, 0.5, 0.9), advantage=0.7, basis=Basis.PROFILE)
    assert louder.at_most(other).basis is Basis.PAIR


def test_values_have_a_name_each():
    group = GroupCost(rows=2, epsilon=math.inf, shift=0.5, basis=Basis.PAIR, own=False)
    values = Exposure(risk=risk(0.1), groups=(group,)).to_values()
    assert list(values) == [
        *(f"caught@{rate:g}" for rate in FALSE_ALARMS),
        "advantage",
        "epsilon@2-rows",
        "shift@2-rows",
    ]
