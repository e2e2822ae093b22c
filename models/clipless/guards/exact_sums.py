r"""Sums over rows that do not round: privacy needs the *computed* sum to move by at most Delta when one row changes.

A sum of floating-point numbers rounds, and what one row changes changes how all later addends round: float32 sums of
guarded contributions were seen to move by 5 Delta. Here every contribution is a vector of multiples of one public
number, the grid c of its parameter, a power of two with

    Delta / 2^31 < c <= Delta.                                                                   (1)

A partial sum of at most 2^21 contributions of norm at most Delta (twice that where only high digits are there yet) is
then a multiple of c of at most 2^53 c, which double precision holds exactly. So the computed sum *is* the sum, whatever
the order, the size of the batch, the number of threads or the device, and one row moves it by its own contribution: by
at most Delta.

Two ways lead to such contributions:

* `row_sum`: contributions that are formed row by row are cut to the grid entry by entry, towards zero, which raises
  no norm.
* `outer_sum`: the gradient of a weight, the sum of g_it (x) x_it over rows i and places t, is a product of integers.
  One operand, say x, becomes whole numbers of 8 bits: X_i = x_i / a_i, in steps a_i that depend on the row alone. The
  other one, scaled by s_i, becomes whole numbers of 15 bits in steps of c / a_i: G_i, two digits of 8 bits. Products of
  8-bit integers are added up as 32-bit integers, exactly. The contribution c G_i (x) X_i has norm at most

      c |X_i| (|s_i g_i| a_i / c + sqrt(d) / 2)                                                   (2)

  with sqrt(d) / 2 what rounding d entries may add; |X_i| is taken of the whole numbers themselves. (Where one input
  entry belongs to several patches, it counts as often in norms and in d.)

What may never happen here: a grid or a step that depends on another row, arithmetic on sums that rounds.

Shape letters: B batch, D entries of a contribution, O outputs, I inputs, P places, K summed, M and N kept.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import frexp, ldexp, sqrt
from typing import overload

import torch
from torch import Tensor

from clipless.errors import PlanError
from clipless.scalars import Scalar, power_of_two_below

# A part of a sum, and the power of two that it counts; added to a float64 sum by ``add_(part, alpha=weight)``.
WeightedSum = tuple[Tensor, Scalar]

# The most contributions that are ever summed, and how much finer than Delta a grid may be: 2 2^21 (2 2^30) = 2^53.
MOST_ROWS = 2**21
_FINEST = 2.0**30

_DIGIT = 127  # largest 8-bit digit; -128 is never used
BASE = 128
_LARGEST = _DIGIT * BASE  # of a whole number in two digits
_MOST_ADDENDS = 2**17  # 127^2 2^17 < 2^31: of products of digits in 32 bits
_MOST_FLOAT32_ADDENDS = 2**10  # 127^2 2^10 < 2^24: of products of digits in float32
_LEAST_PEAK = 1e-30  # rows below have fewer bits, so that no step is a denormal number
_SAFE = 1.0 - 2.0**-21  # covers the float32 roundings of a scale and of a product with it

# Squares below the smallest normal float32 may be flushed to zero; this much norm per root element is added back.
_BLOCK = 4096
_UNDERFLOW_NORM = 1.2e-19
_SMALLEST_NORMAL = torch.finfo(torch.float32).tiny


def check_rows(count: int) -> None:
    """Raise PlanError for more rows than `MOST_ROWS`; it does not say how many, which is secret of a drawn batch."""
    if not count <= MOST_ROWS:
        raise PlanError(f"Expected at most {MOST_ROWS} rows in a batch, copies included, got more; take smaller ones")


@overload
def grid(sensitivity: float, steps: float = ...) -> float: ...
@overload
def grid(sensitivity: Scalar, steps: float = ...) -> Scalar: ...
def grid(sensitivity: Scalar, steps: float = _FINEST) -> Scalar:
    """Return the largest power of two that is at most ``sensitivity / steps``, and never finer than (1) allows."""
    if not isinstance(sensitivity, int | float):
        return power_of_two_below(sensitivity / min(steps, _FINEST))
    return ldexp(1.0, frexp(sensitivity / min(steps, _FINEST))[1] - 1)


def row_norms(x: Tensor) -> Tensor:
    """Upper bound of the Euclidean norm of each row over everything but the batch axis, float32 rounding included.

    A float32 sum of n squares is relatively at most n + 2 units of 2^-24 too small, whatever the order; norms of blocks
    keep n small.
    """
    return _norms(x.flatten(1)) + _UNDERFLOW_NORM * sqrt(x[0].numel() if len(x) else 1)


def _norms(x_BD: Tensor) -> Tensor:
    size = x_BD.shape[1]
    whole = size - size % _BLOCK
    if whole == 0:
        norm_B: Tensor = torch.linalg.vector_norm(x_BD, dim=1)
        return norm_B * (1.0 + (size + 4) * 2.0**-24)
    blocks_BK = torch.linalg.vector_norm(x_BD[:, :whole].unflatten(1, (-1, _BLOCK)), dim=2)
    rest_B1 = torch.linalg.vector_norm(x_BD[:, whole:], dim=1, keepdim=True)
    return _norms(torch.cat([blocks_BK, rest_B1], dim=1)) * (1.0 + (_BLOCK + 4) * 2.0**-24)


def row_sum(rows_BD: Tensor, scale_B: Tensor, step: Scalar) -> Tensor:
    """Sum rows times their scales exactly, each product cut to the grid towards zero.

    Args:
        rows_BD: finite.
        scale_B: float64, with ``scale * |row|`` at most Delta.
        step: the grid.

    Returns:
        (D,) float64.
    """
    return whole_rows(rows_BD, scale_B, step).sum(dim=0, dtype=torch.float64) * step


def whole_rows(rows_BD: Tensor, scale_B: Tensor, step: Scalar) -> Tensor:
    """Return rows times their scales in whole steps of the grid (or each row's own), cut towards zero."""
    factor_B = _float32(scale_B / step * _SAFE).to(rows_BD.dtype)
    return (rows_BD * factor_B[:, None]).trunc_()


class QuantisedOperand:
    """Rows as 8-bit integers, each row in steps of its own.

    Attributes:
        values: (B, ...) whole numbers of -127 to 127, in the type of x; zeros where ``finite`` is not.
        step_B: float64; ``values * step`` is x up to half a step.
        norm_B: upper bound of the norm of ``values``, float64.
        finite_B: rows without infinite or undefined entries.
    """

    def __init__(self, x: Tensor) -> None:
        x_BD = x.flatten(1)
        peak_B = torch.maximum(x_BD.amax(dim=1), -x_BD.amin(dim=1))
        self.finite_B = peak_B.isfinite()
        per_step_B = torch.where(self.finite_B, _DIGIT / peak_B.clamp(min=_LEAST_PEAK), 0.0)
        self.values = (select_rows(self.finite_B, x) * column_of(per_step_B, x)).round_()
        self.step_B = 1.0 / per_step_B.double()
        self.norm_B = row_norms(self.values).double()

    def rounding(self, step: Scalar, entries: int) -> Tensor:
        """Return the most that rounding the other operand, of that many entries, adds to each norm, (B,)."""
        return self.norm_B * (step * sqrt(entries) / 2)


def outer_grid(sensitivity: Scalar, digits: int, others: int) -> Scalar:
    """Return a grid for `outer_sum`, on which an operand spread evenly over its row has entries of 1,024 steps or so.

    What rounding takes from a contribution is then at most a thousandth of Delta or so; the errors of many rows cancel.

    A row of the operand of 8 bits has ``digits`` entries, one of the other operand ``others``.
    """
    spread = max(_LARGEST / 2, 1024.0 * sqrt(others))  # norm of whole numbers at full contribution
    return grid(sensitivity, spread * _DIGIT * max(1.0, sqrt(digits) / 8))


def outer_sum(
    digits: QuantisedOperand,
    other: Tensor,
    scale_B: Tensor,
    step: Scalar,
    product: Callable[[Tensor, Tensor], Sequence[Tensor]],
) -> list[WeightedSum]:
    """Sum ``scale * digits (x) other`` over rows exactly, rounded to the grid.

    Args:
        digits: of one operand.
        other: (B, ...) the other one, finite.
        scale_B: float64; small enough for (2).
        step: the grid.
        product: of digits, float32 still, and int16 whole numbers: sums of high and of low digits, exact.
    """
    whole = whole_operand(digits, other, scale_B, step)
    return list(zip(product(digits.values, whole), (BASE * step, step), strict=True))


def whole_operand(digits: QuantisedOperand, other: Tensor, scale_B: Tensor, step: Scalar) -> Tensor:
    """Return the second operand of `outer_sum` as int16 whole numbers; a step for all rows, or each row's own (B,)."""
    factor_B = _float32(torch.where(digits.finite_B, scale_B * digits.step_B, 0.0) * (_SAFE / step)).to(other.dtype)
    return (other * column_of(factor_B, other)).clamp_(-_LARGEST, _LARGEST).round_().to(torch.int16)


def two_digits(whole: Tensor, high: Tensor, low: Tensor) -> None:
    """Write ``whole = 128 high + low`` into two int8 tensors; overwrites ``whole``, int16."""
    carried = (whole + BASE // 2) >> 7
    high.copy_(carried)
    low.copy_(whole.sub_(carried << 7))


def integer_product(a_MK: Tensor, b_KN: Tensor) -> Tensor:
    """Exact product of int8 matrices without -128, (M, N) int32 or float64."""
    multiply = _multiplier(a_MK.device)
    if a_MK.shape[1] <= _MOST_ADDENDS:
        return multiply(a_MK, b_KN)
    pieces = zip(a_MK.split(_MOST_ADDENDS, dim=1), b_KN.split(_MOST_ADDENDS, dim=0), strict=True)
    return torch.stack([multiply(a, b).double() for a, b in pieces]).sum(dim=0)


def linear_product(x_BTI: Tensor, g_BTO: Tensor) -> Sequence[Tensor]:
    """Products of digits x and the digits of g on vectors or tokens, (O, I) each; overwrites ``g_BTO``."""
    x_KI, digits_K2O = linear_digits(x_BTI, g_BTO)
    return integer_product(digits_K2O.mT, x_KI).chunk(2)


def linear_digits(x_BTI: Tensor, g_BTO: Tensor) -> tuple[Tensor, Tensor]:
    """Return the operands of `linear_product` as int8 matrices: x, and the high and low digits of g side by side."""
    g_KO = g_BTO.flatten(0, -2)
    digits_K2O = g_KO.new_empty((len(g_KO), 2 * g_KO.shape[1]), dtype=torch.int8)
    two_digits(g_KO, *digits_K2O.chunk(2, dim=1))
    return x_BTI.flatten(0, -2).to(torch.int8), digits_K2O


def select_rows(keep_B: Tensor, x: Tensor) -> Tensor:
    """Rows of ``x`` where ``keep_B``, zeros elsewhere: by masking bits, in one pass and whatever the row holds.

    Where looking at the answer costs nothing (a CPU waits for no device), the pass is saved if every row is kept.
    """
    if x.device.type == "cpu" and bool(keep_B.all()):
        return x
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    mask_B = -keep_B.to(bits)
    selected: Tensor = x.contiguous().view(bits) & column_of(mask_B, x)
    return selected.view(x.dtype)


def pad(x: Tensor, size: int) -> Tensor:
    """``x`` with rows of zeros behind, ``size`` in all, rows one behind the other in memory.

    How a kernel rounds may depend on the shape of a batch and on its strides: a full one may not keep the data's.
    """
    if len(x) != size:
        x = torch.cat([x, x.new_zeros((size - len(x), *x.shape[1:]))])
    return x.contiguous()


def column_of(values_B: Tensor, like: Tensor) -> Tensor:
    """One value for each row of ``like``, shaped so that it multiplies the whole row."""
    return values_B.view(-1, *[1] * (like.dim() - 1))


def _float32(scale_B: Tensor) -> Tensor:
    """Scales as float32; those that would be denormal numbers, whose rounding is coarse, become zero."""
    scale_B = scale_B.clamp(max=1e30)
    return torch.where(scale_B >= _SMALLEST_NORMAL, scale_B, 0.0).float()


# Products of 8-bit integers


@lru_cache(maxsize=16)
def _multiplier(device: torch.device) -> Callable[[Tensor, Tensor], Tensor]:
    """The fastest product of 8-bit matrices that is exact on ``device``, as a test with extreme values shows.

    Processors without instructions for it may add 8-bit products with saturation; others are slow at them.
    """
    candidates = [_int8] if device.type != "cpu" or torch.backends.cpu.get_cpu_capability().startswith("AVX") else []
    for multiply in (*candidates, _float32_blocks):
        if _is_exact(multiply, device):
            return multiply
    return _float64


def _is_exact(multiply: Callable[[Tensor, Tensor], Tensor], device: torch.device) -> bool:
    for m, k, n in (
        (1, 1, 2),
        (1, 7, 2),
        (2, 7, 1),
        (32, 1040, 9),
        (20, 33, 144),
        (64, 256, 40),
        (2, _MOST_ADDENDS, 3),
    ):
        i = torch.arange(max(m * k, k * n), dtype=torch.int64)
        signs = torch.where(i * i % 7 < 3, -_DIGIT, _DIGIT).to(torch.int8)
        same, mixed = torch.full_like(signs, _DIGIT), signs
        for a, b in ((same, same), (-same, same), (mixed, same), (mixed, mixed)):
            # as rows follow one another in memory, and as columns do: kernels differ in it
            for a_MK in (a[: m * k].view(m, k), a[: m * k].view(k, m).mT):
                for b_KN in (b[: k * n].view(k, n), b[: k * n].view(n, k).mT):
                    try:
                        found = multiply(a_MK.to(device), b_KN.to(device))
                    except (AttributeError, TypeError, RuntimeError):  # gone, called otherwise, or not for this device
                        return False
                    if not torch.equal(found.cpu().double(), a_MK.double() @ b_KN.double()):
                        return False
    return True


def _int8(a_MK: Tensor, b_KN: Tensor) -> Tensor:
    if a_MK.device.type != "cuda":
        return torch._int_mm(_plain(a_MK), _plain(b_KN))
    return torch._int_mm(*_padded(a_MK, b_KN))[: len(a_MK), : b_KN.shape[1]]


def _padded(a_MK: Tensor, b_KN: Tensor) -> tuple[Tensor, Tensor]:
    """Factors with zeros behind, as CUDA wants them: multiples of 8, more than 16 rows, K contiguous in both."""
    (m, k), n = a_MK.shape, b_KN.shape[1]
    a = torch.nn.functional.pad(a_MK, (0, -k % 8, 0, max(24, m + -m % 8) - m))
    b_NK = torch.nn.functional.pad(b_KN.mT, (0, -k % 8, 0, -n % 8))
    return a.contiguous(), b_NK.contiguous().mT


def _plain(x_MN: Tensor) -> Tensor:
    """``x`` as its rows or its columns lie one after the other: the kernel goes by strides and gets others wrong.

    Those are of axes with one entry, where torch leaves any, and of rows that overlap.
    """
    (m, n), (down, across) = x_MN.shape, x_MN.stride()
    plain = min(m, n) > 1 and ((across == 1 and down >= n) or (down == 1 and across >= m))
    return x_MN if plain else x_MN.clone(memory_format=torch.contiguous_format)


def _float32_blocks(a_MK: Tensor, b_KN: Tensor) -> Tensor:
    """Whole numbers in float32, exact while partial sums stay below 2^24, in blocks that see to it."""
    spare = -a_MK.shape[1] % _MOST_FLOAT32_ADDENDS
    a_BMK = torch.nn.functional.pad(a_MK, (0, spare)).float().unflatten(1, (-1, _MOST_FLOAT32_ADDENDS)).transpose(0, 1)
    b_BKN = torch.nn.functional.pad(b_KN, (0, 0, 0, spare)).float().unflatten(0, (-1, _MOST_FLOAT32_ADDENDS))
    product_MN: Tensor = (a_BMK @ b_BKN).sum(dim=0, dtype=torch.float64)
    return product_MN


def _float64(a_MK: Tensor, b_KN: Tensor) -> Tensor:
    return a_MK.double() @ b_KN.double()
