"""The page in a real browser, served by the real service, under a policy that forbids inline scripts."""

import contextlib
import json
import re

import pytest
from playwright.sync_api import expect

from sweeper.service.security.tokens import Role, make_token
from sweeper.service.settings import ServiceSettings

from .browsing import PATIENCE, drawn, query, serving
from .conftest import ENDED, RUNNING

pytestmark = [pytest.mark.chromium, pytest.mark.slow]

EXPLORATORY = "expl-20260103-120000"
EVIL = "<img src=x onerror=alert(1)>"


@pytest.mark.long
def test_the_list_leads_to_a_sweep_and_back(visit, sweep):
    page = visit()
    expect(page.get_by_role("heading", name="Sweeps")).to_be_visible()
    page.get_by_role("link", name=ENDED).click()
    assert drawn(page) == len(sweep.front_points)
    assert query(page) == f"sweep={ENDED}"
    assert page.title() == "digits: front · Sweeper"
    page.go_back()
    expect(page.get_by_role("link", name=ENDED)).to_be_visible(timeout=PATIENCE)
    expect(page.locator("#section-front")).to_be_hidden(timeout=PATIENCE)


@pytest.mark.long
def test_a_token_opens_the_page_and_is_asked_for_again_without_its_session(context, out, listening, tmp_path):
    tokens = tmp_path / "tokens.json"
    token = make_token(tokens, Role.READ, 1, "ada")
    with (
        serving(ServiceSettings(out=out, tokens=tokens), listening) as address,
        contextlib.closing(context.new_page()) as page,
    ):
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        for given, then in (("wrong", "Expected a token that is known"), (token, ENDED)):
            page.get_by_label("Token").fill(given)
            page.get_by_role("button", name="Sign in to read").click()
            expect(page.locator("body")).to_contain_text(then)
        page.goto(f"{address}/?sweep={ENDED}")
        drawn(page)
        context.clear_cookies()
        page.reload()
        expect(page.get_by_label("Token")).to_be_visible()


def test_points_arrive_while_the_sweep_runs_and_the_zoom_stays(visit, growing):
    growing.start("t0001")
    growing.add("t0001", 1, 0.5, 0.5)
    growing.add("t0001", 2, 0.7, 0.6)
    page = visit(f"?sweep={RUNNING}")
    assert drawn(page, 2) == 2
    expect(page.locator("#pulse")).to_have_text("live")
    plot = page.locator("#figure-front .nsewdrag").first.bounding_box()
    page.mouse.move(plot["x"] + 0.3 * plot["width"], plot["y"] + 0.2 * plot["height"])
    page.mouse.down()
    page.mouse.move(plot["x"] + 0.9 * plot["width"], plot["y"] + 0.8 * plot["height"], steps=5)
    page.mouse.up()
    shown = "document.querySelector('#figure-front .js-plotly-plot')._fullLayout.yaxis.range"
    page.wait_for_function(f"{shown}[1] - {shown}[0] < 0.1", timeout=PATIENCE)
    zoomed = page.evaluate(shown)
    for epoch in range(3, 6):
        growing.add("t0001", epoch, 0.5 + 0.1 * epoch, 0.5 + 0.05 * epoch)
    assert drawn(page, 5) == 5
    assert page.evaluate(shown) == zoomed
    expect(page.locator("#part-head")).to_contain_text("5 on the front")
    growing.describe("completed")
    growing.stop_driving()
    (growing.folder.path / "front.json").write_text((growing.folder.path / "front.json").read_text())
    expect(page.locator("#pulse")).to_have_text("ended", timeout=PATIENCE)


@pytest.mark.long
def test_a_filter_is_moved_by_keys_and_goes_into_the_address(visit, sweep):
    page = visit(f"?sweep={ENDED}")
    drawn(page)
    thumb = page.locator("#minimum-0")
    thumb.focus()
    for _ in range(3):
        page.keyboard.press("PageUp")
    page.wait_for_function(  # an address that an earlier key has led to is not the last one
        """() => new URLSearchParams(location.search).get('min') === `accuracy=${
            document.querySelector('#minimum-0').value}`""",
        timeout=PATIENCE,
    )
    floor = float(query(page).rpartition("%3D")[2])
    assert 0 < floor < 1
    allowed = [p for p in sweep.front_points if p.values["accuracy"] >= floor]
    expect(page.locator("#part-picked")).to_contain_text(f"Best accuracy of {len(allowed)} points", timeout=PATIENCE)
    page.wait_for_function(
        """(count) => document.querySelector('#figure-front .js-plotly-plot').data
            .find((trace) => trace.name === 'points of the front').selectedpoints?.length === count""",
        arg=len(allowed),
        timeout=PATIENCE,
    )
    assert thumb.get_attribute("aria-valuetext").startswith("accuracy ≥ ")
    shared = visit(f"?{query(page)}")
    expect(shared.locator("#part-picked")).to_contain_text(f"Best accuracy of {len(allowed)} points", timeout=PATIENCE)


