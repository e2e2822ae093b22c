"""The method by which one example's contribution to a step is bounded, and the schedule of the learning rate."""

import enum
from math import cos, pi
from typing import assert_never


class Method(enum.Enum):
    """The choices.

    CLIPLESS: sensitivities from the Lipschitz constants of network and loss; the guard enforces them
        (Bethune et al. 2024, arXiv 2305.16202).
    LIP_DP_SGD: likewise, with each contribution divided by the norm of the example's own input of the layer.
        The batch-maximum form of Barczewski (2025, Algorithm 8) is not private; this form is.
    DP_SGD: the gradient of each example is formed and clipped (Abadi et al. 2016, arXiv 1607.00133); any network of
        known layers.
    NON_PRIVATE: no guard, no noise, epsilon infinite: a reference.
    """

    CLIPLESS = "clipless"
    LIP_DP_SGD = "lip-dp-sgd"
    DP_SGD = "dp-sgd"
    NON_PRIVATE = "non-private"

    @property
    def bounded(self) -> bool:
        """Whether sensitivities come from the network's own bounds."""
        return self in (Method.CLIPLESS, Method.LIP_DP_SGD)


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
