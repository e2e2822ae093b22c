r"""How the noise of a step is shared between parameters.

Parameter k with sensitivity Delta_k and d_k entries receives noise of standard deviation ``sigma_k Delta_k``
on its summed gradient. The Gaussian mechanisms compose to one of multiplier ``sigma = (sum_k
sigma_k^-2)^-1/2``; every choice below keeps that at the requested value, so privacy does not depend on the
choice.
"""

import enum
from collections.abc import Mapping
from math import sqrt
from typing import assert_never

from clipless.scalars import Scalar, root


class NoiseAllocation(enum.Enum):
    """The choices.

    GLOBAL: one standard deviation everywhere, ``sigma sqrt(sum Delta_j^2)``, as for one global sensitivity.
    PER_LAYER: one multiplier everywhere, ``sigma_k = sigma sqrt(K)``.
    MIN_VARIANCE: least total variance ``sum d_k (sigma_k Delta_k)^2`` subject to the composition:
        ``sigma_k^2 = sigma^2 (sum_j Delta_j sqrt(d_j)) / (Delta_k sqrt(d_k))`` by Lagrange multipliers.
    """

    GLOBAL = "global"
    PER_LAYER = "per-layer"
    MIN_VARIANCE = "min-variance"


def noise_multipliers(
    allocation: NoiseAllocation, noise_multiplier: float, sensitivities: Mapping[str, Scalar], sizes: Mapping[str, int]
) -> dict[str, Scalar]:
    """Return sigma_k for each parameter.

    ``noise_multiplier`` is sigma of the composition, ``sensitivities`` Delta_k > 0 and ``sizes`` d_k >= 1.
    """
    names = list(sensitivities)
    match allocation:
        case NoiseAllocation.GLOBAL:
            total = root(sum(delta**2 for delta in sensitivities.values()))
            return {name: noise_multiplier * total / sensitivities[name] for name in names}
        case NoiseAllocation.PER_LAYER:
            return dict.fromkeys(names, noise_multiplier * sqrt(len(names)))
        case NoiseAllocation.MIN_VARIANCE:
            loads = {name: sensitivities[name] * sqrt(sizes[name]) for name in names}
            total = sum(loads.values())
            return {name: noise_multiplier * root(total / loads[name]) for name in names}
    assert_never(allocation)
