"""What code the nodes of a cluster have, compared with the code that is to run on them. Ray is not imported here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sweeper.errors import SweeperError

CODE = "code"
MISSING = ""


@dataclass(frozen=True, slots=True)
class VersionMismatch:
    """What is to be done about nodes that have other code: the ``packages`` are sent there."""

    packages: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()


def node_facts() -> Callable[[], dict[str, str]]:
    """Return a function that says, wherever it is called, what is installed there.

    It travels by value and imports nothing of this package, since a node may have none: the version of torch, ``code``,
    a hash of the three packages, and the folder of each of them; empty texts for what is missing.
    """

    def facts() -> dict[str, str]:
        import hashlib
        from importlib import metadata, util
        from pathlib import Path

        found, digest = {}, hashlib.sha256()
        for name in ("clipless", "sweeper", "dashboards"):
            spec = util.find_spec(name)
            places = spec.submodule_search_locations if spec else None
            found[name] = places[0] if places else ""
            for file in sorted(Path(found[name]).rglob("*.py")) if found[name] else ():
                digest.update(f"{name}/{file.relative_to(found[name])}\n".encode() + file.read_bytes())
        whole = all(found.values())
        try:
            torch = metadata.version("torch")
        except metadata.PackageNotFoundError:
            torch = ""
        return found | {"code": digest.hexdigest()[:16] if whole else "", "torch": torch}

    return facts


def facts_of_this_code() -> dict[str, str]:
    """Return what is installed here."""
    return node_facts()()


def unlike_nodes(here: Mapping[str, str], nodes: Mapping[str, Mapping[str, str]]) -> VersionMismatch:
    """Return what is to be done about nodes whose code is not the one here.

    Both arguments are what `node_facts` says, that of the nodes by name.

    Raises:
        SweeperError: a node lacks torch, which is not sent.
    """
    bare = sorted(address for address, found in nodes.items() if found["torch"] == MISSING)
    if bare:
        raise SweeperError(
            f"Expected torch on every node of the cluster, got none on {', '.join(bare)}; install sweeper there"
        )
    others = sorted(address for address, found in nodes.items() if found[CODE] != here[CODE])
    sentences = []
    if others:
        sentences.append(
            f"The code of sweeper on {', '.join(others)} is another one, or none; this one's was sent there"
        )
    torches = {version(found["torch"]) for found in nodes.values()} - {version(here["torch"])}
    if torches:
        sentences.append(f"The cluster's nodes have torch {', '.join(sorted(torches))}, the driver {here['torch']}")
    packages = tuple(here[name] for name in ("clipless", "sweeper", "dashboards")) if others else ()
    return VersionMismatch(packages, tuple(sentences))


def version(text: str) -> str:
    """Return a version without its build, ``2.13.0`` for ``2.13.0+cpu``."""
    return text.partition("+")[0]
