"""Public facts about a data set, the declared preparation of its examples, and the sentences of its privacy card.

Everything here is a public input of the guarantee and may be printed, logged and saved. Nothing here imports torch;
`clipless.datasets.maps` prepares examples.
"""

import enum
from dataclasses import dataclass
from math import inf, isfinite

from clipless.datasets.splits import ColumnSplit, HashSplit, Splitting
from clipless.errors import DataError, DeclarationError

FEATURE_UNIT = "units of the features of "  # and the name of their encoder
ROW_COUNTS = "The number of rows of each split is public."
UNPAID_RANGES = "No guarantee: the declared ranges were computed from the data, an unpaid release."


class Evaluation(enum.Enum):
    """Who may see results on the rows held back for validation and test."""

    PUBLIC = "public"  # their scores cost nothing
    PRIVATE = "private"  # every score computed on them is a release that has to be paid
    EXPLORATORY = "exploratory"  # unpaid: watermarked, no guarantee

    @classmethod
    def parse(cls, value: "Evaluation | str") -> "Evaluation":
        """Return the member for ``value``; raise DeclarationError for any other."""
        try:
            return cls(value)
        except ValueError:
            raise DeclarationError(
                f"Expected evaluation to be public, private or exploratory, got {value!r} (data.evaluation)"
            ) from None


class ColourSpace(enum.Enum):
    """Coordinates of the three colours of a pixel."""

    RGB = "rgb"
    GRAY = "gray"
    YIQ = "yiq"
    YUV = "yuv"
    HSV = "hsv"


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """Public facts about a data set: declared, never computed from its rows.

    Attributes:
        classes: names of the classes; label ``i`` is ``classes[i]``.
        unit: the privacy unit: ``"row"``, or the column that identifies it.
        input_norm: upper bound of the Euclidean norm of one preprocessed example.
        input_gain: Lipschitz constant of the preprocessing, from the units of radii to the tensor.
        radius_unit: the units in which radii of certificates are given.
        public_facts: sentences for the privacy card: what was taken as public, and why.
        conditions: sentences for the privacy card: what the guarantee does not cover.
        training_published: whether the training rows are published too, so that attacks may read them.
        split_by_row: whether the split of each row is a function of that row, or of its unit, and of public constants
            alone, so that one unit more or less changes one split.
        column_widths: coordinates of each column of an encoded table: one is a number in [-1, 1], more are its
            categories, of which at most one is 1; empty for other rows.
        largest_share: of the rows that are of the most frequent class, where that is publicly known.
        block: the column that cuts the rows into blocks, ``None`` where they are not.
    """

    name: str
    input_shape: tuple[int, ...]
    classes: tuple[str, ...]
    evaluation: Evaluation
    unit: str
    input_norm: float
    input_gain: float
    radius_unit: str
    public_facts: tuple[str, ...]
    conditions: tuple[str, ...]
    training_published: bool = False
    split_by_row: bool = False
    column_widths: tuple[int, ...] = ()
    largest_share: float | None = None
    block: str | None = None

    def __post_init__(self) -> None:
        for field in ("name", "unit", "radius_unit"):
            _require(isinstance(getattr(self, field), str) and getattr(self, field), field, "a text", self)
        shape = self.input_shape
        shape_is_sound = isinstance(shape, tuple) and shape and all(type(n) is int and n > 0 for n in shape)
        _require(shape_is_sound, "input_shape", "positive integers", self)
        distinct = len(set(self.classes)) == len(self.classes) >= 2
        _require(distinct and _are_texts(self.classes), "classes", "a tuple of at least two different texts", self)
        _require(isinstance(self.evaluation, Evaluation), "evaluation", "an Evaluation", self)
        for field in ("input_norm", "input_gain"):
            value = getattr(self, field)
            _require(isfinite(value) and value > 0, field, "a finite number > 0", self)
        for field in ("public_facts", "conditions"):
            _require(_are_texts(getattr(self, field)), field, "a tuple of sentences", self)
        widths = self.column_widths
        fits = isinstance(widths, tuple) and (not widths or (min(widths) > 0 and (sum(widths),) == shape))
        _require(fits, "column_widths", "positive integers that add up to the coordinates of a row", self)
        for field in ("training_published", "split_by_row"):
            _require(type(getattr(self, field)) is bool, field, "True or False", self)
        least = 1 / len(self.classes)
        sound = self.largest_share is None or least <= self.largest_share < 1
        _require(sound, "largest_share", f"at least {least:.3g}, one in {len(self.classes)} classes, and below 1", self)

    @property
    def training_is_open(self) -> bool:
        """Whether scores of training rows may leave unpaid: of published rows, or marked exploratory."""
        return rows_are_open(self.evaluation, published=self.training_published)


