"""The keys of a spec in the room that an automatic client has: its JSON schema without what each key repeats."""

from collections.abc import Mapping, Sequence
from typing import Any

from sweeper.errors import SpecError

ABOUT = (
    "A spec is a mapping with the sections name, data, model, training, privacy and search; only name, data and "
    "privacy are needed, and every key left out has its default. A key that is `open` takes one value, a list of "
    'values to choose from, or a range to search: {"uniform": [low, high]}, {"log": [low, high]}, '
    '{"int": [low, high]}, {"log_int": [low, high]}. privacy.sweep_epsilon fixes the price of the whole sweep '
    "beforehand."
)
_KEPT = (
    *("type", "enum", "const", "description", "default", "minimum", "maximum", "exclusiveMinimum"),
    *("exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern", "minItems", "maxItems", "required"),
)


def find_keys(schema: Mapping[str, Any], key: str | None) -> dict[str, Any]:
    """Return what the schema of a spec says of a section or a key, or of all of them.

    Raises:
        SpecError: no such section or key.
    """
    sections = {name: _shortened(inner, schema) for name, inner in schema["properties"].items()}
    if key is None:
        return {name: _without_depth(inner) for name, inner in sections.items()}
    section, _, inner = key.partition(".")
    found = sections.get(section)
    if found is not None and inner:
        found = found.get("keys", {}).get(inner)
    if found is None:
        raise SpecError(f"Expected a section or a key of the spec, one of {', '.join(sections)}, got {key!r} (key)")
    return {key: found}


def _shortened(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with its references resolved, and the ways to leave a key open as one word."""
    if "$ref" in schema:
        target = whole["$defs"][schema["$ref"].rpartition("/")[2]]
        return _shortened({**target, **{name: inner for name, inner in schema.items() if name == "description"}}, whole)
    ways = [way for way in schema.get("anyOf", ()) if way != {"type": "null"}]
    kept = {name: schema[name] for name in _KEPT if name in schema}
    if ways:
        first = _shortened(ways[0], whole)
        is_open = any(_is_choice(way, ways) for way in ways[1:])
        others = [_shortened(way, whole) for way in ways[1:] if _is_named(way) or not is_open]
        return {**first, **kept, **({"open": True} if is_open else {}), **({"or": others} if others else {})}
    if "properties" in schema:
        kept["keys"] = {name: _shortened(inner, whole) for name, inner in schema["properties"].items()}
    if isinstance(schema.get("items"), Mapping):
        kept["items"] = _shortened(schema["items"], whole)
    return kept


def _is_choice(way: Mapping[str, Any], ways: Sequence[Mapping[str, Any]]) -> bool:
    """Whether it is a list of values that could stand alone."""
    items = way.get("items", {})
    return way.get("type") == "array" and ways[0] in (items, *items.get("anyOf", ()))


def _is_named(way: Mapping[str, Any]) -> bool:
    """Whether it is a choice with parameters, by its name."""
    return "name" in way.get("properties", {})


def _without_depth(section: dict[str, Any]) -> dict[str, Any]:
    """Return a section whose keys say no more than their own values."""
    if "keys" not in section:
        return section
    inner = section["keys"].items()
    return {**section, "keys": {name: {k: v for k, v in one.items() if k not in ("or", "keys")} for name, one in inner}}
