r"""Domination of one privacy event by another: the mathematics of slots.

A budget is cut into slots, each of one event, before any result is seen; a training may take a slot if its own event
is *dominated* by the slot's. With ``H_alpha(P || Q) = sup over A of P(A) - alpha Q(A)``, P and Q the outputs of an
event on two neighbours, and ``d0 = DOMINATION_SLACK delta``, that is to say

    H_alpha(event) <= d0 + (1 - d0) H_alpha(slot)        for all alpha >= 0,

in every direction in which neighbours may differ. The right-hand side is the profile of a pair that tells the
neighbours apart with probability d0 and is the slot's pair otherwise. n dominated trainings are therefore dominated by
the composition of their slots up to n d0 in delta, however each of them was chosen (Zhu, Dong and Wang 2022, theorem
10; ``docs/mathematics.md``).

``H_alpha(P || Q) = 1 - alpha + alpha H_{1/alpha}(Q || P)``, so alpha >= 1 in both directions is all of it. The event's
profile is rounded up: chords between the points of its grid, for profiles are convex. The slot's is rounded down
(`lower_profile`): linear between knots. What is linear between common knots is ordered if it is ordered at them, and
profiles fall, so the last point speaks for all beyond.
"""

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from clipless.errors import AccountingError
from clipless.privacy.accounting.lower_profile import LowerProfile, lower_profiles
from clipless.privacy.accounting.pld import loss_grids
from clipless.privacy.accounting.pld_grid import FloatArray
from clipless.privacy.accounting.spending import (
    LEAST_NOISE_MULTIPLIER,
    MOST_NOISE_MULTIPLIER,
    check_delta,
    costly_events,
)
from clipless.privacy.events import PoissonGaussian

DOMINATION_SLACK = 1e-4
"""Share of delta that one dominated training may add; the price of slots pays it, by `delta_of_slots`."""

_SAME_LENGTH = 0.98  # of a slot's steps, from where the slot's own noise is taken
_MOST_STEPS = 100_000  # whose profiles are compared: more would take seconds
_PRECISION = 1.001  # ratio of a noise multiplier that is enough to one that is not, at the end of a search
_WIDEST_SEARCH = 60  # profiles compared


def delta_of_slots(delta: float, trainings: int) -> float:
    """Return the delta at which to price a list of slots that this many dominated trainings may fill.

    Guarantees:
        If the composition of the slots is (epsilon, returned)-differentially private, then what fills them is
        (epsilon, delta)-differentially private.

    Raises:
        AccountingError: delta is not in (0, 1), or there are so many trainings that nothing of it is left.
    """
    check_delta(delta)
    left = 1.0 - DOMINATION_SLACK * trainings
    if not (trainings >= 0 and left > 0.0):
        raise AccountingError(
            f"Expected 0 <= trainings < {1 / DOMINATION_SLACK:.0f}, for each takes a share of delta, got {trainings!r}"
        )
    return delta * left * (1.0 - 2.0**-50)


def dominates(slot: PoissonGaussian, event: PoissonGaussian, delta: float) -> bool:
    """Return whether an event may fill a slot.

    Args:
        slot: what was reserved, and is paid for.
        event: the training that would take its place.
        delta: of the guarantee; `DOMINATION_SLACK` of it is what the event may exceed the slot by.

    Guarantees:
        If True, then H_alpha(event) <= d0 + (1 - d0) H_alpha(slot) for all alpha >= 0 and in every direction, with
        d0 = DOMINATION_SLACK delta. False where it does not hold or cannot be shown: another relation, less noise than
        can be priced, more steps than can be compared.

    Raises:
        AccountingError: delta is not in (0, 1).
    """
    check_delta(delta)
    if event.relation is not slot.relation:
        return False
    if not costly_events(event):
        return True
    if event.noise_multiplier < LEAST_NOISE_MULTIPLIER or slot.noise_multiplier < LEAST_NOISE_MULTIPLIER:
        return False
    return _is_part_of(event, slot) or (_comparable(event, slot) and _profile_is_below(event, slot, delta))


