"""Tables of the live page and of the report in a browser: filtered, sorted, reduced and compared, by the keyboard too."""

import re

import pytest
from playwright.sync_api import expect

from dashboards import build_report

from .browsing import PATIENCE
from .conftest import ENDED

pytestmark = [pytest.mark.chromium, pytest.mark.slow]

SHOWN = "[...document.querySelectorAll('#trials tbody tr')].filter((row) => !row.hidden)"
COLUMN = "(row) => Number(row.cells[[...row.closest('table').tHead.rows[0].cells].findIndex((th) => th.dataset.name === 'accuracy')].dataset.value)"
CURVES = (
    "[...document.querySelectorAll('.chosen .js-plotly-plot')].flatMap((one) => one.data.map((trace) => trace.name))"
)


def work(page):
    """Filter, sort, reduce and compare the trials; return their accuracies as they were shown."""
    field = page.locator("#filter-trials")
    field.focus()
    page.keyboard.type("completed, accuracy > 80%")
    expect(page.locator("#trials .count")).to_contain_text("of 24 rows")
    page.locator("#trials th button", has_text="accuracy").press("Enter")
    shown = page.evaluate(f"{SHOWN}.map({COLUMN})")
    assert 0 < len(shown) < 24
    assert shown == sorted(shown)
    assert min(shown) > 0.8
    page.locator("#trials th button", has_text="accuracy").press("Enter")
    assert page.evaluate(f"{SHOWN}.map({COLUMN})") == shown[::-1]
    page.locator("#trials .columns summary").press("Enter")
    page.get_by_label("why", exact=True).press("Space")
    expect(page.locator("#trials [data-name=why]")).to_be_hidden()
    field.fill("nothing = 3")
    expect(page.locator("#trials .count")).to_have_text("No column fits nothing = 3")
    field.fill("")
    for trial in ("t0003", "t0005"):
        page.get_by_label(f"Compare {trial}").press("Space")
    expect(page.locator(".chosen h3")).to_have_text("2 trials side by side")
    expect(page.locator(".chosen tbody")).to_contain_text("training.learning_rate")
    page.wait_for_function(f"String({CURVES}) === 't0003,t0005'", timeout=PATIENCE)
    page.get_by_role("button", name="Over own epsilon").press("Enter")
    page.wait_for_function("document.querySelector('.chosen .js-plotly-plot').layout.xaxis.type === 'log'")


@pytest.mark.long
def test_trials_are_filtered_sorted_reduced_and_compared_and_the_address_has_it(visit):
    page = visit(f"?sweep={ENDED}&tab=trials")
    work(page)
    shared = visit(page.url.partition("/?")[2].join(["?", ""]))
    expect(shared.locator(".chosen h3")).to_have_text("2 trials side by side")
    expect(shared.locator("#trials [data-name=why]")).to_be_hidden()
    shared.locator("#trials tbody tr", has_text="t0003").get_by_role("link").click()
    expect(shared.locator("#part-trial h1")).to_have_text("t0003")
    shared.get_by_role("link", name="Next: t0004").click()
    expect(shared.locator("#part-trial h1")).to_have_text("t0004")
    shared.get_by_role("link", name="Previous: t0003").click()
    expect(shared.locator("#part-trial h1")).to_have_text("t0003")


@pytest.mark.long
def test_the_report_does_the_same_as_a_single_file(sweep, context, tmp_path):
    (tmp_path / "report.html").write_text(build_report(sweep))
    page, troubles = context.new_page(), []
    page.on("console", lambda said: troubles.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto((tmp_path / "report.html").as_uri())
    work(page)
    page.close()
    assert troubles == []


@pytest.mark.long
def test_the_front_lies_above_the_fold(visit):
    page = visit(f"?sweep={ENDED}", width=1400, height=900)
    page.wait_for_selector("#figure-front .js-plotly-plot")
    page.wait_for_selector("#part-head[data-markup]")
    box = page.locator("#figure-front .js-plotly-plot").bounding_box()
    assert box["y"] + box["height"] <= 900


@pytest.mark.long
@pytest.mark.parametrize(("search", "table"), [("", "sweeps"), (f"?sweep={ENDED}&tab=trials", "trials")])
def test_on_a_phone_each_row_is_a_card_with_its_headings(visit, search, table):
    page = visit(search, width=390, height=844)
    first = page.locator(f"[data-table={table}] tbody tr").first
    expect(first.locator("td").nth(2)).to_have_attribute("data-label", re.compile("."))
    cells = first.locator("td:visible").all()
    boxes = [cell.bounding_box() for cell in cells]
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in boxes)
    tops = [box["y"] for box in boxes[1:]]  # the first one is the box in the corner
    assert tops == sorted(tops)
    assert len(set(tops)) == len(tops)
    scrolls = page.locator(f"[data-table={table}] .scroll").first
    assert scrolls.evaluate("(one) => one.scrollWidth <= one.clientWidth")
    page.locator(f"[data-table={table}] th button").nth(1).press("Enter")  # headings stay, to sort by
    assert page.locator(f"[data-table={table}] th[aria-sort=ascending]").count() == 1
