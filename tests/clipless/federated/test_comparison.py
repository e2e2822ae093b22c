"""Function secret sharing of comparisons: right everywhere, and neither key says anything by itself."""

import numpy as np
import pytest
from scipy.stats import binom, chisquare

from clipless.errors import FederationError
from clipless.federated.comparison import ComparisonKeys, evaluate, from_bytes, key_bits, share, to_bytes


def words(rng, *shape):
    return rng.integers(0, 2**32, shape, dtype=np.uint32)


def everywhere(keys):
    return evaluate(keys, np.arange(2**keys.levels))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("groups", [1, 2, 3, 4])
@pytest.mark.parametrize("levels", [1, 2, 3, 4, 5])
def test_both_keys_sum_to_beta_from_the_place_on_and_to_zero_before_it_for_every_place_and_threshold(levels, groups):
    rng = np.random.default_rng(levels)
    places, betas = np.arange(2**levels), words(rng, 2**levels, groups)
    first, second = share(places, betas, levels)
    for row, beta in enumerate(betas):
        found = everywhere(first.some(slice(row, row + 1))) + everywhere(second.some(slice(row, row + 1)))
        assert (found == np.where(np.arange(2**levels)[:, None] >= row, beta, 0)).all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("levels", [7, 13, 20, 32])
def test_many_random_comparisons_at_random_thresholds_sum_to_the_counts(levels):
    rng = np.random.default_rng(levels)
    places = rng.integers(0, 2**levels, 300)
    places[:2] = 0, 2**levels - 1
    thresholds = np.unique(np.concatenate([rng.integers(0, 2**levels, 40), places[:20], [0, 2**levels - 1]]))
    betas = words(rng, 300, 2)
    first, second = share(places, betas, levels)
    found = evaluate(first, thresholds) + evaluate(second, thresholds)
    expected = np.where(thresholds[:, None, None] >= places[:, None], betas, 0).sum(axis=1, dtype=np.uint32)
    assert (found == expected).all()


def test_keys_are_evaluated_the_same_in_small_and_in_large_lots(monkeypatch):
    rng = np.random.default_rng(0)
    keys, _ = share(rng.integers(0, 64, 50), words(rng, 50, 1), 6)
    whole = everywhere(keys)
    monkeypatch.setattr("clipless.federated.comparison._CACHED", 64 * 7)
    assert (everywhere(keys) == whole).all()


@pytest.mark.parametrize(("levels", "groups"), [(1, 1), (4, 2), (5, 3), (10, 2), (17, 4)])
def test_a_key_is_as_long_as_the_formula_says_and_linear_in_the_levels(levels, groups):
    rng = np.random.default_rng(0)
    for keys in share(rng.integers(0, 2**levels, 3), words(rng, 3, groups), levels):
        assert 8 * to_bytes(keys).shape[1] == key_bits(levels, groups)
    bits = 128 + levels * (128 + 2 + 32 * groups) + 32 * groups
    assert bits <= key_bits(levels, groups) < bits + 8


@pytest.mark.parametrize("levels", [1, 3, 4, 10])
def test_keys_come_back_from_bytes(levels):
    rng = np.random.default_rng(0)
    for keys in share(rng.integers(0, 2**levels, 5), words(rng, 5, 2), levels):
        again = from_bytes(to_bytes(keys).tobytes(), keys.server, levels, 2)
        assert (to_bytes(again) == to_bytes(keys)).all()
        assert (everywhere(again) == everywhere(keys)).all()


SECRETS = {
    "nothing": (0, 0),
    "the first threshold": (0, 1),
    "the last threshold": (63, 1),
    "somewhere": (37, 1),
    "many": (37, 2**32 - 1),
}


def key_of(secret, server, count):
    place, beta = SECRETS[secret]
    return share(np.full(count, place), np.full((count, 1), beta, dtype=np.uint32), 6)[server]


