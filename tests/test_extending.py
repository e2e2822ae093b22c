"""The recipes of ``docs/extending.md``, carried out: their files written into a copy of the repository, their tests run.

A block that begins with a file name is that file. Folders of this repository are written to as they are; any other folder is a
package of its own, installed by the entry points in its ``pyproject.toml``.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import clipless.bounds

from .test_architecture import crowded

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
SOURCES = ("sweeper", "dashboards", "models/clipless")
KINDS = ("layer", "bound", "loss", "projection", "architecture", "scheduler", "sampler", "data source", "metric")
KINDS += ("figure", "exporter", "command")


def sections():
    """The text of each section by its heading."""
    return dict(re.findall(r"^## (An? [a-z ]+)$(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))


def files(text):
    """The files of a section: path and content."""
    return re.findall(r"^```\w+\n# ([\w-]+/[\w/.-]+)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def recipes():
    """The sections that have files of their own, by heading; a layer is nothing without its bound."""
    found = {heading: files(text) for heading, text in sections().items()}
    found["A bound"] = found.pop("A layer") + found["A bound"]
    return found


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the packages, of the tests' helpers, and of the settings."""
    root = tmp_path_factory.mktemp("copy")
    for source in SOURCES:
        shutil.copytree(ROOT / source, root / source, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "tests" / "dashboards").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "dashboards" / "conftest.py", root / "tests" / "dashboards")
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


def write(root, recipe):
    """Write the files of a recipe; return its tests."""
    for path, content in recipe:
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        assert not target.exists() or path.endswith("pyproject.toml"), path
        target.write_text(content, encoding="utf-8")
        if path.endswith("pyproject.toml"):
            install(target)
    return [path for path, _ in recipe if path.startswith("tests/")]


def install(project):
    """Make the entry points of a package known, as an installation does."""
    groups = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["entry-points"]
    lines = [
        line for group, names in groups.items() for line in (f"[{group}]", *(f"{n} = {v}" for n, v in names.items()))
    ]
    info = project.parents[1] / f"{project.parent.name}_{len(lines)}_{next(iter(groups)).replace('.', '_')}-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project.parent.name}-{next(iter(groups))}\nVersion: 0\n"
    )
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.mark.long
@pytest.mark.parametrize("heading", recipes())
def test_a_recipe_works_as_it_stands(heading, copy):
    recipe = recipes()[heading]
    tests = write(copy, recipe)
    assert tests, "a recipe has a test"
    path = os.pathsep.join([str(copy), str(copy / "models"), *sys.path])
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    run = subprocess.run(
        command, cwd=copy, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    full = [sentence for source in SOURCES for sentence in crowded(copy / source, copy)]
    assert not full, "\n".join(full)


def test_every_extension_point_has_a_section_and_a_row():
    assert [heading.partition(" ")[2] for heading in sections()] == list(KINDS)
    table = PAGE.partition("| what |")[2].partition("\n\n")[0]
    for heading in sections():
        assert f"(#{heading.lower().replace(' ', '-')})" in table


def test_every_folder_and_file_that_the_page_names_exists():
    made = {path for recipe in recipes().values() for path, _ in recipe}
    named = set(re.findall(r"`((?:sweeper|models|dashboards|tests)/[\w/.]+)`", PAGE))
    assert named
    assert not {name for name in named - made if not (ROOT / name).exists()}


def test_networks_in_python_are_bounded():
    blocks = re.findall(r"^```python\n(?!# )(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        known = {}
        exec(block, known)
        assert clipless.bounds.bound_network(known["model"]).output.shape == (10,)
