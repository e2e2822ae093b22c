"""Marked tests skip where something is missing, fail there when skipping is forbidden, and run a sample of cases."""

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


FAMILIES = """
import pytest

@pytest.fixture(params="pqrst")
def letter(request):
    return request.param

@pytest.mark.sampled(3)
@pytest.mark.parametrize("x", [*range(7), pytest.param(7, marks=pytest.mark.long)])
def test_numbers(x): ...

@pytest.mark.sampled(2)
@pytest.mark.parametrize("x", [pytest.param(0, marks=pytest.mark.long), 1, 2, 3])
def test_a_long_one_first(x): ...

@pytest.mark.sampled(4)
def test_letters(letter): ...

class TestInside:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize("y", "cd")
    @pytest.mark.parametrize("x", "ab")
    def test_pairs(self, x, y): ...

@pytest.mark.parametrize("x", "ab")
def test_all(x): ...
"""
SHORT = [
    "test_numbers[0]",
    "test_numbers[3]",
    "test_numbers[6]",
    "test_a_long_one_first[1]",
    "test_a_long_one_first[3]",
    "test_letters[p]",
    "test_letters[t]",
    "test_pairs[a-c]",
    "test_pairs[b-c]",
    "test_all[a]",
    "test_all[b]",
]


@pytest.fixture
def collected(tmp_path):
    """The names of the tests that pytest collects for an expression of marks."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    long\n    sampled\n")
    (tmp_path / "test_families.py").write_text(FAMILIES)

    def collect(marks):
        names = []
        plugin = SimpleNamespace(
            pytest_collection_modifyitems=house.pytest_collection_modifyitems,
            pytest_collection_finish=lambda session: names.extend(item.name for item in session.items),
        )
        options = ["--collect-only", "-p", "no:terminal", "-p", "no:cacheprovider", "--capture=no"]
        assert pytest.main([str(tmp_path), f"--rootdir={tmp_path}", *options, "-m", marks], [plugin]) == 0
        return names

    return collect


def test_every_nth_case_of_a_sampled_test_is_short_and_the_others_are_long(collected):
    short, long = collected("not long"), collected("long")
    assert short == SHORT
    assert len(set(short + long)) == len(short) + len(long) == 8 + 4 + 5 + 4 + 2


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
