"""Scores of private rows: their noise, and records of releases that are paid for, apart from how these are made.

A trial releases the scores of its validation rows for epochs that its plan names, once for each repeat; a point of the
front releases those of the test rows once. What is paid is in the ledger before the noise is drawn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from clipless.privacy.class_scores import ClassScores, ScoreForm, expect_scores
from clipless.privacy.events import PoissonGaussian, Relation
from clipless.privacy.noisy_counts import scores_event
from sweeper.privacy.evaluation.curve_noise import CurveNoise
from sweeper.records import TrialPlan
from sweeper.specification.objectives import AUROC, BALANCED, is_share_of_rows

FINAL_SCORES = 6  # epochs of a final that are scored, where the spec does not say
_FIRST_SHARE = 1 / 16  # of the epochs of a training, at the first of several releases


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
    return 0 if plan.scores is None else plan.repeats * sum(one <= epoch for one in plan.scores.epochs)


def spread_epochs(epochs: int, most: int | None) -> tuple[int, ...]:
    """Return the epochs of a training whose scores are released: at most ``most``, the last one among them.

    They are spread evenly in the logarithm, so that the models of a training stand at about even steps of the logarithm
    of its epsilon. All epochs where ``most`` is ``None``.

    >>> spread_epochs(20, 6), spread_epochs(20, 1)
    ((2, 3, 4, 7, 12, 20), (20,))
    """
    if most is None or most >= epochs:
        return tuple(range(1, epochs + 1))
    steps = max(most - 1, 1)
    places = (epochs * _FIRST_SHARE ** (i / steps) for i in range(most))
    return tuple(sorted({ceil(place) for place in places}))


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
        noise_multiplier: sigma of one release on validation rows.
        test_noise_multiplier: sigma of one release on test rows.
        apart: see `PaidScores`.
        validation: N, the number of validation rows.
        test: N, the number of test rows.
        classes: their number, of which sizes are released where a score needs them.
        curves: the noise of whole curves of test rows, which are then released in place of their scores.
        final_scores: how many epochs of a final are scored, where a budget has explorers, of which only the last epoch
            is; ``None`` for every epoch of every trial.
    """

    names: tuple[str, ...]
    noise_multiplier: float
    test_noise_multiplier: float
    relation: Relation
    apart: bool
    validation: int
    test: int
    classes: int = 0
    curves: CurveNoise | None = None
    final_scores: int | None = None

    @property
    def shares(self) -> tuple[str, ...]:
        """Names of the scores that are shares of all rows, accuracy first."""
        return tuple(name for name in self.names if is_share_of_rows(name))

    @property
    def form(self) -> ScoreForm:
        """What one release holds."""
        hits, order = BALANCED in self.names, AUROC in self.names
        return ScoreForm(len(self.shares), self.classes if hits or order else 0, hits, order)

    @property
    def stds(self) -> dict[str, float]:
        """The standard deviation of the noise of each share of all rows, by split; scores by class have their own."""
        counts = self.form.sensitivity
        test = self.test_noise_multiplier * counts if self.curves is None else self.curves.count_std
        return {"validation": self.noise_multiplier * counts / self.validation, "test": test / self.test}

    def expect(self, split: str, score: float, largest: float | None) -> ClassScores | None:
        """Return one release of a split as it is expected where every score is this one, None without scores by class.

        ``largest`` is the share of the largest class where that is public, the others being alike; else all are.
        """
        form = self.form
        if not form.by_class or (split == "test" and self.curves is not None):
            return None
        sigma = {"validation": self.noise_multiplier, "test": self.test_noise_multiplier}[split]
        rows = {"validation": self.validation, "test": self.test}[split]
        most = 1 / form.classes if largest is None else largest
        shares = [most, *[(1.0 - most) / (form.classes - 1)] * (form.classes - 1)]
        return expect_scores(form, rows, sigma, [share * rows for share in shares], score)

    def paid(self, releases: int) -> PaidScores:
        """Return what that many releases of scores of validation rows spend."""
        return PaidScores(event=scores_event(self.noise_multiplier, releases, self.relation), apart=self.apart)

    def paid_test(self, points: int) -> PaidScores:
        """Return what test scores of that many points spend, or their curves."""
        noise = self.test_noise_multiplier if self.curves is None else self.curves.noise_multiplier
        return PaidScores(event=scores_event(noise, points, self.relation), apart=self.apart)

    def plan(self, epochs: Sequence[int]) -> dict[str, Any]:
        """Return what the plan of a trial says of its scores, those of these epochs."""
        return {
            "names": list(self.names),
            "noise_multiplier": self.noise_multiplier,
            "apart": self.apart,
            "std": self.stds,
            "rows": {"validation": self.validation, "test": self.test},
            "epochs": list(epochs),
            "curves": None if self.curves is None else self.curves.to_json(),
        }
