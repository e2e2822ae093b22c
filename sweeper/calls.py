"""How the functions of `sweeper` are called: with arguments that they take, and with errors of this package alone."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

from clipless.errors import (
    AccountingError,
    CliplessError,
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


def called_by_users(meant: Mapping[str, str] | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return what makes a function one that users call: its refusals are `SweeperError`, wrong keywords are named.

    ``meant`` has what to write in the place of keywords that are likely to be tried, such as those of the command.

    Raises:
        ArgumentError: a keyword that the function does not take, or an argument that it needs is missing.
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
            known = [name for name in takes.parameters if name != "self"]
            unknown = next((name for name in given if name not in known), None)
            if unknown is not None:
                raise ArgumentError(_refuse(function.__name__, unknown, known, meant or {}))
            try:
                takes.bind(*arguments, **given)
            except TypeError as error:
                raise ArgumentError(f"{function.__name__}: {error}; it takes {', '.join(known)}") from None
            try:
                return function(*arguments, **given)
            except SweeperError:
                raise
            except CliplessError as error:
                kind = SpecError if isinstance(error, _OF_SPECS) else InputError
                raise kind(str(error)) from error

        return call

    return declare


def _refuse(function: str, name: str, known: list[str], meant: Mapping[str, str]) -> str:
    if name in meant:
        return f"{function} takes no {name}; give {meant[name]}"
    return f"{function} takes no {name}; {did_you_mean(name, known) or 'it takes ' + ', '.join(known)}"
