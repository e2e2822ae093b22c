"""How the functions of `sweeper` are called: with arguments that they take, and with errors of this package alone."""

import inspect
import os
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from typing import ParamSpec, TypeVar

from clipless.errors import (
    AccountingError,
    CliplessError,
    DataError,
    DeclarationError,
    InvalidBoundError,
    PlanError,
    UnsupportedError,
)
from clipless.spelling import did_you_mean
from sweeper.errors import ArgumentError, InputError, SpecError, SweeperError

P = ParamSpec("P")
R = TypeVar("R")
_OF_SPECS = (AccountingError, DeclarationError, InvalidBoundError, PlanError, UnsupportedError)
_ALSO: Mapping[type, type] = {
    int: Integral,
    float: Real,
    Path: os.PathLike,
}  # what does for a type, NumPy's numbers too
_WORDS = {
    int: "an integer",
    float: "a number",
    str: "a text",
    bool: "True or False",
    Path: "a path",
    Mapping: "a mapping",
    Sequence: "a list",
    type(None): "None",
}


def called_by_users(meant: Mapping[str, str] | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return what makes a function one that users call: its refusals are `SweeperError`, wrong arguments are named.

    A refusal has no traceback below the call: its message says what is wrong, and the cell or line that made the call
    is what to change. The error that it came from is its ``__context__``.

    ``meant`` has what to write in the place of keywords that are likely to be tried, such as those of the command.

    Raises:
        ArgumentError: a keyword that the function does not take, an argument that it needs is missing, or it failed on
            one of another type than it takes.
        SpecError: what clipless refuses without having looked at a row.
        InputError: whatever else clipless refuses, of data, rows or a model.

    Guarantees:
        An error that may have been computed from rows becomes none whose message is public
        (`sweeper.errors.public_line`).
    """

    def declare(function: Callable[P, R]) -> Callable[P, R]:
        takes = inspect.signature(function)

        @wraps(function)
        def call(*arguments: P.args, **given: P.kwargs) -> R:
            __tracebackhide__ = True
            known = [name for name in takes.parameters if name != "self"]
            unknown = next((name for name in given if name not in known), None)
            if unknown is not None:
                raise ArgumentError(_refuse(function.__name__, unknown, known, meant or {}))
            try:
                bound = takes.bind(*arguments, **given)
            except TypeError as error:
                raise ArgumentError(f"{function.__name__}: {error}; it takes {', '.join(known)}") from None
            try:
                return function(*arguments, **given)
            except SweeperError as error:
                raise error.with_traceback(None) from None
            except CliplessError as error:
                kind = SpecError if isinstance(error, _OF_SPECS) else InputError
                raise kind(*(error.mistakes if isinstance(error, DataError) else [str(error)])) from None
            except (AttributeError, TypeError, ValueError):
                wrong = next(_of_other_types(function.__name__, bound), "")
                if not wrong:
                    raise
                raise ArgumentError(wrong) from None

        return call

    return declare


def _refuse(function: str, name: str, known: list[str], meant: Mapping[str, str]) -> str:
    if name in meant:
        return f"{function} takes no {name}; give {meant[name]}"
    takes = f"it takes {', '.join(known)}" if known else "it takes nothing"
    return f"{function} takes no {name}; {did_you_mean(name, known) or takes}"


def _of_other_types(function: str, bound: inspect.BoundArguments) -> Iterator[str]:
    """Yield what is wrong with arguments that are not of the types which the function declares, a sentence each."""
    for name, value in bound.arguments.items():
        parameter = bound.signature.parameters[name]
        values = value if parameter.kind is inspect.Parameter.VAR_POSITIONAL else (value,)
        kinds = _kinds(parameter.annotation)
        wrong = [one for one in values if kinds and not isinstance(one, tuple(kinds.values()))]
        if wrong:
            words = " or ".join(_WORDS.get(kind, f"a sweeper.{kind.__name__}") for kind in kinds)
            yield f"Expected {words} for {name} of {function}, got {type(wrong[0]).__name__}"


def _kinds(annotation: object) -> dict[type, type]:
    """Return the classes of which an argument may be, each with what does for it; none where nothing is said."""
    found: dict[type, type] = {}
    for one in (
        typing.get_args(annotation)
        if typing.get_origin(annotation) in (types.UnionType, typing.Union)
        else (annotation,)
    ):
        kind = typing.get_origin(one) or (type(None) if one is None else one)
        if not isinstance(kind, type) or kind is inspect.Parameter.empty:
            return {}  # a name in quotes, or none
        found[kind] = _ALSO.get(kind, kind)
    return found
