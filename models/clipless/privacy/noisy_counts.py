r"""Scores of private rows as paid releases: counts with Gaussian noise, and how these compose with training.

Of m scores that are shares of rows (accuracy, ``certified@R`` at some radii), row i has m yes-or-no answers. Released
is

    score_j = 1/2 + (sum_i (hit_ij - 1/2) + noise_j) / N,     noise_j of standard deviation sigma sqrt(m) / 2,

with N the public number of rows. A row that is there adds a vector of entries +-1/2, of norm exactly sqrt(m)/2; one
that is not adds nothing. So the sum has sensitivity sqrt(m)/2, half of what the counts of hits themselves would have,
and the release is the Gaussian mechanism with noise multiplier sigma. A score is not cut to [0, 1]: what is estimated
from several needs noise of mean 0. That answers are nested (what is certified at a radius is correct, and certified at
every smaller one) does not help: a row with every answer wrong and one with every answer right are both possible and
are sqrt(m) apart, so that no public shift brings all rows within less than sqrt(m)/2. Counting instead how many radii
a row survives, in disjoint bins, has sensitivity sqrt(1 - 1/m) for m >= 2, but a score is then a sum of noisy bins: its
variance is larger for the m scores together by a factor of 2 (m^2 - 1) / m^2.

Where privacy units have several rows, i and N count units, and hit_ij is the share of the unit's rows with the answer
yes, cut down to a whole number of steps of 2^-20: a unit adds entries from -1/2 to 1/2, however many rows it has.

**With the training.** A row belongs to one split, by a keyed hash of itself or by a column of its own, so adding or
removing a row changes the training rows or the validation rows, never both. In the first case everything that reads
validation rows is post-processing of what training released, in the second everything that reads training rows is
the same with and without the row, whatever was seen before. The price of both together is therefore the larger of the
two, not their sum (parallel composition, which here holds for adaptive choices too, because numbers of releases and
noise are fixed in advance). Replacing a row may take one row out of one split and put another into the other: then
both are charged. A split drawn by permutation or stratified moves other rows too: no price here covers that.

Only shares of rows are counts. Recalls and AUROC have a release of their own (`clipless.privacy.class_scores`).
Membership inference reads training rows, and attacks draw the starts of all rows from one generator, so that a row more
moves the others: neither may be released this way.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from clipless.errors import AccountingError
from clipless.privacy.events import PoissonGaussian, Relation
from clipless.privacy.noise_grid import step_for

if TYPE_CHECKING:
    from torch import Tensor

    from clipless.privacy.randomness import RandomSource

_FINEST = 2.0**-42  # step of the noise; halves are whole numbers of it
_SHARE = 2.0**-20  # step of the share of a unit's rows
_ROUNDING = 2.0**-40  # relative, of normals and deviations in double precision


def counts_sensitivity(scores: int) -> float:
    """Return how far one row can move the vector of centred counts of that many scores, in Euclidean norm."""
    if not scores >= 1:
        raise AccountingError(f"Expected one score or more, got scores={scores!r}")
    return math.sqrt(scores) / 2.0


def release_scores(
    hits_BM: "Tensor",
    population: int,
    noise_multiplier: float,
    source: "RandomSource",
    *,
    offsets: "Tensor | None" = None,
) -> tuple[float, ...]:
    """Return the noisy share of each column of answers; noise may bring it below 0 or above 1.

    Args:
        hits_BM: booleans, one row per row of data and one column per score; everything that a row's answers may depend
            on is that row and what was released before.
        population: N, public; the number of units as declared, not as counted from the data.
        noise_multiplier: sigma.
        source: of the noise, secret.
        offsets: of the rows of units, as `clipless.datasets.Split` has them; None where each row is a unit.

    Guarantees:
        One call is one release of ``scores_event`` under add-or-remove-one with N public, whatever the answers are and
        however many rows a unit has.

    Raises:
        AccountingError: answers that are not booleans in two dimensions, no rows declared, or no positive noise, or
            more of it than is exact.
    """
    import torch  # prices are read without it

    if hits_BM.dtype != torch.bool or hits_BM.ndim != 2:
        raise AccountingError(f"Expected booleans (rows, scores), got {hits_BM.dtype} of shape {tuple(hits_BM.shape)}")
    if not population >= 1:
        raise AccountingError(f"Expected population >= 1, got population={population!r}")
    if not 0.0 < noise_multiplier < math.inf:
        raise AccountingError(f"Expected 0 < noise_multiplier < inf, got noise_multiplier={noise_multiplier!r}")
    std = noise_multiplier * counts_sensitivity(hits_BM.shape[1]) * (1.0 + _ROUNDING)
    step = step_for(std, _FINEST, 0.5 if offsets is None else _SHARE)
    centred_M = _centred_sums(hits_BM, offsets).cpu()
    noisy_M = 0.5 + source.noisy(centred_M, std, step) / population
    return tuple(noisy_M.tolist())


def _centred_sums(hits_BM: "Tensor", offsets: "Tensor | None") -> "Tensor":
    """Return the exact sum over units of the share of hits among their rows, less 1/2 each, (M,) float64."""
    if offsets is None:
        return hits_BM.sum(dim=0).double() - 0.5 * len(hits_BM)
    counts_N = offsets.diff()
    before_BM = hits_BM.new_zeros((len(hits_BM) + 1, hits_BM.shape[1]), dtype=offsets.dtype)
    before_BM[1:] = hits_BM.cumsum(dim=0)
    hits_NM = before_BM[offsets].diff(dim=0)
    steps_NM = (hits_NM * round(1.0 / _SHARE)).div(counts_N[:, None], rounding_mode="floor")
    return steps_NM.sum(dim=0).double() * _SHARE - 0.5 * len(counts_N)


def scores_event(noise_multiplier: float, releases: int, relation: Relation) -> PoissonGaussian:
    """Return the event of that many releases of scores on the rows that are scored: every row, every time."""
    return PoissonGaussian(noise_multiplier=noise_multiplier, sampling_rate=1.0, steps=releases, relation=relation)


def in_one_split(events: Iterable[PoissonGaussian]) -> bool:
    """Whether neighbouring data sets differ in one split only; rows are assigned by a hash or a column of theirs."""
    return all(event.relation is Relation.ADD_OR_REMOVE_ONE for event in events)


def epsilon_of_splits(
    splits: Iterable[Sequence[PoissonGaussian]], price: Callable[[Sequence[PoissonGaussian]], float], *, apart: bool
) -> float:
    """Bound the epsilon of everything that was released of disjoint splits, each looked at after the others as well.

    Args:
        splits: what was spent on the rows of each split: training, validation, test; all under one relation.
        price: bounds the epsilon of the composition of events from above, all at one delta.
        apart: whether each row is assigned to its split by a function of itself.

    Guarantees:
        An upper bound for data sets that differ in one row, if noise and numbers of releases were fixed in advance; and
        if, where the splits are not apart, the other rows stay in theirs.
    """
    spent = [tuple(events) for events in splits if events]
    every = tuple(event for events in spent for event in events)
    alone = apart and in_one_split(every)
    return max(map(price, spent if alone or not spent else [every]), default=0.0)
