"""What is paid for scores of private rows: records of releases, apart from how these are made.

A trial releases the scores of its validation rows once for each epoch of each repeat; a point of the front releases
those of the test rows once. What is paid is in the ledger before the noise is drawn.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clipless.privacy.events import PoissonGaussian, Relation
from clipless.privacy.noisy_counts import scores_event


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


def scored_by(plan: Mapping[str, Any], epoch: int) -> int:
    """Return how many releases of scores all repeats of a trial have made by the end of an epoch, if scores are noisy.

    Args:
        plan: as a trial reports it.
        epoch: from 0.
    """
    return int(plan["repeats"]) * epoch if epoch and plan.get("scores") else 0


def planned_scores(plan: Mapping[str, Any], kept: int = 0) -> PaidScores | None:
    """Return what a trial plans to spend on scores, ``None`` where they are free.

    Args:
        plan: as a trial reports it.
        kept: releases that it will not make, because those of an earlier attempt are kept.
    """
    scores = plan.get("scores")
    if not scores:
        return None
    whole = scores_event(scores["noise_multiplier"], scored_by(plan, int(plan["epochs"])), Relation(plan["relation"]))
    left = whole.with_steps(whole.steps - kept)
    return PaidScores(event=left, apart=scores["apart"] is True, kept=kept)
