"""The generator of batches and noise: distributions, independence, secrecy.

Statistical limits are so wide (six standard deviations, p < 1e-9) that a sound secure source fails once in a
hundred million runs; the seeded source gives the same result each time.
"""

import copy
import os
import pickle
from math import sqrt

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats

from clipless.privacy.keystream import Keystream, Purpose
from clipless.privacy.randomness import RandomSource, SecureSource, _box_muller
from clipless.testing import SeededSource

COUNT = 400_000
SIGMAS = 6.0
UNLIKELY = 1e-9


class ConstantSource(RandomSource):
    """Every byte is the same."""

    def __init__(self, byte):
        self._byte = byte

    @property
    def secure(self):
        return False

    def random_bytes(self, count):
        return bytearray([self._byte]) * count


class WordSource(RandomSource):
    """The same 32-bit words again and again."""

    def __init__(self, *words):
        self._words = words

    @property
    def secure(self):
        return False

    def random_bytes(self, count):
        words = np.resize(np.array(self._words, dtype=np.uint32), count // 4)
        return bytearray(words.tobytes())


class KeystreamSource(RandomSource):
    """What a secure source hands out on another device, made on this one."""

    def __init__(self):
        self._streams = {purpose: Keystream("cpu", purpose) for purpose in Purpose}

    @property
    def secure(self):
        return True

    def random_bytes(self, count):
        return bytearray(self._streams[Purpose.NOISE].words(-(-count // 8)).numpy().tobytes()[:count])

    def words(self, count, _device, purpose):
        return self._streams[purpose].words(count)


SOURCES = {"secure": SecureSource, "seeded": lambda: SeededSource(0), "keystream": KeystreamSource}


@pytest.fixture(scope="module", params=SOURCES)
def normals(request):
    return SOURCES[request.param]().normal(COUNT).double().numpy()


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("power", "moment"), [(1, 0), (2, 1), (3, 0), (4, 3), (5, 0), (6, 15)])
def test_normals_have_the_moments_of_the_normal_distribution(normals, power, moment):
    spread = sqrt(stats.norm.moment(2 * power) - moment**2)
    assert abs((normals**power).mean() - moment) <= SIGMAS * spread / sqrt(COUNT)


def test_normals_follow_the_normal_distribution_function(normals):
    assert stats.kstest(normals, "norm").pvalue > UNLIKELY


@pytest.mark.parametrize("cut", [1.0, 2.0, 3.0, 4.0])
@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_tails_hold_as_many_normals_as_they_should(normals, cut, side):
    found = int((side * normals > cut).sum())
    assert stats.binomtest(found, COUNT, stats.norm.sf(cut)).pvalue > UNLIKELY


def test_normals_of_one_draw_are_uncorrelated_with_each_other_and_in_their_size(normals):
    limit = SIGMAS / sqrt(COUNT / 2)
    half = COUNT // 2
    for a, b in [(normals[:half], normals[half:]), (normals[::2], normals[1::2]), (normals[:-1], normals[1:])]:
        assert abs(np.corrcoef(a, b)[0, 1]) <= limit
        assert abs(np.corrcoef(np.abs(a), np.abs(b))[0, 1]) <= limit


@pytest.mark.parametrize("count", [0, 1, 2, 7, 1000])
def test_as_many_float64_normals_come_as_were_asked_for(count):
    drawn = SecureSource().normal(count)
    assert (drawn.shape, drawn.dtype) == ((count,), torch.float64)
    assert drawn.isfinite().all()


@pytest.mark.parametrize(("smaller", "nearer"), [(0, 0), (20, 0), (39, 0), (0, 1), (0, 16), (0, 31), (0, 53)])
def test_a_computed_normal_is_off_by_no_more_than_the_guarantee_allows(smaller, nearer):
    """Against 60 digits; of uniform numbers that are smaller, or nearer to 1, by so many bits."""
    words_2P = SecureSource().words(2 * 150, "cpu", Purpose.NOISE).view(2, 150)
    low = 2**53 - 1
    words_2P[0] = (words_2P[0] & ~low) | ((words_2P[0] & low) >> smaller) | (low & ~(low >> nearer))
    normals_2P = torch.empty(2, 150, dtype=torch.float64)
    _box_muller(words_2P, normals_2P)
    with mpmath.workdps(60):
        for first, second, cosine, sine in zip(*words_2P.tolist(), *normals_2P.tolist(), strict=True):
            spare = [word >> 53 & 2**11 - 1 for word in (first, second)]
            whole = ((first & low) << 22) + (spare[0] << 11) + spare[1] + 1
            radius = mpmath.sqrt(-2 * mpmath.log(mpmath.mpf(whole) / 2**75))
            angle = 2 * mpmath.pi * (second & low) / 2**53
            errors = (radius * mpmath.cos(angle) - cosine, radius * mpmath.sin(angle) - sine)
            assert max(map(abs, errors)) <= 2.0**-47


@pytest.mark.parametrize("byte", [0x00, 0xFF, 0x80, 0x7F])
def test_no_bytes_give_a_normal_that_is_not_finite(byte):
    drawn = ConstantSource(byte).normal(1000)
    assert drawn.isfinite().all()
    assert drawn.abs().max() <= sqrt(2 * 75 * np.log(2)) * (1 + 1e-6)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("probability", [0.001, 0.1, 0.5, 0.93])
@pytest.mark.parametrize("source", SOURCES)
def test_booleans_come_at_their_probability(probability, source):
    drawn = SOURCES[source]().bernoulli(COUNT, probability)
    assert stats.binomtest(int(drawn.sum()), COUNT, probability).pvalue > UNLIKELY


@pytest.mark.sampled(5)
@pytest.mark.parametrize("probability", [0.001, 0.1, 0.5, 0.93])
@pytest.mark.parametrize("source", SOURCES)
def test_members_come_at_their_probability_and_apart(probability, source):
    drawn = SOURCES[source]().members(COUNT, probability, "cpu").numpy()
    assert stats.binomtest(int(drawn.sum()), COUNT, probability).pvalue > UNLIKELY
    both = int((drawn[:-1] & drawn[1:]).sum())
    assert abs(both / COUNT - probability**2) <= SIGMAS * sqrt(3 * probability**2 / COUNT)


def test_members_are_what_booleans_are():
    source, other = SeededSource(5), SeededSource(5)
    assert source.members(1001, 0.3, "cpu").tolist() == other.bernoulli(1002, 0.3)[:1001].tolist()
    assert WordSource(2**31 - 1, 2**31).members(2, 0.5, "cpu").tolist() == [True, False]
    assert WordSource(2**32 - 1).members(3, 1.0, "cpu").all()


def test_normals_and_members_of_one_source_are_independent():
    source = KeystreamSource()
    normals, members = source.normal(COUNT).numpy(), source.members(COUNT, 0.5, "cpu").numpy()
    assert abs(np.corrcoef(normals, members)[0, 1]) <= SIGMAS / sqrt(COUNT)
    assert abs(np.corrcoef(np.abs(normals), members)[0, 1]) <= SIGMAS / sqrt(COUNT)


def test_runs_of_booleans_are_as_long_as_independence_makes_them():
    """Chi-square over the patterns of eight neighbours."""
    bits = SecureSource().bernoulli(COUNT, 0.5)
    patterns = np.packbits(bits)
    assert stats.chisquare(np.bincount(patterns, minlength=256)).pvalue > UNLIKELY


def test_certain_booleans_are_certain():
    assert not SecureSource().bernoulli(1000, 0.0).any()
    assert SecureSource().bernoulli(1000, 1.0).all()
    assert len(SecureSource().bernoulli(0, 0.5)) == 0


def test_a_probability_is_rounded_down():
    assert WordSource(2**31 - 1, 2**31).bernoulli(2, 0.5).tolist() == [True, False]
    assert WordSource(0, 1).bernoulli(2, 1.9 * 2.0**-32).tolist() == [True, False]
    assert WordSource(0).bernoulli(1, 0.9 * 2.0**-32).tolist() == [False]


@pytest.mark.parametrize("probability", [-0.1, 1.1, float("nan")])
def test_a_number_that_is_no_probability_is_refused(probability):
    with pytest.raises(ValueError, match="probability"):
        SecureSource().bernoulli(3, probability)


@pytest.mark.parametrize("source", SOURCES)
def test_bytes_and_bits_are_uniform(source):
    values = np.frombuffer(SOURCES[source]().random_bytes(COUNT), dtype=np.uint8)
    assert stats.chisquare(np.bincount(values, minlength=256)).pvalue > UNLIKELY
    bits = np.unpackbits(values).reshape(-1, 8)
    for position in range(8):
        assert stats.binomtest(int(bits[:, position].sum()), COUNT, 0.5).pvalue > UNLIKELY
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) <= SIGMAS / sqrt(COUNT)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 1000])
def test_as_many_bytes_come_as_were_asked_for(count):
    assert len(SecureSource().random_bytes(count)) == count


