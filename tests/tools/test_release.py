"""A release: what is refused, what is written, built, tried and tagged, and what stays as it was if a step fails."""

import re
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

from clipless import saving
from clipless.training import checkpoint
from sweeper.results import front
from sweeper.results.models import diagnosis
from sweeper.store import evidence, manifest
from tools import release
from tools.release import ReleaseError, check_formats, check_wheel, notes_of, set_version

ROOT = Path(__file__).resolve().parents[2]
CHANGELOG = """# Changelog

## [Unreleased]

## [0.2.0] - 2027-01-31

- Second.

### Fixed

- A fault.

## [0.1.0] - 2026-11-24

- First.
"""


def git(root, *words):
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    """A repository that may release 0.2.0, at 0.1.0."""
    files = {
        "CHANGELOG.md": CHANGELOG,
        "pyproject.toml": '[project]\nname = "sweeper"\nversion = "0.1.0"\n',
        "docs/formats.md": "| Sweeper | folder |\n|---|---|\n| 0.2.0 | 1 |\n| 0.1.0 | 1 |\n",
        "docs/cluster.md": "| `SWEEPER_VERSION` | version of the image | `0.1.0` |\n",
        "docker-compose.yml": "image: sweeper:${SWEEPER_VERSION:-0.1.0}-cpu # of 0.1.0\n",
        "deploy/kubernetes/service.yaml": "image: sweeper:0.1.0-cpu\n",
        "deploy/kubernetes/ray-cluster.yaml": "image: sweeper:0.1.0-gpu\n",
        ".gitignore": "dist/\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "--quiet")
    for key, value in (("user.name", "Tester"), ("user.email", "tester@example.org"), ("commit.gpgsign", "false")):
        git(tmp_path, "config", key, value)
    git(tmp_path, "config", "tag.gpgsign", "false")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "a state")
    return tmp_path


def built(root, folder, _pip_args):
    """A builder that writes empty files of the right names."""
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    for name in (f"sweeper-{version}-py3-none-any.whl", f"sweeper-{version}.tar.gz"):
        (folder / name).touch()


def released(root, version="0.2.0", builder=built, checker=lambda *_: None):
    return release.release(root, version, builder=builder, checker=checker)


def test_a_release_writes_the_version_once_and_the_tags_of_images_after_it(repository):
    made = released(repository)
    assert tomllib.loads((repository / "pyproject.toml").read_text())["project"]["version"] == "0.2.0"
    assert (
        repository / "docker-compose.yml"
    ).read_text() == "image: sweeper:${SWEEPER_VERSION:-0.2.0}-cpu # of 0.1.0\n"
    assert (repository / "deploy/kubernetes/ray-cluster.yaml").read_text() == "image: sweeper:0.2.0-gpu\n"
    assert "`0.2.0`" in (repository / "docs/cluster.md").read_text()
    assert [path.name for path in made.files] == [
        "sweeper-0.2.0-py3-none-any.whl",
        "sweeper-0.2.0.tar.gz",
        "sweeper-0.2.0.md",
    ]


def test_notes_are_the_section_of_the_changelog_in_the_file_and_in_the_annotated_tag(repository):
    made = released(repository)
    notes = "- Second.\n\n### Fixed\n\n- A fault.\n"
    assert made.files[-1].read_text() == notes == notes_of(CHANGELOG, "0.2.0")
    assert git(repository, "cat-file", "-t", "v0.2.0") == "tag"
    assert (
        git(repository, "for-each-ref", "--format=%(contents)", "refs/tags/v0.2.0")
        == f"Sweeper 0.2.0\n\n{notes}".strip()
    )


def test_the_tag_is_on_a_commit_of_the_version_and_the_tree_stays_clean(repository):
    released(repository)
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "log", "-1", "--format=%s") == "release: version 0.2.0"
    assert git(repository, "rev-list", "-1", "v0.2.0") == git(repository, "rev-parse", "HEAD")


def test_a_version_that_stands_already_is_tagged_without_a_commit(repository):
    before = git(repository, "rev-parse", "HEAD")
    released(repository, "0.1.0")
    assert git(repository, "rev-list", "-1", "v0.1.0") == before == git(repository, "rev-parse", "HEAD")


def test_files_of_an_earlier_build_are_removed(repository):
    (repository / "dist").mkdir()
    (repository / "dist" / "sweeper-0.0.9.tar.gz").touch()
    made = released(repository)
    assert set((repository / "dist").iterdir()) == set(made.files)


def fails(*_):
    raise ReleaseError("a step failed")


@pytest.mark.parametrize("step", [{"builder": fails}, {"checker": fails}])
def test_a_step_that_fails_leaves_files_commits_and_tags_as_they_were(repository, step):
    before = git(repository, "rev-parse", "HEAD")
    with pytest.raises(ReleaseError, match="a step failed"):
        released(repository, **step)
    assert (git(repository, "rev-parse", "HEAD"), git(repository, "status", "--porcelain")) == (before, "")
    assert git(repository, "tag") == ""


