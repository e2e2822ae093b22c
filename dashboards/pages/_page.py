"""The frame of a page: one HTML document that opens anywhere, offline, on a phone and on paper.

Everything is inside the file, plotly.js included, and its content security policy forbids it to load anything
else. Text reaches the page only through `dashboards.pages._html`, which escapes it. Figures are drawn once, in the
light theme, and repainted by the page when the reader's browser prefers dark.
"""

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Literal, TypeVar

from dashboards.figures import (
    DARK,
    FONT,
    LIGHT,
    MONOSPACE,
    Figure,
    FigureKind,
    Theme,
    Topic,
    as_json,
    exchange,
    is_empty,
    plotly_js,
)
from dashboards.pages._html import Child, Html, join, json_script, tag
from sweeper.rounding import number_of

D = TypeVar("D")

_TITLE, _LEGEND = 40, 40  # pixels above a figure for its title, and for a legend of one row
SCRIPTS = ("figures.js", "tables.js", "compare.js", "report.js")
COMPLETE = "This page is complete: it loads nothing from elsewhere."
# No network; plotly's WebGL figures compile their shaders' drivers with Function().
POLICY = "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'"


def build(
    title: str,
    head: Html,
    kinds: Iterable[FigureKind[D, Any]],
    data: D,
    *,
    before: Iterable[Html] = (),
    after: Iterable[Html] = (),
    versions: Html | None = None,
    folds: Mapping[Topic, str] | None = None,
) -> str:
    """Return the page of a sweep, a comparison or a diagnosis; it says which figures have nothing to show.

    The first figure follows the head, the others stand between what comes ``before`` and ``after`` them, those of the
    topics in ``folds`` below the others, each topic under its heading, which opens.
    """
    figures = [(kind, kind.draw(data)) for kind in kinds]
    drawn = [(kind, figure) for kind, figure in figures if not is_empty(figure)]
    panels: dict[Topic | None, list[tuple[str, Html]]] = {}
    for kind, figure in drawn:
        shown = panel(kind.name, kind.heading, _words(kind, data), wide=kind.wide, height=figure.layout.height)
        place = kind.topic if folds and kind.topic in folds else None
        panels.setdefault(place, []).append((kind.heading, shown))
    left_out = _left_out([kind for kind, figure in figures if is_empty(figure)], data)
    open_ = [shown for _, shown in panels.get(None, [])]
    folded = [_fold(topic, heading, panels[topic]) for topic, heading in (folds or {}).items() if topic in panels]
    main = tag("main", *open_[:1], *before, *open_[1:], *folded, *after, left_out)
    return document(title, (head, main, footer(versions)), {kind.name: figure for kind, figure in drawn})


def _words(kind: FigureKind[D, Any], data: D) -> Html:
    """What a figure shows of this data and what privacy depends on; how to read it opens, unless it is all there is."""
    reading = kind.reading(data) + kind.gestures + kind.gestures_here(data)
    found = kind.found(kind.info(data))
    if not found:
        return tag("figcaption", " ".join(filter(None, (kind.terms, reading))))
    opened = tag("details", tag("summary", "How to read this figure"), tag("p", reading))
    return tag("figcaption", tag("p", " ".join(filter(None, (found, kind.terms)))), opened)


def _fold(topic: Topic, heading: str, panels: Sequence[tuple[str, Html]]) -> Html:
    """The figures of a topic below a heading that opens them; it names them."""
    names = "; ".join(name for name, _ in panels)
    line = tag("summary", tag("h2", heading), tag("span", f"{number_of(len(panels), 'figure')}: {names}"))
    return tag("details", line, *(shown for _, shown in panels), id=f"topic-{topic.value}", class_="topic")


def _left_out(kinds: Sequence[FigureKind[D, Any]], data: D) -> Html | None:
    """Say which figures are not on the page, and what they need."""
    if not kinds:
        return None
    needs = (tag("li", tag("b", f"{kind.heading}: "), _needs(kind, data)) for kind in kinds)
    line = tag("summary", f"{number_of(len(kinds), 'figure')} with nothing to show, and what they need")
    opened = tag("details", line, tag("ul", *needs, class_="plain"))
    return section("left-out", "Figures that are left out", opened)


def _needs(kind: FigureKind[D, Any], data: D) -> str:
    found = kind.lacks(data)
    return f"needs {kind.needs.replace('`', '')}{f', found {found}' if found else ''}."


def document(title: str, parts: tuple[Html, ...], figures: Mapping[str, Figure]) -> str:
    """Return the page of parts that have an element ``plot-<name>`` for each figure, drawn in the light theme."""
    assets = files("dashboards") / "assets"
    style = variables() + (assets / "report.css").read_text(encoding="utf-8")
    script = "".join((assets / name).read_text(encoding="utf-8") for name in SCRIPTS)
    page = tag(
        "html",
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("title", title),
            tag("style", Html(style)),
        ),
        tag(
            "body",
            *parts,
            json_script("figures", {f"plot-{name}": strip_title(as_json(figure)) for name, figure in figures.items()}),
            json_script("dark-colors", exchange(LIGHT, DARK)),
            tag("script", Html(plotly_js())),
            tag("script", Html(script)),
        ),
        lang="en",
    )
    return f"<!DOCTYPE html>\n{page}\n"