def test_no_bytes_come_twice_from_one_stream():
    source = SecureSource()
    blocks = {bytes(source.random_bytes(16)) for _ in range(5000)}
    assert len(blocks) == 5000


def test_two_sources_are_independent():
    first, second = (SecureSource().normal(COUNT).numpy() for _ in range(2))
    assert abs(np.corrcoef(first, second)[0, 1]) <= SIGMAS / sqrt(COUNT)
    table = np.histogram2d(first > 0, second > 0, bins=2)[0]
    assert stats.chi2_contingency(table).pvalue > UNLIKELY


def test_no_seed_makes_a_secure_source_repeat():
    drawn = []
    for _ in range(2):
        torch.manual_seed(0)
        drawn.append(bytes(SecureSource().random_bytes(32)))
    assert drawn[0] != drawn[1]


def test_key_and_counter_come_from_the_operating_system(monkeypatch):
    asked = []

    def constant(count):
        asked.append(count)
        return bytes(count)

    monkeypatch.setattr(os, "urandom", constant)
    assert SecureSource().random_bytes(64) == SecureSource().random_bytes(64)
    assert asked == [32, 16, 32, 16]


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, *(lambda s, p=p: pickle.dumps(s, p) for p in range(6))]
)
def test_a_secure_source_is_neither_copied_nor_pickled(duplicate):
    with pytest.raises(TypeError, match="never copied or pickled"):
        duplicate(SecureSource())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_does_not_repeat_its_parents_noise():
    source = SecureSource()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, bytes(source.random_bytes(16)))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 16) != bytes(source.random_bytes(16))


def test_sources_say_whether_they_are_secure():
    assert SecureSource().secure is True
    assert SeededSource(0).secure is False


def test_a_seeded_source_repeats():
    assert torch.equal(SeededSource(3).normal(50), SeededSource(3).normal(50))
    assert not torch.equal(SeededSource(3).normal(50), SeededSource(4).normal(50))
