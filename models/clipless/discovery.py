"""Extension points are folders: what a module of one declares is found without being listed anywhere."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar

T = TypeVar("T")


def import_modules(package: str, path: Sequence[str]) -> Iterator[Any]:
    """Import the modules of a package in order of their names, but for those that begin with an underscore."""
    for module in iter_modules(path):
        if not module.name.startswith("_"):
            yield import_module(f"{package}.{module.name}")


def declared(module: Any, kind: type[T]) -> Iterator[T]:
    """Yield the public instances of ``kind`` that a module makes itself, in the order of the module."""
    for name, value in vars(module).items():
        if not name.startswith("_") and isinstance(value, kind) and value.__module__ == module.__name__:
            yield value
