"""Lower bounds from counts: exact, monotone, and above the truth no more often than stated."""

import math

import numpy as np
import pytest
from scipy import stats

from sweeper.audits.lower_bound import RunScores, attack, lower_bound, p_value

RNG = np.random.default_rng


def test_bounds_are_those_of_clopper_and_pearson():
    hits, alarms, runs, delta = 60, 5, 100, 0.01
    low = stats.binomtest(hits, runs).proportion_ci(0.95, "exact").low
    high = stats.binomtest(alarms, runs).proportion_ci(0.95, "exact").high
    assert lower_bound(hits, alarms, runs, delta) == pytest.approx(math.log((low - delta) / high), rel=1e-6)


@pytest.mark.parametrize(("hits", "alarms"), [(0, 0), (0, 100), (100, 100), (3, 50)])
def test_counts_that_prove_nothing_prove_nothing(hits, alarms):
    assert lower_bound(hits, alarms, 100, 0.01) == 0.0


def test_a_hit_in_every_run_and_no_alarm_prove_as_much_as_the_runs_allow():
    assert 5.0 < lower_bound(1000, 0, 1000, 0.0) < math.log(1000)


@pytest.mark.parametrize("claim", [0.5, 1.0, 1.4])
def test_the_p_value_is_the_error_at_which_the_bound_meets_the_claim(claim):
    counts = 300, 80, 1000, 0.01
    found = p_value(*counts, claim)
    if found < 1.0:
        assert lower_bound(*counts, 1.0 - found) == pytest.approx(claim, rel=1e-3)
    assert p_value(*counts, claim + 0.1) >= found


@pytest.mark.long
def test_a_true_claim_is_rejected_no_more_often_than_stated():
    rng, runs, delta, epsilon = RNG(0), 500, 0.01, 1.0
    absent = 0.1
    present = math.exp(epsilon) * absent + delta
    drawn = [p_value(rng.binomial(runs, present), rng.binomial(runs, absent), runs, delta, epsilon) for _ in range(400)]
    assert np.mean(np.array(drawn) <= 0.05) <= 0.05
    assert p_value(400, 10, runs, delta, epsilon) < 1e-9


def test_one_half_of_the_runs_chooses_and_the_other_decides():
    """Scores that tell worlds apart in the first half only must not count."""
    rng = RNG(1)
    present, absent = rng.normal(size=2000), rng.normal(size=2000)
    present[:1000] += 5.0
    assert attack({"": RunScores(present, absent)}, {0.01: 1.0})[1].epsilon == 0.0
    present[1000:] += 5.0
    assert attack({"": RunScores(present, absent)}, {0.01: 1.0})[1].epsilon > 3.0


def test_the_direction_and_the_score_that_say_most_are_taken():
    rng = RNG(2)
    useless = RunScores(rng.normal(size=40_000), rng.normal(size=40_000))
    absence = RunScores(*(-(rng.random(40_000) < share).astype(float) for share in (0.9, 0.999)))
    name, found = attack({"useless": useless, "absence": absence}, {0.001: 1.0, 0.01: 1.0})
    assert name == "absence"
    assert found.epsilon > 3.0
    assert found.p_value < 1e-6
