"""A user's declarations about the columns of a table, as frozen public values.

A declaration holds numbers and texts that are known without looking at the rows: from a codebook, a law of
nature or the form that was filled in. Nothing here reads data.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite, pi, ulp
from struct import pack, unpack
from typing import TypeAlias

from clipless.datasets.metadata import Evaluation
from clipless.datasets.splits import Splitting
from clipless.errors import DeclarationError

# The `source` of ranges that were computed from the rows: an unpaid release.
UNPAID_SOURCE = "data (unpaid)"
LONGEST_TEXT = 100_000
MOST_BINS = 256
_LEAST_RESOLVED = 2.0**-22  # of a range that is mapped to length 2, by which a double may round a cell of it
_SINGLE = 3e38  # below which single precision has a number
_LARGEST = 1e300  # so that what double precision cannot hold, which is missing, is far from every range
TEXT_UNIT = "bytes of text"  # of rows that only an encoder turns into numbers
MISSING_MARKERS = ("", "?", "NA", "N/A", "NaN", "nan", "null", "None")


@dataclass(frozen=True, slots=True, kw_only=True)
class Numeric:
    """A column of numbers, mapped to [-1, 1] by ``2 (clamp(v, low, high) - low) / (high - low) - 1``.

    With ``bins`` that number is mapped further, onto K coordinates of norm 1: those of K places at equal distances, of
    which the two nearest are not 0. From one place to the next the point moves on a quarter of a circle at constant
    speed, so that a dense layer can learn any curve through K values, and no row is longer than another.

    Attributes:
        low: mapped to -1, as is everything below.
        high: mapped to 1, as is everything above.
        missing: stands in for a missing or non-finite value, in the column's units, and in rows that may not be checked
            for a text that is no number; None refuses such values.
        bins: K, the number of coordinates; None for the one number.

    Raises:
        DeclarationError: numbers that are out of range or not finite, or a range so narrow beside its ends that a cell
            in double precision is off by more than certificates allow for (`clipless.certificates.outputs`).
    """

    low: float
    high: float
    missing: float | None = None
    bins: int | None = None

    def __post_init__(self) -> None:
        if not (isfinite(self.low) and isfinite(self.high) and 0 < self.high - self.low < float("inf")):
            low, high = (f"{end!r}".removesuffix(".0") for end in (self.low, self.high))
            remedy = "; exchange them" if isfinite(self.low) and isfinite(self.high) and self.low > self.high else ""
            raise DeclarationError(f"Expected finite numbers low < high, got low={low}, high={high}{remedy}")
        if self.missing is not None and not self.low <= self.missing <= self.high:
            raise DeclarationError(f"Expected low <= missing <= high, got missing={self.missing!r}")
        if self.bins is not None and not (type(self.bins) is int and 2 <= self.bins <= MOST_BINS):
            raise DeclarationError(f"Expected a whole number of bins from 2 to {MOST_BINS}, got bins={self.bins!r}")
        if max(abs(self.low), abs(self.high)) > _LARGEST:
            raise DeclarationError(
                f"Expected numbers up to {_LARGEST:g}, beyond which double precision has few, got low={self.low!r}, "
                f"high={self.high!r}"
            )
        if ulp(max(abs(self.low), abs(self.high))) * self.gain > _LEAST_RESOLVED * (self.high - self.low):
            raise DeclarationError(
                f"Expected a range that numbers of double precision resolve, got low={self.low!r}, high={self.high!r}: "
                "certificates would be off by what they round; subtract a public constant from the column first"
            )

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return self.bins or 1

    @property
    def gain(self) -> float:
        """Lipschitz constant of the map from the number in [-1, 1], of length 2, to its coordinates.

        K - 1 quarters of a circle are ``(K - 1) pi / 2`` long, passed at constant speed; no chord is longer than its
        arc.
        """
        return 1.0 if self.bins is None else (self.bins - 1) * pi / 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Categorical:
    """A column of categories, mapped to one coordinate for each (one-hot).

    Unknown and missing values share one more coordinate if ``other``; otherwise they are all zeros.
    """

    categories: tuple[str, ...]
    other: bool = False

    def __post_init__(self) -> None:
        if not self.categories or len(set(self.categories)) != len(self.categories):
            twice = ", ".join(repr(one) for one, count in Counter(self.categories).items() if count > 1)
            got = f"{twice} twice" if twice else "none"
            raise DeclarationError(f"Expected at least one category and none twice, got {got}")

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return len(self.categories) + self.other


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A column of texts, of which an encoder makes features; the first bytes of each are looked at.

    Attributes:
        length: how many bytes of UTF-8; a missing text is an empty one.
    """

    length: int

    def __post_init__(self) -> None:
        if not 1 <= self.length <= LONGEST_TEXT:
            raise DeclarationError(f"Expected text from 1 to {LONGEST_TEXT} bytes, got text={self.length!r}")


