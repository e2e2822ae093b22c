"""Names of a package that are imported when they are first used (PEP 562): what only reads records need not wait."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def by_need(package: str, homes: Mapping[str, str], modules: tuple[str, ...] = ()) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package.

    ``homes`` gives the module of each name; ``modules`` are those of the package's own that are names of it too.
    """

    def find(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return find