def test_a_build_without_a_wheel_is_refused(repository):
    with pytest.raises(ReleaseError, match=r"Expected sweeper-0.2.0-py3-none-any.whl in dist/, got none"):
        released(repository, builder=lambda *_: None)


@pytest.mark.parametrize("version", ["", "1", "v1.0.0", "1.0", "1.0.0rc1", "01.0.0"])
def test_what_is_no_version_is_refused(repository, version):
    with pytest.raises(ReleaseError, match=r"Expected a version X\.Y\.Z, got "):
        released(repository, version)


def test_a_changed_tree_is_refused(repository):
    (repository / "new.txt").touch()
    with pytest.raises(ReleaseError, match=r"Expected a clean working tree, got \?\? new.txt; commit or stash it"):
        released(repository)


def test_a_version_is_released_once(repository):
    released(repository)
    with pytest.raises(ReleaseError, match=r"Expected no tag v0.2.0, got one; choose the next version"):
        released(repository)


@pytest.mark.parametrize(
    ("changelog", "told"),
    [
        ("## [Unreleased]\n", r"Expected a section \[0.2.0\] in CHANGELOG.md, got Unreleased; write it"),
        ("## [0.2.0]\n- x\n", r"Expected '## \[0.2.0\] - YYYY-MM-DD' in CHANGELOG.md"),
        ("## [0.2.0] - 2027-02-30\n- x\n", "got .*2027-02-30'; add the day"),
        ("## [0.2.0] - 2027-01-31\n\n", r"Expected entries below \[0.2.0\]"),
        ("## [Unreleased]\n- y\n## [0.2.0] - 2027-01-31\n- x\n", r"Expected no entries below \[Unreleased\]"),
    ],
)
def test_a_changelog_without_a_dated_section_of_the_version_is_refused(changelog, told):
    with pytest.raises(ReleaseError, match=told):
        notes_of(changelog, "0.2.0")


def test_a_version_without_its_row_of_formats_is_refused():
    with pytest.raises(ReleaseError, match=r"Expected a row for 0.3.0 in docs/formats.md, got none"):
        check_formats("| 0.2.0 | 1 |\n", "0.3.0")


def test_a_project_without_a_version_is_refused(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    with pytest.raises(ReleaseError, match=r"Expected a line version = "):
        set_version(tmp_path, "0.2.0")


def test_a_command_that_fails_is_told_with_its_last_line(tmp_path):
    with pytest.raises(ReleaseError, match=r"Expected `git log ...` to succeed, got: fatal: not a git repository"):
        release._git(tmp_path, "log")


# This repository


def own_version():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_the_tags_of_our_images_have_the_version_of_the_project():
    for name in release._IMAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        found = re.findall(r"(?:image: sweeper:|SWEEPER_VERSION:-|SWEEPER_VERSION` .*`)(\d+\.\d+\.\d+)", text)
        assert found, name
        assert set(found) == {own_version()}, name


def test_the_changelog_has_the_version_of_the_project():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased = re.search(r"^## \[Unreleased\]\n(.*?)(?=^## \[)", text, flags=re.MULTILINE | re.DOTALL)
    assert notes_of(text.replace(unreleased.group(1), "\n"), own_version())


def test_the_table_of_formats_says_what_this_version_writes():
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    check_formats(page, own_version())
    (row,) = re.findall(rf"^\| {re.escape(own_version())} \|(.*)\|$", page, flags=re.MULTILINE)
    assert [cell.strip().strip("`") for cell in row.split("|")] == [
        str(manifest.FORMAT),
        *{str(front.SCHEMA_VERSION), str(diagnosis.SCHEMA_VERSION)},
        str(evidence.VERSION),
        saving.FORMAT,
        checkpoint.FORMAT,
    ]


# The wheel


def wheel(folder, version="0.2.0", packages=release._PACKAGES, says="0.2.0"):
    """A small wheel with the packages and the command of this one."""
    path, info = folder / f"sweeper-{version}-py3-none-any.whl", f"sweeper-{version}.dist-info"
    files = {f"{name}/__init__.py": "" for name in packages}
    files["sweeper/cli.py"] = f"def main():\n    print('sweeper {says}')\n"
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: sweeper\nVersion: {version}\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = "[console_scripts]\nsweeper = sweeper.cli:main\n"
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


@pytest.mark.long
def test_a_wheel_is_tried_alone_in_a_fresh_environment(tmp_path):
    check_wheel(wheel(tmp_path), "0.2.0")
    with pytest.raises(ReleaseError, match=r"Expected `sweeper --version` to say 0.2.0, got 'sweeper 0.1.0'"):
        check_wheel(wheel(tmp_path, says="0.1.0"), "0.2.0")
    with pytest.raises(ReleaseError, match=r"to succeed, got: ModuleNotFoundError: No module named 'dashboards'"):
        check_wheel(wheel(tmp_path, packages=("clipless", "sweeper")), "0.2.0")