def rows_are_open(evaluation: Evaluation, *, published: bool) -> bool:
    """Whether training rows may be looked at unpaid: ``published`` beside public ones, or exploratory."""
    return (published and evaluation is Evaluation.PUBLIC) or evaluation is Evaluation.EXPLORATORY


def in_feature_units(radius_unit: str) -> bool:
    """Whether radii in these units are behind an encoder, so that they are no distances between raw rows."""
    return radius_unit[: len(FEATURE_UNIT)] == FEATURE_UNIT


def units_word(unit: str) -> str:
    """Return what N counts: rows, or privacy units of several rows."""
    return "rows" if unit == "row" else "units"


def counts_fact(unit: str) -> str:
    """Say which numbers of a table are public, and how the rows of a unit count."""
    if unit == "row":
        return ROW_COUNTS
    return (
        f"The privacy unit is a value of column {unit!r} with all its rows. The number of units of each "
        "split is public. A unit that joins a step sends one of its rows, drawn at random each time; in scores "
        "its rows share the weight of one."
    )


def split_fact(splitting: Splitting, *, published_test: bool = False, unit: str = "row") -> str:
    """Say how rows were assigned to splits."""
    match splitting:
        case ColumnSplit() if unit != "row":
            return (
                f"Column {splitting.column!r} declares each row's split; a unit with rows of several is in the first "
                "one of training, validation and test. No unit's split depends on another."
            )
        case ColumnSplit():
            return f"Column {splitting.column!r} declares each row's split; no row's split depends on another."
        case HashSplit() if unit != "row":
            return "Splits are assigned by a keyed hash of each unit, so that no unit's split depends on another."
        case HashSplit():
            test = "The test split is the published one; the others" if published_test else "Splits"
            return f"{test} are assigned by a keyed hash of each row, so that no row's split depends on another."


def evaluation_facts(evaluation: Evaluation, *, public_because: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the public facts and the conditions that `evaluation` adds."""
    match evaluation:
        case Evaluation.PUBLIC:
            return (f"Validation and test rows are public, and their scores free: {public_because}.",), ()
        case Evaluation.PRIVATE:
            return (), (
                "Validation and test rows are private: every score computed on them is a release of its own, "
                "not covered by the epsilon of training.",
            )
        case Evaluation.EXPLORATORY:
            return (), ("No guarantee: validation scores of private rows were looked at without paying for them.",)


def _are_texts(values: object) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, str) and value for value in values)


def _require(condition: object, field: str, expected: str, metadata: Metadata) -> None:
    if not condition:
        raise DataError(f"Expected {field} to be {expected}, got {getattr(metadata, field)!r} (Metadata)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """Maps applied to each example, in this order; everything here is public.

    Attributes:
        colour: coordinates of the pixels' colours; other than RGB for images of three channels in [0, 1] only.
        centre: constant to subtract: one number, or one for each channel; declared, never computed from the data.
        normalise: norm that each example is scaled to; the zero example stays zero.
    """

    colour: ColourSpace = ColourSpace.RGB
    centre: tuple[float, ...] = ()
    normalise: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.colour, ColourSpace):
            known = ", ".join(space.value for space in ColourSpace)
            raise DeclarationError(f"Expected a colour space among {known}, got {self.colour!r} (data.colour)")
        if not all(isfinite(number) for number in self.centre):
            raise DeclarationError(f"Expected finite numbers to subtract, got {self.centre!r} (data.centre)")
        if self.normalise is not None and not 0 < self.normalise < inf:
            raise DeclarationError(f"Expected 0 < normalise < inf, got {self.normalise!r} (data.normalise)")
