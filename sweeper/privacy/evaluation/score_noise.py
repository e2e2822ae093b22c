"""The noise of scores of private rows, and how far it moves a score."""

from dataclasses import dataclass
from typing import Any

from clipless.privacy.events import Relation
from clipless.privacy.noisy_counts import counts_sensitivity, scores_event
from sweeper.privacy.evaluation.curve_noise import CurveNoise
from sweeper.privacy.evaluation.paid_scores import PaidScores


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreNoise:
    """The noise of every score of a sweep on private rows; all of it is public.

    Attributes:
        names: of the scores that are released together, accuracy first.
        noise_multiplier: sigma of one release.
        apart: see `PaidScores`.
        validation: N, the number of validation rows.
        test: N, the number of test rows.
        curves: the noise of whole curves of test rows, which are then released in place of their scores.
    """

    names: tuple[str, ...]
    noise_multiplier: float
    relation: Relation
    apart: bool
    validation: int
    test: int
    curves: CurveNoise | None = None

    @property
    def stds(self) -> dict[str, float]:
        """The standard deviation of the noise of each score, by split, before scores are cut to [0, 1]."""
        std = self.noise_multiplier * counts_sensitivity(len(self.names))
        test = std if self.curves is None else self.curves.count_std
        return {"validation": std / self.validation, "test": test / self.test}

    def paid(self, releases: int) -> PaidScores:
        """Return what that many releases of scores of validation rows spend."""
        return PaidScores(event=scores_event(self.noise_multiplier, releases, self.relation), apart=self.apart)

    def paid_test(self, points: int) -> PaidScores:
        """Return what test scores of that many points spend, or their curves."""
        noise = self.noise_multiplier if self.curves is None else self.curves.noise_multiplier
        return PaidScores(event=scores_event(noise, points, self.relation), apart=self.apart)

    def to_json(self) -> dict[str, Any]:
        """Return what the plan of a trial says of its scores."""
        return {
            "names": list(self.names),
            "noise_multiplier": self.noise_multiplier,
            "apart": self.apart,
            "std": self.stds,
            "curves": None if self.curves is None else self.curves.to_json(),
        }
