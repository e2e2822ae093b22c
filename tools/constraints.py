"""Write the constraints file from what pip has resolved: ``python -m tools.constraints REPORT > constraints.txt``.

`make constraints` calls it. Local version suffixes (``torch==2.13.0+cpu``) are dropped, so that the same file fits the
builds for other devices. ``--lowest`` in the place of the report writes the lower bounds of ``pyproject.toml``, with
which `make lowest` runs the tests: a bound that nobody tests is a guess.
"""

import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_HEADER = """\
# Exact versions of everything that `sweeper[dev]` installs. Make and the Dockerfile install from it: all nodes of a Ray
# cluster need the same versions. `make constraints` resolves it anew; run the tests before committing it.
"""


def constraints(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line per package of a report of ``pip install --dry-run --report``, in order of their names."""
    packages = (package["metadata"] for package in report["install"])
    versions = {re.sub(r"[-_.]+", "-", one["name"]).lower(): one["version"].partition("+")[0] for one in packages}
    yield from (f"{name}=={version}" for name, version in sorted(versions.items()) if name != "sweeper")


def lowest(project: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line for the lower bound of each package that the ``project`` table of ``pyproject.toml`` names.

    Those of the extra ``dev`` alone are left out: they make no promise to whoever installs Sweeper.
    """
    extras = (one for extra, several in project["optional-dependencies"].items() if extra != "dev" for one in several)
    bounds = (re.match(r"([\w.-]+)(?:\[[\w,-]+\])?>=([\w.]+)", one) for one in (*project["dependencies"], *extras))
    yield from sorted({f"{bound[1]}=={bound[2]}" for bound in bounds if bound is not None})


def main() -> None:
    """Print the file."""
    if sys.argv[1:] == ["--lowest"]:
        project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        sys.stdout.write("".join(f"{line}\n" for line in lowest(project)))
        return
    report = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.stdout.write(_HEADER + "".join(f"{line}\n" for line in constraints(report)))


if __name__ == "__main__":
    main()
