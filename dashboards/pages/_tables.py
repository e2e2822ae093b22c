"""Tables of the report: the points of the front, and why trials ended early."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any

from dashboards.data import SweepData, evenly
from dashboards.pages._html import Child, Html, each, tag
from dashboards.pages._page import scrolling_table, section, working_table
from dashboards.summary import front_rows
from dashboards.text import MISSING, in_parentheses, setting, show
from sweeper.privacy.pricing import OWN, value_name
from sweeper.rounding import number_of

SHOWN_POINTS = 300
SHOWN_DECISIONS = 300
OPEN_ROWS = 12
_DECIDED = ("trial", "epoch", "rung", "reason")


def front_table(data: SweepData, named: Callable[[str], Child] = str) -> Html:
    """The points of the front, evenly spread ones of very many; click a heading to sort.

    ``named`` returns what stands for the id of a trial.
    """
    found = front_rows(data)
    rows = evenly(found, SHOWN_POINTS)
    if not rows:
        return section(
            "points", "Points of the front", tag("p", "No points yet: each point of the front gets a row here.")
        )
    numeric = {name for name in rows[0] if any(isinstance(row[name], int | float) for row in rows)}
    heads = [
        tag(
            "th",
            tag("button", _heading(n), type="button"),
            scope="col",
            class_="number" if n in numeric else None,
            data_name=_heading(n),
            data_hidden=_is_detail(n, rows),
        )
        for n in rows[0]
    ]
    body = [tag("tr", *(_front_cell(name, row, name in numeric, named) for name in row)) for row in rows]
    words = (
        "Select a heading to sort by it; Columns shows those that are hidden. Values not marked test are measured on "
        "validation rows."
    )
    cut = _omission(rows, found, "points of the front, evenly spread over epsilon")
    return section(
        "points", "Points of the front", tag("p", words, cut, _left_out(data)), working_table("points", heads, body)
    )


def _left_out(data: SweepData) -> str | None:
    """Say how many points the table leaves out because the majority-class baseline is as good; None without any."""
    count = len(data.front_points) - len(data.useful_points)
    ends = data.result.claim.baselines.ends(data.utility)
    if not count or ends is None:
        return None
    points = "1 point of the front is" if count == 1 else f"{count} points of the front are"
    reached = f"{'at least ' * (ends[0] < ends[1])}{data.utility} {show(data.utility, ends[0])}"
    end = " even at the upper end of its interval" if any(p.interval(data.utility) for p in data.front_points) else ""
    return (
        f" {points} left out: no better{end} than the majority-class baseline, which reaches {reached}. "
        "front.csv has them."
    )


def _is_detail(name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a column is hidden at first: one value for all points, an accountant, an interval, a file."""
    if name in ("trial", "epoch", "epsilon"):
        return False
    alike = len(rows) > 1 and len({str(row[name]) for row in rows}) == 1
    return alike or name in ("made from", "model") or name.startswith("epsilon ") or _is_end(name)


def _is_end(name: str) -> bool:
    """Whether a column has an end of the interval of a noisy score."""
    return name.endswith((" low", " high"))


def _heading(name: str) -> str:
    """Short, for a narrow column: the value first, then which of its kinds."""
    if name.startswith("test "):
        return f"{name.removeprefix('test ')}, test"
    if name.startswith("epsilon "):
        return f"{OWN}, {name.removeprefix('epsilon ')}"
    return value_name(name).removeprefix("config ")


def _cell(name: str, value: Any, numeric: bool) -> Html:
    if value is None:
        return tag("td", MISSING, class_="number" if numeric else None, data_value="")
    base = name.removeprefix("test ")
    base = base.rpartition(" ")[0] if _is_end(base) else base
    text = show(base, value) if isinstance(value, float) else setting(value)
    return tag("td", text, class_="number" if numeric else None, data_value=value if numeric else text)


def _front_cell(name: str, row: Mapping[str, Any], numeric: bool, named: Callable[[str], Child]) -> Html:
    value = row[name]
    if name == "trial":
        return tag("td", named(value), data_value=value)
    if name == "epoch":
        return tag(
            "td", ", ".join(map(str, filter(None, (value, row["made from"])))), class_="number", data_value=value
        )
    low, high = row.get(f"{name} low"), row.get(f"{name} high")
    if value is not None and low is not None and high is not None:  # a noisy score is never shown without its interval
        ends = tag("small", in_parentheses(name.removeprefix("test "), (low, high)))
        return tag("td", show(name.removeprefix("test "), value), ends, class_="number", data_value=value)
    return _cell(name, value, numeric)


def decisions_table(data: SweepData) -> Html | None:
    """Why the scheduler ended trials early, rung by rung, as a section; None where it decided nothing."""
    if not data.decisions:
        return None
    ended = [decision for decision in data.decisions if not decision.get("goes_on")]
    shown = evenly(ended, SHOWN_DECISIONS)
    rows = [tag("tr", *(_cell(name, row.get(name), name in ("epoch", "rung")) for name in _DECIDED)) for row in shown]
    counts = Counter("at a rung" if decision.get("rung") is not None else "between rungs" for decision in ended)
    how = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    continued = number_of(len(data.decisions) - len(ended), "time")
    stopped = number_of(len(ended), "trial")
    table = tag(
        "details",
        tag("summary", f"{stopped} ended early{f' ({how})' if how else ''}; {continued} one continued"),
        _note(_omission(shown, ended, "of these decisions, evenly spread", where="decisions.jsonl")),
        scrolling_table(each("th", _DECIDED, scope="col"), rows),
        open=len(shown) <= OPEN_ROWS,
    )
    return section("records", "Ended early", table)


def _omission(shown: Sized, found: Sized, what: str, *, where: str = "front.csv") -> str | None:
    """A sentence that says what is not shown and where it is, None where everything is shown."""
    if len(shown) >= len(found):
        return None
    return f" Shown: {len(shown)} of {len(found)} {what}; all of them are in {where}."


def _note(text: str | None) -> Html | None:
    return tag("p", text.strip()) if text else None