def marker_numbers(missing_markers: Iterable[str]) -> list[float]:
    """Return the numbers among texts that stand for missing values.

    >>> marker_numbers(["", "?", "nan", "99", "-9.0"])
    [99.0, -9.0]
    """
    found = []
    for marker in missing_markers:
        with suppress(ValueError):
            found.append(float(marker))
    return [number for number in found if isfinite(number)]


@dataclass(frozen=True, slots=True)
class Drop:
    """A column that is not used, such as an identifier."""


Column: TypeAlias = Numeric | Categorical | Text | Drop


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """The declarations of one table.

    Attributes:
        name: of the ranges file, for messages.
        source: where the declarations come from, in words; `UNPAID_SOURCE` makes a data set exploratory.
        target: column of the labels, if declared.
        classes: the labels in order, if declared.
        unknown: the class of a label that is missing or none of these; None refuses such labels.
        largest_share: of the rows that are of the most frequent class, where that is publicly known.
        others: declaration of every column that is not in ``columns``; None refuses those.
        missing_markers: texts that stand for a missing value, unless they are a declared category or class; one that
            is a number stands for all that equal it, however they are written.
        table: path of the file that is declared here, if the declarations are for one file only.
        evaluation: what its validation and test rows are, if declared.
        unit: column that identifies the privacy unit, or ``"row"``, if declared.
        splits: how its rows are assigned, if declared.
        block: column that cuts its rows into blocks, a public attribute of the unit, if declared.

    Raises:
        DeclarationError: a marker that is a number within a range in which another one stands for missing ones.
    """

    name: str
    source: str
    target: str | None = None
    classes: tuple[str, ...] | None = None
    unknown: str | None = None
    largest_share: float | None = None
    columns: Mapping[str, Column] = field(default_factory=dict)
    others: Column | None = None
    missing_markers: tuple[str, ...] = MISSING_MARKERS
    table: str | None = None
    evaluation: Evaluation | None = None
    unit: str | None = None
    splits: Splitting | None = None
    block: str | None = None

    def __post_init__(self) -> None:
        mistakes: list[str] = []
        for name, column in (*self.columns.items(), ("others", self.others)):
            if isinstance(column, Numeric) and column.missing is not None:
                mistakes += self._wrong_markers(name, column, column.missing)
        if mistakes:
            raise DeclarationError(*mistakes)

    def _wrong_markers(self, name: str, column: Numeric, missing: float) -> Iterator[str]:
        """Yield a sentence for each marker that cuts a number out of a range: no certificate holds for a move to it."""
        for code in marker_numbers(self.missing_markers):
            ends = code, unpack("f", pack("f", code))[0] if abs(code) < _SINGLE else code  # cells of single precision
            if max(ends) >= column.low and min(ends) <= column.high and code != missing:
                yield (
                    f"Expected missing_markers beyond the ranges of numbers, got {code:g} in {name} ({column.low:g} to "
                    f"{column.high:g}, missing: {missing:g}) in {self.name}: numbers beside it and itself would be far "
                    f"apart; leave such cells empty in the table, or declare missing: {code:g}"
                )

    @property
    def unpaid(self) -> bool:
        """Whether the declarations were computed from the rows."""
        return self.source == UNPAID_SOURCE

    def declaration(self, column: str) -> Column | None:
        """Return the declaration that applies to ``column``, or None."""
        return self.columns.get(column, self.others)
