"""What of an error may leave the machine."""

import inspect

import pytest

import clipless.errors
import sweeper.errors
from clipless.errors import CliplessError, DataError, DeclarationError, PlanError
from sweeper.errors import (
    FOR_THE_OWNER,
    RefusalError,
    SpecError,
    SweeperError,
    UnexpectedValueError,
    one_line,
    public_line,
    public_sentence,
)

CELL = "Name-042450"


class PluginError(DeclarationError):
    """Of somebody else's loader."""


class OtherPluginError(SweeperError):
    """Of somebody else's metric."""


@pytest.mark.parametrize(
    "error",
    [
        DataError(f"Value {CELL!r} in row 7"),
        PluginError(CELL),
        OtherPluginError(CELL),
        ValueError(CELL),
        KeyError(CELL),
        OSError(5, CELL),
        UnicodeDecodeError("utf-8", CELL.encode(), 0, 1, CELL),
        AssertionError(CELL),
        RuntimeError(CELL),
        BaseExceptionGroup(CELL, [SpecError(CELL)]),
    ],
)
def test_an_error_that_may_have_been_computed_from_rows_tells_its_kind_alone(error):
    for told in (public_line(error), public_sentence(error)):
        assert told == f"{type(error).__name__}: {FOR_THE_OWNER}"
    assert CELL in one_line(error), "the owner sees all of it"


@pytest.mark.parametrize(
    "error", [SpecError("Expected  a\nb"), PlanError("Expected  a\nb"), DeclarationError("Expected a b")]
)
def test_an_error_that_no_row_had_a_part_in_is_told(error):
    assert public_line(error) == f"{type(error).__name__}: Expected a b"
    assert public_sentence(error) == "Expected a b"


def test_mistakes_that_have_no_room_are_counted_and_none_is_cut():
    error = SpecError("Expected a", "Expected b", "Expected c")
    assert public_sentence(error, 60) == "3 mistakes: (1) Expected a (2) Expected b (3) Expected c"
    assert public_sentence(error, 54) == "3 mistakes: (1) Expected a (2) Expected b and 1 more"
    assert public_sentence(error, 10) == "3 mistakes: (1) Expected a and 2 more", "one of them in any case"
    assert public_sentence(SpecError("Expected a"), 4) == "Expected a"
    assert public_sentence(DataError("cell 7", "cell 9"), 4) == public_line(DataError("cell 7"))


def test_an_error_of_a_new_kind_about_data_is_for_the_owner_until_somebody_judges_it():
    found = [
        kind for _, kind in inspect.getmembers(clipless.errors, inspect.isclass) if issubclass(kind, CliplessError)
    ]
    found += [kind for _, kind in inspect.getmembers(sweeper.errors, inspect.isclass) if issubclass(kind, SweeperError)]
    made = [
        kind(CELL, CELL) if kind is UnexpectedValueError else kind(CELL) for kind in found if kind is not RefusalError
    ]
    told = {type(error).__name__ for error in made if CELL in public_line(error)}
    assert told == {
        *("CliplessError", "InvalidBoundError", "UnsupportedError", "PlanError", "AccountingError", "DeclarationError"),
        *(
            "AccountantsDisagreeError",
            "AuditError",
            "ModelFileError",
            "SweeperError",
            "SpecError",
            "UnexpectedValueError",
            "ArgumentError",
            "RecordError",
            "UnknownTrialError",
            "PickError",
        ),
        *(
            "TrialError",
            "RefutedError",
            "ExportError",
            "UnknownFigureError",
            "EmptyFigureError",
            "UnknownSweepError",
            "AccountError",
            "UnknownAccountError",
        ),
    }, "may its message have been computed from private rows?"
