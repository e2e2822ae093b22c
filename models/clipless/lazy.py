"""Names of a package that are imported when they are first used (PEP 562): what only reads records need not wait."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def by_need(package: str, homes: Mapping[str, str], modules: str = "") -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package.

    ``homes`` has the names by the module that each is in, with blanks between them, as has ``modules`` those of the
    package's own that are names of it too.
    """
    home = {name: module for module, names in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name in modules.split():
            return import_module(f"{package}.{name}")
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home[name]), name)

    return find