@lru_cache(maxsize=1024, typed=True)
def dominated_noise_multiplier(slot: PoissonGaussian, sampling_rate: float, steps: int, delta: float) -> float:
    """Return the least noise multiplier, to about 0.1 %, at which an event may fill a slot.

    It is the slot's own for events of its rate and of its steps, or at most 2 % fewer; much shorter ones get by with
    less.

    Guarantees:
        ``dominates(slot, event, delta)`` for the event with the returned noise multiplier.

    Raises:
        AccountingError: an argument is out of range, or no noise multiplier up to 1e6 is enough.
    """
    check_delta(delta)
    event = replace(slot, sampling_rate=sampling_rate, steps=steps)
    is_slot = _is_part_of(event, slot) and steps >= _SAME_LENGTH * slot.steps
    if (is_slot or not (steps and sampling_rate)) and dominates(slot, event, delta):
        return slot.noise_multiplier
    if not (_comparable(event, slot) and slot.noise_multiplier >= LEAST_NOISE_MULTIPLIER):
        raise _nothing_fits(slot, event)
    return _least_noise(slot, event, delta)


def _is_part_of(event: PoissonGaussian, slot: PoissonGaussian) -> bool:
    """Return whether an event is the slot's, ended early or with more noise."""
    return (
        event.sampling_rate == slot.sampling_rate
        and event.steps <= slot.steps
        and event.noise_multiplier >= slot.noise_multiplier
    )


def _comparable(event: PoissonGaussian, slot: PoissonGaussian) -> bool:
    return (
        bool(costly_events(slot))
        and slot.noise_multiplier <= MOST_NOISE_MULTIPLIER
        and max(event.steps, slot.steps) <= _MOST_STEPS
    )


def _profile_is_below(event: PoissonGaussian, slot: PoissonGaussian, delta: float) -> bool:
    (part,) = costly_events(event)
    grids = loss_grids(part.noise_multiplier, part.sampling_rate, part.relation)
    bounds = lower_profiles(slot)
    slack = DOMINATION_SLACK * delta
    upper = [grid.profile(part.steps) for grid in grids]
    directions = max(len(upper), len(bounds))  # one stands for both where they are alike
    return all(_is_below(*upper[i % len(upper)], bounds[i % len(bounds)], slack) for i in range(directions))


def _is_below(epsilons: FloatArray, deltas: FloatArray, bound: LowerProfile, slack: float) -> bool:
    """Compare an event's profile, by points on or above it, with a slot's, from alpha = 1 on."""
    knots = np.union1d(np.maximum(epsilons, 0.0), bound.losses)
    knots = np.union1d(knots, [0.0])
    upper = np.interp(np.exp(knots), np.append(0.0, np.exp(epsilons)), np.append(1.0, deltas))
    lower = bound(knots)
    vanished = np.flatnonzero(~(lower > 0.0))
    if len(vanished):  # it may vanish between two knots: only zero is below it from the first of them on
        lower[max(int(vanished[0]) - 1, 0) :] = 0.0
    return bool(np.all(upper <= slack + (1.0 - slack) * lower) and upper[-1] <= slack)


def _least_noise(slot: PoissonGaussian, event: PoissonGaussian, delta: float) -> float:
    def is_enough(noise: float) -> bool:
        return dominates(slot, replace(event, noise_multiplier=noise), delta)

    signal = event.sampling_rate / slot.sampling_rate * math.sqrt(event.steps / slot.steps)
    noise = min(max(slot.noise_multiplier * signal, LEAST_NOISE_MULTIPLIER), MOST_NOISE_MULTIPLIER)
    low, high, step = 0.0, math.inf, 1.01
    for _ in range(_WIDEST_SEARCH):
        if is_enough(noise):
            high = noise
        else:
            low = noise
        if high <= max(low, LEAST_NOISE_MULTIPLIER) * _PRECISION:
            return high
        if low == MOST_NOISE_MULTIPLIER:
            break
        if low > 0.0 and high < math.inf:
            noise = math.sqrt(low * high)
        else:
            noise = min(low * step, MOST_NOISE_MULTIPLIER) if low > 0.0 else max(high / step, LEAST_NOISE_MULTIPLIER)
            step = min(step * step, 4.0)
    raise _nothing_fits(slot, event)


def _nothing_fits(slot: PoissonGaussian, event: PoissonGaussian) -> AccountingError:
    return AccountingError(
        f"No noise multiplier up to {MOST_NOISE_MULTIPLIER:g} makes {event.steps} steps at "
        f"sampling_rate={event.sampling_rate:g} fit into a slot of {slot.steps} steps at "
        f"sampling_rate={slot.sampling_rate:g} and noise_multiplier={slot.noise_multiplier:g}"
    )
