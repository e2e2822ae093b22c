"""The documentation is complete and true: every key of the spec, every example, every link, every verb."""

import importlib
import importlib.util
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

import clipless
from dashboards.figures import comparison_figures, sweep_figures
from sweeper.specification.spec import Spec, schema
from sweeper.specification.yaml_file import parse_mapping

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
GENERATED = {
    "spec-reference.md",
    "images/architecture.svg",
    "schemas/card.json",
    "schemas/registry.json",
}  # by the hooks in mkdocs.yml
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def spec_keys():
    """Every (section, key) of a spec."""
    whole = schema()
    for section, reference in whole["properties"].items():
        definition = whole["$defs"].get(str(reference.get("$ref", "")).rpartition("/")[2])
        if definition is None:
            yield section, section
        else:
            yield from ((section, key) for key in definition["properties"])


@pytest.mark.parametrize(("section", "key"), list(spec_keys()))
def test_every_key_of_the_spec_is_explained_in_its_section(section, key):
    text = read("docs/spec.md")
    (chapter,) = re.findall(rf"^## {section}$(.*?)(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    assert key == section or f"`{key}`" in chapter


@pytest.mark.parametrize("name", NAMES)
def test_every_example_of_a_spec_is_one(name):
    for block in re.findall(r"```yaml\n(.*?)```", read(name), flags=re.DOTALL):
        content = parse_mapping(block, name)
        if "privacy" in content:
            assert Spec.from_mapping(content, source=name).trials >= 1


def test_the_guide_begins_with_examples_of_a_bundled_set_and_of_a_table_of_ones_own():
    assert "data: {name: digits}" in read("docs/index.md")
    assert "path: patients.parquet" in read("docs/own-data.md")


@pytest.mark.parametrize("name", NAMES)
def test_every_relative_link_leads_somewhere(name):
    page = ROOT / name
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert target in GENERATED or (page.parent / target).is_file(), target


def prose(page):
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page):
    """The anchors of the headings of a page, as the guide and a forge make them of plain ones."""
    titles = re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", NAMES)
def test_every_link_into_a_page_leads_to_a_heading(name):
    page = ROOT / name
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]*)\)", prose(page)):
        if target not in GENERATED and (target.endswith(".md") or not target):
            assert anchor in anchors(page.parent / target if target else page), f"{target}#{anchor}"


def test_every_verb_of_the_makefile_is_explained():
    verbs = re.search(r"^\.PHONY: (.*)$", read("Makefile"), flags=re.MULTILINE).group(1).split()
    assert {"setup", "demo", "test", "lint", "format", "docs", "bench"} <= set(verbs)
    for verb in set(verbs) - {"help", "clean"}:
        assert f"make {verb}" in read("CONTRIBUTING.md") + read("README.md")
        assert f"make {verb} " in read("Makefile")


def test_the_readme_and_the_guide_agree_on_the_commands():
    headings = set(re.findall(r"^## sweeper (\w+)$", read("docs/commands.md"), flags=re.MULTILINE))
    assert headings == set(re.findall(r"`sweeper (\w+)", read("README.md")))


def cli_commands():
    """Every command of the command line with its options, from the program itself."""
    import typer

    from sweeper.cli.main import app

    def walk(command, name):
        for sub, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, f"{name} {sub}")
        if not getattr(command, "commands", None):
            options = [opt for p in command.params for opt in p.opts if opt.startswith("--") and opt != "--help"]
            yield name, options

    return list(walk(typer.main.get_command(app), "sweeper"))


def test_every_command_and_option_is_explained():
    text = read("docs/commands.md")
    for name, options in cli_commands():
        assert name in text
        for option in options:
            assert option in text, f"{name} {option}"


def test_ci_and_the_makefile_are_valid_shell_and_make():
    assert subprocess.run(["bash", "-n", str(ROOT / ".ci" / "run")], check=False).returncode == 0
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
    listed = subprocess.run(["make", "-n", "-C", str(ROOT), "help"], capture_output=True, text=True, check=False)
    assert listed.returncode == 0


def test_the_reference_of_the_spec_says_what_every_key_takes():
    found = importlib.util.spec_from_file_location("docs_reference", ROOT / "docs" / "_reference.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    page = module.reference(schema())
    for section, key in spec_keys():
        (chapter,) = re.findall(rf"^## {section}$(.*?)(?=^## |\Z)", page, flags=re.MULTILINE | re.DOTALL)
        assert key == section or re.search(rf"^\| `{key}` \| \S", chapter, flags=re.MULTILINE)
    assert "| `width` | a whole number, >= 2, a multiple of 2 | yes |  |" in page
    assert "| `centre` | a number or a list, each a number, at least 1 of them |  |  |" in page
    assert "| `delta` | a number, > 0, < 1 |  |  |" in page
    assert "| `loss` | `mae`, " in page
    assert "| yes | `[tau-cce]` |" in page
    assert "| `salt` | text |" in page


def test_the_tables_of_figures_are_those_of_the_program():
    page = read("docs/reports.md")
    head = "| `--figure` | what it shows |\n|---|---|\n"
    for kinds in (sweep_figures(), comparison_figures()):
        rows = "".join(f"| `{kind.name}` | {kind.summary} |\n" for kind in kinds.values())
        assert f"{head}{rows}\n" in page
    assert page.count(head) == 2


def test_every_figure_of_a_report_is_explained():
    page = read("docs/reading.md")
    assert [kind.heading for kind in sweep_figures().values() if kind.heading.lower() not in page.lower()] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_row_of_a_table_is_as_wide_as_its_head_and_no_table_is_indented(name):
    text = re.sub(r"^( *)```.*?^\1```", "", read(name), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^ +\|.*\|$", text, flags=re.MULTILINE) == []
    for table in re.findall(r"(?:^\|.*\|$\n?)+", text, flags=re.MULTILINE):
        widths = {len(re.split(r"(?<!\\)\|", row)) for row in table.splitlines()}
        assert len(widths) == 1, table.splitlines()[0]


def test_the_guide_is_searched_without_a_network():
    """Pages that are opened as files have no workers: the plug-in takes our shim, by its name, in place of another."""
    (shim,) = re.findall(r"polyfills: \[(assets/iframe-worker[.]js)\]", read("mkdocs.yml"))
    assert (ROOT / "docs" / shim).is_file()
    assert "  - offline" in read("mkdocs.yml")


def test_every_page_of_the_guide_is_in_its_menu():
    menu = read("mkdocs.yml").partition("nav:")[2]
    for page in (ROOT / "docs").rglob("*.md"):
        assert f": {page.relative_to(ROOT / 'docs')}\n" in menu
    assert ": spec-reference.md\n" in menu


def test_the_reference_of_the_api_has_every_public_package_and_extension_point():
    pages = (page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    told = {name for page in pages for name in re.findall(r"^::: (.+)$", page, flags=re.MULTILINE)}
    assert {"clipless", "sweeper", "dashboards"} <= told
    public = {name for name in clipless.__all__ if isinstance(getattr(clipless, name), ModuleType)}
    assert {f"clipless.{name}" for name in public} <= told
    for name in told:
        assert importlib.import_module(name).__doc__


def test_every_picture_of_the_guide_is_shown_and_can_be_drawn_again():
    section = read("CONTRIBUTING.md").partition("## The pictures")[2]
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for picture in (ROOT / "docs" / "images").iterdir():
        if f"images/{picture.name}" not in GENERATED:
            assert f"docs/images/{picture.name}" in section
            assert f"images/{picture.name})" in shown
