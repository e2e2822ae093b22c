"""Reading a YAML file that a person wrote, with the traps of YAML 1.1 taken out.

Plain scalars follow the core schema of YAML 1.2: ``1e-4`` is a number, ``no`` and ``1:30`` are text,
``010`` is ten. Refused: duplicate keys (the second would win silently), keys that are not text,
aliases (a few lines could stand for gigabytes), tags, and files that are huge or nested without end.
Nothing in a file is ever executed or imported.
"""

import re
from pathlib import Path
from typing import Any

import yaml

from clipless.spelling import did_you_mean_file
from sweeper.errors import SpecError
from sweeper.rounding import number_of

MAX_BYTES = 1_000_000
MAX_DEPTH = 20

_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_RESOLVERS = (
    ("tag:yaml.org,2002:null", re.compile(r"~|null|Null|NULL|"), ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", re.compile(r"true|True|TRUE|false|False|FALSE"), list("tTfF")),
    ("tag:yaml.org,2002:int", re.compile(r"[-+]?[0-9]+(_[0-9]+)*"), list("-+0123456789")),
    ("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789")),
)


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2 and the refusals of this module."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as in PyYAML
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Refuse aliases and bottomless nesting before descending."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            raise _refusal("aliases are not allowed", event.start_mark)
        if self.depth > MAX_DEPTH:
            raise _refusal(f"it is nested deeper than {MAX_DEPTH}", event.start_mark)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        """Build a mapping whose keys are text and occur once."""
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise _refusal(f"the key {key!r} is not text", key_node.start_mark)
            if key in result:
                raise _refusal(f"the key {key!r} occurs twice", key_node.start_mark)
            result[key] = self.construct_object(value_node, deep=True)
        return result

    def integer(self, node: yaml.ScalarNode) -> int:
        """Read decimal digits; a leading zero does not mean octal."""
        return int(node.value)


def _refusal(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


for _tag, _pattern, _first in _RESOLVERS:
    _Loader.add_implicit_resolver(_tag, re.compile(rf"^(?:{_pattern.pattern})$"), _first)
_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.mapping)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.integer)


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the mapping that the file holds.

    Raises:
        SpecError: unreadable, oversized, not UTF-8, not YAML, or not a mapping.
    """
    return parse_mapping(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Return the text that the file holds.

    Raises:
        SpecError: unreadable, oversized, or not UTF-8.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        remedy = ("" if path.exists() else did_you_mean_file(path)) or "give the path of a YAML file"
        raise SpecError(f"Cannot read {path}: {error.strerror or error}; {remedy}") from error
    if len(raw) > MAX_BYTES:
        raise SpecError(f"Expected at most {MAX_BYTES} bytes of YAML, {path} is larger; is it a spec?")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"offset {error.start} of {path}"
        raise SpecError(f"Expected UTF-8 text, got other bytes at {where}; save it as UTF-8") from error


def parse_mapping(text: str, source: str) -> dict[str, Any]:
    """Return the mapping that ``text`` holds; ``source`` names it in messages.

    >>> parse_mapping("delta: 1e-4", "spec.yaml")
    {'delta': 0.0001}
    """
    try:
        content = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        if mark is not None and (slip := _find_slip(error, mark, text)):
            raise SpecError(f"Expected YAML, but {slip} ({source})") from error
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise SpecError(f"Expected YAML, but {error.problem}{where} of {source}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise SpecError(f"Expected YAML in {source}, but {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        kind = "nothing" if content is None else type(content).__name__
        remedy = "write lines such as name: digits"
        raise SpecError(f"Expected a mapping of keys to values in {source}, got {kind}; {remedy}")
    return content


def _find_slip(error: yaml.MarkedYAMLError, mark: yaml.Mark, text: str) -> str:
    """Return which line is indented wrongly or has a slip of punctuation, empty where that is not what is wrong."""
    if not isinstance(error, yaml.parser.ParserError | yaml.scanner.ScannerError):
        return ""
    begun = error.context_mark
    if begun is not None and text[begun.index : begun.index + 1] in ("[", "{"):
        return f"the bracket of line {begun.line + 1} is not closed, or lacks a comma"
    number, lines, found = mark.line, text.splitlines(), text[mark.index : mark.index + 1]
    above = [i for i, line in enumerate(lines[:number]) if line.strip() and not line.lstrip().startswith("#")]
    if number < len(lines) and above:
        here, before = (len(line) - len(line.lstrip(" ")) for line in (lines[number], lines[above[-1]]))
        opens, spaces = lines[above[-1]].rstrip().endswith(":"), number_of(abs(here - before), "space")
        if here > before and not opens:
            return f"line {number + 1} is indented {spaces} too far: line {above[-1] + 1} begins at column {before + 1}"
        if here < before and isinstance(error, yaml.parser.ParserError):
            return f"line {number + 1} is indented {spaces} less than line {above[-1] + 1}, and as no line above it"
    return f"line {number + 1} has a colon too many: put a text that has one in quotes" if found == ":" else ""
