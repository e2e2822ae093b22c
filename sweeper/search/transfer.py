"""Hyperparameters from one signal to another: which values are moved when a configuration is trained with less noise.

The signal of a training is ``sampling_rate * sqrt(steps) / noise_multiplier``. The powers below were measured
(docs/choosing.md); a parameter that is not named keeps its value.
"""

from collections.abc import Mapping
from math import floor

from sweeper.specification.fields.ranges import Range, Scalar
from sweeper.specification.search_space import SearchSpace

# By the end of a dimension's name: the power of the ratio of signal that its value is multiplied by.
POWERS: Mapping[str, float] = {"sensitivity_fraction": -0.2}


def transfer_proposal(
    proposal: Mapping[str, Scalar], space: SearchSpace, from_signal: float, to_signal: float
) -> dict[str, Scalar]:
    """Return the proposal for a training of another signal, within the ranges of the space.

    Choices and fixed values stay as they are, and so does everything where a signal is not positive.
    """
    spaces = {dimension.name: dimension.space for dimension in space.dimensions}
    ratio = to_signal / from_signal if from_signal > 0.0 and to_signal > 0.0 else 1.0
    return {name: _moved(value, spaces.get(name), ratio ** _power(name)) for name, value in proposal.items()}


def _power(name: str) -> float:
    return POWERS.get(name.rpartition(".")[2], 0.0)


def _moved(value: Scalar, space: object, factor: float) -> Scalar:
    if factor == 1.0 or not isinstance(space, Range) or isinstance(value, bool | str):
        return value
    return nearest(space, value * factor)


def nearest(space: Range, value: float) -> float | int:
    """Return the value of a range that is nearest."""
    inside = min(max(value, space.low), space.high)
    step = 1.0 if space.integer and space.step is None else space.step
    if step is not None:
        count = min(round((inside - space.low) / step), floor((space.high - space.low) / step + 1e-9))
        inside = space.low + count * step
    return round(inside) if space.integer else inside
