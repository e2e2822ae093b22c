"""What the spec and the data say of every trial."""

from clipless.datasets import Dataset
from sweeper.privacy.evaluation.score_noise import ScoreNoise
from sweeper.specification.spec import Spec
from sweeper.trials.settings import TrialSettings


def trial_settings(spec: Spec, data: Dataset) -> TrialSettings:
    """Return what all trials of a sweep share.

    Raises:
        SpecError: the spec does not say how scores of these rows are paid for.
    """
    return TrialSettings(
        space=spec.space,
        objectives=spec.objectives,
        metrics=spec.search.metrics,
        repeats=spec.search.repeats,
        free_points=spec.search.free_points,
        cpus=spec.resources.cpus,
        gpus=spec.resources.gpus,
        noise=ScoreNoise.of(spec, data),
    )
