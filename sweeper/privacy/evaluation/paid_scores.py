"""What is paid for scores of private rows: records of releases, apart from how these are made.

A trial releases the scores of its validation rows once for each epoch of each repeat; a point of the front releases
those of the test rows once. What is paid is in the ledger before the noise is drawn.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clipless.privacy.events import PoissonGaussian
from clipless.privacy.noisy_counts import scores_event
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
