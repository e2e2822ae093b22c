"""Running and checking sweeps from Python: with progress, in a terminal, a notebook or neither."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

from sweeper.calls import called_by_users
from sweeper.driver import runner
from sweeper.driver.options import Options
from sweeper.driver.reporting.progress import Display, NotebookDisplay
from sweeper.planning.check import CheckedSpec, check_spec
from sweeper.planning.sources import AnySpec, as_spec
from sweeper.results.sweep import Sweep, folder_of

_KERNEL_SHELL = "ZMQInteractiveShell"  # IPython's in a notebook; in a terminal it has another
OPTIONS = {option.name: f"sweeper.Options({option.name}=...)" for option in fields(Options)}
_OF_RUNS = OPTIONS | {key: f'search.{key} in the spec, {{"search": {{"{key}": 4}}}}' for key in ("trials", "seed")}


@called_by_users({key: _OF_RUNS[key] for key in ("trials", "seed")})
def check(
    spec: AnySpec, data_dir: str | Path | None = None, *, configurations: int = 1, measure: bool = True
) -> CheckedSpec:
    """Validate a spec and return what it would do, without training on any row.

    Args:
        spec: what to do, as for `run`.
        data_dir: local copies of data sets.
        configurations: how many to plan.
        measure: whether time and memory are measured, on rows of zeros.

    Raises: as `sweeper.planning.check.check_spec`.
    """
    where = None if data_dir is None else Path(data_dir)
    return check_spec(as_spec(spec), where, configurations=configurations, measure=measure)


@called_by_users(_OF_RUNS)
def run(spec: AnySpec, options: Options | None = None, *, progress: bool | None = None) -> Sweep:
    """Run a sweep to its end, or to the first Ctrl-C, and return it.

    Args:
        spec: what to do: a spec, a nested mapping as in its YAML file, or the path of that file.
        options: how to run it; see `sweeper.Options`.
        progress: whether to show how it stands; left out, in terminals and notebooks.

    Raises and guarantees: as `sweeper.driver.runner.run_sweep`.
    """
    wanted = as_spec(spec)
    with with_display(options or Options(), progress) as shown:
        return runner.run(wanted, shown)


@called_by_users(OPTIONS)
def resume(
    sweep: Sweep | str | Path,
    options: Options | None = None,
    *,
    trials: int | None = None,
    progress: bool | None = None,
) -> Sweep:
    """Resume a sweep that was interrupted or killed, or run more trials of it, and return it.

    Args:
        sweep: the sweep, or its folder.
        options: as for `run`; options you omit keep the values the sweep was started with.
        trials: how many in all, those that ran included; as many as before by default.
        progress: as for `run`.

    Raises: as `sweeper.driver.runner.resume_sweep`.
    """
    with with_display(options or Options(), progress) as shown:
        return runner.resume(folder_of(sweep), shown, trials=trials)


@called_by_users(OPTIONS)
def extend(
    sweep: Sweep | str | Path, trials: int, options: Options | None = None, *, progress: bool | None = None
) -> Sweep:
    """Run a sweep that has ended, all of it or early, on until it has so many trials in all, and return it.

    Args, raises: as `resume`.
    """
    with with_display(options or Options(), progress) as shown:
        return runner.resume(folder_of(sweep), shown, trials=trials)


def in_notebook() -> bool:
    """Whether this runs in the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return any(kind.__name__ == _KERNEL_SHELL for kind in type(shell).__mro__)  # some services derive their own from it


@contextlib.contextmanager
def with_display(options: Options, progress: bool | None) -> Iterator[Options]:
    """Give options a display, unless they say themselves where progress goes; left out, in terminals and notebooks."""
    notebook = in_notebook()
    wanted = (notebook or sys.stdout.isatty()) if progress is None else progress
    if not wanted or options.show is not Options().show:
        yield options
        return
    with NotebookDisplay() if notebook else Display() as display:
        yield replace(options, tell=display.tell, show=display.update)
