"""How the trials of a sweep with one budget are spread over stages, where the spec does not say."""

_SHARES = (0.05, 0.15, 0.8)


def default_stages(trials: int) -> tuple[tuple[int, float], ...]:
    """Return the number of trials and the share of the signal of each stage, whispers first.

    The shares add up to 1. One final; a quarter of the explorers in the middle; with fewer than six trials there is no
    stage in the middle, and with one trial there is nothing but the final.

    >>> default_stages(16)
    ((12, 0.05), (3, 0.15), (1, 0.8))

    Raises:
        ValueError: fewer than one trial.
    """
    if trials < 1:
        raise ValueError(f"Expected at least one trial, got trials={trials!r}")
    if trials == 1:
        return ((1, 1.0),)
    if trials < 6:
        return ((trials - 1, 0.2), (1, 0.8))
    middle = (trials - 1) // 5
    return ((trials - 1 - middle, _SHARES[0]), (middle, _SHARES[1]), (1, _SHARES[2]))
