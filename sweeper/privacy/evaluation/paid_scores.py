"""Scores of private rows: their noise, and records of releases that are paid for, apart from how these are made.

A trial releases the scores of its validation rows once for each epoch of each repeat; a point of the front releases
those of the test rows once. What is paid is in the ledger before the noise is drawn.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clipless.privacy.events import PoissonGaussian, Relation
from clipless.privacy.noisy_counts import counts_sensitivity, scores_event
from sweeper.privacy.evaluation.curve_noise import CurveNoise
from sweeper.records import TrialPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidScores:
    """Releases of scores of one split.

    Attributes:
        event: what they spend.
        apart: whether a row is in one split by a rule of its own, so that a neighbouring data set without it differs
            in that split alone.
        kept: releases of the same trial that earlier attempts made and that are not made again.
    """

    event: PoissonGaussian
    apart: bool
    kept: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"event": self.event.to_json(), "apart": self.apart, "kept": self.kept}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "PaidScores":
        """Read back what ``to_json`` wrote.

        Raises:
            KeyError, AccountingError: something else.
        """
        event = PoissonGaussian.from_json(content["event"])
        return cls(event=event, apart=content["apart"] is True, kept=int(content["kept"]))


def scored_by(plan: TrialPlan, epoch: int) -> int:
    """Return how many noisy releases of scores all repeats of a trial have made by the end of an epoch, from 0."""
    return plan.repeats * epoch if epoch and plan.scores is not None else 0


def planned_scores(plan: TrialPlan, kept: int = 0) -> PaidScores | None:
    """Return what a trial plans to spend on scores, ``None`` where they are free.

    ``kept`` releases of an earlier attempt are not made again.
    """
    scores = plan.scores
    if scores is None:
        return None
    whole = scores_event(scores.noise_multiplier, scored_by(plan, plan.epochs), plan.relation)
    left = whole.with_steps(whole.steps - kept)
    return PaidScores(event=left, apart=scores.apart, kept=kept)


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
