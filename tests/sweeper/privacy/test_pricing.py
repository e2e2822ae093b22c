import math
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.privacy.pricing import epochs_of
from sweeper.rounding import round_up


@given(st.floats(0, 1e12), st.integers(1, 8))
def test_no_printed_epsilon_is_below_the_true_one(epsilon, digits):
    printed = Decimal(round_up(epsilon, digits))
    assert printed >= Decimal(epsilon)
    assert float(printed) <= epsilon * (1 + 10.0 ** (1 - digits)) * (1 + 1e-15)


@pytest.mark.parametrize(
    ("epsilon", "text"), [(0.0, "0"), (1e-9, "0.000000001001"), (12345.6, "12350"), (math.inf, "inf")]
)
def test_an_epsilon_is_printed_plainly(epsilon, text):
    assert round_up(epsilon) == text


@pytest.mark.parametrize(("drawn", "epochs"), [(0, 0), (1, 1), (14, 1), (15, 2), (24, 2), (50, 0)])
def test_epochs_are_begun_by_the_repeat_that_is_ahead(drawn, epochs, plan):
    plan = replace(plan, epochs=3, steps_per_epoch=5, preliminary_steps=2, repeats=2)
    assert epochs_of(plan, drawn) == epochs
