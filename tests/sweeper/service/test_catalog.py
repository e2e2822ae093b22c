import os
import threading

import pytest

from sweeper.errors import UnknownSweepError
from sweeper.service.catalog import SHOWN_FILES, Catalog

ODD = ("..", ".", "", "../out", "a/b", "a\\b", "/etc", ".selecting-x", "a\x00b", "a\nb", "ä", "x" * 200, "~", "a%2f..")


def test_names_are_those_of_sweeps_newest_first_and_never_hidden(out, make_sweep):
    for name in ("b-20250101-000000", "a-20250301-000000", "a-20250301-000000-10", "a-20250301-000000-2", "odd"):
        make_sweep(name)
    make_sweep(".selecting-x")
    (out / "no-sweep").mkdir()
    (out / "link").symlink_to(out / "odd")
    assert Catalog(out).names() == (
        "a-20250301-000000-10", "a-20250301-000000-2", "a-20250301-000000", "b-20250101-000000", "odd",
    )  # fmt: skip
    assert Catalog(out / "none").names() == ()


@pytest.mark.parametrize("name", ODD)
def test_no_odd_name_leads_to_a_folder(name, out, make_sweep):
    make_sweep(".selecting-x")
    with pytest.raises(UnknownSweepError, match="Expected the name of a sweep"):
        Catalog(out).folder(name)


def test_a_link_to_a_sweep_elsewhere_is_none(out, make_sweep, tmp_path):
    folder = make_sweep()
    folder.path.rename(tmp_path / "elsewhere")
    (out / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnknownSweepError):
        Catalog(out).version("link")


@pytest.mark.parametrize("name", SHOWN_FILES)
def test_the_version_changes_with_every_file_that_is_shown_and_with_nothing_else(name, out, make_sweep):
    folder, catalog = make_sweep(), Catalog(out)
    before = catalog.version(folder.path.name)
    (folder.path / "driver.json").write_text("{}")
    assert catalog.version(folder.path.name) == before
    with (folder.path / name).open("a") as file:
        file.write(" ")
    grown = catalog.version(folder.path.name)
    assert grown != before
    status = (folder.path / name).stat()
    os.utime(folder.path / name, ns=(status.st_atime_ns, status.st_mtime_ns + 1000))
    assert catalog.version(folder.path.name) != grown


def test_what_is_made_of_a_sweep_is_made_once_for_all_until_its_files_change(out, make_sweep):
    folder, catalog, made = make_sweep(), Catalog(out), []
    name = folder.path.name

    def make(found):
        made.append(found.path)
        return object()

    results = []
    ask = lambda: results.append(catalog.shared(name, "x", make, files=("front.json",)))  # noqa: E731
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [folder.path]
    assert len(set(map(id, results))) == 1
    (folder.path / "points.jsonl").touch()
    ask()
    assert len(made) == 1
    folder.front.write_text("{}")
    ask()
    assert len(made) == 2


def test_what_fails_is_not_kept_and_what_is_kept_is_bounded(out, make_sweep, monkeypatch):
    folder, catalog = make_sweep(), Catalog(out)
    name = folder.path.name
    with pytest.raises(ZeroDivisionError):
        catalog.shared(name, "x", lambda _: 1 / 0)
    assert catalog.shared(name, "x", lambda _: 7) == 7
    monkeypatch.setattr("sweeper.service.catalog.KEPT_RESULTS", 2)
    for what in range(5):
        catalog.shared(name, what, lambda _: 0)
    assert catalog.shared(name, "x", lambda _: 8) == 8
