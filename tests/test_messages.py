"""No sentence is state: nothing decides by the words of a message.

What happened is a member of an enumeration, with parameters where it needs them; words are made of it where people
read them. A function that looks into a message for a word, or compares it with another, is found here.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("sweeper", "dashboards")
MESSAGES = {"broken", "condition", "message", "msg", "reason", "said", "sentence", "statement", "trouble", "why"}
LOOKS_INTO = {"endswith", "find", "partition", "removeprefix", "removesuffix", "rpartition", "startswith"}
# Places that still decide so, each with how often. The list may only shrink.
LEFT = {
    "dashboards/live/fragments.py": 2,
    "sweeper/backend/devices.py": 1,  # torch says only in words that a device is lost,
    "sweeper/backend/on_ray/jobs.py": 2,  # and Ray that it knows no job, or knows it already
    "sweeper/results/front_record.py": 1,
}


def is_message(node):
    """Whether an expression is a message, by its name or because it is the text of an error."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=name)):
            return name in MESSAGES
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
            return name in {"error", "exception"}
        case ast.Call(func=ast.Attribute(value=inner, attr="strip" | "lower")):
            return is_message(inner)
    return False


def decisions(source):
    """Yield the line of every expression that looks into a message, or compares it."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=receiver, attr=name)) if name in LOOKS_INTO and is_message(receiver):
                yield node.lineno
            case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[right]):
                if is_message(left) or is_message(right):
                    yield node.lineno
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[right]) if is_message(right):
                yield node.lineno
            case ast.Match(subject=subject) if is_message(subject):
                yield node.lineno


@cache
def found():
    """Where messages decide, by file."""
    files = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
    lines = {str(file.relative_to(ROOT)): list(decisions(file.read_text(encoding="utf-8"))) for file in files}
    return {file: where for file, where in lines.items() if where}


def test_nothing_decides_by_the_words_of_a_message():
    more = {file: where for file, where in found().items() if len(where) > LEFT.get(file, 0)}
    assert not more, f"decide by an enumeration and make the words where they are read: {more}"


def test_what_is_left_only_shrinks():
    now = {file: len(found().get(file, ())) for file in LEFT if (ROOT / file).exists()}
    fewer = {file: count for file, count in now.items() if count < LEFT[file]}
    assert not fewer, f"lower the numbers of LEFT to {fewer}"


@pytest.mark.parametrize(
    "source",
    [
        "str(error).startswith('Expected')",
        "kind = reason.partition(':')[0]",
        "condition.removeprefix(STEERED)",
        "if trouble == NEVER_BEGUN: pass",
        "if GIVEN_UP in outcome.reason: pass",
        "if 'x' != details['msg']: pass",
        "match submission.trouble:\n    case 'x': pass",
    ],
)
def test_a_decision_by_words_is_noticed(source):
    assert list(decisions(source)) == [1]


@pytest.mark.parametrize(
    "source", ["if reason: pass", "if reason is None: pass", "name.startswith('t')", "f'{reason}.'", "ending == LOST"]
)
def test_other_decisions_are_left_alone(source):
    assert not list(decisions(source))