def free_bits(keys):
    """Bits of keys (K, bits) without those that are zero in every key."""
    bits = np.unpackbits(to_bytes(keys), axis=1)
    spare = np.concatenate([[7], 128 * np.arange(1, keys.levels + 1) + 7])  # lowest bits of seeds, little-endian
    last = 128 * (keys.levels + 1) + np.arange(2 * keys.levels, 8 * -(-2 * keys.levels // 8))
    assert not bits[:, spare].any()
    return np.delete(bits, np.concatenate([spare, last]), axis=1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("server", [0, 1])
@pytest.mark.parametrize("secret", SECRETS)
def test_every_bit_of_one_key_is_a_fair_coin_and_no_two_neighbours_are_related_whatever_it_hides(secret, server):
    bits = free_bits(key_of(secret, server, 4000))
    chance = 1e-9 / bits.shape[1]
    low, high = binom.interval(1.0 - chance, len(bits), 0.5)
    for column in (bits, bits[:, 1:] ^ bits[:, :-1], bits ^ np.roll(bits, 64, axis=1)):
        ones = column.sum(axis=0)
        assert ((low <= ones) & (ones <= high)).all()


@pytest.mark.parametrize("server", [0, 1])
def test_a_classifier_of_single_keys_learns_nothing_of_place_or_beta(server):
    """The best of all bits and pairs of bits with the root, chosen on half of the keys, is a coin on the other half."""
    samples = [free_bits(key_of(secret, server, 3000)).astype(np.int64) for secret in ("nothing", "many")]
    features = [np.concatenate([bits, bits ^ bits[:, :1]], axis=1) for bits in samples]
    gaps = features[0][:1500].mean(axis=0) - features[1][:1500].mean(axis=0)
    best = int(np.abs(gaps).argmax())
    right = (features[0][1500:, best] == (gaps[best] > 0)).sum() + (features[1][1500:, best] == (gaps[best] < 0)).sum()
    low, high = binom.interval(1.0 - 1e-9, 3000, 0.5)
    assert low <= right <= high


@pytest.mark.sampled(3)
@pytest.mark.parametrize("server", [0, 1])
@pytest.mark.parametrize("secret", SECRETS)
def test_the_words_of_one_key_are_uniform_before_at_and_after_the_place(secret, server):
    keys = key_of(secret, server, 2000)
    thresholds = np.array([0, 36, 37, 38, 63])
    words_KT = np.array([evaluate(keys.some(slice(k, k + 1)), thresholds)[:, 0] for k in range(400)])
    for found in words_KT.T:
        assert chisquare(np.bincount(found >> 29, minlength=8)).pvalue > 1e-9


def test_no_two_keys_share_a_seed_or_a_correction():
    keys = [key_of("somewhere", server, 500) for server in (0, 1)]
    seeds = np.concatenate([*(one.roots for one in keys), *(one.corrections.reshape(-1, 2) for one in keys)])
    assert len(np.unique(seeds, axis=0)) == len(seeds)


@pytest.mark.parametrize(
    "thresholds", [[], [-1, 2], [3, 3], [5, 2], [0, 8]], ids=["none", "negative", "twice", "falling", "beyond"]
)
def test_thresholds_outside_of_the_domain_or_out_of_order_are_refused(thresholds):
    keys, _ = share(np.array([1]), np.array([[1]], dtype=np.uint32), 3)
    with pytest.raises(FederationError, match="Expected increasing thresholds from 0 to 7"):
        evaluate(keys, np.array(thresholds, dtype=np.int64))


@pytest.mark.parametrize(
    ("places", "shape", "levels", "sentence"),
    [
        ([8], (1, 1), 3, "one place below 2\\^3"),
        ([-1], (1, 1), 3, "one place below"),
        ([1, 2], (1, 1), 3, "one place below"),
        ([1], (1, 5), 3, "words of 1 to 4 groups"),
        ([1], (1, 1), 0, "1 to 32 levels"),
    ],
)
def test_rows_that_have_no_function_are_refused(places, shape, levels, sentence):
    with pytest.raises(FederationError, match=sentence):
        share(np.array(places), np.ones(shape, dtype=np.uint32), levels)


def test_bytes_that_are_no_keys_are_refused():
    content = bytearray(to_bytes(key_of("somewhere", 0, 2)).tobytes())
    with pytest.raises(FederationError, match="Expected keys of 142 bytes each, got 283 bytes"):
        from_bytes(bytes(content[:-1]), 0, 6, 1)
    for place in (0, 16, 112 + 1):  # a control bit in the root, in a correction, and a spare bit
        wrong = content.copy()
        wrong[place] |= 1
        with pytest.raises(FederationError, match="bits that no key has set"):
            from_bytes(bytes(wrong), 0, 6, 1)


def test_some_keys_are_keys():
    keys = key_of("somewhere", 1, 10)
    assert isinstance(keys.some(slice(2, 5)), ComparisonKeys)
    assert (to_bytes(keys.some(slice(2, 5))) == to_bytes(keys)[2:5]).all()
