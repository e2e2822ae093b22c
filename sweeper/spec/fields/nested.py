"""Configurations as flat tables: nested keys joined by dots, and back."""

from collections.abc import Mapping
from typing import Any


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with dotted keys, as tracking and tables want it.

    >>> flatten({"training": {"loss": {"name": "tau-cce", "temperature": 2.0}}})
    {'training.loss.name': 'tau-cce', 'training.loss.temperature': 2.0}
    """
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat.update({f"{key}.{below}": leaf for below, leaf in flatten(value).items()})
        else:
            flat[key] = str(list(value)) if isinstance(value, list | tuple) else value
    return flat


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
