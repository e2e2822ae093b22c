r"""Scores by class as one paid release: recalls, balanced accuracy and AUROC beside shares of rows.

One release is one Gaussian mechanism. A row of class c whose answer is right (h = 1) or wrong (h = 0) adds to

* each of M answers (`clipless.privacy.noisy_counts`) +-1/2;
* the centred hits of its class, A_c = hits_c - n_c / 2, alone +-1/2: the K classes cost what one answer does;
* the sizes, w (1[class is k] - t) for each class k, with w = 1/2 and t the largest power of two that is at most 1/K;
* the order, V = U / D with U = sum over pairs of a row of class 1 and one of class 0 of 1/2, 0 or -1/2 (the first has
  the larger score, the same, the smaller). A row moves U by at most half of the rows of the other class, however these
  are divided, and so by at most N/2; D >= N makes that 1/2.

The squares add up: sensitivity^2 = (M + [hits] + [order]) / 4 + w^2 (1 - 2 t + K t^2), and every number gets noise of
that deviation times sigma. From them follow, with N public,

    n_c = sizes made to add up to N,     recall_c = 1/2 + A_c / n_c,     AUROC = 1/2 + V D / (n_1 n_0).

Centring makes a recall insensitive to the noise of n_c near 1/2. The accuracy is released beside the hits, of which it
is the sum: least squares makes both agree and leaves of their variance K / (K + 1). Two classes: 1.15 sigma / sqrt(2)
counts in each, where the hits alone, added up, would give the accuracy 1.41 times the noise of a recall.

**Sizes in each release.** They could be released once for each split; with m releases at the same price, two classes
and a recall of 0.8 that is 10 % less noise at m = 6, and none at m = 1 (the sampling of a class of 60 rows is larger
than either). It would be a release of its own, to enter, to resume and to keep for all trainings: not worth it.

**Order in one number.** Curves of both classes (`clipless.curves.classes`) tell the AUROC too, with noise of about
2 sigma / n_1 and 2 sigma / n_0 from 128 thresholds; U has sigma / (2 n_1) where class 1 is rare, and sigma / n_1 where
classes are equal.

**The number of rows.** D is for data sets of N rows and their neighbours, which is what a declared N promises. A split
with more than N + 1 units is refused, so that no row can move U further.

Units of several rows: a row has the weight of one over the rows of its unit, cut down to whole steps of 2^-20, and a
pair the product of both weights. A unit with the weight a in class 1 and b in class 0 moves U by at most
(a n_0 + b n_1 + a b) / 2 <= N/2 + 1/8, its own pairs included; D has room for that and for rounding V.

Noise is known and so are errors: by the delta method for noise, from above where a class is hardly larger than its
noise; for the sampling of the rows as a number of rows that a plain share would have the same error with. The variance
of an AUROC A is at most A (1 - A) over the rows of the smaller class (Birnbaum and Klose 1957), and near that where a
few of them have the scores of the other one. Of a class whose size does not exclude that it has less than one row, by
two deviations of its noise, no number of rows says anything of its recall: it counts as a quarter of a row, with which
an interval holds every share, however many releases agree. Noise of more than a row says that by itself: sizes are no
smaller than it.

Shape letters: B rows, M answers, K classes, P numbers of a release.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clipless.errors import AccountingError
from clipless.privacy.noise_grid import step_for

if TYPE_CHECKING:
    from torch import Tensor

    from clipless.privacy.randomness import RandomSource

MOST_CLASSES = 100
_FINEST = 2.0**-42  # step of the noise
_STEP_BITS = 20  # of a share of a unit's rows, and of the order
_COARSEST = 2.0**-21  # all sums are whole numbers of it
_SIZE_WEIGHT = 0.5  # w
_UNKNOWN_SIZES = 2.0  # of the population, noise that leaves nothing of the size of a class: no slope shows that
_DOUBTED = 2.0  # deviations of the noise of a size, at most a row, within which a class may have less than one
UNKNOWN_ROWS = 0.25  # with which half a row is more than any share and the noise of a recall together
_ROUNDING = 2.0**-40  # relative, of normals and deviations in double precision

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ScoreForm:
    """What one release of scores holds.

    Raises:
        AccountingError: numbers that no release has.
    """

    answers: int  # M; the first one is whether the row is decided rightly
    classes: int = 0  # K, where there is more than answers
    hits: bool = False  # of each class
    order: bool = False  # of two classes

    def __post_init__(self) -> None:
        by_class = self.hits or self.order
        if not self.answers >= 1 or (by_class and not 2 <= self.classes <= MOST_CLASSES):
            raise AccountingError(f"Expected an answer or more, and 2 to {MOST_CLASSES} classes, got {self}")
        if self.order and self.classes != 2:
            raise AccountingError(f"Expected two classes for an order of scores, got {self.classes}")

    @property
    def by_class(self) -> bool:
        """Whether it holds more than answers."""
        return self.hits or self.order

    @property
    def shift(self) -> float:
        """t, a power of two."""
        return 2.0 ** -math.ceil(math.log2(self.classes))

    @property
    def sensitivity(self) -> float:
        """How far one unit moves all numbers together, in Euclidean norm."""
        squared = (self.answers + self.hits + self.order) / 4.0
        if self.by_class:
            t = self.shift
            squared += _SIZE_WEIGHT**2 * ((1.0 - t) ** 2 + (self.classes - 1) * t * t)
        return math.sqrt(squared)

    @property
    def numbers(self) -> int:
        """P."""
        return self.answers + (self.hits + self.by_class) * self.classes + self.order


@dataclass(frozen=True, slots=True)
class ScoreError:
    """How wrong a released score may be."""

    std: float  # standard deviation of its noise
    rows: float  # a share of so many rows would have the same sampling error


@dataclass(frozen=True, slots=True, eq=False)
class NoiseSlopes:
    """How a score moves with the noise of the numbers of its release, which all have the same deviation."""

    hits: Floats  # (K,) by the hits of each class
    sizes: Floats  # (K,) by the sizes of the classes
    order: float = 0.0

    @classmethod
    def of_accuracy(cls, classes: int, population: int) -> "NoiseSlopes":
        """Return those of the first share of a release with hits, with which it agrees."""
        return cls(np.full(classes, 1.0 / population), np.zeros(classes))

    @classmethod
    def of_recalls(cls, recalls_K: Floats, rows_K: Floats) -> tuple["NoiseSlopes", ...]:
        """Return those of recalls, given the sizes that hits are divided by."""
        slopes = zip(np.diag(1.0 / rows_K), np.clip(recalls_K, 0.0, 1.0), strict=True)
        return tuple(cls(by_hit, -by_hit * (recall - 0.5)) for by_hit, recall in slopes)

    @classmethod
    def of_balanced(cls, recalls_K: Floats, rows_K: Floats) -> "NoiseSlopes":
        """Return those of the mean of recalls."""
        by_hit = 1.0 / (len(rows_K) * rows_K)
        return cls(by_hit, -by_hit * (np.clip(recalls_K, 0.0, 1.0) - 0.5))

    @classmethod
    def of_auroc(cls, auroc: float, rows_K: Floats, population: int) -> "NoiseSlopes":
        """Return those of an AUROC."""
        found = min(max(auroc, 0.0), 1.0)
        return cls(np.zeros(2), (0.5 - found) / rows_K, _divisor(population) / float(rows_K.prod()))

    def covariance(self, other: "NoiseSlopes") -> float:
        """Return that of the noise of two scores, in squared deviations of the numbers.

        Hits were made to agree with the accuracy and sizes to add up to N, which takes some of their noise away.
        """
        classes = len(self.hits)
        hits = self.hits @ other.hits - self.hits.sum() * other.hits.sum() / (classes + 1)
        sizes = self.sizes @ other.sizes - self.sizes.sum() * other.sizes.sum() / classes
        return float(hits + sizes / _SIZE_WEIGHT**2 + self.order * other.order)

    @property
    def deviation(self) -> float:
        """The deviation of the noise of the score, in deviations of the numbers."""
        return math.sqrt(self.covariance(self))

    def correlation(self, other: "NoiseSlopes") -> float:
        """Return that of the noise of two scores."""
        return self.covariance(other) / (self.deviation * other.deviation)


@dataclass(frozen=True, slots=True, eq=False)
class ClassScores:
    """One release; everything here is computed from what was released.

    Attributes:
        form: what it holds.
        population: N, public.
        std: of the noise of each number.
        answers: (M,) centred sums, each with its noise.
        hits: (K,) A_c; empty where they are not released.
        sizes: (K,) of the classes, adding up to N.
        order: V; 0 where it is not released.
    """

    form: ScoreForm
    population: int
    std: float
    answers: Floats
    hits: Floats
    sizes: Floats
    order: float

    @classmethod
    def of(cls, numbers_P: Floats, form: ScoreForm, population: int, std: float) -> "ClassScores":
        """Return what the numbers of a release say, those that must agree made to agree."""
        ends = np.cumsum([form.answers, form.classes * form.hits, form.classes])
        answers, hits, sizes, order = np.split(numbers_P, ends)
        if form.hits:
            apart = answers[0] - hits.sum()
            hits = hits + apart / (form.classes + 1)
            answers = np.concatenate([[hits.sum()], answers[1:]])
        sizes = sizes / _SIZE_WEIGHT + form.shift * population
        sizes = sizes + (population - sizes.sum()) / form.classes
        return cls(form, population, std, answers, hits, sizes, float(order[0]) if form.order else 0.0)

    @property
    def rows(self) -> Floats:
        """Sizes to divide by, (K,): no smaller than their noise, nor than one row."""
        return np.maximum(self.sizes, least_rows(self.std, self.form.classes))

    @property
    def sampled(self) -> Floats:
        """Rows by which sampling is estimated, (K,): `rows`, or less than one where a class may have less than that."""
        return np.where(self.sizes < doubted_size(self.std, self.form.classes), UNKNOWN_ROWS, self.rows)

    @property
    def shares(self) -> Floats:
        """(M,) shares of rows with each answer."""
        return 0.5 + self.answers / self.population

    @property
    def share_errors(self) -> tuple[ScoreError, ...]:
        """Those of `shares`."""
        left = self.form.classes / (self.form.classes + 1) if self.form.hits else 1.0
        stds = [self.std * math.sqrt(left if i == 0 else 1.0) / self.population for i in range(self.form.answers)]
        return tuple(ScoreError(std, float(self.population)) for std in stds)

    @property
    def recalls(self) -> Floats:
        """(K,) shares of the rows of each class that are decided for it; noise may bring one below 0 or above 1."""
        return 0.5 + self.hits / self.rows

    @property
    def recall_errors(self) -> tuple[ScoreError, ...]:
        """Those of `recalls`."""
        slopes = zip(NoiseSlopes.of_recalls(self.recalls, self.rows), self.sampled, strict=True)
        return tuple(ScoreError(self._deviation(one), float(rows)) for one, rows in slopes)

    @property
    def balanced_accuracy(self) -> float:
        """The mean of `recalls`."""
        return float(self.recalls.mean())

    @property
    def balanced_error(self) -> ScoreError:
        """That of `balanced_accuracy`."""
        slopes = NoiseSlopes.of_balanced(self.recalls, self.rows)
        return ScoreError(self._deviation(slopes), rows_of_balanced(self.recalls, self.sampled))

    @property
    def auroc(self) -> float:
        """The share of pairs of a row of each class in order, ties counting one half; noise may bring it beyond 1."""
        return float(0.5 + self.order * _divisor(self.population) / self.rows.prod())

    @property
    def auroc_error(self) -> ScoreError:
        """That of `auroc`."""
        slopes = NoiseSlopes.of_auroc(self.auroc, self.rows, self.population)
        rows = float(self.rows.min())  # the largest variance that an AUROC allows, whatever the scores are
        return ScoreError(self._deviation(slopes), rows if self.sampled.min() >= 1.0 else UNKNOWN_ROWS)

    def _deviation(self, slopes: NoiseSlopes) -> float:
        """The deviation of the noise of a score that is divided by sizes; 1 where these are not known at all."""
        return max(self.std * slopes.deviation, float(leaves_no_sizes(self.std, self.population)))


def release_class_scores(
    hits_BM: "Tensor",
    y_B: "Tensor",
    scores_B: "Tensor | None",
    form: ScoreForm,
    population: int,
    noise_multiplier: float,
    source: "RandomSource",
    *,
    offsets: "Tensor | None" = None,
) -> ClassScores:
    """Release scores of rows by class.

    Args:
        hits_BM: booleans, as `clipless.privacy.noisy_counts.release_scores` has them; the first column says whether the
            row is decided for its class.
        y_B: int64, the class of each row, from 0.
        scores_B: float64, larger for rows that are likelier of class 1; what is not a number counts as the smallest.
            None without an order.
        form: what is released.
        population: N, public; the number of units as declared, not as counted from the data.
        noise_multiplier: sigma.
        source: of the noise, secret.
        offsets: of the rows of units; None where each row is a unit.

    Guarantees:
        One call is one release of ``scores_event`` under add-or-remove-one with N public, for data sets of N units and
        their neighbours, whatever answers, classes and scores are and however many rows a unit has: what the module
        says of each number, where everything of a row is its own.

    Raises:
        AccountingError: arguments of other shapes, classes beyond the form's, more than N + 1 units, or no positive
            noise, or more of it than is exact.
    """
    import torch  # prices are read without it

    if hits_BM.dtype != torch.bool or hits_BM.ndim != 2 or hits_BM.shape[1] != form.answers or not form.by_class:
        raise AccountingError(
            f"Expected booleans (rows, {form.answers}) and a form with classes, got {hits_BM.dtype} of shape "
            f"{tuple(hits_BM.shape)} and {form}"
        )
    if y_B.shape != hits_BM.shape[:1] or bool(((y_B < 0) | (y_B >= form.classes)).any()):
        raise AccountingError(f"Expected one class from 0 to {form.classes - 1} for each row, got others")
    if form.order and (scores_B is None or scores_B.shape != y_B.shape):
        raise AccountingError("Expected one score for each row, got none or others")
    units = len(y_B) if offsets is None else len(offsets) - 1
    if not population >= 1 or units > population + 1:
        raise AccountingError(f"Expected at most population + 1 = {population + 1} units, got more")
    if not 0.0 < noise_multiplier < math.inf:
        raise AccountingError(f"Expected 0 < noise_multiplier < inf, got noise_multiplier={noise_multiplier!r}")
    std = noise_multiplier * form.sensitivity * (1.0 + _ROUNDING)
    step = step_for(std, _FINEST, _COARSEST)
    exact_P = _numbers(_WeightedScores.of(hits_BM, y_B, scores_B, offsets), form, population)
    noisy_P = source.noisy(torch.from_numpy(exact_P), std, step).numpy()
    return ClassScores.of(noisy_P, form, population, std)


@dataclass(frozen=True, slots=True, eq=False)
class _WeightedScores:
    """Rows with their weights: whole numbers of steps of 2^-20."""

    hits: NDArray[np.bool_]  # (B, M)
    y: NDArray[np.int64]
    scores: Floats | None
    unit: NDArray[np.int64]  # (B,) whose each row is
    weight: NDArray[np.int64]  # (B,) of each row where pairs are compared
    counts: NDArray[np.int64]  # (N,) rows of each unit

    @classmethod
    def of(
        cls, hits_BM: "Tensor", y_B: "Tensor", scores_B: "Tensor | None", offsets: "Tensor | None"
    ) -> "_WeightedScores":
        """Return them, on the host."""
        y = y_B.cpu().numpy()
        counts = np.ones(len(y), dtype=np.int64) if offsets is None else offsets.diff().cpu().numpy()
        scores = None
        if scores_B is not None:
            scores = np.nan_to_num(scores_B.double().cpu().numpy(), nan=-np.inf, posinf=np.inf, neginf=-np.inf)
        unit = np.repeat(np.arange(len(counts)), counts)
        return cls(hits_BM.cpu().numpy(), y, scores, unit, (2**_STEP_BITS // counts)[unit], counts)

    def share_steps(self, rows_B: NDArray[np.bool_]) -> int:
        """Return the sum over units of the share of its rows that are among these, in steps, each cut down."""
        found_N = np.bincount(self.unit[rows_B], minlength=len(self.counts))
        return int((found_N * 2**_STEP_BITS // self.counts).sum())


def _size_noise(std: float, classes: int) -> float:
    """Return the deviation of the noise of the size of a class, once sizes add up to N."""
    return std / _SIZE_WEIGHT * math.sqrt(1.0 - 1.0 / classes)


def least_rows(std: float, classes: int) -> float:
    """Return the smallest size by which a score of a class is divided, given the deviation of a release's numbers."""
    return max(_size_noise(std, classes), 1.0)


