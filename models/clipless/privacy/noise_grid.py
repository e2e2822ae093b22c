"""The grids of noise: up to which deviation it is exact on that of the sums, and how coarsely noisy sums are released.

What hides a row is the sum and its noise as whole numbers of steps of one grid. In double precision every whole number
up to 2^53 is one, beyond only every second, fourth and so on: noise that reaches there leaves out outcomes, and sums
that are one step apart leave out different ones, which tells them apart with a probability that no delta covers.

A normal number made of a 75-bit radius (`clipless.privacy.randomness`) is at most sqrt(2 * 75 log 2) < 10.2 in size.
So noise of at most 2^49 steps' deviation stays below 10.2 2^49 < 2^53: each of its whole numbers is a double. The sum
to which it is added may then take the result beyond 2^53, where it rounds: that is a function of the exact sum and
noise.

A double being there is not enough, for the numbers that can be drawn are few beside so many steps: pairs of normals
have one of 2^75 radii, and the arithmetic of each is off by up to 2^-47 of a deviation. Released in the steps of the
sums, every outcome would show whether it can be a given sum with noise at all. A noisy sum is therefore rounded to 64
to 128 steps in a deviation, which is post-processing of the exact one. The probability of each outcome is then within a
share of 2^-39 of that of exact noise (`docs/mathematics.md`, Noise); the variance grows by less than 2^-15 of itself.
"""

from math import frexp, ldexp
from typing import TYPE_CHECKING

from clipless.errors import AccountingError
from clipless.scalars import Scalar, larger, power_of_two_below

if TYPE_CHECKING:
    from torch import Tensor

MOST_STEPS = 2.0**49  # of a standard deviation, in steps of its grid
_RELEASED = 2.0**6  # steps of what is released in a deviation, or up to twice as many


def check_steps(std: float, step: float) -> None:
    """Raise AccountingError where noise of deviation ``std`` is not exact in steps of ``step``."""
    if not std <= MOST_STEPS * step:
        raise AccountingError(
            f"Expected noise of at most 2^49 steps of its grid, {MOST_STEPS * step:g} in all, got std={std:g}: beyond, "
            "its whole numbers leave gaps; lower the noise multiplier, or raise epsilon"
        )


def step_for(std: float, finest: float, coarsest: float) -> float:
    """Return a step for noise of deviation ``std``: ``finest``, or as many times twice that as keep it exact.

    All are powers of two; the sums are whole numbers of ``coarsest``.

    Raises:
        AccountingError: not even the coarsest step does.
    """
    check_steps(std, coarsest)
    step = finest
    while std > MOST_STEPS * step:
        step *= 2.0
    return step


def released_step(std: Scalar, finest: Scalar) -> Scalar:
    """Return the step to which sums with noise of deviation ``std`` are rounded before anything sees them.

    It is a power of two, and no finer than that of the sums, ``finest``; without noise it is theirs.
    """
    share = std / _RELEASED
    if not isinstance(share, int | float):
        return larger(power_of_two_below(share), finest)
    return larger(ldexp(1.0, frexp(share)[1] - 1) if share else 0.0, finest)


def round_to(sums: "Tensor", step: "float | Tensor") -> "Tensor":
    """Round sums in place to whole steps, powers of two, and return them."""
    return sums.div_(step).round_().mul_(step)
