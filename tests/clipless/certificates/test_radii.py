"""Radii as users write them."""

import pytest

from clipless.certificates.radii import parse_radius


@pytest.mark.parametrize(
    ("text", "value"),
    [("36/255", 36 / 255), ("0.25", 0.25), ("1", 1.0), (" 1/4 ", 0.25), ("1e-2", 0.01), ("1/3", 1 / 3)],
)
def test_numbers_and_fractions_are_read(text, value):
    assert parse_radius(text) == value


@pytest.mark.parametrize("value", [0.1, 1 / 3, 2.0**-40, 1e300])
def test_a_float_survives_being_written(value):
    assert parse_radius(repr(value)) == value


@pytest.mark.parametrize("text", ["", "x", "1/0", "1/2/3", "36//255", "1e9/2", f"1{'0' * 400}/1"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(ValueError, match="Expected a radius as a number or fraction"):
        parse_radius(text)


@pytest.mark.parametrize("text", ["0", "-1", "0/5", "-36/255", "nan", "inf", "1e400", "1e99999999", "1e-400"])
def test_a_radius_that_is_not_positive_and_finite_is_refused_at_once(text):
    with pytest.raises(ValueError, match="Expected a radius > 0"):
        parse_radius(text)
