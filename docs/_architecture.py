"""The picture of ``architecture.md``, drawn from the import contracts whenever the guide is built."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PICTURE = "images/architecture.svg"
PACKAGES = {"dashboards": "dashboards/", "sweeper": "sweeper/", "clipless": "models/clipless/"}
Floors = Sequence[Sequence[str]]

_COLOURS = {"sweep": "#1f6fb2", "batch": "#2a8a57", "point": "#b3541e", "epsilon": "#7a4fa3"}
_WIDTH, _GAP, _FLOOR, _TOP = 300, 30, 40, 56
_STYLE = """
text { font: 13px ui-monospace, monospace; fill: #222 } .title { font: bold 15px sans-serif }
rect { fill: #f4f6f8; stroke: #9aa5b1 } text.mark { font: bold 9px sans-serif; fill: #fff; text-anchor: middle }
.note { font: 12px sans-serif }
@media (prefers-color-scheme: dark) { text { fill: #e6e6e6 } rect { fill: #2b3138; stroke: #6b7682 } }
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the picture; called by mkdocs."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    files.append(File.generated(config, PICTURE, content=picture(floors(), paths(page))))
    return files


def floors() -> dict[str, Floors]:
    """Return the floors of each package, from the top down, as its contract orders them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    return {
        package: [layer.split(" | ") for layer in contract["layers"]]
        for package in PACKAGES
        for contract in contracts
        if contract.get("containers") == [package]
    }


def paths(page: str) -> dict[str, list[str]]:
    """Return the folders of each path, in order, from the numbered lists of the page."""
    chapters = re.findall(r"^## The path of an? (\w+)$(.*?)(?=^## )", page, flags=re.MULTILINE | re.DOTALL)
    return {name: re.findall(r"^\d+\. `([\w/]+)`", text, flags=re.MULTILINE) for name, text in chapters}


def picture(packages: Mapping[str, Floors], walks: Mapping[str, Sequence[str]]) -> str:
    """Return the SVG: a column per package, a box per folder or module, a numbered circle per step of a path."""
    height = _TOP + _FLOOR * max(map(len, packages.values())) + 40
    width = len(packages) * (_WIDTH + _GAP) - _GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-1 0 {width + 2} {height}"><style>{_STYLE}</style>'
    columns = (
        line
        for number, (package, storeys) in enumerate(packages.items())
        for line in _column(package, storeys, number * (_WIDTH + _GAP), walks)
    )
    return "\n".join([head, *columns, *_legend(walks, height - 12), "</svg>\n"])


def _column(package: str, storeys: Floors, left: int, walks: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield f'<text class="title" x="{left}" y="20">{escape(package)}</text>'
    yield f'<text class="note" x="{left}" y="40">{escape(PACKAGES[package])}</text>'
    for floor, rooms in enumerate(storeys):
        width = (_WIDTH - 6 * (len(rooms) - 1)) / len(rooms)
        for number, room in enumerate(rooms):
            corner = left + number * (width + 6), _TOP + floor * _FLOOR
            yield from _box(room, *corner, width, _marks(PACKAGES[package] + room, walks))


def _marks(folder: str, walks: Mapping[str, Sequence[str]]) -> list[tuple[str, int]]:
    """Return which steps of which paths are in a folder."""
    return [(name, step) for name, walk in walks.items() for step, one in enumerate(walk, 1) if one == folder]


def _box(room: str, x: float, y: float, width: float, marks: Sequence[tuple[str, int]]) -> Iterator[str]:
    yield f'<rect x="{x:g}" y="{y}" width="{width:g}" height="{_FLOOR - 6}" rx="4"/>'
    size = min(13.0, (width - 10) / (0.61 * len(room)))  # a monospaced letter is 0.61 of its height wide
    yield f'<text x="{x + 6:g}" y="{y + 22}" style="font-size: {size:.3g}px">{escape(room)}</text>'
    for place, (path, step) in enumerate(reversed(marks)):
        centre = x + width - 12 - 18 * place
        yield f'<circle cx="{centre:g}" cy="{y + 17}" r="8" fill="{_COLOURS[path]}"/>'
        yield f'<text class="mark" x="{centre:g}" y="{y + 20}">{step}</text>'


def _legend(walks: Mapping[str, Sequence[str]], y: int) -> Iterator[str]:
    yield f'<text class="note" x="0" y="{y}">the path of</text>'
    for number, name in enumerate(walks):
        x = 90 + 110 * number
        yield f'<circle cx="{x}" cy="{y - 4}" r="8" fill="{_COLOURS[name]}"/>'
        yield f'<text class="note" x="{x + 14}" y="{y}">{escape(name)}</text>'
