"""Running sweeps from Python: with progress, in a terminal, a notebook or neither."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sweeper.driver import runner
from sweeper.driver.options import Options
from sweeper.driver.reporting.progress import Display, NotebookDisplay
from sweeper.results.sweep import Sweep
from sweeper.specification.spec import Spec

_KERNEL_SHELL = "ZMQInteractiveShell"  # IPython's in a notebook; in a terminal it has another


def run(spec: Spec | str | Path, options: Options | None = None, *, progress: bool | None = None) -> Sweep:
    """Run a sweep to its end, or to the first Ctrl-C, and return it.

    Args:
        spec: what to do, or the YAML file that says it.
        options: how to run it; see `sweeper.Options`.
        progress: whether to show how it stands; left out, in terminals and notebooks.

    Raises and guarantees: as `sweeper.driver.runner.run_sweep`.
    """
    wanted = spec if isinstance(spec, Spec) else Spec.from_yaml(spec)
    with _shown(options or Options(), progress) as shown:
        return runner.run(wanted, shown)


def resume(
    directory: str | Path, options: Options | None = None, *, trials: int | None = None, progress: bool | None = None
) -> Sweep:
    """Resume a sweep that was interrupted or killed, or run more trials of it, and return it.

    Args:
        directory: of the sweep.
        options: as for `run`; options you omit keep the values the sweep was started with.
        trials: how many in all, those that ran included; as many as before by default.
        progress: as for `run`.

    Raises: as `sweeper.driver.runner.resume_sweep`.
    """
    with _shown(options or Options(), progress) as shown:
        return runner.resume(Path(directory), shown, trials=trials)


def in_notebook() -> bool:
    """Whether this runs in the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return type(shell).__name__ == _KERNEL_SHELL


@contextlib.contextmanager
def _shown(options: Options, progress: bool | None) -> Iterator[Options]:
    """Give options a display, unless they say themselves where progress goes."""
    notebook = in_notebook()
    wanted = (notebook or sys.stdout.isatty()) if progress is None else progress
    if not wanted or options.show is not Options().show:
        yield options
        return
    with NotebookDisplay() if notebook else Display() as display:
        yield replace(options, tell=display.tell, show=display.update)
