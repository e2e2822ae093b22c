r"""Counts, means and second moments of the rows of every class, as one Gaussian release.

A row x of class k, of d coordinates and norm at most R, contributes to the block of its class alone

    v(x) = (a,  b x / R,  c u(x) / max(1, |u(x)|)),     u(x)_j = (x_j^2 - r^2 / 2) / (r^2 sqrt(e) / 2),

with a^2 + b^2 + c^2 = 1, r^2 = R^2 over the number of columns, and j over the e coordinates that are numbers: of a
coordinate that is 0 or 1 the square says nothing new. Rows whose every number lies in [-r, r], as those of an encoded
table do, have |u| <= 1; others are scaled to it, which costs accuracy and no privacy. So |v(x)| <= 1: to add or remove
a row moves the sums by at most 1, to replace it, of whatever class, by at most 2, which the accountant of the relation
knows. Where a privacy unit has m rows, each contributes v(x) / m: together at most 1, of whatever classes they are.

**Computed sums are exact.** The entries of v are whole numbers of steps of 2^-20, cut towards zero, and so are all
sums: a row moves them by its own contribution, whatever their order (`clipless.guards.exact_sums` has the reason). What
one row contributes depends on nothing but that row: every operation on its entries is a single rounded one, and norms
are sums of squares of whole numbers below 2^53.

Shape letters: N rows, K classes, D coordinates, E coordinates that are numbers, M = 1 + D + E entries of a block.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

import torch
from torch import Tensor

from clipless.datasets import Metadata, Split
from clipless.errors import AccountingError, DataError
from clipless.privacy.events import PoissonGaussian
from clipless.privacy.noise_grid import check_steps
from clipless.privacy.randomness import RandomSource

STEPS = 2.0**20  # of the grid in a contribution of norm 1
_ROUNDING = 2.0**-40  # relative, of a scale or a deviation in double precision
_MOST_ENTRIES = 2**12  # squares of that many whole numbers up to 2^20 add up to at most 2^52
_MOST_ROWS = 2**32  # so many whole numbers up to 2^20 add up to less than 2^53
_CHUNK = 2**14  # rows that are looked at at once
_COUNTS, _MEANS, _SQUARES = 0.1, 0.5, 0.4  # a^2, b^2 and c^2


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchForm:
    """What is public of the rows that are sketched.

    Attributes:
        classes: K, their number.
        norm: R, a bound of the norm of a row.
        widths: coordinates of each column: one is a number, more are its categories, of which one is 1.
        bounded: whether numbers are known to lie in [-1, 1].
    """

    classes: int
    norm: float
    widths: tuple[int, ...]
    bounded: bool

    @classmethod
    def of(cls, declared: Metadata) -> "SketchForm":
        """Return the form of declared rows; of those whose columns are not declared each coordinate is a number.

        Raises:
            DataError: rows of more than one dimension, or of too many coordinates.
        """
        shape = declared.input_shape
        if not (len(shape) == 1 and shape[0] <= _MOST_ENTRIES):
            raise DataError(
                f"Expected rows of one dimension, of at most {_MOST_ENTRIES} coordinates, to make a sketch of, got "
                f"examples of shape {shape} ({declared.name})"
            )
        widths = declared.column_widths
        return cls(
            classes=len(declared.classes),
            norm=declared.input_norm,
            widths=widths or (1,) * shape[0],
            bounded=bool(widths),
        )

    @property
    def size(self) -> int:
        """D, the number of coordinates."""
        return sum(self.widths)

    @property
    def radius(self) -> float:
        """The size of a number in a row of the largest norm, if all columns are alike."""
        return self.norm / sqrt(len(self.widths))

    @property
    def numbers(self) -> tuple[int, ...]:
        """The coordinates that are numbers."""
        starts = [sum(self.widths[:i]) for i in range(len(self.widths))]
        return tuple(start for start, width in zip(starts, self.widths, strict=True) if width == 1)

    @property
    def categories(self) -> tuple[range, ...]:
        """The coordinates of each column of categories."""
        starts = [sum(self.widths[:i]) for i in range(len(self.widths))]
        return tuple(range(s, s + width) for s, width in zip(starts, self.widths, strict=True) if width > 1)

    @property
    def weights(self) -> tuple[float, float, float]:
        """The norms a, b and c of the parts of a contribution."""
        squares = _SQUARES if self.numbers else 0.0
        whole = _COUNTS + _MEANS + squares
        return sqrt(_COUNTS / whole), sqrt(_MEANS / whole), sqrt(squares / whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """A release.

    Attributes:
        event: what it spent; its noise multiplier is the deviation of the noise of each entry.
        sums: (K, M) noisy sums of contributions.
    """

    event: PoissonGaussian
    sums: tuple[tuple[float, ...], ...]

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"event": self.event.to_json(), "sums": [list(row) for row in self.sums]}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Sketch":
        """Read back what ``to_json`` wrote.

        Raises:
            KeyError, TypeError, ValueError, AccountingError: something else.
        """
        sums = tuple(tuple(map(float, row)) for row in content["sums"])
        return cls(event=PoissonGaussian.from_json(content["event"]), sums=sums)


def release_sketch(form: SketchForm, rows: Split, event: PoissonGaussian, source: RandomSource) -> Sketch:
    """Return the noisy sums over all rows.

    Args:
        form: of the rows; public.
        rows: private.
        event: what it spends: every row takes part, once.
        source: of the noise, secret.

    Guarantees:
        One call is one such event, under either relation, whatever the rows hold.

    Raises:
        AccountingError: another event, no positive noise, or more of it than is exact.
        DataError: too many rows.
    """
    noise_multiplier = event.noise_multiplier
    if not (event.sampling_rate == 1.0 and event.steps == 1 and 0.0 < noise_multiplier < inf):
        raise AccountingError(f"Expected one release of all rows with finite noise, got {event}")
    if not len(rows) <= _MOST_ROWS:
        raise DataError(f"Expected at most {_MOST_ROWS} units to make a sketch of, got {len(rows)}")
    std = noise_multiplier * STEPS * (1.0 + _ROUNDING)
    check_steps(std, 1.0)
    noisy_KM = source.noisy(sum_contributions(form, rows), std, 1.0) / STEPS
    return Sketch(event=event, sums=tuple(map(tuple, noisy_KM.tolist())))


def sum_contributions(form: SketchForm, rows: Split) -> Tensor:
    """Return the sums of the contributions of rows by class, (K, M) float64, in whole steps; not private."""
    width = 1 + form.size + len(form.numbers)
    sums_KM = torch.zeros((form.classes, width), dtype=torch.float64)
    parts = (part.split(_CHUNK) for part in (rows.x, rows.y, rows.weights()))
    for x_ND, labels_N, weights_N in zip(*parts, strict=True):
        steps_NM = (contributions(form, x_ND) * weights_N[:, None]).trunc_()
        sums_KM.index_add_(0, labels_N.cpu(), steps_NM.cpu())
    return sums_KM


def contributions(form: SketchForm, x_ND: Tensor) -> Tensor:
    """Return what rows contribute to the block of their class, (N, M) float64, in whole steps.

    Guarantees:
        The norm of each is at most `STEPS`; rows that are not finite contribute nothing.
    """
    count, means, squares = (STEPS * weight for weight in form.weights)
    kept_N1 = x_ND.isfinite().all(dim=1, keepdim=True)
    x_ND = torch.where(kept_N1, x_ND, 0.0).double()
    half, numbers = form.radius**2 / 2, list(form.numbers)
    u_NE = (x_ND[:, numbers] ** 2 - half) * (squares / (half * sqrt(max(len(numbers), 1))))
    parts = [torch.full_like(x_ND[:, :1], count).trunc_(), _within(x_ND * (means / form.norm), means)]
    return torch.cat([*parts, _within(u_NE, squares)], dim=1) * kept_N1


def _within(entries_NE: Tensor, norm: float) -> Tensor:
    """Cut entries to whole numbers towards zero, and rows of them to a norm."""
    whole_NE = entries_NE.clamp(-norm, norm).trunc_()
    norm_N1 = (whole_NE**2).sum(dim=1, keepdim=True).sqrt_()
    return torch.where(norm_N1 <= norm, whole_NE, (whole_NE * (norm * (1.0 - _ROUNDING) / norm_N1)).trunc_())


def split_sums(form: SketchForm, sketch: Sketch) -> tuple[Tensor, Tensor, Tensor]:
    """Return the noisy sums of 1, (K,), of x, (K, D), and of squares of numbers, (K, E), float64.

    Raises:
        DataError: a sketch of another form.
    """
    sums_KM = torch.tensor(sketch.sums, dtype=torch.float64)
    numbers = len(form.numbers)
    if sums_KM.shape != (form.classes, 1 + form.size + numbers) or not bool(sums_KM.isfinite().all()):
        raise DataError(f"Expected a sketch of {form.classes} classes and {form.size} coordinates, got another one")
    count_K1, means_KD, squares_KE = sums_KM.split([1, form.size, numbers], dim=1)
    (_, mean_unit, square_unit), counts_K = noise_units(form), count_K1[:, 0] * noise_units(form)[0]
    return counts_K, means_KD * mean_unit, squares_KE * square_unit + counts_K[:, None] * (form.radius**2 / 2)


def noise_units(form: SketchForm) -> Sequence[float]:
    """Return what one entry of a contribution counts in a sum of 1, of x and of squares: noise is sigma times that."""
    a, b, c = form.weights
    return 1.0 / a, form.norm / b, form.radius**2 * sqrt(len(form.numbers)) / (2.0 * c) if c else 0.0
