"""Scores of private rows as paid releases: accuracy and certified accuracy, with noise, and nothing else.

One release is a vector of shares of rows (`clipless.privacy.counts`). What is no share of rows that each row decides
alone is refused by name: AUROCs compare pairs, membership inference reads training rows, the attacks draw the starts
of all rows from one generator, and nobody knows what a plug-in computes.

Where scores are noisy, ``certified <= accuracy`` may fail by the noise: nothing may raise, stop or be logged because
it does, and the exact scores may reach nothing that leaves.

Shape letters: B rows, M scores.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from clipless.certificates import certified_radii, decisions, float64_logits, measured_bounds
from clipless.datasets import Split
from clipless.network import Network
from clipless.privacy.counts import release_scores, scores_event
from clipless.privacy.events import PoissonGaussian, Relation
from clipless.privacy.randomness import RandomSource
from clipless.radii import parse_radius
from sweeper.errors import SpecError
from sweeper.objectives import radius_text

ACCURACY = "accuracy"


def score_names(names: Iterable[str], source: str = "the spec") -> tuple[str, ...]:
    """Return the scores that are released together, accuracy first, out of the names of objectives and metrics.

    Args:
        names: objectives and metrics; epsilon is none of the rows'.
        source: names the spec in the message.

    Raises:
        SpecError: a name that is no share of rows.
    """
    wanted = [name for name in names if name != "epsilon"]
    for name in wanted:
        if name != ACCURACY and radius_text(name) is None:
            raise SpecError(
                f"Expected accuracy and certified@R only with evaluation: private, whose scores are noisy counts of "
                f"rows, got {name} (search in {source}); leave it out, or declare the rows public"
            )
    return tuple(dict.fromkeys([ACCURACY, *wanted]))


class PrivateScores:
    """Releases the scores of models on one private split.

    Args:
        names: of the scores, by `score_names`.
        population: N, the number of rows of the split; public.
        noise_multiplier: sigma of each release.
        source: of the noise, secret.
    """

    def __init__(
        self, names: tuple[str, ...], *, population: int, noise_multiplier: float, source: RandomSource
    ) -> None:
        self._names, self._population = names, population
        self._noise_multiplier, self._source = noise_multiplier, source

    def event(self, releases: int, relation: Relation) -> PoissonGaussian:
        """Return what that many releases spend on the split; it goes into the ledger before the first of them."""
        return scores_event(self._noise_multiplier, releases, relation)

    def release(
        self, model: Network, split: Split, input_gain: float, *, features: Tensor | None = None
    ) -> dict[str, float]:
        """Return noisy scores in [0, 1], by name.

        Args:
            model: whatever was released before.
            split: the private rows.
            input_gain: Lipschitz constant of the fixed maps between raw units and the tensor.
            features: `clipless.certificates.float64_features` of the rows.

        Guarantees:
            One call is one release of ``event``: each answer is one row's own, given the model.
        """
        hits_BM = answers_of_rows(model, split, self._names, input_gain, features=features)
        scores = release_scores(hits_BM, self._population, self._noise_multiplier, self._source)
        return dict(zip(self._names, scores, strict=True))


def answers_of_rows(
    model: Network, split: Split, names: tuple[str, ...], input_gain: float, *, features: Tensor | None = None
) -> Tensor:
    """Return whether each row is decided correctly, and certified at each radius: booleans (B, M)."""
    logits_BK = float64_logits(model, split.x, features=features)
    radius_B = certified_radii(model, logits_BK, split.y, bounds=measured_bounds(model)) / input_gain
    columns = []
    for name in names:
        radius = radius_text(name)
        correct_B = decisions(logits_BK) == split.y
        columns.append(correct_B if radius is None else radius_B > parse_radius(radius))
    return torch.stack(columns, dim=1)
