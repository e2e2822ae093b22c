"""Plant faults in a copy of the packages, one at a time, and see that the named tests fail.

    python tests/mutations/run.py            every fault; each of its named tests must fail
    python tests/mutations/run.py --short    every fault; one failing test is enough

Faults are listed in ``faults.toml``. The old text of each must occur exactly once, so that the list cannot rot. The
sources themselves are never written to. Every fault is tried in a process of its own, forked from one that has
imported the third-party libraries but none of our packages.
"""

import argparse
import gc
import importlib
import os
import shutil
import signal
import sys
import tempfile
import tomllib
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parents[2]
FAULTS = Path(__file__).with_name("faults.toml")
SOURCES = ("models", "sweeper", "dashboards", "tools")
PRELOADED = (
    "autodp.rdp_acct",
    "dp_accounting.pld.privacy_loss_distribution",
    "hypothesis",
    "pandas",
    "pyarrow.parquet",
    "pydantic",
    "pytest",
    "safetensors.torch",
    "scipy.optimize",
    "scipy.stats",
    "sklearn.datasets",
    "sklearn.metrics",
    "torch._dynamo",
    "moocore",
    "optuna",
)
TIME_LIMIT_SECONDS = 300
PASSED, FAILED = 0, 1  # exit codes of pytest


class ListError(Exception):
    """The list of faults does not fit the sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault.

    Attributes:
        name: what is wrong, in words.
        file: where, relative to the project.
        old: text that occurs there exactly once.
        new: what stands there instead.
        tests: pytest's ids of the tests that must fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def planted(self, source: str) -> str:
        """Return ``source`` with the fault.

        Raises:
            ListError: the old text does not occur exactly once.
        """
        found = source.count(self.old)
        if found != 1:
            raise ListError(f"{self.name}: expected the old text once in {self.file}, found it {found} times")
        return source.replace(self.old, self.new)


def read_faults(path: Path = FAULTS) -> list[Fault]:
    """Return the listed faults.

    Raises:
        ListError: a name occurs twice, or an old text does not occur exactly once.
    """
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["fault"]
    faults = [Fault(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]
    names = [fault.name for fault in faults]
    for name in names:
        if names.count(name) > 1:
            raise ListError(f"{name}: listed twice")
    for fault in faults:
        fault.planted((ROOT / fault.file).read_text(encoding="utf-8"))
    return faults


def copy_sources(folder: Path, fault: Fault | None) -> None:
    """Copy the packages into ``folder``, with the fault if there is one."""
    for name in SOURCES:
        shutil.copytree(ROOT / name, folder / name)
    if fault is not None:
        file = folder / fault.file
        file.write_text(fault.planted(file.read_text(encoding="utf-8")), encoding="utf-8")
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            compiled.unlink()


class Failures:
    """A pytest plugin that notes which tests failed."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report) -> None:
        """Note a failure in any phase of a test."""
        if report.failed:
            self.failed.append(report.nodeid)

    def missing(self, tests: Sequence[str]) -> list[str]:
        """Return the named tests of which nothing failed."""
        return [t for t in tests if not any(f == t or f.startswith((f"{t}[", f"{t}::")) for f in self.failed)]


def try_tests(folder: Path, tests: Sequence[str], *, every: bool) -> str:
    """Run the tests on the packages in ``folder``; return the verdict in a word or a sentence."""
    import pytest

    os.chdir(ROOT)
    paths = [str(folder / "models"), str(folder)]
    sys.path[:0] = paths
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    for name in ("clipless", "sweeper"):
        module = importlib.import_module(name)
        if not Path(str(module.__file__)).is_relative_to(folder):
            return f"error: {name} came from {module.__file__}"
    failures = Failures()
    # Plugins were imported before pytest could rewrite their assertions.
    options = ["--quiet", "--tb=short", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = int(pytest.main([*options, *([] if every else ["--exitfirst"]), *tests], plugins=[failures]))
    match code:
        case 0:
            return "passed"
        case 1 if every and failures.missing(tests):
            return f"not failed: {', '.join(failures.missing(tests))}"
        case 1:
            return "failed"
    return f"error: pytest ended with {code}"


def in_a_child(work: Callable[[], str], verdict: Path, log: Path) -> int:
    """Fork; do ``work`` there, with its output in ``log`` and its result in ``verdict``. Returns the process id."""
    child = os.fork()
    if child:
        return child
    try:
        signal.alarm(TIME_LIMIT_SECONDS)
        output = os.open(log, os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        verdict.write_text(work(), encoding="utf-8")
    except BaseException:
        verdict.write_text(f"error: {traceback.format_exc()}", encoding="utf-8")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def verdicts(faults: Sequence[Fault | None], *, jobs: int, every: bool) -> Iterator[tuple[Fault | None, str, str]]:
    """Yield each fault with its verdict and the tests' output, as they end; ``None`` is the sound code."""
    everything = sorted({test for fault in faults if fault for test in fault.tests})
    waiting, running = list(faults), {}
    with tempfile.TemporaryDirectory() as temporary:
        while waiting or running:
            if waiting and len(running) < jobs:
                fault, folder = waiting.pop(0), Path(temporary) / str(len(waiting))
                copy_sources(folder, fault)
                tests = everything if fault is None else fault.tests
                work = lambda f=folder, t=tests, e=every and fault is not None: try_tests(f, t, every=e)  # noqa: E731
                running[in_a_child(work, folder / "verdict", folder / "log")] = fault, folder
                continue
            child, status = os.wait()
            fault, folder = running.pop(child)
            told = folder / "verdict"
            text = told.read_text(encoding="utf-8") if told.exists() else f"error: the process ended with {status}"
            yield fault, text, (folder / "log").read_text(encoding="utf-8", errors="replace")
            shutil.rmtree(folder)


def preload() -> None:
    """Import the libraries, so that no child has to."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what pytest collects at its end is then small, and the libraries' memory stays shared


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the list; return 0 if every fault was caught."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--short",
        action="store_true",
        help="one failing test is enough for each fault, and the sound code is left to the suite",
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--faults", type=Path, default=FAULTS, help="the list")
    parser.add_argument("--only", default="", help="faults whose name contains this text")
    parser.add_argument("--every", type=int, default=1, help="each N-th fault of the list only")
    options = parser.parse_args(arguments)
    try:
        faults = [fault for fault in read_faults(options.faults) if options.only in fault.name][:: options.every]
    except ListError as error:
        print(error, file=sys.stderr)
        return 1
    if not faults:
        parser.error(f"no fault's name contains {options.only!r}")
    preload()
    caught, sound = 0, options.short
    tried = faults if options.short else [None, *faults]
    for fault, verdict, log in verdicts(tried, jobs=options.jobs, every=not options.short):
        as_it_should = verdict == ("passed" if fault is None else "failed")
        if fault is None:
            sound = as_it_should
            print("passed      the named tests without a fault" if sound else f"UNSOUND     {verdict}\n{log[-3000:]}")
        else:
            caught += as_it_should
            print(
                f"caught      {fault.name}" if as_it_should else f"NOT CAUGHT  {fault.name}: {verdict}\n{log[-2000:]}"
            )
        sys.stdout.flush()
    print(f"{caught} of {len(faults)} caught")
    return 0 if sound and caught == len(faults) else 1


if __name__ == "__main__":
    sys.exit(main())
