"""What stands in small print on a picture, as the text of a caption, for papers that say it below the picture."""

import re
from html import unescape

from dashboards.figures import Figure
from dashboards.figures._common import SMALL_LINE

_TERMS = "terms"  # the name of a note below panels
# What the title of an axis says of it begins behind its name, in small lines or with a semicolon, delta or the box.
_REST = re.compile(r"; |, (?=delta)|<br>(?=<span|box:)")
_TAG = re.compile(r"<(?!br>)[^>]*>")


def take_caption(figure: Figure) -> str:
    """Take the title, what stands behind the names of horizontal axes and the notes below panels out of a figure.

    Returns:
        All of it, as text: one line, each part once.
    """
    parts, lines = [_as_text(figure.layout.title.text or "")], 0
    figure.update_layout(title=None)
    for axis in figure.select_xaxes():
        name, rest = _split(axis.title.text or "")
        if rest:
            lines = max(lines, axis.title.text.count("<br>") - name.count("<br>"))
            axis.title.text = name
            parts.append(_as_text(rest))
    if figure.layout.margin.b is not None:
        figure.layout.margin.b -= SMALL_LINE * lines
    notes = [note for note in figure.layout.annotations if note.name == _TERMS]
    if notes:
        parts += [_as_text(note.text) for note in notes]
        figure.layout.annotations = [note for note in figure.layout.annotations if note.name != _TERMS]
        figure.layout.margin.b = None  # it had room for them
    sentences = [part.rstrip(".;") for part in dict.fromkeys(parts) if part]
    return "".join(f"{sentence}. " for sentence in sentences).rstrip()


def _split(title: str) -> tuple[str, str]:
    found = _REST.search(title)
    return (title, "") if found is None else (title[: found.start()], title[found.end() :])


def _as_text(marked_up: str) -> str:
    return " ".join(unescape(_TAG.sub("", marked_up).replace("<br>", " ")).split())
