"""What every test shares: quiet threads, the same luck, real data if it is at hand, and no silent gaps in CI.

A test marked ``shared`` needs real data, one marked ``chromium`` a browser, ``postgresql`` a database server, ``root``
that user's rights over networks and file systems. Where they are missing the test is skipped; with ``SWEEPER_NO_SKIP=1`` it fails instead, so that a machine cannot pass by testing less.
"""

import os
import shutil
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch or numpy are imported; xdist uses the cores already

import pytest

NO_SKIP = "SWEEPER_NO_SKIP"
DATA = "SWEEPER_TEST_DATA"


def data_folder() -> Path:
    """Where real data for tests lies: ``SWEEPER_TEST_DATA``, or ``../shared/datasets`` beside the checkout."""
    return Path(os.environ.get(DATA) or Path(__file__).resolve().parents[2] / "shared" / "datasets")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, so that no process is alone with one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if "torch" in sys.modules:  # weights that are left to chance must not depend on the tests before
        sys.modules["torch"].manual_seed(0)
    if item.get_closest_marker("shared") and not data_folder().is_dir():
        _cannot_run(f"no folder {data_folder()}: set {DATA}")
    if item.get_closest_marker("chromium"):
        from dashboards.pictures import find_browser

        if find_browser() is None:
            _cannot_run("no Chromium or Chrome: install one, or set BROWSER_PATH")
    if item.get_closest_marker("postgresql"):
        from sweeper.errors import SweeperError
        from sweeper.stack.database import programs

        try:
            programs()
        except SweeperError as error:
            _cannot_run(str(error))
    if item.get_closest_marker("root") and (os.geteuid() != 0 or shutil.which("ip") is None):
        _cannot_run("not root, or no program `ip`: run as root, apt-get install iproute2")


def _cannot_run(reason: str) -> None:
    if os.environ.get(NO_SKIP):
        pytest.fail(f"{reason} ({NO_SKIP} is set, so this test may not be skipped)", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data; a test that uses it carries the mark ``shared``."""
    return data_folder()
