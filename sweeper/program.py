"""How a program of this environment is called here: printed commands run as they are printed."""

import shlex
import shutil
import sys
from pathlib import Path


def program(name: str = "sweeper") -> str:
    """Return what calls a program here: its name if the shell finds it by that, else its path as short as can be.

    It is the one beside this process's Python, which a notebook has not started either.
    """
    beside = Path(sys.executable).with_name(name)
    found = shutil.which(name)
    if not beside.exists() or (found is not None and Path(found).resolve() == beside.resolve()):
        return name
    here = Path.cwd()
    return shlex.quote(str(beside.relative_to(here) if beside.is_relative_to(here) else beside))
