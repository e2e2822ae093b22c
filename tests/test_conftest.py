"""Marked tests skip where something is missing, and fail there when skipping is forbidden."""

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

spec = importlib.util.spec_from_file_location(f"{__package__}.house", Path(__file__).with_name("conftest.py"))
house = importlib.util.module_from_spec(spec)
spec.loader.exec_module(house)


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    monkeypatch.delenv("SWEEPER_NO_SKIP", raising=False)
    monkeypatch.setenv("SWEEPER_TEST_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("tools.stack.database.INSTALLED", tmp_path)


def set_up(mark):
    house.pytest_runtest_setup(SimpleNamespace(get_closest_marker=lambda name: name == mark))


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("mark", ["shared", "chromium", "postgresql", "root"])
def test_a_missing_resource_is_a_skip(mark):
    with pytest.raises(pytest.skip.Exception, match=r"no |PostgreSQL"):
        set_up(mark)


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("mark", ["shared", "chromium", "postgresql", "root"])
def test_a_missing_resource_is_a_failure_where_skipping_is_forbidden(mark, monkeypatch):
    monkeypatch.setenv("SWEEPER_NO_SKIP", "1")
    with pytest.raises(pytest.fail.Exception, match="may not be skipped"):
        set_up(mark)


@pytest.mark.usefixtures("nowhere")
def test_an_unmarked_test_runs_anywhere():
    set_up(None)


def test_data_lies_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("SWEEPER_TEST_DATA", str(tmp_path))
    assert house.data_folder() == tmp_path
    monkeypatch.delenv("SWEEPER_TEST_DATA")
    assert house.data_folder().parts[-2:] == ("shared", "datasets")


def test_files_that_need_a_ray_share_one():
    folder = Path(__file__).parent
    need = {
        file.relative_to(folder.parent).as_posix()
        for file in folder.rglob("test_*.py")
        if "ray_running" in file.read_text(encoding="utf-8") and file != Path(__file__)
    }
    assert set(house.WITH_RAY) == need


SECONDS = re.compile(
    r"assert [^\n]*\btime\.(?:monotonic|perf_counter|time)\(\)(?! < (?:end|deadline)\b)(?! - began < PATIENCE)"
)


def test_no_test_asserts_how_long_something_took_by_the_clock_on_the_wall():
    """Limits that end what hangs are called ``end``, ``deadline`` or ``PATIENCE_SECONDS``."""
    files = sorted(Path(__file__).parent.rglob("test_*.py"))
    assert [str(file) for file in files if SECONDS.search(file.read_text(encoding="utf-8"))] == []
    now = "time.monotonic()"
    assert SECONDS.search(f"    assert {now} - start < 5")
    assert not SECONDS.search(f"    assert {now} < end, said")
