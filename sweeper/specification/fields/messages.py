"""Turns each mistake in a spec into one sentence that names field, value, remedy, and where the value stands."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar, cast, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError

from clipless.spelling import did_you_mean, nearest
from sweeper.errors import SpecError
from sweeper.specification.fields.ranges import to_plain

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_OURS = "sweeper"
_KINDS = ("uniform", "log", "int", "log_int")
_EXPECTED = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "enum": "{{name}} {expected}",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "{{name}} > {gt}",
    "greater_than_equal": "{{name}} >= {ge}",
    "int_parsing": "an integer",
    "int_type": "an integer",
    "json_invalid": "JSON",
    "less_than": "{{name}} < {lt}",
    "less_than_equal": "{{name}} <= {le}",
    "list_type": "a list",
    "literal_error": "{{name}} {expected}",
    "model_attributes_type": "a mapping",
    "model_type": "a mapping",
    "string_pattern_mismatch": "a text that matches {pattern}",
    "string_too_long": "a text of at most {max_length} characters",
    "string_too_short": "a text of at least {min_length} characters",
    "string_type": "a text",
    "too_short": "at least {min_length} of them",
    "tuple_type": "a list",
}
_OPTIONS = {"search.trials": "--trials", "search.seed": "--seed", "resources.concurrent": "--concurrent"}
_ALIASES = {"lr": "learning_rate", "bs": "batch_size", "eps": "epsilon", "opt": "optimizer"}
MOST_MISTAKES = 20  # that are told at once
R = TypeVar("R")
V = TypeVar("V")


class _Context(TypedDict, total=False):
    """What an error of a validator says; see `bad_value`."""

    expected: str
    path: str
    remedy: str
    got: object
    others: "list[_Context]"  # of further mistakes, see `together`


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
    """Return ``parse(value)``; mistakes in it name ``path``, where the value stands."""
    try:
        return parse(value)
    except PydanticCustomError as error:
        raise together([_below(path, value, one) for one in _contexts_of(error)]) from None


def locate_each(parse: Callable[[V], R], values: Iterable[V], path: str = "") -> tuple[R, ...]:
    """Return ``parse`` of each value of a list, which stands at ``path``.

    Raises:
        PydanticCustomError: the mistakes of all values together, each with the place of its value.
    """
    parsed: list[R] = []
    errors: list[PydanticCustomError] = []
    for i, value in enumerate(values):
        try:
            parsed.append(locate(parse, value, ".".join(filter(None, [path, str(i)]))))
        except PydanticCustomError as error:
            errors.append(error)
    if errors:
        raise together(errors)
    return tuple(parsed)


def tell(parse: Callable[[], R], source: str) -> R:
    """Return ``parse()``; mistakes in it become a `SpecError` that names ``source``, where the value stands."""
    try:
        return parse()
    except PydanticCustomError as error:
        details: ErrorDetails = {"type": _OURS, "loc": (), "input": None, "msg": ""}
        raise SpecError(*(_sentence(details, one, source, BaseModel, {}) for one in _contexts_of(error))) from None


def together(errors: Sequence[PydanticCustomError]) -> PydanticCustomError:
    """Return the first of several errors, with the others in it: a validator can raise only one."""
    first, *others = [context for error in errors for context in _contexts_of(error)]
    return bad_value(**first, others=others) if others else bad_value(**first)


def _below(path: str, value: Any, context: _Context) -> PydanticCustomError:
    """Return a mistake in ``value``, which stands at ``path``; where it says no value, it is about the whole of it."""
    within = {"got": value, **context}
    return bad_value(**{**within, "path": ".".join(filter(None, [path, context.get("path", "")]))})


def _contexts_of(error: PydanticCustomError) -> Iterator[_Context]:
    """Yield what each mistake in an error says."""
    first = _context_of(error).copy()
    others = first.pop("others", [])
    yield first
    yield from others


def _context_of(error: PydanticCustomError) -> _Context:
    return cast(_Context, error.context or {})


def place(field: str, source: str, overrides: Mapping[str, Any]) -> str:
    """Return where the value of a field stands: in its source, or on the command line that gave another.

    >>> place("training.epochs", "a.yaml", {}), place("training.epochs", "a.yaml", {"training.epochs": -1})
    ('training.epochs in a.yaml', '--set training.epochs=-1')
    """
    name = next((name for name in overrides if field == name or field.startswith(f"{name}.")), None)
    if name is None:
        return f"{field} in {source}" if field else source
    value = overrides[name]
    text = value if isinstance(value, str) else json.dumps(to_plain(value), default=str)
    given = f"--set {name}={text}"
    return f"{_OPTIONS[name]} {text}, or {given}" if name in _OPTIONS else given  # which of them is not known


def sentences(
    error: ValidationError, source: str, model: type[BaseModel], overrides: Mapping[str, Any] = MappingProxyType({})
) -> tuple[str, ...]:
    """Return every mistake as one sentence, `MOST_MISTAKES` of very many.

    ``overrides`` are values by dotted name that were given in place of those of ``source``.

    Misspelled keys come first; a key that is missing because it is misspelled is no mistake of its own.
    """
    details = sorted(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
    meant = {_meant(e["loc"], model) for e in details if e["type"] == "extra_forbidden"}
    found = [e for e in details if not (e["type"] == "missing" and ".".join(map(str, e["loc"])) in meant)]
    texts = tuple(dict.fromkeys(text for one in found for text in _sentences_of(one, source, model, overrides)))
    more = len(texts) - MOST_MISTAKES
    return (*texts[:MOST_MISTAKES], f"and {more} more in {source}") if more > 0 else texts


def _sentences_of(
    details: "ErrorDetails", source: str, model: type[BaseModel], overrides: Mapping[str, Any]
) -> Iterator[str]:
    context = cast(_Context, details.get("ctx", {})) if details["type"] == _OURS else _Context()
    yield _sentence(details, context, source, model, overrides)
    for other in context.get("others", ()):
        yield _sentence(details, other, source, model, overrides)


def _sentence(
    details: "ErrorDetails",
    context: _Context,
    source: str,
    model: type[BaseModel],
    overrides: Mapping[str, Any],
) -> str:
    field = _printable(".".join([*map(str, details["loc"]), *filter(None, [context.get("path")])]))
    name, where = _subject(field), place(field, source, overrides)
    match details["type"]:
        case "extra_forbidden":
            return f"Unknown key '{name}' ({where}); {_remedy(field, model)}"
        case "missing":
            return f"Expected a value for {name}, got none ({where}); add it"
    expected = context.get("expected") or _expected(details)
    got = context.get("got", details["input"])
    remedy = f"; {context['remedy']}" if context.get("remedy") else ""
    shown = "" if got is None and "got" in context else f", got {name or 'value'}={show(got)}"
    return f"Expected {expected.replace('{name}', name)}{shown} ({where}){remedy}"


def told_without_value(details: Mapping[str, Any], source: str) -> str:
    """Return one of pydantic's own errors as a sentence that does not quote what was given.

    >>> told_without_value({"type": "int_type", "loc": ("add", "trials")}, "the body of the request")
    'Expected an integer (add.trials in the body of the request)'
    """
    field = _printable(".".join(map(str, details["loc"])))[:100]
    name, where = _subject(field), place(field, source, {})
    match details["type"]:
        case "extra_forbidden":
            return f"Unknown key '{name}' ({where})"
        case "missing":
            return f"Expected a value for {name or 'it'}, got none ({where}); add it"
    return f"Expected {_expected(details).replace('{name}', name)} ({where})"


def _meant(loc: tuple[int | str, ...], model: type[BaseModel]) -> str:
    """Return the key that a misspelled one was meant to be, as far as that can be told, empty if it cannot."""
    name = _nearest(_printable(".".join(map(str, loc))), model) or ""
    return ".".join([*map(str, loc[:-1]), name]) if name and "." not in name else name


def _expected(details: "ErrorDetails | Mapping[str, Any]") -> str:
    """Return what should stand there, by the kind of one of pydantic's own errors."""
    known = _EXPECTED.get(details["type"])
    return f"another value: {details['msg']}" if known is None else known.format(**details.get("ctx", {}))


