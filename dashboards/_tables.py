"""The tables of the report: the points of the front, and every trial."""

from collections import Counter
from typing import Any

from dashboards._html import Html, each, join, tag
from dashboards.data import SweepData, varying
from dashboards.summary import front_rows
from dashboards.text import MISSING, setting, show
from sweeper.config import flatten


def front_table(data: SweepData) -> Html:
    """Every point of the front; click a heading to sort."""
    rows = front_rows(data)
    if not rows:
        return tag("section", tag("h2", "Points of the front"), tag("p", "No points yet."), id="points")
    numeric = {name for name in rows[0] if any(isinstance(row[name], int | float) for row in rows)}
    heads = [
        tag(
            "th",
            tag("button", _heading(name), type="button"),
            scope="col",
            class_="number" if name in numeric else None,
        )
        for name in rows[0]
    ]
    body = join(tag("tr", *(_cell(name, value, name in numeric) for name, value in row.items())) for row in rows)
    return tag(
        "section",
        tag("h2", "Points of the front"),
        tag("p", "Select a heading to sort by it. Values not marked test are measured on validation rows."),
        tag(
            "div",
            tag("table", tag("thead", tag("tr", *heads)), tag("tbody", body)),
            class_="scroll",
            tabindex=0,
        ),
        id="points",
    )


def _heading(name: str) -> str:
    """Short, for a narrow column: the value first, then which of its kinds."""
    if name.startswith("test "):
        return f"{name.removeprefix('test ')}, test"
    return name.removeprefix("config ")


def _cell(name: str, value: Any, numeric: bool) -> Html:
    if value is None:
        return tag("td", MISSING, class_="number" if numeric else None, data_value="")
    text = show(name.removeprefix("test "), value) if isinstance(value, float) else setting(value)
    return tag("td", text, class_="number" if numeric else None, data_value=value if numeric else text)


def trials_table(data: SweepData) -> Html:
    """Every trial and how it ended."""
    names = varying(data.trials)
    epochs = Counter(point.trial for point in data.points)
    rows = []
    for id_, trial in data.trials.items():
        flat = flatten(trial.config)
        texts = [id_, trial.status, trial.reason, str(epochs[id_])]
        texts += [setting(flat[name]) if flat.get(name) is not None else MISSING for name in names]
        rows.append(tag("tr", each("td", texts)))
    heads = each("th", ["trial", "ended", "why", "epochs", *names], scope="col")
    table = tag("table", tag("thead", tag("tr", heads)), tag("tbody", *rows))
    return tag(
        "details",
        tag("summary", f"All {len(data.trials)} trials"),
        tag("div", table, class_="scroll", tabindex=0),
    )
