"""Smoothed certificates of models on rows that may be looked at.

They are post-processing of a released model, so that they cost nothing on rows that are public or exploratory. On
private rows they are refused: nothing pays for them.
"""

from collections.abc import Callable, Iterable

import torch

from clipless.certificates.outputs import encoding_error
from clipless.certificates.radii import parse_radius
from clipless.certificates.smoothed import Smoothing, certify_smoothed
from clipless.datasets import Evaluation, Metadata, Split
from clipless.network import Network
from sweeper.errors import SpecError
from sweeper.records import SmoothedCounts
from sweeper.specification.objectives import smoothed_radius_text
from sweeper.specification.search import SmoothingPlan

DRAWS_AT_ONCE = 4096  # between which a long measurement is told of and can be ended


class SmoothedScorer:
    """Measures ``smoothed@R`` of models.

    Args:
        names: of certificates; others are left out.
        declared: what is known of the data.
        plan: of the sweep.
        test: whether the rows are test rows, which get more draws.
        between: called between rows; what it raises ends the measurement.

    Raises:
        SpecError: smoothed certificates of private rows, or none planned.
    """

    def __init__(
        self,
        names: Iterable[str],
        declared: Metadata,
        plan: SmoothingPlan | None,
        *,
        test: bool = False,
        between: Callable[[], object] = lambda: None,
    ) -> None:
        self._between = between
        self.names = tuple(name for name in names if smoothed_radius_text(name) is not None)
        if self.names and declared.evaluation is Evaluation.PRIVATE:
            raise SpecError(
                f"Expected no {self.names[0]} of the private rows of {declared.name}, which nothing pays for; leave it "
                "out, or use certified@R"
            )
        if self.names and plan is None:
            raise SpecError(f"Expected a plan of smoothing for {self.names[0]}, got none; set search.smoothing")
        if plan is None:
            return
        draws, self._rows = (plan.test_draws, plan.test_rows) if test else (plan.draws, plan.rows)
        self._gain, self._sigma = declared.input_gain, plan.sigma
        self._smoothing = Smoothing(
            sigma=plan.sigma * declared.input_gain, alpha=plan.alpha, draws=draws, seed=plan.seed
        )

    def passes(self, split: Split) -> int:
        """Return how many rows go through a model for its certificates on a split: noisy copies of its first rows."""
        if not self.names:
            return 0
        return min(self._rows, len(split)) * (self._smoothing.draws + self._smoothing.selection)

    def __call__(self, model: Network, split: Split) -> tuple[dict[str, float], SmoothedCounts | None]:
        """Return the share of rows that are certified at each radius, and how many got no certificate.

        Rows are the first ones of the split, as many as the plan says; a privacy unit counts as one, with all its rows.
        A row on which the smoothed classifier abstains, or decides wrongly, is certified at no radius.
        """
        if not self.names:
            return {}, None
        few = split.take(torch.arange(min(self._rows, len(split)), device=split.y.device))
        one, found = self._smoothing, []
        for x in few.x.split(max(1, DRAWS_AT_ONCE // one.draws)):
            self._between()
            found.append(certify_smoothed(model, x, one))
        decided_B = torch.cat([rows.decided for rows in found])
        radius_B = torch.cat([rows.radii for rows in found])
        radius_B = (radius_B - encoding_error(few.x, radius_B)) / self._gain
        right_B, weight_B = decided_B == few.y, few.weights()
        scores = {
            name: float(weight_B[right_B & (radius_B > parse_radius(str(smoothed_radius_text(name))))].sum())
            / float(weight_B.sum())
            for name in self.names
        }
        counts = SmoothedCounts(
            sigma=self._sigma,
            alpha=one.alpha,
            draws=one.draws,
            selection_draws=one.selection,
            rows=len(few.y),
            abstained=int((decided_B < 0).sum()),
            correct=int(right_B.sum()),
        )
        return scores, counts
