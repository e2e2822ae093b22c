"""Names are the field's terms: no module, folder or class is called by a word that only this project would understand."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("sweeper", "models/clipless", "dashboards", "tools")
BANNED = {
    *("agenda", "answers", "begun", "bodies", "companion", "conductor", "desk", "domains", "driving", "entrance"),
    *("follow", "keeper", "mistakes", "outcomes", "parts", "places", "recent", "rows", "seeing", "slots", "tracked"),
}
# Rows of a data set are a term of the field; a module or class called nothing but "rows" is not.
ROWS_OF_DATA = {"new_rows", "raw_rows", "NewRows", "PartyRows", "_ClipRows", "_FormedRows"}
# A way of spending a budget is the module of its value in the spec, `privacy.accounting`.
WAYS_OF_SPENDING = {"slots", "Slots"}


def words(name):
    """The words of a name in snake_case or CamelCase."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def names(package):
    """Every name of a folder, module or class below a package, with the file that has it."""
    for path in sorted((ROOT / package).rglob("*.py")):
        yield path.parent.name, path
        yield path.stem, path
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield from ((node.name, path) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def private_words(package):
    """The names that have a banned word, each with its file."""
    found = ((name, path) for name, path in names(package) if name == "cli_after" or BANNED & words(name))
    return sorted(
        {f"{path.relative_to(ROOT)}: {name}" for name, path in found if name not in ROWS_OF_DATA | WAYS_OF_SPENDING}
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_folder_or_class_has_a_word_that_the_field_does_not_use(package):
    assert private_words(package) == []


def test_words_are_found_in_names_of_either_kind(tmp_path, monkeypatch):
    assert words("held_out_scores") == {"held", "out", "scores"}
    assert words("_DPDesk2Agenda") == {"dp", "desk", "agenda"}
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "cli_after.py").write_text("class TrialDesk:\n    class Rows:\n        pass\n")
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    file = "tools/cli_after.py"
    assert private_words("tools") == [f"{file}: Rows", f"{file}: TrialDesk", f"{file}: cli_after"]


def terms():
    """The terms of the glossary's table."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| ([^|]+) \| \S", text, flags=re.MULTILINE)
    return [term.strip() for term in found if term.strip() != "term"]


def test_the_glossary_defines_the_terms_of_the_readme_and_of_the_architecture():
    defined = set(terms())
    assert {"sweep", "trial", "point", "front", "plan", "sensitivity", "guard", "event", "ledger", "card"} <= defined
    assert {"driver", "worker", "sampler", "scheduler", "rung", "backend", "tracker", "registry"} <= defined
    assert {"candidate", "checkpoint", "lock", "proposal", "store"} <= defined
    assert len(terms()) == len(defined)


def test_every_term_of_the_glossary_is_used():
    text = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("docs/*.md") if path.stem != "glossary")
    for term in terms():
        assert re.search(re.escape(term), text, flags=re.IGNORECASE), term
