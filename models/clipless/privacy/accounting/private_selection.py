r"""How many candidates a private selection trains: a random number, whose distribution is public and value secret.

Choosing the best of K private trainings costs K of them if K is fixed. If K is drawn at random and only the winner is
seen, it costs little more than one (Liu and Talwar 2019; Papernot and Steinke 2022, arXiv 2110.03620). K is geometric,
``P(K = k) = gamma (1 - gamma)^(k-1)`` for k >= 1, of mean ``1 / gamma``: the truncated negative binomial of shape 1 in
definition 1 of the paper.

Nothing here is priced: that is ``clipless.privacy.accounting.selection_price.selection_epsilon``. No seed may decide K.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any

from clipless.errors import AccountingError

if TYPE_CHECKING:
    from clipless.privacy.randomness import RandomSource

LAW = "geometric"
LEAST_MEAN, LARGEST_MEAN = 1.1, 1e4
_WORD_BYTES = 16  # of one uniform number; an event of probability 2^-128 is one that never happens
_DIGITS = 60  # of the cumulative probabilities, whose rounding is then far below 2^-128
_BELOW = 1e-12  # by which share the drawn mean stays below the priced one: rounding must not raise it


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetitions:
    """Geometric distribution of the number of candidates.

    Attributes:
        mean: of the number K of candidates, from 1.1 to 10000.

    Raises:
        AccountingError: a mean that is not in [1.1, 10000].
    """

    mean: float

    def __post_init__(self) -> None:
        if not LEAST_MEAN <= self.mean <= LARGEST_MEAN:
            raise AccountingError(f"Expected {LEAST_MEAN:g} <= mean <= {LARGEST_MEAN:g}, got mean={self.mean!r}")

    @property
    def gamma(self) -> float:
        """The probability that a number is the last one, ``1 / mean`` but for the last digit."""
        return math.exp(-_log_inverse_gamma(self.mean))

    def to_json(self) -> dict[str, Any]:
        """Return strict JSON values."""
        return {"distribution": LAW, "mean": self.mean}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Repetitions":
        """Read back what ``to_json`` wrote; earlier versions, which had other distributions, wrote their shape too.

        Raises:
            AccountingError: a key is missing, unknown, or holds a value that the distribution cannot have; another
                distribution.
        """
        if not isinstance(record, Mapping) or record.keys() - {"shape"} != {"distribution", "mean"}:
            raise AccountingError(f"Expected distribution and mean of a selection, got {record!r}")
        if record["distribution"] != LAW or record.get("shape") is not None:
            raise AccountingError(
                f"Expected a {LAW} number of candidates, got distribution={record['distribution']!r}; read it with the "
                "version that wrote it"
            )
        try:
            return cls(mean=record["mean"])
        except TypeError as error:
            raise AccountingError(f"Expected the mean of a selection, got {record['mean']!r}") from error

    def draw(self, source: "RandomSource | None" = None) -> int:
        """Draw K by inverting its distribution function.

        Args:
            source: of one uniform number of 128 bits; by default a fresh secure one. Tests inject theirs.

        Guarantees:
            With a secure source, the law of K is within 2^-100, in total variation, of a geometric one whose mean is at
            most ``mean`` (less by one part in 10^12): what is drawn is no more than what is priced. K is as secret as
            the noise: it may be neither shown nor stored beside what is released.
        """
        from clipless.privacy.randomness import SecureSource  # torch, which a spec that is only read does not need

        word = int.from_bytes((source or SecureSource()).random_bytes(_WORD_BYTES), "big")
        with localcontext(prec=_DIGITS):
            uniform = Decimal(word) / 2 ** (8 * _WORD_BYTES)
            mass = self._drawn_gamma()
            k, cumulative, growth = 1, mass, 1 - mass
            while uniform >= cumulative:
                mass *= growth
                cumulative += mass
                k += 1
        return k

    def _drawn_gamma(self) -> Decimal:
        """Return gamma of the law that is drawn from."""
        return (-Decimal(_log_inverse_gamma(self.mean * (1.0 - _BELOW)))).exp()


def _log_inverse_gamma(mean: float) -> float:
    """Return x = log(1/gamma) at which the mean, which grows with x, is this one.

    ``log(mean)`` differs in the last digit, by which prices would differ from those that ledgers have recorded.
    """
    from scipy import optimize

    high = 1.0
    while _mean_at(high) < mean:
        high *= 2.0
    return float(optimize.brentq(lambda x: _mean_at(x) - mean, 1e-9, high, xtol=1e-18, rtol=1e-15))


def _mean_at(x: float) -> float:
    return math.expm1(x) / -math.expm1(-x)
