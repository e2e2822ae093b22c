"""Up to which deviation normal noise is exact on its grid.

What hides a row is the sum and its noise as whole numbers of steps of one grid. In double precision every whole number
up to 2^53 is one, beyond only every second, fourth and so on: noise that reaches there leaves out outcomes, and sums
that are one step apart leave out different ones, which tells them apart with a probability that no delta covers.

A normal number made from 53-bit uniforms (`clipless.privacy.randomness`) is at most sqrt(2 * 53 log 2) < 8.6 in size.
So noise of at most 2^49 steps' deviation stays below 8.6 2^49 < 2^53: each of its whole numbers is a double. The sum to
which it is added may then take the result beyond 2^53, where it rounds: that is a function of the exact sum and noise.
"""

from clipless.errors import AccountingError

MOST_STEPS = 2.0**49  # of a standard deviation, in steps of its grid


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
