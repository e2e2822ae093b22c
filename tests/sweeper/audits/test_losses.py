"""Simulated Gaussian slots: their likelihood ratios are right in both worlds, and attain nearly what is claimed."""

import math

import numpy as np
import pytest
import torch

from clipless.privacy.accounting.claim import claim
from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.audits.losses import losses, runs_for, scores
from sweeper.audits.lower_bound import attack


def spent(noise, rate, steps, relation=Relation.ADD_OR_REMOVE_ONE):
    return PoissonGaussian(noise_multiplier=noise, sampling_rate=rate, steps=steps, relation=relation)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("noise", "rate"), [(1.0, 1.0), (1.0, 0.3), (0.5, 0.05)])
def test_a_likelihood_ratio_has_mean_one_under_absence_and_its_inverse_under_presence(noise, rate, relation, generator):
    event = spent(noise, rate, 2, relation)
    absent = losses(event, 400_000, generator, present=False)
    present = losses(event, 400_000, generator, present=True)
    below, above = 3.0, -3.0  # both worlds agree on what the ratio says of events that are not rare
    seen = np.exp(absent[absent < below]).sum() / len(absent)
    assert seen == pytest.approx(np.mean(present < below), abs=0.02)
    seen = np.exp(-present[present > above]).sum() / len(present)
    assert seen == pytest.approx(np.mean(absent > above), abs=0.02)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("noise", "rate", "steps"), [(1.0, 1.0, 1), (2.0, 0.3, 10)])
def test_the_attack_attains_nearly_what_is_claimed_and_never_more(noise, rate, steps, relation, generator):
    event, delta = spent(noise, rate, steps, relation), 0.01
    epsilon = claim(event, delta).epsilon
    _, found = attack({"": scores([event], 400_000, generator)}, {delta: epsilon})
    assert 0.8 * epsilon < found.epsilon <= epsilon
    assert found.p_value > 0.01


def test_what_releases_nothing_tells_nothing(generator):
    for event in (spent(1.0, 0.0, 5), spent(math.inf, 0.5, 5), spent(1.0, 0.5, 0)):
        assert not losses(event, 10, generator, present=True).any()
    assert scores([], 10, generator).present.shape == (10,)


def test_long_sweeps_are_simulated_less_often():
    assert runs_for(1) > runs_for(2000) > runs_for(1e9) > 1000
