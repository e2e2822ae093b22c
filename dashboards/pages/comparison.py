"""The page of a comparison: fronts of several sweeps in one plane, and what can be said of their difference."""

from collections.abc import Sequence

from dashboards.figures import comparison_figures
from dashboards.pages._html import Html, each, join, tag
from dashboards.pages._page import build, scrolling_table, section
from dashboards.text import MISSING, lead_with_test, show_epsilon, show_value, test_with_interval, title_of, whole
from sweeper.results.comparison import Comparison, Group, Run
from sweeper.results.highlights import best
from sweeper.rounding import in_brackets, number_of

HYPERVOLUME = (
    "Hypervolume is the share, from 0 to 1, of all values from worst to best that a front covers: larger is better."
)
SHOWN = 4  # sweeps that the head names; the table has all


def build_comparison(comparison: Comparison) -> str:
    """The comparison as one HTML document."""
    title = " and ".join(group.name for group in comparison.groups)
    return build(
        f"{title}: comparison of sweeps",
        head(comparison, title),
        comparison_figures().values(),
        comparison,
        before=[differences(comparison), table(comparison)],
    )


def head(comparison: Comparison, title: str) -> Html:
    """Name the sweeps, and what speaks against comparing them."""
    marks = [*comparison.conflicts, *comparison.mixtures]
    if comparison.exploratory:
        marks.insert(0, "Exploratory: no guarantee. One of these sweeps used something that was not paid for.")
    shown = comparison.groups[:SHOWN]
    banner = (
        tag("div", *(tag("p", f"{mark.removesuffix('.')}.") for mark in marks), class_="banner", role="note")
        if marks
        else None
    )
    lines = (
        tag("p", *_reached(comparison, run), class_="result") for group in shown for run in _best(comparison, group)
    )
    more = len(comparison.groups) - len(shown)
    return tag(
        "header",
        tag("p", "Comparison of sweeps", class_="eyebrow"),
        tag("h1", title),
        banner,
        *lines,
        tag("p", f"{number_of(more, 'more sweep')} in the table below.", class_="terms") if more else None,
        tag("p", f"A model that you choose among these sweeps costs {bound}.") if (bound := comparison.bound) else None,
        class_="brief",
    )


def _best(comparison: Comparison, group: Group) -> list[Run]:
    """Return the run of a spec that reaches most, none of a spec without a point."""
    usable = [run for run in group.runs if best(run.front.front_points, comparison.utility) is not None]
    sign, name = comparison.utility.direction.sign, comparison.utility.name
    return sorted(usable, key=lambda run: -max(sign * point.values[name] for point in run.front.front_points))[:1]


def _reached(comparison: Comparison, run: Run) -> list[Html | str]:
    """Best value and price of one sweep, empty of one without a point."""
    price, name = run.front.price, comparison.utility.name
    point = best(run.front.front_points, comparison.utility)
    if point is None:
        return []
    value, note = lead_with_test(point, name, run.front.claim)
    cost = "at an unknown price" if price is None else f"for epsilon {show_epsilon(price.epsilon)}{price.doubt}"
    alike = [one for one in comparison.runs if one.front.sweep == run.front.sweep]
    which = f", the best of {len(alike)} on validation rows ({run.label})" if len(alike) > 1 else ""
    return [f"{run.front.sweep}{which}: ", tag("strong", value), f" ({note}) {cost}"]


def differences(comparison: Comparison) -> Html:
    """What can be said of the difference of each pair of names, and what looking at it costs."""
    sentences = [*map(str, comparison.differences), *filter(None, [comparison.uncorrected])]
    alike = "All of these have one name, and count as runs of one spec, also where their specs differ."
    listed = tag("ul", each("li", sentences or [alike]), class_="plain")
    return section(
        "differences", "Differences", tag("p", HYPERVOLUME), listed, tag("p", comparison.price_in_words, class_="after")
    )


def table(comparison: Comparison) -> Html:
    """One row per sweep, on a phone one card."""
    reached = f"best {title_of(comparison.utility.name)}"
    names = [f"{reached}, test", "validation", "price", "hypervolume", "trials", "points", "on the front"]
    heads = [tag("th", name, scope="col", data_name=name) for name in ("name", "sweep")]
    heads += [tag("th", name, scope="col", class_="number", data_name=name) for name in names]
    rows = [_row(comparison, group.name, run, names) for group in comparison.groups for run in group.runs]
    return section("sweeps", "Sweeps", tag("div", scrolling_table(join(heads), rows), data_cards="titles"))


def _row(comparison: Comparison, name: str, run: Run, names: Sequence[str]) -> Html:
    front = run.front
    price = MISSING if front.price is None else f"epsilon {show_epsilon(front.price.epsilon)}{front.price.doubt}"
    counts = [str(count) for count in (front.trials_begun, len(front.points), len(front.on_front))]
    numbers = [
        _tested(comparison, run),
        _value(comparison, run),
        price,
        f"{run.hypervolume:.4f}{in_brackets(run.interval)}",
        *counts,
    ]
    cells = [tag("td", name), tag("td", run.label, data_label="sweep")]
    cells += [tag("td", text, class_="number", data_label=label) for label, text in zip(names, numbers, strict=True)]
    return tag("tr", *cells)


def _value(comparison: Comparison, run: Run) -> str:
    """The best value of a sweep, with its interval where scores are noisy."""
    point = best(run.front.front_points, comparison.utility)
    return MISSING if point is None else whole(show_value(point, comparison.utility.name))


def _tested(comparison: Comparison, run: Run) -> str:
    """The same model on test rows, with an interval where one is known."""
    point = best(run.front.front_points, comparison.utility)
    return MISSING if point is None else test_with_interval(point, comparison.utility.name, run.front.claim)
