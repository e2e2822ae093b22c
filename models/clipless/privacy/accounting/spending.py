"""The costly part of an event: the one reading of edge cases that both accountants and the attack share."""

import math
from collections.abc import Sequence

from clipless.errors import AccountingError
from clipless.privacy.events import OVERFLOW, Event, PoissonGaussian

LEAST_NOISE_MULTIPLIER = 0.05
"""Below this, every epsilon is reported as infinite: taking part once costs more than 200 already."""

MOST_NOISE_MULTIPLIER = 1e6
"""Noise beyond this is priced as this: from above."""

LARGEST_LOSS = 700.0
"""PLD reports epsilons beyond as infinite, for exp() overflows there; RDP has a finite bound."""

MOST_STEPS = 10**7
"""PLD reports the price of more steps as infinite, for its transforms would take minutes; RDP has a finite bound."""


def costly_events(event: Event) -> tuple[PoissonGaussian, ...]:
    """Return the parts of an event that cost anything, those of equal noise and sampling rate merged."""
    steps: dict[tuple[float, float], int] = {}
    for part in (event,) if isinstance(event, PoissonGaussian) else event.events:
        if part.steps and part.sampling_rate and part.noise_multiplier < math.inf:
            key = (float(min(part.noise_multiplier, MOST_NOISE_MULTIPLIER)), float(part.sampling_rate))
            steps[key] = steps.get(key, 0) + part.steps
    return tuple(
        PoissonGaussian(noise_multiplier=noise, sampling_rate=rate, steps=count, relation=event.relation)
        for (noise, rate), count in steps.items()
    )


def too_little_noise(parts: Sequence[PoissonGaussian]) -> bool:
    """Return whether any part has too little noise for a finite epsilon."""
    return any(part.noise_multiplier < LEAST_NOISE_MULTIPLIER for part in parts)


def overflow_slack(steps: float) -> float:
    """Return the share of delta for batches of the steps that overflow their slots (`clipless.privacy.sampling`).

    Events do not say whether there are slots: every step pays for them.
    """
    return steps * OVERFLOW


def check_delta(delta: float) -> None:
    """Raise AccountingError unless delta is strictly between 0 and 1; NaN is not."""
    if not 0.0 < delta < 1.0:
        raise AccountingError(f"Expected 0 < delta < 1, got delta={delta!r}")
