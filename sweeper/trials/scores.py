"""Scores of models on rows held back: exact where these are public or exploratory, noisy where they are private.

One release is a vector of shares of rows (`clipless.privacy.noisy_counts`), accuracy and certified accuracy with noise,
and beside them recalls and AUROC where these are objectives (`clipless.privacy.class_scores`). What else there could be
is refused in `sweeper.specification.rules.data`.

Where scores are noisy, ``certified <= accuracy`` may fail by the noise: nothing may raise, stop or be logged because
it does, and the exact scores may reach nothing that leaves. `scorer` is the one door through which trials and the
front's points are scored: behind it there is no choice.

Shape letters: B rows, M scores.
"""

from collections.abc import Sequence
from functools import partial
from math import hypot
from statistics import fmean
from typing import Protocol

import torch
from torch import Tensor

import clipless
from clipless.certificates.certify import binary_scores, decisions, float64_logits
from clipless.certificates.outputs import Outputs
from clipless.certificates.radii import parse_radius
from clipless.datasets import Evaluation, Metadata, Split
from clipless.network import Network
from clipless.privacy.class_scores import MOST_CLASSES, ClassScores, release_class_scores
from clipless.privacy.noisy_counts import release_scores
from clipless.privacy.randomness import RandomSource, SecureSource
from sweeper.errors import SpecError
from sweeper.privacy.evaluation.paid_scores import ScoreNoise
from sweeper.records import ClassCounts, ScoreErrors, SmoothedCounts
from sweeper.specification.objectives import AUROC, BALANCED, radius_text, recall_name
from sweeper.specification.plugins import find_metric
from sweeper.trials.smoothed import SmoothedScorer


class EpochScores(dict[str, float]):
    """Scores by name.

    ``errors`` has those of a release whose errors depend on it, ``smoothed`` how smoothed certificates were made.
    """

    errors: ScoreErrors | None = None
    smoothed: SmoothedCounts | None = None


class Scorer(Protocol):
    """Scores a model on rows."""

    def __call__(
        self, model: Network, split: Split, features: Tensor | None, *, outputs: Outputs | None = None
    ) -> EpochScores:
        """Return scores, given `float64_features` of the rows, or the model's outputs on them where they are known."""


def scorer(
    declared: Metadata,
    radii: Sequence[str],
    noise: ScoreNoise | None,
    *,
    own: Sequence[str] = (),
    by_class: bool = False,
    smoothed: SmoothedScorer | None = None,
    test: bool = False,
    source: RandomSource | None = None,
) -> Scorer:
    """Return what scores models on a split, which has to be paid for before where there is noise.

    Args:
        declared: what is known of the data.
        radii: to certify, as written; where there is noise, its names say what is scored.
        noise: of the scores, ``None`` where they are free.
        own: objectives of plug-ins, where scores are free.
        by_class: whether recalls and their mean are computed too, where scores are free.
        smoothed: measures smoothed certificates, where scores are free.
        test: whether the split is that of the test rows, instead of the validation rows.
        source: of the noise; by default, and for any guarantee, a fresh secure one.

    Raises:
        SpecError: the rows are private, and there is no noise or an objective is an unpaid plug-in.
    """
    metrics = {name: find_metric(name) for name in own}
    if declared.evaluation is Evaluation.PRIVATE and noise is None:
        raise SpecError(
            f"Expected noise for scores of the private rows of {declared.name}, got none; set privacy.score_noise"
        )
    gain = declared.input_gain
    if noise is None:
        classes = len(declared.classes) if by_class else None

        def free(
            model: Network, split: Split, features: Tensor | None, *, outputs: Outputs | None = None
        ) -> EpochScores:
            scores = EpochScores(
                clipless.evaluate(model, split, radii, gain, classes=classes, features=features, outputs=outputs)
            )
            scores |= {name: metric.compute(name, model, split, declared) for name, metric in metrics.items()}
            if smoothed is not None:
                more, scores.smoothed = smoothed(model, split)
                scores |= more
            return scores

        return free
    if metrics:
        raise SpecError(
            "Expected accuracy, balanced_accuracy, auroc and certified@R only where scores are paid for, got the "
            f"objective {own[0]}"
        )
    return partial(
        release,
        noise=noise,
        multiplier=noise.test_noise_multiplier if test else noise.noise_multiplier,
        population=noise.test if test else noise.validation,
        input_gain=gain,
        source=source or SecureSource(),
    )


