import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_network(monkeypatch, tmp_path):
    """Nothing here fetches, and nothing touches the user's cache."""

    def refuse(**_):
        raise AssertionError("a test tried to fetch from OpenML")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", refuse)
    monkeypatch.setenv("SWEEPER_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def shared():
    chosen = os.environ.get("SWEEPER_TEST_DATA")
    folder = Path(chosen) if chosen else Path(__file__).parents[4] / "shared" / "datasets"
    if not (folder / "mnist.npz").is_file():
        pytest.skip("no real data: set SWEEPER_TEST_DATA")
    return folder


@pytest.fixture
def write(tmp_path):
    """Write a text to a file of the test's folder and return its path."""

    def write(text, name="people.csv"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write
