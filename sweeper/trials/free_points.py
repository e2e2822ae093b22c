"""Points that cost nothing: models made from the iterates that a trial has released anyway.

A function of released iterates is post-processing, so that it costs what the last iterate that it uses costs, whether
it is looked at or not. Where scores cost nothing either, each is one more candidate for the front. Where scores are
paid for, each would be one more release: there the family is empty, whatever a spec says.

The family is fixed. Both members lie halfway between the weights of the epoch and an average of all steps, one of short
and one of long memory; benchmarks/RESULTS.md has what other members would add. Singular values are not shrunk: behind
an optimiser and a projection the noise of an iterate is not known, and a threshold guessed from the singular values
added nothing.
"""

from collections.abc import Mapping, Sequence

from clipless.datasets import Evaluation, Metadata
from clipless.training.averaging import Averaging, PolynomialAverage
from sweeper.errors import SpecError
from sweeper.privacy.evaluation.paid_scores import ScoreNoise
from sweeper.specification.objectives import PLAIN, radius

FAMILY: Mapping[str, Averaging] = {
    "quick-midpoint": PolynomialAverage(power=8, share=0.5),
    "slow-midpoint": PolynomialAverage(power=1, share=0.5),
}


def free_points(
    wanted: bool | None, declared: Metadata, noise: ScoreNoise | None, names: Sequence[str]
) -> Mapping[str, Averaging]:
    """Return the averages that a trial follows and scores.

    Args:
        wanted: what the spec says; None to score them where that takes one forward pass over the validation rows, that
            is for accuracy, AUROC and certificates, and not for attacks and plug-ins.
        declared: what is known of the data.
        noise: of the scores.
        names: objectives and metrics of the spec.

    Raises:
        SpecError: they are wanted where each of their scores would be a release to pay for.

    Guarantees:
        Empty where validation rows are private or scores are noisy.
    """
    if declared.evaluation is Evaluation.PRIVATE or noise is not None:
        if wanted:
            raise SpecError(
                f"Expected no search.free_points with evaluation: private ({declared.name}), where each score is a "
                "release of its own; leave it out"
            )
        return {}
    cheap = all(name in PLAIN or radius(name) is not None for name in names)
    return FAMILY if (cheap if wanted is None else wanted) else {}
