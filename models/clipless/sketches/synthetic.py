r"""Synthetic rows, drawn from what a private sketch tells of each class: post-processing, which costs nothing.

A class has its share of the rows, a mean and a variance of every number, and the shares of every category. All are
noisy, and a class of few rows tells little of itself. With n_k rows of class k among N, what it says of an entry stands
D_k from what all classes say together, in variance, by the noise alone,

    D_k = t^2 (1 / n_k^2 - 2 / (n_k N) + K / N^2),     t the deviation of the noise of one sum,

and the variance A of the differences beyond that is estimated from all classes. Each difference is shrunk by the factor
A / (A + D_k), the best linear one (James and Stein 1961; Efron and Morris 1973). Variances are shrunk in the same
way twice: those of a class towards those of all, and these towards their mean over the columns.

Numbers of a declared range are drawn from the beta distribution of that mean and variance, which stays within it and is
skewed near its ends, others from the normal distribution.

Shape letters: N rows, K classes, D coordinates, E coordinates that are numbers.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clipless.datasets import Split
from clipless.sketches.release import Sketch, SketchForm, noise_units, split_sums

Floats = NDArray[np.float64]

_LEAST_DEVIATION = 0.02  # of a number, in radii
_LEAST_VARIANCE = 0.1  # of a number, of the mean variance
_INSIDE = 1e-3  # how far means of bounded numbers and categories stay from the ends of their range


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassMoments:
    """What a sketch tells of each class.

    Attributes:
        shares: (K,) of the rows, all positive, 1 in all.
        means: (K, D) of every coordinate.
        variances: (K, E) of every number, all positive.
    """

    shares: Tensor
    means: Tensor
    variances: Tensor


def estimate_moments(form: SketchForm, sketch: Sketch, population: int) -> ClassMoments:
    """Return what a sketch of ``population`` rows tells of each class, shrunk by what its noise leaves open.

    Raises:
        DataError: a sketch of another form.
    """
    counts_K, sums_KD, squares_KE = split_sums(form, sketch)
    of_count, of_mean, of_square = (sketch.event.noise_multiplier * unit for unit in noise_units(form))
    shares_K = counts_K.clamp(min=max(1.0, 0.5 * of_count))
    shares_K = shares_K / shares_K.sum()
    rows_K1 = (population * shares_K)[:, None]
    means_KD = sums_KD / rows_K1
    numbers = list(form.numbers)
    for columns in (numbers, [i for one in form.categories for i in one]):
        if columns:
            means_KD[:, columns] = _shrink(means_KD[:, columns], rows_K1, of_mean)
    most = 1.0 - _INSIDE if form.bounded else form.norm
    means_KD = means_KD.clamp(-most, most)
    variances_KE = squares_KE
    if numbers:
        variances_KE = _estimate_variances(
            form, means_KD[:, numbers], squares_KE / rows_K1, rows_K1, of_mean, of_square
        )
    return ClassMoments(shares=shares_K, means=means_KD, variances=variances_KE)


def _estimate_variances(
    form: SketchForm, means_KE: Tensor, squares_KE: Tensor, rows_K1: Tensor, of_mean: float, of_square: float
) -> Tensor:
    """Return positive variances by the means of numbers and of their squares, and by the noise of sums of both."""
    noise = sqrt(of_square**2 + 4.0 * of_mean**2 * float((means_KE**2).mean()))
    variances_KE = _shrink(squares_KE - means_KE**2, rows_K1, noise)
    highest_KE = 0.95 * (1.0 - means_KE**2) if form.bounded else torch.full_like(means_KE, form.norm**2)
    least = max(_LEAST_VARIANCE * float(variances_KE.mean()), (_LEAST_DEVIATION * form.radius) ** 2)
    return torch.maximum(torch.minimum(variances_KE, highest_KE), highest_KE.clamp(max=least))


def _shrink(values_KC: Tensor, rows_K1: Tensor, noise: float) -> Tensor:
    """Return means of classes, shrunk towards those of all rows, and these towards their mean over the columns.

    Args:
        values_KC: means over the rows of each class.
        rows_K1: how many these are.
        noise: the deviation of the noise of a sum.
    """
    shares_K1, population = rows_K1 / rows_K1.sum(), rows_K1.sum()
    of_all_C = (shares_K1 * values_KC).sum(dim=0)
    noise_of_all = noise**2 * len(rows_K1) / population**2
    noise_K1 = noise**2 * (1.0 / rows_K1**2 - 2.0 / (rows_K1 * population)) + noise_of_all
    beside_KC = _shrunk(values_KC - of_all_C, shares_K1, noise_K1)
    middle = of_all_C.mean()
    one_11 = torch.ones((1, 1), dtype=torch.float64)
    return middle + _shrunk((of_all_C - middle)[None], one_11, noise_of_all * one_11) + beside_KC


def _shrunk(values_KC: Tensor, weights_K1: Tensor, noise_K1: Tensor) -> Tensor:
    """Multiply differences by A / (A + D), with A their own variance as far as D leaves it to be seen."""
    columns = values_KC.shape[1]
    seen = (weights_K1 * (values_KC**2 - noise_K1)).sum(dim=0).mean()
    least = 0.5 * (weights_K1 * noise_K1).sum() * sqrt(2.0 / columns)  # half the deviation of that estimate
    spread = torch.maximum(seen, least).clamp(min=1e-30)
    return values_KC * (spread / (spread + noise_K1.clamp(min=0.0)))


def draw_rows(form: SketchForm, moments: ClassMoments, count: int, generator: np.random.Generator) -> Split:
    """Return synthetic rows of all classes in random order, each of norm at most R.

    Args:
        form: of the rows.
        moments: of each class.
        count: how many; every class has two of them at least, where they are so many.
        generator: of a public seed, so that the rows can be drawn again.
    """
    labels_N = _draw_labels(moments.shares.numpy(), count, generator)
    x_ND = np.zeros((count, form.size))
    for label in range(form.classes):
        chosen_N = labels_N == label
        x_ND[chosen_N] = _draw_class(form, moments, label, int(chosen_N.sum()), generator)
    norm_N1 = np.linalg.norm(x_ND, axis=1, keepdims=True)
    x_ND *= form.norm / np.maximum(norm_N1, form.norm)
    return Split(torch.from_numpy(x_ND.astype(np.float32)), torch.from_numpy(labels_N))


def _draw_labels(shares_K: Floats, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return labels in random order: each class as often as its share says, rounded, and twice at least."""
    least = np.tile(np.arange(len(shares_K)), 2)[:count]
    ends_K = np.round(shares_K.cumsum() * (count - len(least)))
    others = np.searchsorted(ends_K, np.arange(count - len(least)), side="right")
    labels_N = np.concatenate([least, others.clip(max=len(shares_K) - 1)])
    return generator.permutation(labels_N).astype(np.int64)


def _draw_class(
    form: SketchForm, moments: ClassMoments, label: int, count: int, generator: np.random.Generator
) -> Floats:
    """Return rows of one class, (count, D)."""
    rows_ND = np.zeros((count, form.size))
    numbers, means_D = list(form.numbers), moments.means[label].numpy()
    mean_E, variance_E = means_D[numbers], moments.variances[label].numpy()
    if form.bounded:
        size_E = (1.0 - mean_E**2) / variance_E - 1.0  # sum of the parameters of a beta distribution
        beta_NE = generator.beta(size_E * (1.0 + mean_E) / 2, size_E * (1.0 - mean_E) / 2, (count, len(numbers)))
        rows_ND[:, numbers] = 2.0 * beta_NE - 1.0
    else:
        rows_ND[:, numbers] = generator.normal(mean_E, np.sqrt(variance_E), (count, len(numbers)))
    for columns in form.categories:
        chances_C = means_D[list(columns)].clip(min=_INSIDE)
        drawn_N = generator.choice(len(columns), count, p=chances_C / chances_C.sum())
        rows_ND[np.arange(count), columns.start + drawn_N] = 1.0
    return rows_ND
