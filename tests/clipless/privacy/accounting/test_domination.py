"""Which events may fill a slot: against exact privacy profiles, by adaptive quadrature and in closed form."""

import math
from dataclasses import replace

import pytest

from clipless.errors import AccountingError
from clipless.privacy.accounting.domination import (
    DOMINATION_SLACK,
    delta_of_slots,
    dominated_noise_multiplier,
    dominates,
)
from clipless.privacy.events import PoissonGaussian, Relation

DELTA = 1e-5


def event(noise, rate, steps, relation=Relation.ADD_OR_REMOVE_ONE):
    return PoissonGaussian(noise_multiplier=noise, sampling_rate=rate, steps=steps, relation=relation)


SLOT = event(2.0, 0.1, 100)


def test_a_slot_is_filled_by_itself_by_fewer_steps_and_by_more_noise_only():
    assert dominates(SLOT, SLOT, DELTA)
    assert dominates(SLOT, SLOT.with_steps(99), DELTA)
    assert not dominates(SLOT, SLOT.with_steps(101), DELTA)
    assert dominates(SLOT, replace(SLOT, noise_multiplier=2.001), DELTA)
    assert not dominates(SLOT, replace(SLOT, noise_multiplier=1.999), DELTA)
    assert dominated_noise_multiplier(SLOT, 0.1, 100, DELTA) == dominated_noise_multiplier(SLOT, 0.1, 7, DELTA) == 2.0


@pytest.mark.parametrize("relation", list(Relation))
def test_calibrated_noise_is_dominated_and_hardly_more_than_needed(relation):
    slot = replace(SLOT, relation=relation)
    for rate, steps in ((0.1, 110), (0.2, 30), (0.05, 300), (1.0, 5), (0.1, 5000)):
        noise = dominated_noise_multiplier(slot, rate, steps, DELTA)
        assert dominates(slot, event(noise, rate, steps, relation), DELTA)
        assert not dominates(slot, event(noise / 1.002, rate, steps, relation), DELTA)


def test_what_costs_nothing_fits_anywhere_and_nothing_else_fits_into_it():
    for free in (event(math.inf, 0.1, 10), event(1.0, 0.0, 10), event(1.0, 0.1, 0)):
        assert dominates(SLOT, free, DELTA)
        assert dominates(free, free, DELTA)
        assert not dominates(free, SLOT, DELTA)
        with pytest.raises(AccountingError, match="No noise multiplier"):
            dominated_noise_multiplier(free, 0.2, 10, DELTA)


def test_what_cannot_be_compared_is_refused():
    assert not dominates(SLOT, replace(SLOT, relation=Relation.REPLACE_ONE), DELTA)
    assert not dominates(replace(SLOT, relation=Relation.REPLACE_ONE), SLOT, DELTA)
    assert not dominates(SLOT, event(0.0, 0.1, 1), DELTA)
    assert not dominates(event(0.0, 0.1, 100), SLOT, DELTA)
    assert not dominates(SLOT, event(1e5, 0.05, 200_000), DELTA)
    with pytest.raises(AccountingError, match="No noise multiplier"):
        dominated_noise_multiplier(SLOT, 0.05, 200_000, DELTA)
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(AccountingError, match="delta"):
            dominates(SLOT, SLOT, delta)


def test_a_delta_within_the_rounding_of_transforms_dominates_nothing_but_parts():
    assert dominates(SLOT, event(2.2, 0.1, 110), DELTA)
    assert not dominates(SLOT, event(2.2, 0.1, 110), 1e-9)
    assert dominates(SLOT, SLOT.with_steps(99), 1e-9)


def test_every_training_pays_its_share_of_delta():
    assert delta_of_slots(DELTA, 0) <= DELTA
    assert delta_of_slots(DELTA, 16) == pytest.approx(DELTA * (1 - 16 * DOMINATION_SLACK))
    assert delta_of_slots(DELTA, 16) + 16 * DOMINATION_SLACK * DELTA <= DELTA
    for trainings in (-1, round(1 / DOMINATION_SLACK)):
        with pytest.raises(AccountingError, match="trainings"):
            delta_of_slots(DELTA, trainings)