def show(value: Any) -> str:
    """Return a value in one short line, as a spec writes it.

    >>> show("a" * 100)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa..."
    """
    text = " ".join(repr(to_plain(value)).split())
    return text if len(text) <= 60 else text[:41] + "..."


def mistake(
    source: str,
    expected: str,
    field: str,
    value: Any = None,
    remedy: str = "",
    *,
    overrides: Mapping[str, Any] | None = None,
) -> SpecError:
    """Return the error for a mistake that was found after reading; ``source`` is where the spec came from."""
    got = "" if value is None else f", got {field.rpartition('.')[2]}={show(value)}"
    where = place(field, source, overrides or {})
    return SpecError(f"Expected {expected}{got} ({where})" + (f"; {remedy}" if remedy else ""))


def did_you_mean_or_known(name: object, known: Iterable[str]) -> str:
    """Return the remedy for an unknown key."""
    known = sorted(known)
    section, dot, key = str(name).rpartition(".")
    name = f"{section}{dot}{_ALIASES.get(key, key)}"
    return did_you_mean(name, known) or f"known: {', '.join(known)}"


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def _subject(field: str) -> str:
    """Return the last part of a dotted name that is no index and no kind of range."""
    parts = field.split(".")
    return next((p for p in reversed(parts) if not p.isdecimal() and p not in _KINDS), parts[-1])


def _nearest(field: str, model: type[BaseModel]) -> str | None:
    """Return the key that an unknown one was meant to be: the path of one of its name elsewhere, or one like it."""
    name = field.rpartition(".")[2]
    name, beside = _ALIASES.get(name, name), _keys_beside(field, model)
    elsewhere = [path for path in _paths(model) if path.rpartition(".")[2] == name]
    return elsewhere[0] if elsewhere and name not in beside else nearest(name, beside)


def _remedy(field: str, model: type[BaseModel]) -> str:
    near = _nearest(field, model)
    return f"known: {', '.join(_keys_beside(field, model))}" if near is None else f"did you mean {near!r}?"


def _keys_beside(field: str, model: type[BaseModel]) -> list[str]:
    section = field.rpartition(".")[0]
    return sorted(path.rpartition(".")[2] for path in _paths(model) if path.rpartition(".")[0] == section)


def _paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, info in model.model_fields.items():
        yield prefix + name
        for annotation in (info.annotation, *get_args(info.annotation)):
            if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                yield from _paths(annotation, f"{prefix}{name}.")


class BrokenRule(NamedTuple):
    """A field that breaks a rule."""

    field: str  # its dotted path; empty where several fields together break it
    got: Any  # its value, ``None`` where it says nothing
    expected: str  # what should stand there; ``{name}`` becomes the name of the field
    remedy: str  # what to do
