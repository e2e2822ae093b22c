"""The page on architecture is true: its rooms are the folders that exist, on the floors that the contracts say."""

import ast
import importlib.util
import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
HOUSES = {"dashboards": ROOT / "dashboards", "sweeper": ROOT / "sweeper", "clipless": ROOT / "models" / "clipless"}
MOST_MODULES = 15
MOST_LINES = 200


@pytest.fixture(scope="module")
def drawing():
    found = importlib.util.spec_from_file_location("docs_architecture", ROOT / "docs" / "_architecture.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def folders(house):
    return {path.name for path in house.iterdir() if (path / "__init__.py").is_file()}


def rooms(package):
    """The folders in the page's table of a package."""
    (table,) = re.findall(rf"^### {package}$(.*?)(?=^#|\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)


@pytest.mark.parametrize("package", HOUSES)
def test_every_folder_is_in_the_table_of_its_package_and_every_room_of_the_table_exists(package):
    named = rooms(package)
    assert set(named) == folders(HOUSES[package])
    assert len(named) == len(set(named))


def crowded(house, root):
    """One sentence for each folder that holds too many modules."""
    held = Counter(path.parent for path in house.rglob("*.py") if path.name != "__init__.py")
    return [
        f"{folder.relative_to(root)} has {count} modules, at most {MOST_MODULES} are allowed: "
        f"put the variant into the module of its kind, or divide the folder"
        for folder, count in sorted(held.items())
        if count > MOST_MODULES
    ]


@pytest.mark.parametrize("package", HOUSES)
def test_no_folder_holds_more_modules_than_can_be_taken_in_at_a_glance(package):
    found = crowded(HOUSES[package], ROOT)
    assert not found, "\n".join(found)


def test_one_module_too_many_is_told_with_its_remedy(tmp_path):
    (tmp_path / "__init__.py").touch()
    for number in range(MOST_MODULES):
        (tmp_path / f"m{number}.py").touch()
    assert crowded(tmp_path, tmp_path.parent) == []
    (tmp_path / "one_more.py").touch()
    (sentence,) = crowded(tmp_path, tmp_path.parent)
    assert sentence == (
        f"{tmp_path.name} has 16 modules, at most 15 are allowed: "
        "put the variant into the module of its kind, or divide the folder"
    )


def unexplained(house, root):
    """One sentence for each class that is longer than a class should be and does not say why."""
    found = []
    for path in sorted(house.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            lines = node.end_lineno - node.lineno + 1 if isinstance(node, ast.ClassDef) else 0
            if lines > MOST_LINES and not re.search(
                r"\bIt is long\b.* because ", ast.get_docstring(node) or "", re.DOTALL
            ):
                found.append(
                    f"{path.relative_to(root)}: {node.name} has {lines} lines: "
                    f"divide it, or say in its docstring 'It is long because …'"
                )
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("package", HOUSES)
def test_a_class_of_more_than_200_lines_says_why(package):
    found = unexplained(HOUSES[package], ROOT)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "told"), [("A class.", True), ("It is long.", True), ("It is long because it is one step.", False)]
)
def test_a_long_class_without_a_reason_is_told_by_name(tmp_path, text, told):
    body = "    x = 1\n" * (MOST_LINES - 1)
    (tmp_path / "m.py").write_text(f'class Long:\n    """{text}"""\n{body}')
    sentence = "m.py: Long has 201 lines: divide it, or say in its docstring 'It is long because …'"
    assert unexplained(tmp_path, tmp_path) == ([sentence] if told else [])


@pytest.mark.parametrize("package", HOUSES)
def test_rooms_stand_in_the_order_of_the_contract(package, drawing):
    storeys = drawing.floors()[package]
    level = {room: number for number, floor in enumerate(storeys) for room in floor}
    found = [level[room] for room in rooms(package)]
    assert found == sorted(found)
    assert folders(HOUSES[package]) <= set(level)


def test_the_four_paths_go_through_rooms_that_exist(drawing):
    paths = drawing.paths(PAGE)
    assert list(paths) == ["sweep", "batch", "point", "epsilon"]
    for walk in paths.values():
        assert len(walk) >= 8
        assert all((ROOT / room / "__init__.py").is_file() for room in walk)


def test_every_other_path_that_the_page_names_exists():
    named = set(re.findall(r"`((?:sweeper|models|dashboards|tools|benchmarks)/[\w/.]*)`", PAGE))
    assert named
    assert all((ROOT / name).exists() for name in named)


def test_the_picture_has_a_box_for_every_room_and_a_mark_for_every_step(drawing):
    storeys, walks = drawing.floors(), drawing.paths(PAGE)
    picture = ElementTree.fromstring(drawing.picture(storeys, walks))
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {room for floors in storeys.values() for floor in floors for room in floor} <= set(texts)
    marks = [int(text) for text in texts if text and text.isdigit()]
    assert sorted(marks) == sorted(step for walk in walks.values() for step in range(1, len(walk) + 1))