def doubted_size(std: float, classes: int) -> float:
    """Return the size of a class below which it may have less than one row."""
    return 1.0 + _DOUBTED * min(_size_noise(std, classes), 1.0)


def leaves_no_sizes(std: float, population: int) -> bool:
    """Whether nothing is known of the sizes of classes, given the deviation of a release's numbers."""
    return std > population / _UNKNOWN_SIZES


def _numbers(rows: _WeightedScores, form: ScoreForm, population: int) -> Floats:
    """Return the numbers of a release without noise, (P,), each a whole number of the coarsest step."""
    step, units = 2.0**-_STEP_BITS, len(rows.counts)
    answers = [rows.share_steps(rows.hits[:, i]) * step - 0.5 * units for i in range(form.answers)]
    of_class = [rows.y == label for label in range(form.classes)]
    sizes = [rows.share_steps(own) * step for own in of_class]
    right = [rows.share_steps(own & rows.hits[:, 0]) * step for own in of_class]
    hits = [found - 0.5 * size for found, size in zip(right, sizes, strict=True)] if form.hits else []
    centred = [_SIZE_WEIGHT * (size - form.shift * units) for size in sizes]
    order = [_order(rows, population)] if form.order else []
    return np.array([*answers, *hits, *centred, *order])


def _divisor(population: int) -> int:
    """D: so much larger than N that half of N, a pair within a unit and the rounding of the order are half of it."""
    return population + 2 + (population >> 18)


