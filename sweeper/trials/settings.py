"""What all trials of a sweep share: a process that trains them knows nothing else of the sweep."""

from dataclasses import dataclass

from sweeper.privacy.evaluation.paid_scores import ScoreNoise
from sweeper.records import Objective
from sweeper.specification.objectives import radii
from sweeper.specification.search import SmoothingPlan
from sweeper.specification.search_space import SearchSpace


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSettings:
    """What all trials of a sweep share.

    Attributes:
        space: which makes a configuration of a proposal.
        objectives: that every epoch is scored by.
        metrics: that are computed beside them.
        repeats: trainings of each configuration.
        free_points: whether models made from the iterates are scored too; None where that is cheap.
        cpus: processors of a trial, its threads.
        gpus: of a trial; a part of one is shared.
        noise: of the scores, where the validation rows are private.
        smoothing: how smoothed certificates are made, where an objective or metric is one.
    """

    space: SearchSpace
    objectives: tuple[Objective, ...]
    metrics: tuple[str, ...] = ()
    repeats: int = 1
    free_points: bool | None = None
    cpus: float = 1.0
    gpus: float = 0.0
    noise: ScoreNoise | None = None
    smoothing: SmoothingPlan | None = None

    @property
    def radii(self) -> tuple[str, ...]:
        """The radii to certify, of objectives and metrics, as written."""
        return radii([*self.objectives, *map(Objective.named, self.metrics)])

    @property
    def threads(self) -> int:
        """The threads of a trial's process."""
        return max(1, int(self.cpus))

    @property
    def device(self) -> str:
        """The type of the device that trains."""
        return "cuda" if self.gpus else "cpu"
