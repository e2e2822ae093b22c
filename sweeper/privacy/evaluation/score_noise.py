"""The noise of scores of private rows: what a spec declares, and how far it moves a score."""

from dataclasses import dataclass
from typing import Any

from clipless.datasets import Dataset, Evaluation
from clipless.privacy.events import Relation
from clipless.privacy.noisy_counts import counts_sensitivity, scores_event
from sweeper.privacy.evaluation.curve_noise import CurveNoise
from sweeper.privacy.evaluation.paid_scores import PaidScores
from sweeper.specification.rules.scores import broken_score_rules
from sweeper.specification.spec import Spec


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

    @classmethod
    def of(cls, spec: Spec, data: Dataset) -> "ScoreNoise | None":
        """Return the noise of a sweep's scores, ``None`` where they are free.

        Raises:
            SpecError: the spec does not say how scores of these rows are paid for, or declares noise for free ones.
        """
        declared = data.metadata
        for field, got, expected, remedy in broken_score_rules(spec.search, spec.privacy, declared.evaluation):
            section, name = field.split(".")[:2]  # without the place in a list
            raise spec.mistaken(expected.replace("{name}", name), f"{section}.{name}", got, remedy)
        if declared.evaluation is not Evaluation.PRIVATE or spec.privacy.score_noise is None:
            return None
        if spec.search.repetitions is not None and not declared.split_by_row:
            expected = f"no private selection by scores of private rows of {declared.name}, which does not say that the"
            expected += " split of each row depends on that row alone"
            raise spec.mistaken(expected, "search.selection", None, "leave it out")
        named = [name for name in (*spec.search.objectives, *spec.search.metrics) if name != "epsilon"]
        names, relation, sigma = (
            tuple(dict.fromkeys(["accuracy", *named])),
            spec.privacy.relation,
            spec.privacy.curve_noise,
        )
        return cls(
            names=names,
            noise_multiplier=spec.privacy.score_noise,
            relation=relation,
            apart=declared.split_by_row,
            validation=len(data.validation),
            test=len(data.test),
            curves=None if sigma is None else CurveNoise.of(sigma, names, declared, relation),
        )

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
