"""The recipes of ``docs/extending.md``, carried out in a copy of the repository: no test breaks that they do not name.

A block that begins with a file name is that file, or, as a ``diff``, a change of that file. Folders of this repository are
written to as they are; any other folder is a package of its own, installed by the entry points in its ``pyproject.toml``.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from functools import lru_cache
from pathlib import Path

import pytest

import clipless.bounds
from clipless import layers, losses, projections, zoo

from .test_architecture import crowded
from .test_docs import cli_commands

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
SOURCES = ("sweeper", "dashboards", "models/clipless")
KINDS = ("layer", "bound", "loss", "projection", "architecture", "scheduler")
KINDS += ("way of spending", "sampler", "data source", "metric", "figure", "exporter", "command")
# Where a new variant can break a test: each folder or file that holds tests of all variants of some kind.
LISTS = ("tests/test_contracts.py", "tests/test_architecture.py", "tests/test_docs.py", "tests/test_glossary.py")
LISTS += (
    "tests/test_extending.py",
    "tests/test_prices_in_words.py",
    "tests/mutations",
    "tests/clipless/test_discovery.py",
)
LISTS += ("tests/clipless/test_public_names.py", "tests/clipless/test_blocks.py", "tests/clipless/test_conversion.py")
LISTS += ("tests/clipless/losses", "tests/clipless/projections", "tests/clipless/bounds", "tests/clipless/certificates")
LISTS += (
    "tests/sweeper/specification",
    "tests/sweeper/schedulers",
    "tests/sweeper/privacy",
    "tests/sweeper/cli",
    "tests/sweeper/test_api.py",
)
LISTS += ("tests/sweeper/test_errors.py", "tests/dashboards/figures", "tests/dashboards/pages")


def sections():
    """The text of each section by its heading."""
    return dict(re.findall(r"^## (An? [a-z ]+)$(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))


def blocks(text):
    """The blocks of a section that begin with a file name: kind, path and content."""
    return re.findall(r"^```(\w+)\n# ([\w./-]+\.\w+)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def recipes():
    """The blocks of each section that has some; a layer is nothing without its bound."""
    found = {heading: blocks(text) for heading, text in sections().items()}
    found["A bound"] = found.pop("A layer") + found["A bound"]
    return found


def changed(text, diff):
    """A text after a change: the lines with ``-`` and without a sign stand in it once, and become those without and with ``+``."""
    lines = diff.splitlines()
    old, new = ("\n".join(line[1:] for line in lines if line[:1] in (" ", sign)) for sign in "-+")
    if not old:
        return f"{text}{new}\n"
    assert text.count(old) == 1, f"the text of a change is there {text.count(old)} times: {old}"
    return text.replace(old, new)


def copied(folder):
    """A copy of the repository."""
    left = (
        ".git",
        ".venv",
        "__pycache__",
        "*_cache",
        ".hypothesis",
        "*.egg-info",
        "site",
        "dist",
        "sweeps-out",
        "mlruns",
    )
    return Path(shutil.copytree(ROOT, folder / "sweeper", ignore=shutil.ignore_patterns(*left), symlinks=True))


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the repository, into which one recipe is written after the other."""
    return copied(tmp_path_factory.mktemp("copy"))


def write(root, recipe):
    """Write the files of a recipe and change others; return its tests."""
    for kind, path, content in recipe:
        target = root / path
        if kind == "diff":
            target.write_text(changed(target.read_text(encoding="utf-8"), content), encoding="utf-8")
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        assert not target.exists() or path.endswith("pyproject.toml"), path
        target.write_text(content, encoding="utf-8")
        if path.endswith("pyproject.toml"):
            install(target)
    return [path for kind, path, _ in recipe if kind != "diff" and path.startswith("tests/")]


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


