"""Shares of a secret: enough give it back, fewer are uniform and say nothing."""

import os
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chisquare

from clipless.errors import FederationError
from clipless.federated.shamir import SHARE_BYTES, join, split, weights

UNLIKELY = 1e-9


def joined(shares, holders):
    return join({holder: shares[holder - 1] for holder in holders}, dict(zip(holders, weights(holders), strict=True)))


@pytest.mark.parametrize(("needed", "holders"), [(1, 1), (1, 3), (2, 2), (3, 5), (5, 5)])
@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32, os.urandom(32)], ids=["zero", "ones", "random"])
def test_any_so_many_shares_give_the_secret_back(secret, needed, holders):
    shares = split(secret, needed, holders)
    assert all(len(share) == SHARE_BYTES for share in shares)
    for chosen in combinations(range(1, holders + 1), needed):
        assert joined(shares, chosen) == secret


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32], ids=["zero", "ones"])
def test_fewer_shares_are_uniform_and_give_something_else(secret):
    """Each share and each sum of two, of which three are needed."""
    drawn = [split(secret, 3, 4)[:2] for _ in range(2000)]
    numbers = np.array([[share[1] for share in shares] for shares in drawn])  # the byte below the topmost bit
    for column in (*numbers.T, numbers.sum(axis=1) % 256, (numbers[:, 0] - numbers[:, 1]) % 256):
        assert chisquare(np.bincount(column >> 4, minlength=16)).pvalue > UNLIKELY
    assert all(joined(shares, (1, 2)) != secret for shares in drawn)


def test_two_shares_do_not_tell_which_of_two_secrets_they_are_of():
    """For any two shares of three there is a polynomial for every secret."""
    shares = split(bytes(32), 3, 3)
    guessed = b"\x07" * 32
    other = weights((1, 2, 3))
    prime = 2**256 + 297
    rest = int.from_bytes(guessed, "big") - sum(
        w * int.from_bytes(share, "big") for w, share in zip(other[:2], shares[:2], strict=True)
    )
    third = (rest * pow(other[2], -1, prime) % prime).to_bytes(SHARE_BYTES, "big")
    assert joined([*shares[:2], third], (1, 2, 3)) == guessed


def test_shares_of_one_secret_are_drawn_anew_each_time():
    assert len({share for _ in range(20) for share in split(bytes(32), 2, 3)}) == 60


def test_a_false_share_gives_another_secret_or_none():
    shares = split(os.urandom(32), 2, 2)
    assert joined([shares[0], bytes(SHARE_BYTES)], (1, 2)) != joined(shares, (1, 2))


def test_a_number_that_is_no_secret_is_none():
    assert join({1: (2**256 + 3).to_bytes(SHARE_BYTES, "big")}, {1: 1}) is None


@pytest.mark.parametrize(("needed", "holders"), [(0, 3), (4, 3)])
def test_a_number_of_shares_that_nobody_has_is_refused(needed, holders):
    with pytest.raises(FederationError, match="Expected 1 to 3 shares to be needed"):
        split(bytes(32), needed, holders)
