"""The range of sensitivities and noise that arithmetic can hold; a plan refuses others before anything is drawn.

The grid of a parameter is at least Delta / 2^31 (`clipless.guards.exact_sums`), so noise of multiplier sigma_k has a
deviation of at most 2^31 sigma_k steps, times the copies of augmentation, and `MOST_STEPS` bounds that.
"""

from collections.abc import Mapping
from math import sqrt

from clipless.errors import PlanError
from clipless.privacy.allocation import NoiseAllocation
from clipless.privacy.noise_grid import MOST_STEPS

_FINEST = 2.0**31  # steps of a grid in a sensitivity, at most
_COPIES = 16  # of augmentation, for which every plan leaves room
# Sensitivities between which no sum of float32 overflows and no contribution is a denormal number.
_LEAST_SENSITIVITY, _LARGEST_SUM = 1e-25, 1e30


def check_sensitivities(sensitivities: Mapping[str, float], batch_size: float) -> None:
    """Raise PlanError for a sensitivity that float32 sums or contributions would not hold."""
    for name, delta in sensitivities.items():
        if not _LEAST_SENSITIVITY <= delta <= _LARGEST_SUM / batch_size:
            raise PlanError(
                f"Expected a sensitivity from {_LEAST_SENSITIVITY:g} to {_LARGEST_SUM:g} over the batch size, got "
                f"{delta:g} for {name}: float32 would round by more than the noise covers; scale the input, the loss "
                "or the norms of the weights"
            )


def largest_multiplier(copies: int = 1) -> float:
    """Return the largest noise multiplier of a parameter whose noise is exact, with so many copies of a row."""
    return MOST_STEPS / (_FINEST * max(copies, _COPIES))


def check_noise(multipliers: Mapping[str, float], copies: int = 1) -> None:
    """Refuse noise multipliers, by the name of their parameter, that are too large for its grid.

    Raises:
        PlanError: naming the first.
    """
    most = largest_multiplier(copies)
    for name, multiplier in multipliers.items():
        if not multiplier <= most:
            raise PlanError(
                f"Expected a noise multiplier of at most {most:g} for every parameter, got {multiplier:g} for {name}: "
                "louder noise leaves gaps on the grid of the sums; raise epsilon, bring the sensitivities closer "
                "together, or share the noise per-layer"
            )


def least_sensitivities(
    allocation: NoiseAllocation, noise_multiplier: float, sensitivities: Mapping[str, float], sizes: Mapping[str, int]
) -> dict[str, float]:
    """Return how far sensitivities may fall from those given before the noise of one is too large for its grid.

    That is where its multiplier becomes `largest_multiplier` while all others stay; they may fall too, which lowers it.
    """
    most = noise_multiplier / largest_multiplier()
    match allocation:
        case NoiseAllocation.GLOBAL:
            total = sqrt(sum(delta**2 for delta in sensitivities.values()))
            return dict.fromkeys(sensitivities, most * total)
        case NoiseAllocation.MIN_VARIANCE:
            total = sum(delta * sqrt(sizes[name]) for name, delta in sensitivities.items())
            return {name: most**2 * total / sqrt(sizes[name]) for name in sensitivities}
        case NoiseAllocation.PER_LAYER:
            return dict.fromkeys(sensitivities, 0.0)
