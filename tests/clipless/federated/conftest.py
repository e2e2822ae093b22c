"""Parties with rows, and queries that add little noise."""

import numpy as np
import pytest

from clipless.federated.query import PartyRows, Query

LOUD = 200.0  # an epsilon at which noise is zero but for a chance of 1e-20


@pytest.fixture
def rows():
    rng = np.random.default_rng(3)
    return {
        f"p{number}": PartyRows(rng.integers(0, 64, 5 + number), rng.integers(0, 2, 5 + number)) for number in range(7)
    }


@pytest.fixture
def query():
    return Query((0, 5, 20, 21, 40, 63), 2, LOUD)
