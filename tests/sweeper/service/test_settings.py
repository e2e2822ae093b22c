"""Under which address people find a sweep."""

import pytest

from sweeper.service.settings import ServiceSettings


@pytest.mark.parametrize(
    ("settings", "page"),
    [
        ({"port": 8600}, "http://127.0.0.1:8600/?sweep=s-1"),
        ({"host": "::1"}, "http://[::1]:8000/?sweep=s-1"),
        ({"host": "0.0.0.0"}, None),
        ({"port": 0}, None),
        ({"host": "0.0.0.0", "page": "https://sweeps.example.org/"}, "https://sweeps.example.org/?sweep=s-1"),
        ({"page": "https://example.org/sweeps"}, "https://example.org/sweeps/?sweep=s-1"),
    ],
)
def test_the_page_of_a_sweep_is_where_people_find_it(settings, page):
    assert ServiceSettings(**settings).page_of("s-1") == page
