"""HTML in which text cannot become markup: every child that is not `Html` is escaped.

Names of sweeps, columns and classes come from users and from files; a name with ``<script>`` in it must be
shown, never run. Nothing else in this package writes tags.
"""

import json
from collections.abc import Iterable
from html import escape
from typing import Any

_VOID = frozenset({"meta", "br", "col", "input", "link"})


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


Child = str | int | float | Html | None


def tag(name: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Html:
    """One element; an attribute that is None or False is left out, ``class_`` is ``class``, ``_`` is ``-``.

    >>> tag("td", "<b>", class_="name", data_value=3, hidden=False)
    '<td class="name" data-value="3">&lt;b&gt;</td>'
    """
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        parts.append(key if value is True else f'{key}="{escape(str(value))}"')
    opening = f"<{' '.join(parts)}>"
    return Html(opening) if name in _VOID else Html(f"{opening}{join(children)}</{name}>")


def join(children: Iterable[Child]) -> Html:
    """Children side by side; None is nothing."""
    return Html("".join(c if isinstance(c, Html) else escape(str(c)) for c in children if c is not None))


def each(name: str, children: Iterable[Child], /, **attributes: str | int | float | bool | None) -> Html:
    """One element per child.

    >>> each("li", ["a", "b"])
    '<li>a</li><li>b</li>'
    """
    return join(tag(name, child, **attributes) for child in children)


def json_script(id_: str, value: Any) -> Html:
    r"""Data for the page's scripts, in which no text can close the element.

    >>> json_script("d", "</script>")
    '<script type="application/json" id="d">"\\u003c/script\\u003e"</script>'
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Html(f'<script type="application/json" id="{escape(id_)}">{text}</script>')
