"""Sentences for the privacy card that every kind of data set shares."""

from clipless.datasets.kinds import Evaluation
from clipless.datasets.splits import ColumnSplit, HashSplit, Splitting

ROW_COUNTS = "The number of rows of each split is public."
UNPAID_RANGES = "No guarantee: the declared ranges were computed from the data, and nobody paid for that release."


def split_fact(splitting: Splitting, *, published_test: bool = False) -> str:
    """Say how rows were assigned to splits."""
    match splitting:
        case ColumnSplit():
            return f"Column {splitting.column!r} declares each row's split; no row's split depends on another."
        case HashSplit():
            test = "The test split is the published one; the others" if published_test else "Splits"
            return f"{test} are assigned by a keyed hash of each row, so that no row's split depends on another."


def evaluation_facts(evaluation: Evaluation, *, public_because: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what `evaluation` adds to the public facts and to the conditions."""
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
