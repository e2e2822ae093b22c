"""Configurations as flat tables: nested keys joined by dots, and back."""

from collections.abc import Iterator, Mapping
from typing import Any


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with dotted keys, as tracking and tables want it.

    >>> flatten({"training": {"loss": {"name": "tau-cce", "temperature": 2.0}}})
    {'training.loss.name': 'tau-cce', 'training.loss.temperature': 2.0}
    """
    return {name: str(list(leaf)) if isinstance(leaf, list | tuple) else leaf for name, leaf in leaves(config)}


def leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested values with their dotted names."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Undo ``flatten``."""
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        *sections, key = name.split(".")
        inner = nested
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[key] = value
    return nested