def header(
    eyebrow: Child, title: str, banner: Html | None = None, facts: Mapping[str, tuple[str, str | None]] | None = None
) -> Html:
    """Return the header of a page: its name, a warning if there is one, and facts, each with a note or none."""
    listed = facts_list(facts) if facts else None
    return tag("header", tag("p", eyebrow, class_="eyebrow"), tag("h1", title), banner, listed)


def facts_list(facts: Mapping[str, tuple[str, str | None]]) -> Html:
    """Return facts by name, each with a note or none."""
    pairs = (
        tag("div", tag("dt", name), tag("dd", value, tag("small", note) if note else None))
        for name, (value, note) in facts.items()
    )
    return tag("dl", *pairs, class_="facts")


def exploratory(more: str = "") -> Html:
    """Return the warning of a sweep whose epsilons are no guarantees."""
    words = " This sweep used something that was not paid for, so its epsilons are not privacy guarantees."
    return tag("p", tag("strong", "Exploratory: no guarantee."), words + more, class_="banner", role="note")


def footer(*sentences: Html | None) -> Html:
    """Return the footer of a page."""
    return tag("footer", tag("div", *sentences, tag("p", COMPLETE)))


def scrolling_table(heads: Html, rows: Iterable[Html], *, slim: bool = False, sides: bool = False) -> Html:
    """Return a table that scrolls sideways where it is too wide.

    A slim one is no wider than a column of text. One with ``sides`` compares its columns: it breaks what is long, and
    on a phone the first cell of each row stands above the others.
    """
    table = tag("table", tag("thead", tag("tr", heads)), tag("tbody", *rows))
    kinds = ["scroll", *(["slim"] if slim else []), *(["sides"] if sides else [])]
    return tag("div", table, class_=" ".join(kinds), tabindex=0)


def working_table(
    name: str,
    heads: Iterable[Html],
    rows: Iterable[Html],
    *,
    compares: str = "",
    cards: Literal["", "boxes", "titles"] = "",
) -> Html:
    """Return a table that `tables.js` lets readers sort, filter and reduce to columns; its name is unique on the page.

    A heading has its name in ``data-name``, and ``data-hidden`` where its column is hidden at first. Where boxes with
    ``data-choose`` choose rows, ``compares`` says what they are. With ``cards``, each row is a card on a phone: of
    ``boxes`` its first cell, a box, is in the corner and its second one the title, of ``titles`` the first one is the
    title; the others have their headings, and empty ones are left out.
    """
    table = scrolling_table(join(heads), rows)
    return tag("div", table, data_table=name, data_compares=compares or None, data_cards=cards or None)


def section(id_: str, heading: str, *parts: Child) -> Html:
    """Return a part of a page with its heading."""
    return tag("section", tag("h2", heading), *parts, id=id_)


def card(heading: str, *parts: Child) -> Html:
    """Return a card with its heading."""
    return tag("div", tag("h3", heading, class_="budget"), *parts, class_="card")


def panel(name: str, heading: str, words: Html | None = None, *, wide: bool = False, height: int | None = None) -> Html:
    """The section of one figure; a wide one scrolls sideways on a phone instead of shrinking.

    ``height`` is its place, in pixels, until it is drawn.
    """
    place = f"--height: {height}px" if height else None
    plot = tag("div", id=f"plot-{name}", class_="plot", style=place, role="group", aria_label=f"Figure: {heading}")
    inner = tag("div", plot, class_="wide", tabindex=0) if wide else plot
    return section(name, heading, tag("figure", inner, words))


def strip_title(figure: dict[str, Any]) -> dict[str, Any]:
    """Return a figure as JSON for a page that has headings.

    The figure's own title and the space for it go; so do digits too small to see.
    """
    layout = {**figure["layout"]}
    layout.pop("title", None)
    own = layout.get("margin", {})
    above = max(own.get("t", 0) - _TITLE, _LEGEND)
    layout["margin"] = {"l": 0, "r": 16, "b": 52, **own, "t": above}
    return {"data": _round(figure["data"]), "layout": layout}


def _round(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.6g}")
        case dict():
            return {key: _round(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_round(inner) for inner in value]
    return value


def variables(*, switch: bool = False) -> str:
    """Both themes as CSS variables; with ``switch``, ``data-theme`` of the root element overrules the system."""
    fonts = f"--sans: {FONT}; --mono: {MONOSPACE};"
    preferred = ':root:not([data-theme="light"])' if switch else ":root"
    chosen = f':root[data-theme="dark"] {{ {_colors(DARK)} }}\n' if switch else ""
    return (
        f":root {{ {fonts} {_colors(LIGHT)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ {preferred} {{ {_colors(DARK)} }} }}\n"
        f"{chosen}@media print {{ :root {{ {_colors(LIGHT)} }} }}\n"
    )


def _colors(theme: Theme) -> str:
    names = ("paper", "panel", "ink", "muted", "line", "grid", "blue", "orange", "green", "purple", "red")
    return " ".join(f"--{name}: {getattr(theme, name)};" for name in names)
