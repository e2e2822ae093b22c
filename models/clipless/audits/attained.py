"""The lower bound of epsilon that follows from an attained noise multiplier."""

from dataclasses import replace
from functools import lru_cache
from math import ceil, inf, log2

from clipless.audits.audited_training import Effort
from clipless.privacy.accounting.lower_bound import attack_epsilon
from clipless.privacy.accounting.pld import optimistic_epsilon
from clipless.privacy.events import PoissonGaussian

_PER_OCTAVE = 1000  # multipliers that are told apart: trainings with one noise then share what is computed

_MUCH_NOISE = 3.0


def attained_epsilon(event: PoissonGaussian, noise_multiplier: float, delta: float, effort: Effort) -> float:
    """Return the least cost of an event whose noise multiplier is this one or less.

    In closed form where that is as good as the accountant's, within 3 % (`clipless.privacy.accounting.lower_bound`):
    with `Effort.CHEAP` from a noise multiplier of 3 on, with `Effort.BRIEF` always; otherwise by the accountant.
    """
    if noise_multiplier in (0.0, inf):
        return 0.0 if noise_multiplier == inf else inf
    at_most = 2.0 ** (ceil(log2(noise_multiplier) * _PER_OCTAVE) / _PER_OCTAVE)
    attained = replace(event, noise_multiplier=at_most)
    closed = effort is Effort.BRIEF or (effort is Effort.CHEAP and at_most >= _MUCH_NOISE)
    return attack_epsilon(attained, delta) if closed else epsilon_at_least(attained, delta)


@lru_cache(maxsize=1024)
def epsilon_at_least(event: PoissonGaussian, delta: float) -> float:
    """Return a lower bound of the cost of an event."""
    return optimistic_epsilon(event, delta)
