"""Turns a mistake in a spec into one sentence that names field, value, file and remedy."""

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError

_OURS = "sweeper"
_KINDS = ("uniform", "log", "int", "log_int")
R = TypeVar("R")


def bad_value(expected: str, *, path: str = "", remedy: str = "", **got: Any) -> PydanticCustomError:
    """Return the error that a validator raises.

    Args:
        expected: what should stand there; ``{name}`` becomes the last part of the field's name.
        path: dotted path below the place where the validator stands.
        remedy: what to do.
        got: ``got=value`` when it is not the validator's whole input; ``got=None`` shows no value.
    """
    return PydanticCustomError(_OURS, "{expected}", {"expected": expected, "path": path, "remedy": remedy, **got})


def locate(parse: Callable[[Any], R], value: Any, path: str) -> R:
    """Return ``parse(value)``; a mistake in it names ``path``, where the value stands."""
    try:
        return parse(value)
    except PydanticCustomError as error:
        context = {"got": value, **(error.context or {})}
        below = ".".join(filter(None, [path, context.pop("path", "")]))
        raise bad_value(path=below, **context) from None


def sentence(error: ValidationError, source: str, model: type[BaseModel]) -> str:
    """Return the first mistake in one sentence; a misspelled key explains the others, so it comes first."""
    details = sorted(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")[0]
    context = details.get("ctx", {}) if details["type"] == _OURS else {}
    field = _printable(".".join([*map(str, details["loc"]), *filter(None, [context.get("path")])]))
    name = _subject(field)
    match details["type"]:
        case "extra_forbidden":
            return f"Unknown key '{name}' ({field} in {source}); {_nearest(field, model)}"
        case "missing":
            return f"Expected a value for {name}, got none ({field} in {source}); add it"
    expected = context.get("expected") or details["msg"].removeprefix("Input should be ")
    got = context.get("got", details["input"])
    where = f"{field} in {source}" if field else source
    remedy = f"; {context['remedy']}" if context.get("remedy") else ""
    shown = "" if got is None and "got" in context else f", got {name or 'value'}={show(got)}"
    return f"Expected {expected.replace('{name}', name)}{shown} ({where}){remedy}"


def show(value: Any) -> str:
    """Return a value in one short line.

    >>> show("a" * 100)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa..."
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:41] + "..."


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the remedy for a misspelled name, nothing if no known name is near."""
    close = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else ""


def did_you_mean_or_known(name: object, known: Iterable[str]) -> str:
    """Return the remedy for an unknown key."""
    known = sorted(known)
    return did_you_mean(name, known) or f"known: {', '.join(known)}"


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def _subject(field: str) -> str:
    """Return the last part of a dotted name that is no index and no kind of range."""
    parts = field.split(".")
    return next((p for p in reversed(parts) if not p.isdecimal() and p not in _KINDS), parts[-1])


def _nearest(field: str, model: type[BaseModel]) -> str:
    section, _, name = field.rpartition(".")
    paths = list(_paths(model))
    elsewhere = [path for path in paths if path.rpartition(".")[2] == name]
    if elsewhere:
        return f"did you mean {elsewhere[0]!r}?"
    return did_you_mean_or_known(
        name, [path.rpartition(".")[2] for path in paths if path.rpartition(".")[0] == section]
    )


def _paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, info in model.model_fields.items():
        yield prefix + name
        for annotation in (info.annotation, *get_args(info.annotation)):
            if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                yield from _paths(annotation, f"{prefix}{name}.")
