"""What is said of the price of a request before it is made; from specs and records alone, no data are read."""

from sweeper.rounding import round_up
from sweeper.specification.fields.ranges import largest
from sweeper.specification.spec import Spec


def price_of_spec(spec: Spec) -> str:
    """Return what a sweep of this spec will cost, in words: exactly where it has a budget."""
    privacy = spec.privacy
    if spec.search.repetitions is not None:
        return "The winner alone can leave, at a price that its driver says before the first trial."
    at = f"at delta {privacy.delta!r}"
    if privacy.sweep_epsilon is not None:
        return (
            f"Everything the sweep releases costs at most epsilon {round_up(privacy.sweep_epsilon)} {at}, "
            f"whatever its results are used for."
        )
    each = "" if privacy.epsilon is None else f", each up to epsilon {round_up(float(largest(privacy.epsilon)))} {at}"
    trials = "1 trial" if spec.trials == 1 else f"{spec.trials} trials"
    return (
        f"{trials}{each}. Who looks at the results before choosing pays for all of them together; "
        "with privacy.sweep_epsilon in the spec that is bounded beforehand."
    )
