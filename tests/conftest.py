"""What every test shares: quiet threads, the same luck, real data if it is at hand, and no silent gaps in CI.

A test marked ``shared`` needs real data, one marked ``chromium`` a browser, ``postgresql`` a database server, ``root``
that user's rights over networks and file systems. Where they are missing the test is skipped; with ``SWEEPER_NO_SKIP=1`` it fails instead, so that a machine cannot pass by testing less.

A test marked ``long`` runs a whole stack, a campaign, or again what a shorter one shows. `make test` leaves it out,
`make test MARKS=long` runs it, and `.ci/run` calls both. Of a test marked ``sampled(n)`` every n-th case runs in
`make test`, the first among them, and the others are long.
"""

import functools
import gc
import importlib.metadata
import os
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch or numpy are imported; xdist uses the cores already
os.environ.pop("MLFLOW_TRACKING_URI", None)  # whoever runs the tests has a store of their own
os.environ.setdefault("RAY_worker_niceness", "0")  # else trials stand still beside busy processes

import pytest
from hypothesis import HealthCheck, settings

from clipless import row_independence
from clipless.privacy import noise_grid

from .caretaker import take_care

NO_SKIP = "SWEEPER_NO_SKIP"
DATA = "SWEEPER_TEST_DATA"
WITH_RAY = tuple(
    f"tests/sweeper/{folder}/test_{name}.py"
    for folder, names in {
        "backend": ("storage", "trainable"),
        "backend/on_ray": ("tune", "actor_pool"),
        "driver": ("runner",),
        "trials": ("private_validation",),
    }.items()
    for name in names
)  # these files share one Ray, whose start costs as much as most of their tests: they come first and run in one process
# what is installed stays as it is; to look it up again each time a data set is named takes seconds in all
importlib.metadata.entry_points = functools.cache(importlib.metadata.entry_points)
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def data_folder() -> Path:
    """Where real data for tests lies: ``SWEEPER_TEST_DATA``, or ``../shared/datasets`` beside the checkout."""
    return Path(os.environ.get(DATA) or Path(__file__).resolve().parents[2] / "shared" / "datasets")


def pytest_configure() -> None:
    """Leave nothing behind, however the run ends; while all is imported and collected, nothing is garbage."""
    take_care()
    gc.disable()
    # thousands of small trainings; tests/clipless/test_row_independence.py takes all
    row_independence._FEWEST = row_independence._MOST = 2


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what -m does not select
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as long what a sample leaves out. Files with slow tests come first, so that none runs alone at the end."""
    cases: Counter[str] = Counter()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled is None or item.get_closest_marker("long"):
            continue
        function = item.nodeid.partition("[")[0]
        if cases[function] % sampled.args[0]:
            item.add_marker("long")
        cases[function] += 1
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (not item.nodeid.startswith(WITH_RAY), item.path not in slow))


def pytest_collection_finish() -> None:
    """Let Python look for garbage less often, and not in what stays until the end: libraries, thousands of tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give files to processes whole, and those that share a Ray to the same one."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "with Ray" if nodeid.startswith(WITH_RAY) else nodeid.partition("::")[0]

    return ByFile(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if "torch" in sys.modules:  # weights that are left to chance must not depend on the tests before
        sys.modules["torch"].default_generator.manual_seed(0)  # that of the CPU: others note where they were called
    if item.get_closest_marker("shared") and not data_folder().is_dir():
        _cannot_run(f"no folder {data_folder()}: set {DATA}")
    if item.get_closest_marker("chromium"):
        from dashboards.export.pictures import find_browser

        if find_browser() is None:
            _cannot_run("no Chromium or Chrome: install one, or set BROWSER_PATH")
    if item.get_closest_marker("postgresql"):
        from sweeper.errors import SweeperError
        from tools.stack.database import programs

        try:
            programs()
        except SweeperError as error:
            _cannot_run(str(error))
    if item.get_closest_marker("root") and (os.geteuid() != 0 or shutil.which("ip") is None):
        _cannot_run("not root, or no program `ip`: run as root, apt-get install iproute2")


@pytest.hookimpl(trylast=True)  # after the fixtures of the test
def pytest_runtest_teardown() -> None:
    """Let no test name a store for later ones: MLflow keeps the one that it is set to in the environment."""
    left = os.environ.pop("MLFLOW_TRACKING_URI", None)
    if left is not None:
        pytest.fail(
            f"the test leaves MLflow set to {left}: sweeps of later tests would be recorded there", pytrace=False
        )


def _cannot_run(reason: str) -> None:
    if os.environ.get(NO_SKIP):
        pytest.fail(f"{reason} ({NO_SKIP} is set, so this test may not be skipped)", pytrace=False)
    pytest.skip(reason)


@pytest.fixture
def exact_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums are released as fine as they are added, so that tests see them behind their noise."""
    monkeypatch.setattr(noise_grid, "_RELEASED", 2.0**60)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data; a test that uses it carries the mark ``shared``."""
    return data_folder()