def release(
    model: Network,
    split: Split,
    features: Tensor | None,
    *,
    noise: ScoreNoise,
    multiplier: float,
    population: int,
    input_gain: float,
    source: RandomSource,
    outputs: Outputs | None = None,  # noqa: ARG001
) -> EpochScores:
    """Return noisy scores of a private split, by name; noise may bring one below 0 or above 1.

    ``multiplier`` is the noise multiplier of the split, ``population`` N, its public number of units, of which the rows
    of each share the weight of one; ``input_gain`` is the Lipschitz constant of the fixed maps between raw units and
    the tensor; ``source`` is secret. ``outputs`` are not looked at: those of a stack are computed in passes whose shape
    depends on how many models and rows there are.

    Guarantees:
        One call is one release of `ScoreNoise.paid`: each answer and each score of a row is its own, given the model,
        and those of a unit's rows count together as those of one.
    """
    own, form = Outputs.of(model, split, features, alone=True), noise.form
    hits_BM = answers_of_rows(own, split, noise.shares, input_gain)
    if not form.by_class:
        scores = release_scores(hits_BM, population, multiplier, source, offsets=split.offsets)
        return EpochScores(zip(noise.names, scores, strict=True))
    order_B = binary_scores(own.logits) if form.order else None
    released = release_class_scores(
        hits_BM, split.y, order_B, form, population, multiplier, source, offsets=split.offsets
    )
    return _name_scores(released, noise)


def _name_scores(released: ClassScores, noise: ScoreNoise) -> EpochScores:
    found = {
        name: (value, error)
        for name, value, error in zip(noise.shares, released.shares, released.share_errors, strict=True)
    }
    if released.form.hits:
        found[BALANCED] = released.balanced_accuracy, released.balanced_error
        for label, (recall, error) in enumerate(zip(released.recalls, released.recall_errors, strict=True)):
            found[recall_name(label)] = recall, error
    if released.form.order:
        found[AUROC] = released.auroc, released.auroc_error
    scores = EpochScores({name: float(value) for name, (value, _) in found.items()})
    scores.errors = {name: (error.std, error.rows) for name, (_, error) in found.items()}
    return scores


def mean_errors(found: Sequence[EpochScores]) -> ScoreErrors | None:
    """Return the errors of the means over repeats, whose noise is independent and whose rows are the same."""
    if any(one.errors is None for one in found):
        return None
    several = [dict(one.errors or {}) for one in found]
    return {
        name: (hypot(*(one[name][0] for one in several)) / len(several), fmean(one[name][1] for one in several))
        for name in several[0]
    }


def class_counts(
    model: Network, split: Split, declared: Metadata, *, features: Tensor | None = None
) -> ClassCounts | None:
    """Count by class how rows are decided; None where they are private, or of very many classes.

    ``features`` are the rows' `clipless.certificates.certify.float64_features`.

    Guarantees:
        Nothing is counted on rows that are not public or exploratory: counts by class are no release that is paid for.
    """
    count = len(declared.classes)
    if declared.evaluation not in (Evaluation.PUBLIC, Evaluation.EXPLORATORY) or count > MOST_CLASSES or not len(split):
        return None
    said_B, true_B = decisions(float64_logits(model, split.x, features=features)).cpu(), split.y.cpu()

    def counted(labels_B: Tensor) -> tuple[int, ...]:
        return tuple(labels_B[labels_B >= 0].bincount(minlength=count).tolist())  # -1: none is decided for

    return ClassCounts(rows=counted(true_B), decided=counted(said_B), correct=counted(true_B[said_B == true_B]))


def answers_of_rows(outputs: Outputs, split: Split, names: tuple[str, ...], input_gain: float) -> Tensor:
    """Return whether each row is decided correctly, and certified at each radius: booleans (B, M)."""
    radius_B = outputs.radii / input_gain
    columns = []
    for name in names:
        radius = radius_text(name)
        correct_B = decisions(outputs.logits) == split.y
        columns.append(correct_B if radius is None else radius_B > parse_radius(radius))
    return torch.stack(columns, dim=1)