def _order(rows: _WeightedScores, population: int) -> float:
    """Return V, rounded down to a whole number of steps."""
    pairs = _signed_pairs(rows)
    return float((pairs << _STEP_BITS) // (2 * _divisor(population) << 2 * _STEP_BITS)) * 2.0**-_STEP_BITS


def _signed_pairs(rows: _WeightedScores) -> int:
    """Return 2 U exactly, in squared steps of weights: rows of class 1 above and below those of class 0."""
    assert rows.scores is not None  # noqa: S101 - checked by who releases an order
    _, place = np.unique(rows.scores, return_inverse=True)
    levels = int(place.max(initial=-1)) + 1
    negative, positive = (
        np.bincount(place[own], weights=rows.weight[own], minlength=levels).astype(np.int64)  # exact up to 2^53
        for own in (rows.y == 0, rows.y == 1)
    )
    below = np.cumsum(negative)
    signed = 2 * below - negative - negative.sum()  # those below less those above
    return sum(map(mul, signed.tolist(), positive.tolist()))  # of Python's own numbers: none is too large


def rows_of_balanced(recalls_K: Floats, rows_K: Floats) -> float:
    """Return as how many rows a share has the sampling error of a mean of recalls, each of so many rows."""
    recalls, classes = np.clip(recalls_K, 0.0, 1.0), len(rows_K)
    smooth = (recalls * rows_K + 1.0) / (rows_K + 2.0)  # no class is known without error
    variance = float((smooth * (1.0 - smooth) / rows_K).sum()) / classes**2
    middle = float(smooth.mean())
    return middle * (1.0 - middle) / variance


def expect_scores(
    form: ScoreForm, population: int, noise_multiplier: float, sizes: Sequence[float], score: float
) -> ClassScores:
    """Return a release as it is expected where classes have these sizes and every score is this one."""
    std, sizes_K = noise_multiplier * form.sensitivity, np.asarray(sizes, dtype=np.float64)
    order = (score - 0.5) * float(sizes_K.prod()) / _divisor(population) if form.order else 0.0
    answers = np.full(form.answers, (score - 0.5) * population)
    hits = (score - 0.5) * sizes_K if form.hits else np.zeros(0)
    return ClassScores(form, population, std, answers, hits, sizes_K, order)