@pytest.mark.long
def test_controls_go_into_the_address_and_a_filter_lets_go_of_a_point(visit, sweep):
    point = sweep.front_points[2]
    page = visit(f"?sweep={ENDED}&point={point.trial}.{point.epoch}&max-epsilon=90", color_scheme="light")
    expect(page.locator("#part-picked")).to_contain_text("Chosen by hand.")
    page.get_by_role("slider", name="Robust to radius").press("ArrowRight")
    expect(page.get_by_role("slider", name="Robust to radius")).to_have_attribute("aria-valuetext", "0.1")
    assert query(page) == f"sweep={ENDED}&point={point.trial}.{point.epoch}&max-epsilon=90&radius=certified%400.1"
    page.get_by_role("slider", name="own epsilon ≤").press("End")  # its right end is no limit
    expect(page.locator("#label-max-epsilon")).to_have_text("own epsilon ≤ any")
    assert query(page) == f"sweep={ENDED}&radius=certified%400.1"
    moving = "(slider) => { slider.value = 0.5; slider.dispatchEvent(new Event('input', {bubbles: true})); }"
    page.locator("#minimum-0").evaluate(moving)
    expect(page.get_by_role("spinbutton", name="accuracy ≥")).to_have_value("50")
    page.emulate_media(color_scheme="dark")  # which shows the page again
    expect(page.locator("#switch")).to_have_text("Light theme")
    assert page.locator("#minimum-0").input_value() == "0.5", "a slider that is being moved stays where it is"


@pytest.mark.long
def test_a_service_that_is_away_is_said_until_it_is_back(context, address):
    with contextlib.closing(context.new_page()) as page:
        page.set_default_timeout(PATIENCE)
        page.goto(f"{address}/")
        page.wait_for_selector("#part-sweeps a")
        body = json.dumps({"detail": "down for a moment"})
        page.route("**/live/state", lambda route: route.fulfill(status=503, body=body))
        expect(page.locator("#notice")).to_have_text("down for a moment")
        page.unroute("**/live/state")
        expect(page.locator("#notice")).to_be_hidden()
        expect(page.locator("#part-sweeps a").first).to_be_visible()


@pytest.mark.long
def test_a_click_on_a_point_picks_it_and_its_files_are_downloaded(visit, sweep, out):
    page = visit(f"?sweep={ENDED}")
    drawn(page)
    point = sweep.front_points[0]  # alone at the left end
    place = page.evaluate(
        """([x, y]) => {
            const plot = document.querySelector('#figure-front .js-plotly-plot');
            plot.scrollIntoView({block: 'center', behavior: 'instant'});
            const {xaxis, yaxis} = plot._fullLayout, box = plot.getBoundingClientRect();
            return [box.x + xaxis._offset + xaxis.d2p(x), box.y + yaxis._offset + yaxis.d2p(y)];
        }""",
        [point.values["epsilon"], point.values["accuracy"]],
    )
    page.mouse.move(place[0] - 3, place[1] - 3)
    page.mouse.move(*place)
    page.wait_for_selector("#figure-front .hoverlayer .hovertext")
    page.mouse.click(*place)
    expect(page.locator("#part-picked")).to_contain_text("Chosen by hand.", timeout=PATIENCE)
    expect(page.locator("#part-picked h3")).to_have_text(f"{point.trial}, epoch {point.epoch}")
    with page.expect_download() as download:
        page.get_by_role("link", name="Configuration", exact=True).click()
    assert json.loads(download.value.path().read_text()) == sweep.trials[point.trial].config
    model = out / ENDED / point.model
    model.parent.mkdir(exist_ok=True)
    model.write_bytes(b"weights")
    with page.expect_download() as download:
        page.get_by_role("link", name="Model", exact=True).click()
    assert download.value.path().read_bytes() == b"weights"


@pytest.mark.long
def test_a_file_of_the_sweep_is_downloaded(visit, sweep, address):
    page = visit(f"?sweep={ENDED}&tab=export")
    expect(page.locator("#take")).to_contain_text(f"{address.rstrip('/')}/api/v1/sweeps/{ENDED}/papers")
    with page.expect_download() as download:
        page.get_by_role("link", name="All points").click()
    assert len(download.value.path().read_text().splitlines()) == 1 + len(sweep.points)


