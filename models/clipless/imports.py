"""Imports without lists: modules of a folder found by their place, and names of a package at their first use (PEP 562).

Extension points are folders, whose modules declare what they add. A package that only reads records does not wait for
the rest.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar

T = TypeVar("T")


def import_modules(package: str, path: Sequence[str]) -> Iterator[Any]:
    """Import the modules of a package in order of their names, but for those that begin with an underscore."""
    for module in iter_modules(path):
        if not module.name.startswith("_"):
            yield import_module(f"{package}.{module.name}")


def find_declared(module: Any, kind: type[T]) -> Iterator[T]:
    """Yield the public instances of ``kind`` that a module makes itself, in the order of the module."""
    for name, value in vars(module).items():
        if not name.startswith("_") and isinstance(value, kind) and value.__module__ == module.__name__:
            yield value


def find_subclass(module: str, kind: type[T]) -> type[T]:
    """Return the subclass of ``kind`` that a module defines.

    Raises:
        TypeError: the module defines none or several.
    """
    defined = [one for one in vars(import_module(module)).values() if getattr(one, "__module__", "") == module]
    kinds = [one for one in defined if isinstance(one, type) and issubclass(one, kind)]
    if len(kinds) != 1:
        found = ", ".join(one.__name__ for one in kinds) or "none"
        raise TypeError(f"Expected one subclass of {kind.__name__} in {module}, got {found}")
    return kinds[0]


def lazy_names(package: str, homes: Mapping[str, str], modules: str = "") -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package.

    ``homes`` lists names by their module, separated by blanks; ``modules`` lists those modules of the
    package that are names of it too.
    """
    home = {name: module for module, names in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name in modules.split():
            return import_module(f"{package}.{name}")
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home[name]), name)

    return find
