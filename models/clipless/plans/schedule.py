"""Factors of the learning rate over the steps of a training, fixed before the first."""

import enum
from math import cos, pi
from typing import assert_never


class Schedule(enum.Enum):
    """The factor of the learning rate at step t of T planned ones, known before the first step.

    CONSTANT: 1.
    LINEAR: 1 - t / T.
    COSINE: (1 + cos(pi t / T)) / 2 (Loshchilov and Hutter 2017, arXiv 1608.03983).
    """

    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"

    def factor(self, step: int, steps: int) -> float:
        """Return the factor at ``step``, from 0, of ``steps``."""
        match self:
            case Schedule.CONSTANT:
                return 1.0
            case Schedule.LINEAR:
                return 1.0 - step / steps
            case Schedule.COSINE:
                return (1.0 + cos(pi * step / steps)) / 2.0
        assert_never(self)