@pytest.mark.long
def test_the_theme_follows_the_system_until_it_is_switched_and_stays_switched(visit):
    page = visit(f"?sweep={ENDED}", color_scheme="dark")
    drawn(page)
    paper = "getComputedStyle(document.body).backgroundColor"
    figure = "document.querySelector('#figure-front .js-plotly-plot')._fullLayout.paper_bgcolor"
    assert page.evaluate(paper) == "rgb(17, 22, 29)"
    assert page.evaluate(figure) == "#11161d"
    page.get_by_role("button", name="Light theme").click()
    page.wait_for_function(f"{figure} === '#ffffff'", timeout=PATIENCE)
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    page.reload()
    drawn(page)
    assert page.evaluate(figure) == "#ffffff"
    page.get_by_role("button", name="Dark theme").click()
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"{figure} === '#11161d'", timeout=PATIENCE)


@pytest.mark.long
def test_nothing_is_wider_than_a_phone(visit, growing, address):
    growing.start("t0001")
    page = visit(width=360, height=740, has_touch=True, is_mobile=True)
    for search in ("", *(f"?sweep={ENDED}&tab={t}" for t in ("front", "trials", "search", "price", "export"))):
        page.goto(f"{address}/{search}")
        page.wait_for_selector("[id^=part-]:not([hidden])[data-markup]")
        if "front" in search:
            drawn(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, search


@pytest.mark.long
def test_every_control_is_reached_by_the_keyboard_and_shows_it(visit):
    page = visit(f"?sweep={ENDED}")
    drawn(page)
    page.wait_for_selector("#part-picked a")
    reached, dim = set(), []
    for _ in range(60):
        page.keyboard.press("Tab")
        found = page.evaluate(
            """() => {
                const one = document.activeElement, style = getComputedStyle(one);
                const name = one.getAttribute('aria-label') || one.innerText?.trim() || one.labels?.[0]?.innerText
                    || one.getAttribute('href') || one.className;
                return [name.split('\\n')[0].trim(), style.outlineStyle !== 'none' || style.boxShadow !== 'none'];
            }"""
        )
        if found[0] == "Skip to the content" and reached:
            break  # once around
        reached.add(found[0])
        if not found[1]:
            dim.append(found[0])
    wanted = {"Skip to the content", "Sweeper", "Dark theme", "Front", "Trials", "Export", "Robust to radius"}
    wanted |= {"own epsilon ≤ any", "accuracy ≥ any", "certified@0.25 ≥ any", "Model", "Card", "Configuration"}
    assert wanted <= reached, wanted - reached
    assert {"2-D", "3-D"} & reached
    assert "logarithmic" in reached
    assert dim == []


@pytest.mark.long
def test_sweeps_are_chosen_and_compared(visit, out, write_sweep):
    write_sweep(out / "second-20260105-120000", name="second", seed=1)
    page = visit()
    page.get_by_label(f"Compare {ENDED}").check()
    page.get_by_role("button", name="Compare the chosen sweeps").click()
    expect(page.locator("#notice")).to_have_text("Choose at least two sweeps to compare.")
    page.get_by_label("Compare second-20260105-120000").check()
    page.get_by_role("button", name="Compare the chosen sweeps").click()
    expect(page.get_by_role("heading", name="second and digits")).to_be_visible(timeout=PATIENCE)
    page.wait_for_function(
        "document.querySelector('#figure-fronts .js-plotly-plot')?.data?.filter((t) => t.mode.includes('lines')).length === 2",
        timeout=PATIENCE,
    )


@pytest.mark.long
def test_a_chosen_sweep_stays_chosen_when_the_list_changes(visit, growing):
    page = visit()
    box = page.get_by_label(f"Compare {ENDED}")
    box.check()
    growing.start("t0001")
    row = page.locator("#part-sweeps tbody tr").first
    expect(row).to_contain_text("running", timeout=PATIENCE)
    expect(row.get_by_role("cell", name="1", exact=True)).to_be_visible(timeout=PATIENCE)
    assert box.is_checked()
    assert page.evaluate("document.activeElement.value") == ENDED


@pytest.mark.long
def test_the_front_is_drawn_in_space(visit):
    page = visit(f"?sweep={ENDED}")
    drawn(page)
    page.get_by_text("3-D", exact=True).click()
    page.wait_for_function(
        "document.querySelector('#figure-front .js-plotly-plot').data.some((t) => t.type === 'scatter3d')",
        timeout=PATIENCE,
    )
    page.wait_for_selector("#figure-front .gl-container canvas")
    assert query(page) == f"sweep={ENDED}&view=3d"


@pytest.mark.long
@pytest.mark.parametrize("tabs", [("Trials",), ("Front", "Trials", "Search")])
def test_markup_in_names_is_shown_and_not_run(visit, growing, address, tabs):
    growing.start(EVIL, architecture=EVIL)
    growing.add(EVIL, 1, 0.7, 0.7)
    growing.start("t0002")
    growing.add("t0002", 1, 0.6, 0.6)
    page = visit(f"?sweep={RUNNING}")
    for tab in tabs:
        page.get_by_role("link", name=tab, exact=True).click()
        expect(page.locator("#part-head")).to_contain_text(EVIL, timeout=PATIENCE)
        page.wait_for_function("document.querySelector('#content section:not([hidden]) .js-plotly-plot')")
        page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        assert page.locator("main img").count() == 0
    page.goto(f"{address}/?sweep={EVIL}")
    expect(page.locator("#notice")).to_contain_text("Expected the name of a sweep", timeout=PATIENCE)


@pytest.mark.long
def test_a_picture_of_the_front_is_there_before_the_library_and_gives_way_to_it(
    visit, context, sweep, write_sweep, out
):
    write_sweep(out / EXPLORATORY, exploratory=True)
    held, pattern = [], "**/plotly.js*"
    context.route(pattern, lambda route: held.append(route))
    page = visit(f"?sweep={EXPLORATORY}")
    picture = page.locator("#figure-front svg.sketch")
    expect(picture).to_be_visible()
    assert picture.locator("circle").count() >= len(sweep.points)
    expect(picture).to_contain_text("exploratory: no guarantee")
    expect(picture).to_contain_text("own epsilon (fixed in advance, log), delta = 1e-4")
    expect(page.locator("#part-points tbody tr")).to_have_count(len(sweep.front_points))  # nothing else waits for it
    page.wait_for_timeout(1000)
    assert page.locator("#figure-front .js-plotly-plot").count() == 0
    context.unroute(pattern)  # which lets go of those that are held
    assert held
    assert drawn(page) == len(sweep.front_points)
    assert picture.count() == 0


@pytest.mark.long
def test_a_figure_that_is_on_its_way_has_its_place_and_says_so(visit, context):
    context.route("**/live/figure/hypervolume*", lambda _: None)
    frame = visit(f"?sweep={ENDED}&tab=search").locator("#section-hypervolume .frame")
    expect(frame).to_be_visible()
    assert frame.bounding_box()["height"] > 300
    said = frame.locator(".plot > div").evaluate("place => getComputedStyle(place, '::before').content")
    assert said == '"Drawing…"'


@pytest.mark.long
def test_an_answer_that_was_overtaken_hides_no_newer_figure(visit):
    page = visit(f"?sweep={ENDED}")
    drawn(page)
    held, pattern = [], re.compile(r"/live/figure/front\?.*axis=linear")
    page.route(pattern, lambda route: held.append(route))
    with page.expect_request(pattern):
        page.get_by_text("logarithmic").click()
    expect(page.locator("#tab-front")).to_have_attribute("href", re.compile("axis=linear"))
    page.go_back()
    expect(page.locator("#tab-front")).to_have_attribute("href", f"/?sweep={ENDED}")
    with page.expect_response(pattern) as answer:
        held[0].fulfill(content_type="application/json", body="null")
    answer.value.finished()
    page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    assert not page.evaluate("document.getElementById('section-front').classList.contains('empty')")
    expect(page.locator("#figure-front .js-plotly-plot")).to_be_visible()


@pytest.mark.long
def test_the_list_of_sweeps_does_not_load_the_library(visit):
    page = visit()
    expect(page.locator("#part-sweeps td a")).to_have_count(1)
    assert page.evaluate("typeof window.Plotly") == "undefined"
    asked = page.evaluate("performance.getEntriesByType('resource').map((one) => one.name)")
    assert not [name for name in asked if "plotly" in name]


@pytest.mark.long
def test_a_number_beside_a_slider_is_typed(visit):
    page = visit(f"?sweep={ENDED}", width=390, height=844)
    box = page.get_by_role("spinbutton", name="own epsilon ≤ as a number")
    expect(box).to_have_value("")
    box.fill("3")
    box.press("Enter")
    expect(page.locator("#label-max-epsilon")).to_have_text("own epsilon ≤ 3")
    least = page.get_by_role("spinbutton", name="certified@0.25 ≥ as a number, in percent")
    least.fill("45")
    least.press("Enter")
    expect(page.locator("#label-minimum-1")).to_have_text("certified@0.25 ≥ 45.0 %")
    page.wait_for_function("location.search.includes('max-epsilon=3&') && location.search.includes('0.45')")
    least.fill("0.4")  # a share is as good as a percentage
    least.press("Enter")
    expect(page.locator("#label-minimum-1")).to_have_text("certified@0.25 ≥ 40.0 %")
    least.fill("")
    least.press("Enter")
    expect(page.locator("#label-minimum-1")).to_have_text("certified@0.25 ≥ any")
