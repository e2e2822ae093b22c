"""Configurations as flat tables: nested keys joined by dots, and back; and single values set by such names."""

from collections.abc import Iterator, Mapping
from typing import Any

from sweeper.errors import SpecError


def flatten(config: Mapping[str, object]) -> dict[str, Any]:
    """Return a configuration with dotted keys, as tracking and tables want it.

    >>> flatten({"training": {"loss": {"name": "tau-cce", "temperature": 2.0}}})
    {'training.loss.name': 'tau-cce', 'training.loss.temperature': 2.0}
    """
    return {name: str(list(leaf)) if isinstance(leaf, list | tuple) else leaf for name, leaf in leaves(config)}


def leaves(config: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested values with their dotted names."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def unflatten(flat: Mapping[str, object]) -> dict[str, Any]:
    """Undo ``flatten``."""
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        *sections, key = name.split(".")
        inner = nested
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[key] = value
    return nested


def with_values(content: Mapping[str, object], values: Mapping[str, object]) -> dict[str, Any]:
    """Return a nested mapping with values set by dotted names; ``None`` leaves a key out.

    >>> with_values({"training": {"epochs": 3, "repeats": 2}}, {"training.epochs": 5, "training.repeats": None})
    {'training': {'epochs': 5}}

    Raises:
        SpecError: no dotted name, or one that leads through a value that is no section.
    """
    changed = dict(content)
    for name, value in values.items():
        _set(changed, name, value)
    return changed


def _set(changed: dict[str, Any], name: str, value: Any) -> None:
    *sections, key = name.split(".")
    if not all((*sections, key)):
        raise SpecError(f"Expected a dotted name such as training.epochs, got {name!r} (--set)")
    for depth, section in enumerate(sections, start=1):
        inner = changed.get(section)
        if inner is not None and not isinstance(inner, Mapping):
            where = ".".join(sections[:depth])
            raise SpecError(f"Expected a section at {where} to set {name} in, got {inner!r} (--set); set {where} whole")
        changed[section] = copy = dict(inner or {})  # what was read stays as it is
        changed = copy
    if value is None:
        changed.pop(key, None)
    else:
        changed[key] = value
