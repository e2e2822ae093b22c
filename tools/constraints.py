"""Write the constraints file from what pip has resolved: ``python -m tools.constraints REPORT > constraints.txt``.

`make constraints` calls it. Local version suffixes (``torch==2.13.0+cpu``) are dropped, so that the same file fits the
builds for other devices.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_HEADER = """\
# Exact versions of everything that `sweeper[dev]` installs. Make and the Dockerfile install from it: all nodes of a Ray
# cluster need the same versions. `make constraints` resolves it anew; run the tests before committing it.
"""


def constraints(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line per package of a report of ``pip install --dry-run --report``, in order of their names."""
    packages = (package["metadata"] for package in report["install"])
    versions = {re.sub(r"[-_.]+", "-", one["name"]).lower(): one["version"].partition("+")[0] for one in packages}
    yield from (f"{name}=={version}" for name, version in sorted(versions.items()) if name != "sweeper")


def main() -> None:
    """Print the file."""
    report = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.stdout.write(_HEADER + "".join(f"{line}\n" for line in constraints(report)))


if __name__ == "__main__":
    main()