def run(root, *command):
    """Run a module of Python in the copy; its output where it fails."""
    path = os.pathsep.join([str(root), str(root / "models"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", *command],
        cwd=root,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


@pytest.mark.long
@pytest.mark.parametrize("heading", recipes())
def test_a_recipe_works_as_it_stands(heading, copy):
    tests = write(copy, recipes()[heading])
    assert tests, "a recipe has a test"
    run(copy, "pytest", "-q", "-p", "no:cacheprovider", *tests)
    full = [sentence for source in SOURCES for sentence in crowded(copy / source, copy)]
    assert not full, "\n".join(full)


@pytest.mark.long
def test_with_all_recipes_of_this_repository_no_test_breaks_that_lists_variants(tmp_path):
    """Packages of readers' own change no file here."""
    root, written = copied(tmp_path), set()
    for recipe in recipes().values():
        if not any(path.endswith("pyproject.toml") for _, path, _ in recipe):
            write(root, recipe)
            written |= {path for _, path, _ in recipe if path.endswith(".py")}
    run(root, "ruff", "check", *sorted(written))
    run(root, "ruff", "format", "--check", *sorted(written))
    fitted = "test_the_changes_of_a_recipe_fit"  # they are there now
    run(root, "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long and not shared", "-k", f"not {fitted}", *LISTS)


@pytest.mark.parametrize("heading", recipes())
def test_the_changes_of_a_recipe_fit_the_files_that_they_name(heading):
    """Twice: whoever adds a variant in these places does not break the recipe."""
    texts = {}
    for kind, path, content in recipes()[heading]:
        if kind == "diff":
            before = texts.get(path) or (ROOT / path).read_text(encoding="utf-8")
            texts[path] = changed(before, content)
            assert changed(texts[path], content)
        else:
            assert not (ROOT / path).exists(), f"{path} is there already"


@lru_cache
def searched():
    """Texts of the files in which a list of all variants would have to be extended."""
    folders = ("tests", "docs", *SOURCES)
    paths = [p for folder in folders for kind in ("*.py", "*.md", "*.toml") for p in (ROOT / folder).rglob(kind)]
    paths += [ROOT / "README.md"]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def variants():
    """For each recipe, names that stand together only where all variants are listed."""
    return {
        "A layer": [rf"\b{name}\b" for name in layers.every_layer()],
        "A loss": [rf"[\"`]{name}[\"`]" for name in losses.LOSSES],
        "A projection": [rf"[\"`]{name}[\"`]" for name in projections.CONSTRAINTS],
        "An architecture": [rf"[\"`]{name}[\"`]" for name in zoo.ARCHITECTURES],
        "A command": [rf"\bsweeper {name.split()[1]}\b" for name, _ in cli_commands()],
    }


@pytest.mark.sampled(3)
@pytest.mark.parametrize("heading", variants())
def test_every_file_that_lists_all_variants_of_a_kind_is_named_by_its_recipe(heading):
    names, section = variants()[heading], sections()[heading]
    listing = {path for path, text in searched().items() if all(re.search(name, text) for name in names)}
    assert listing
    pages = {page.rpartition("/")[2] for page in re.findall(r"\]\(([\w-]+\.md)", section)}
    unnamed = {path for path in listing if path not in section and path.removeprefix("docs/") not in pages}
    assert not unnamed, f"{heading} has to be added to {', '.join(sorted(unnamed))}, which the recipe does not name"


def test_a_change_that_does_not_fit_is_refused():
    assert changed("a\nb\n", " a\n+x\n") == "a\nx\nb\n"
    assert changed("a\nb\n", "-a\n+x\n") == "x\nb\n"
    assert changed("a\n", "+x\n") == "a\nx\n"
    for text in ("b\n", "a\na\n"):
        with pytest.raises(AssertionError, match="the text of a change is there"):
            changed(text, "-a\n+x\n")


def test_every_extension_point_has_a_section_and_a_row():
    assert [heading.partition(" ")[2] for heading in sections()] == list(KINDS)
    table = PAGE.partition("| what |")[2].partition("\n\n")[0]
    for heading in sections():
        assert f"(#{heading.lower().replace(' ', '-')})" in table


def test_every_folder_and_file_that_the_page_names_exists():
    made = {path for recipe in recipes().values() for _, path, _ in recipe}
    named = set(re.findall(r"`((?:sweeper|models|dashboards|tests)/[\w/.]+)`", PAGE))
    assert named
    assert not {name for name in named - made if not (ROOT / name).exists()}


def test_networks_in_python_are_bounded():
    found = re.findall(r"^```python\n(?!# )(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    found = [block for block in found if "\nmodel = " in block]
    assert len(found) == 2
    for block in found:
        known = {}
        exec(block, known)
        assert clipless.bounds.bound_network(known["model"]).output.shape == (10,)
