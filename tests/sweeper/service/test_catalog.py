import os

import pytest

from sweeper.errors import UnknownSweepError
from sweeper.service.catalog import SHOWN_FILES, Catalog

from .conftest import DONE

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


def test_a_misspelt_name_is_answered_with_the_nearest_one_that_is_shown(out, make_sweep):
    make_sweep(".selecting-digits-20250102-000000")
    make_sweep()
    with pytest.raises(UnknownSweepError, match=rf"did you mean '{DONE}'\?$"):
        Catalog(out).folder(DONE[:-2])
    with pytest.raises(UnknownSweepError) as told:
        Catalog(out).folder("selecting-other")
    assert "selecting-digits" not in str(told.value)


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
