"""How a network is trained: what bounds the contribution of one example to a step."""

import enum


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
        """Whether the network's own bounds are what sensitivities come from."""
        return self in (Method.CLIPLESS, Method.LIP_DP_SGD)
