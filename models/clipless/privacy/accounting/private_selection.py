r"""How many candidates a private selection trains: a random number, whose distribution is public and value secret.

Choosing the best of K private trainings costs K of them if K is fixed. If K is drawn at random and only the winner is
seen, it costs little more than one (Liu and Talwar 2019; Papernot and Steinke 2022, arXiv 2110.03620).
The distributions, with ``q`` short for ``1 - gamma``:

| distribution | shape eta | P(K = k) | mean |
|---|---|---|---|
| geometric | 1 | gamma q^(k-1), k >= 1 | 1 / gamma |
| logarithmic | 0 | q^k / (k log(1/gamma)), k >= 1 | q / (gamma log(1/gamma)) |
| negative-binomial | eta | q^k c prod_{l<k} (l + eta)/(l + 1), 1/c = gamma^-eta - 1 | eta q / (gamma (1 - gamma^eta)) |
| poisson | inf | e^-mean mean^k / k!, k >= 0 | mean |

The first three are one family (definition 1 of the paper), truncated so that K >= 1. Under ``poisson`` no candidate at
all is drawn with probability e^-mean: then nothing is released, an outcome that the data have no part in, as theorem
6 of the paper wants; drawing again would be another distribution with another price.

Nothing here is priced: that is ``clipless.privacy.accounting.selection_price.selection_epsilon``. No seed may decide K.
"""

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any, assert_never

from clipless.errors import AccountingError

if TYPE_CHECKING:
    from clipless.privacy.randomness import RandomSource

LEAST_MEAN, LARGEST_MEAN = 1.1, 1e4
LEAST_SHAPE, LARGEST_SHAPE = 1e-3, 1e3
_WORD_BYTES = 16  # of one uniform number; an event of probability 2^-128 is one that never happens
_DIGITS = 60  # of the cumulative probabilities, whose rounding is then far below 2^-128
_BELOW = 1e-12  # by which share the drawn mean stays below the priced one: rounding must not raise it


class Distribution(enum.StrEnum):
    """Of the number of candidates."""

    GEOMETRIC = "geometric"
    LOGARITHMIC = "logarithmic"
    POISSON = "poisson"
    NEGATIVE_BINOMIAL = "negative-binomial"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetitions:
    """Distribution of the number of candidates.

    Attributes:
        mean: of the number K of candidates, from 1.1 to 10000; K = 0 included where it is possible.
        shape: eta of ``negative-binomial``, from 1e-3 to 1e3; None for the others, whose name says it.

    Raises:
        AccountingError: a mean that is not in [1.1, 10000], a shape out of range or missing, or one that is not wanted.
    """

    distribution: Distribution
    mean: float
    shape: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.distribution, Distribution):
            raise AccountingError(f"Expected a Distribution, got distribution={self.distribution!r}")
        if not LEAST_MEAN <= self.mean <= LARGEST_MEAN:
            raise AccountingError(f"Expected {LEAST_MEAN:g} <= mean <= {LARGEST_MEAN:g}, got mean={self.mean!r}")
        shaped = self.distribution is Distribution.NEGATIVE_BINOMIAL
        if shaped and not (self.shape is not None and LEAST_SHAPE <= self.shape <= LARGEST_SHAPE):
            raise AccountingError(
                f"Expected {LEAST_SHAPE:g} <= shape <= {LARGEST_SHAPE:g} for {self.distribution}, "
                f"got shape={self.shape!r}"
            )
        if self.shape is not None and not shaped:
            raise AccountingError(f"Expected no shape for {self.distribution}, which has one, got {self.shape!r}")

    @property
    def eta(self) -> float:
        """The shape as the paper and dp_accounting count it; infinite for ``poisson``."""
        match self.distribution:
            case Distribution.GEOMETRIC:
                return 1.0
            case Distribution.LOGARITHMIC:
                return 0.0
            case Distribution.POISSON:
                return math.inf
            case Distribution.NEGATIVE_BINOMIAL:
                return float(self.shape or 0.0)
            case _:
                assert_never(self.distribution)

    @property
    def gamma(self) -> float:
        """The parameter of the truncated negative binomial that has this mean; zero for ``poisson``."""
        return 0.0 if self.eta == math.inf else math.exp(-_log_inverse_gamma(self.eta, self.mean))

    def to_json(self) -> dict[str, Any]:
        """Return strict JSON values."""
        return {"distribution": self.distribution.value, "mean": self.mean, "shape": self.shape}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Repetitions":
        """Read back what ``to_json`` wrote.

        Raises:
            AccountingError: a key is missing, unknown, or holds a value that no distribution can have.
        """
        try:
            return cls(**{**record, "distribution": Distribution(record["distribution"])})
        except (KeyError, TypeError, ValueError) as error:
            raise AccountingError(f"Expected distribution, mean and shape of a selection, got {record!r}") from error

    def draw(self, source: "RandomSource | None" = None) -> int:
        """Draw K by inverting its distribution function.

        Args:
            source: of one uniform number of 128 bits; by default a fresh secure one. Tests inject theirs.

        Guarantees:
            With a secure source, the law of K is within 2^-100, in total variation, of one of this family whose mean
            is at most ``mean`` (less by one part in 10^12): what is drawn is no more than what is priced. K is
            as secret as the noise: it may be neither shown nor stored beside what is released.
        """
        from clipless.privacy.randomness import SecureSource  # torch, which a spec that is only read does not need

        word = int.from_bytes((source or SecureSource()).random_bytes(_WORD_BYTES), "big")
        with localcontext(prec=_DIGITS):
            uniform = Decimal(word) / 2 ** (8 * _WORD_BYTES)
            k, mass, growth = self._start()
            cumulative = mass
            while uniform >= cumulative:
                mass *= growth(k)
                cumulative += mass
                k += 1
        return k

    def _start(self) -> tuple[int, Decimal, Callable[[int], Decimal]]:
        """Return the least k, its probability, and P(K = k + 1) / P(K = k) as a function of k."""
        mean, eta = Decimal(self.mean), self.eta
        if eta == math.inf:
            return 0, (-mean).exp(), lambda k: mean / (k + 1)
        x, shape = Decimal(_log_inverse_gamma(eta, self.mean * (1.0 - _BELOW))), Decimal(eta)
        q = 1 - (-x).exp()
        first = q / x if eta == 0.0 else q * shape / ((shape * x).exp() - 1)
        return 1, first, lambda k: q * (k + shape) / (k + 1)


def _log_inverse_gamma(eta: float, mean: float) -> float:
    """Return x = log(1/gamma) at which the truncated negative binomial has this mean; the mean grows with x."""
    from scipy import optimize

    def mean_at(x: float) -> float:
        return math.expm1(x) / x if eta == 0.0 else eta * math.expm1(x) / -math.expm1(-eta * x)

    high = 1.0
    while mean_at(high) < mean:
        high *= 2.0
    return float(optimize.brentq(lambda x: mean_at(x) - mean, 1e-9, high, xtol=1e-18, rtol=1e-15))
