"""What a team does in the browser: submit, watch, pick, steer, note, stop; by the keyboard, on a phone, in both themes."""

import contextlib
import json
import re

import pytest
from playwright.sync_api import expect

from sweeper.privacy.ledger import Ledger
from sweeper.records import Point, SweepStatus, Trial, TrialStatus
from sweeper.service.security.tokens import Role, make_token
from sweeper.service.settings import Limits, ServiceSettings
from sweeper.store.jsonl import JsonlFile
from sweeper.store.manifest import Manifest
from sweeper.store.requests import steered
from sweeper.store.sweep_folder import SweepFolder

from .browsing import PATIENCE, drawn, query, serving
from .conftest import ENDED, EVENT, PLAN, RUNNING
from .test_dynamic import describe

pytestmark = [pytest.mark.chromium, pytest.mark.slow]

SPEC = """name: typed
data: {name: digits}
model: {architecture: mlp}
training: {epochs: 2, batch_size: 256, learning_rate: {log: [0.02, 0.1]}}
privacy: {sweep_epsilon: 3, delta: 1e-4}
search: {objectives: [epsilon, accuracy]}
"""
FEW = ("t0000", "t0001", "t0002")  # trials that have ended when a sweep is first looked at
# What a reader of screens, or somebody who sees little, would stumble over; figures are pictures with a name.
STUMBLES = """() => {
    const found = [], seen = (one) => one.checkVisibility() && one.getClientRects().length;
    const rgba = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return [n[0], n[1], n[2], n[3] ?? 1]; };
    const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = (one) => {
        for (; one; one = one.parentElement) {
            const color = rgba(getComputedStyle(one).backgroundColor);
            if (color[3] > 0.5) return color;
        }
        return [255, 255, 255, 1];
    };
    const name = (one) => one.getAttribute('aria-label') || one.innerText?.trim() || one.title || one.value
        || [...(one.labels ?? [])].map((label) => label.innerText).join('') ||
        document.getElementById(one.getAttribute('aria-labelledby') ?? '')?.innerText;
    for (const one of document.querySelectorAll('a[href], button, [role=group], input, select, textarea')) {
        if (seen(one) && !one.closest('.js-plotly-plot') && !name(one)?.trim()) found.push(`no name: ${one.outerHTML.slice(0, 120)}`);
    }
    for (const one of document.querySelectorAll('input:not([type=hidden]), select, textarea')) {
        if (seen(one) && !one.labels?.length && !one.getAttribute('aria-label')) found.push(`no label: ${one.outerHTML.slice(0, 120)}`);
    }
    for (const one of document.querySelectorAll('[tabindex]')) if (one.tabIndex > 0) found.push(`own order: ${one.outerHTML.slice(0, 90)}`);
    const ids = [...document.querySelectorAll('[id]:not(svg *)')].map((one) => one.id);
    for (const id of new Set(ids.filter((id, i) => id && ids.indexOf(id) !== i))) found.push(`twice: ${id}`);
    if (!document.documentElement.lang) found.push('no language');
    if ([...document.querySelectorAll('h1')].filter(seen).length !== 1) found.push('not one h1');
    let level = 0;
    for (const one of [...document.querySelectorAll('h1, h2, h3, h4')].filter(seen)) {
        const now = Number(one.tagName[1]);
        if (now > level + 1) found.push(`skips to ${one.tagName}: ${one.innerText}`);
        level = now;
    }
    for (const one of document.querySelectorAll('body *:not(.js-plotly-plot *):not(script):not(style)')) {
        const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
        if (!own || !seen(one) || one.disabled || one.closest('.skip') || one.closest('.js-plotly-plot')) continue;
        const style = getComputedStyle(one), size = parseFloat(style.fontSize);
        const [a, b] = [light(rgba(style.color)), light(ground(one))].sort((x, y) => y - x);
        const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
        if ((a + 0.05) / (b + 0.05) < (large ? 3 : 4.5)) found.push(`pale ${((a + 0.05) / (b + 0.05)).toFixed(2)}: ${one.innerText.slice(0, 40)} ${one.className}`);
    }
    return found;
}"""


class Finisher:
    """A launcher whose driver has done a few trials at once, and the others when it is told to."""

    def __init__(self, write_front):
        self._write_front = write_front

    def start(self, _, folder):
        self._front, self._sweep, self._alive = self._write_front(name="typed"), SweepFolder(folder), True
        (folder / "front.json").write_text(json.dumps(self._front))
        describe(self._sweep, "running", SPEC)
        self._train(first=True)
        return "job"

    def finish(self):
        self._train(first=False)
        describe(self._sweep, "completed", SPEC)
        self._alive = False

    def _train(self, *, first):
        for id_, trial in self._front["trials"].items():
            if (id_ in FEW) is first:
                done = Trial(id=id_, config=trial["config"], plan=PLAN, status=TrialStatus(trial["status"]))
                self._sweep.save_trial(done)
        for point in self._front["points"]:
            if (point["trial"] in FEW) is first:
                self._sweep.save_points([Point(trial=point["trial"], epoch=point["epoch"], values=point["values"])])
            if point["model"]:
                (self._sweep.path / point["model"]).write_bytes(b"weights")

    def is_alive(self, _):
        return self._alive

    def is_away(self):
        return False

    def kill(self, _):
        raise AssertionError("it has ended")


@pytest.fixture
def driven(growing):
    """The running sweep, with a spec and a few points."""
    describe(growing.folder)
    growing.start("t0001")
    for epoch in range(1, 6):
        growing.add("t0001", epoch, 0.3 * epoch, 0.3 + 0.1 * epoch, 0.1 * epoch)
    return growing


def tab_to(page, name, role=None, most=120):
    """Press Tab until what has this name has the focus."""
    for _ in range(most):
        page.keyboard.press("Tab")
        found = page.evaluate(
            """() => { const one = document.activeElement;
                return [one.getAttribute('aria-label') || [...(one.labels ?? [])].map((l) => l.innerText).join('') ||
                    one.innerText?.trim() || '', one.getAttribute('role') || one.tagName.toLowerCase()]; }"""
        )
        if found[0] == name and role in (None, found[1]):
            return
    raise AssertionError(f"{name} is not reached")


@pytest.mark.long
def test_by_the_keyboard_alone_a_sweep_is_submitted_watched_picked_and_taken(context, out, listening, make_front):
    settings = ServiceSettings(out=out, limits=Limits(requests_per_second=0))
    launcher = Finisher(make_front)
    with serving(settings, listening, launcher) as address, contextlib.closing(context.new_page()) as page:
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        page.wait_for_selector("#part-sweeps a")
        tab_to(page, "Submit a sweep")
        page.keyboard.press("Enter")
        page.wait_for_selector("#field-spec")
        tab_to(page, "Spec, as YAML")
        page.keyboard.press("Control+A")
        page.keyboard.insert_text(SPEC.replace("learning_rate", "lerning_rate"))
        expect(page.locator("#checked")).to_contain_text("lerning_rate")
        expect(page.get_by_role("button", name="Submit", exact=True)).to_be_disabled()
        page.keyboard.press("Control+A")
        page.keyboard.insert_text(SPEC)
        expect(page.locator("#checked")).to_contain_text(
            re.compile(r"typed can be run\.\s+digits, N = 1276 training rows\. \d+ .*Price: epsilon", re.DOTALL)
        )
        expect(page.get_by_role("button", name="Submit", exact=True)).to_be_enabled()
        tab_to(page, "Submit")
        page.keyboard.press("Enter")
        expect(page.locator("#part-head h1")).to_have_text("typed")
        expect(page.locator("#part-head .status")).to_have_text("running")
        few = drawn(page)
        launcher.finish()
        expect(page.locator("#part-head .status")).to_have_text("completed")
        assert drawn(page, few + 1) > few
        tab_to(page, "own epsilon ≤ any", "input")
        page.keyboard.press("PageDown")
        expect(page.locator("#part-picked")).to_contain_text("points within these conditions")
        page.wait_for_selector("#part-picked a:has-text('Model')")
        with page.expect_download() as download:
            tab_to(page, "Model")
            page.keyboard.press("Enter")
        assert download.value.path().read_bytes() == b"weights"


@pytest.mark.long
def test_a_sweep_can_be_submitted_where_the_service_fails_to_plan_it(context, address):
    with contextlib.closing(context.new_page()) as page:
        page.set_default_timeout(PATIENCE)
        failed = {"status": 500, "json": {"detail": "Something went wrong; see the log under request id abc"}}
        page.route("**/check?plan=true", lambda route: route.fulfill(**failed))
        page.goto(f"{address}/?do=submit")
        page.get_by_label("Spec, as YAML").fill(SPEC)
        expect(page.locator("#checked")).to_contain_text(re.compile("can be run.*request id abc.*Price:", re.DOTALL))
        expect(page.get_by_role("button", name="Submit", exact=True)).to_be_enabled()


@pytest.mark.long
def test_a_box_on_the_front_becomes_the_region_of_the_search(visit, driven):
    page = visit(f"?sweep={RUNNING}")
    drawn(page, 5)
    page.locator("#figure-front .js-plotly-plot").scroll_into_view_if_needed()
    page.evaluate("Plotly.relayout(document.querySelector('#figure-front .js-plotly-plot'), {dragmode: 'select'})")
    place = """([x, y]) => {
        const plot = document.querySelector('#figure-front .js-plotly-plot');
        const {xaxis, yaxis} = plot._fullLayout, box = plot.getBoundingClientRect();
        return [box.x + xaxis._offset + xaxis.d2p(x), box.y + yaxis._offset + yaxis.d2p(y)];
    }"""
    (left, top), (right, bottom) = page.evaluate(place, [0.4, 0.75]), page.evaluate(place, [1.3, 0.5])
    page.mouse.move(left, top)
    page.mouse.down()
    page.mouse.move(right, bottom, steps=5)
    page.mouse.up()
    expect(page.locator("#label-max-epsilon")).to_have_text(re.compile("own epsilon ≤ 1[.](29|3|31)$"))
    expect(page.locator("#label-minimum-0")).to_contain_text("accuracy ≥ ")
    page.get_by_role("link", name="Steer the search here").click()
    expect(page.get_by_label("epsilon <=")).to_have_value(re.compile("^1[.](29|3|31)$"))
    page.get_by_label("epsilon <=").fill("1.3")
    expect(page.locator(".price")).to_contain_text("Price:")
    page.get_by_label("accuracy >=").fill("0.5")
    page.get_by_role("button", name="Steer the search").click()
    expect(page.locator("#part-head")).to_contain_text("Steered to: epsilon <= 1.3, accuracy >= 0.5")
    assert steered(driven.folder.path) == ("epsilon <= 1.3", "accuracy >= 0.5")


@pytest.mark.long
def test_a_row_and_a_line_lead_to_the_trial_and_it_is_noted_and_stopped(visit, driven):
    page = visit(f"?sweep={RUNNING}&tab=trials")
    page.locator("#part-records tbody tr").first.locator("td").nth(3).click()
    expect(page.locator("#part-trial h1")).to_have_text("t0001")
    page.wait_for_function("document.querySelector('#figure-trial .js-plotly-plot')?.data?.length > 1")
    page.get_by_role("link", name="Add a note").click()
    page.get_by_label("Note", exact=True).fill("<b>looks good")
    page.get_by_role("button", name="Add a note").click()
    expect(page.locator("#part-trial-records")).to_contain_text("<b>looks good")
    page.get_by_role("link", name="Stop this trial").click()
    expect(page.locator(".price")).to_contain_text("nothing beyond the epoch that it is in, which ends first")
    page.get_by_role("button", name="Stop this trial t0001").click()
    expect(page.locator("#part-trial h1")).to_be_visible()  # the form hides it until the service has answered
    (row,) = JsonlFile(driven.folder.path / "requests.jsonl").read()
    assert (row["stop"], row["by"]) == ("t0001", "a local user")
    expect(page.locator("#part-trial-records")).to_contain_text("a local user")


@pytest.mark.long
@pytest.mark.usefixtures("driven")
def test_a_refusal_is_said_beside_the_form(context, address):
    with contextlib.closing(context.new_page()) as page:
        page.set_default_timeout(PATIENCE)
        page.goto(f"{address}/?sweep={RUNNING}&trial=t0001&do=tag")
        page.get_by_label("Tag", exact=True).fill("mlflow.user")
        page.get_by_role("button", name="Set a tag").click()
        expect(page.get_by_role("alert")).to_contain_text("does not begin with mlflow.")
        expect(page.get_by_label("Tag", exact=True)).to_have_value("mlflow.user")


@pytest.mark.long
def test_a_session_that_writes_acts_and_one_that_reads_is_offered_nothing(context, driven, out, listening, tmp_path):
    tokens = tmp_path / "tokens.json"
    token = make_token(tokens, Role.WRITE, 1, "ada")
    with (
        serving(ServiceSettings(out=out, tokens=tokens), listening) as address,
        contextlib.closing(context.new_page()) as page,
    ):
        page.set_default_timeout(PATIENCE)
        for button, offered in (("Sign in to read only", False), ("Sign in", True)):
            page.goto(f"{address}/login")
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name=button, exact=True).click()
            page.wait_for_selector("#part-sweeps a")
            page.goto(f"{address}/?sweep={RUNNING}")
            page.wait_for_selector("#part-head h1")
            assert page.get_by_role("link", name="Stop", exact=True).is_visible() is offered
            assert page.get_by_role("link", name="Steer the search here").is_visible() is offered
        page.goto(f"{address}/?sweep={RUNNING}&do=stop")
        page.get_by_role("button", name="Stop").click()
        page.wait_for_selector("#part-head h1")
        (row,) = JsonlFile(driven.folder.path / "requests.jsonl").read()
        assert (row["stop"], row["by"]) == (True, "ada")
        page.get_by_role("link", name="Sign out").click()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        page.goto(f"{address}/")
        expect(page.get_by_label("Token")).to_be_visible()


PAGES = ["", f"?sweep={RUNNING}", f"?sweep={ENDED}&tab=trials", f"?sweep={RUNNING}&trial=t0001", "?do=submit",
         f"?sweep={RUNNING}&do=steer", f"?sweep={RUNNING}&do=enqueue", f"?sweep={RUNNING}&do=stop",
         "?sweep=waits-20260103-120000"]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("pages", "width", "scheme"),
    [
        (PAGES[1:5:3], 390, "dark"),
        pytest.param(PAGES, 390, "dark", marks=pytest.mark.long),
        pytest.param(PAGES, 1400, "light", marks=pytest.mark.long),
    ],
)
@pytest.mark.usefixtures("driven")
def test_no_page_makes_anybody_stumble_or_is_wider_than_the_window(pages, width, scheme, visit, address, out):
    (out / "waits-20260103-120000").mkdir()
    folder = SweepFolder(out / "waits-20260103-120000")
    folder.write_manifest(Manifest(name="waits", status=SweepStatus.RUNNING, spec={}, source="s"))
    page = visit(width=width, color_scheme=scheme)
    found = {}
    for search in pages:
        page.goto(f"{address}/{search}")
        page.wait_for_selector("[id^=part-]:not([hidden])[data-markup]")
        page.wait_for_timeout(300)
        found[search] = page.evaluate(STUMBLES)
        wide = page.evaluate("document.documentElement.scrollWidth")
        found[search] += [f"{wide} pixels wide"] if wide > width else []
    assert found == {search: [] for search in pages}
    planted = "<p style='color:#999;background:#aaa'>pale</p><button></button><input>"
    page.evaluate("(markup) => document.querySelector('main').insertAdjacentHTML('beforeend', markup)", planted)
    assert [one.partition(" ")[0] for one in page.evaluate(STUMBLES)] == ["no", "no", "no", "pale"]


@pytest.mark.long
def test_on_a_phone_the_best_of_a_sweep_has_a_line_for_each_split(visit):
    page = visit(width=390)
    cell = page.locator("#part-sweeps td[data-label=best]:has(.why)").first
    unit, below = (cell.locator(one).bounding_box() for one in ("small:not(.why)", ".why"))
    assert below["y"] >= unit["y"] + unit["height"]
    assert unit["height"] < 30.0


@pytest.mark.long
def test_a_view_is_saved_under_a_name_and_found_again(visit):
    page = visit(f"?sweep={ENDED}&max-epsilon=3&tab=trials")
    page.get_by_text("Saved views").click()
    page.get_by_label("Name of this view").fill("<b>cheap")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("link", name="Front", exact=True).click()
    page.get_by_role("link", name="<b>cheap").click()
    expect(page.locator("#tab-trials")).to_have_attribute("aria-current", "page")
    assert query(page) == f"sweep={ENDED}&max-epsilon=3&tab=trials"
    page.reload()
    page.get_by_text("Saved views").click()
    page.get_by_role("button", name="Forget <b>cheap").click()
    expect(page.locator("#views li")).to_have_count(0)


def open_saved_views(page):
    """Open the list of views; a page that is drawn again under a click closes it."""
    name = page.get_by_label("Name of this view")
    for _ in range(50):
        if name.is_visible():
            break
        page.get_by_text("Saved views").click()
        page.wait_for_timeout(200)
    expect(name).to_be_visible()


@pytest.mark.long
def test_a_view_takes_the_place_of_its_namesake_in_the_same_sweep_only(visit, address, growing):
    growing.start("t0001")
    growing.add("t0001", 1, 0.5, 0.5)
    page = visit(f"?sweep={ENDED}&tab=trials")
    for search in (f"?sweep={ENDED}&tab=trials", f"?sweep={RUNNING}&tab=price", f"?sweep={RUNNING}&tab=search"):
        page.goto(f"{address}/{search}")
        open_saved_views(page)
        page.get_by_label("Name of this view").fill("best")
        page.get_by_role("button", name="Save", exact=True).click()
        expect(page.locator("#views a")).to_have_attribute("href", f"/{search}")
    page.goto(f"{address}/?sweep={ENDED}")
    open_saved_views(page)
    expect(page.locator("#views a")).to_have_attribute("href", f"/?sweep={ENDED}&tab=trials")


@pytest.mark.long
@pytest.mark.usefixtures("driven")
def test_a_form_that_was_sent_is_empty_when_it_is_opened_again(visit):
    page = visit(f"?sweep={RUNNING}&trial=t0001")
    for words in ("first", "second"):
        page.get_by_role("link", name="Add a note").click()
        note, button = page.get_by_label("Note", exact=True), page.get_by_role("button", name="Add a note")
        expect(note).to_have_value("")
        expect(button).to_be_enabled()
        note.fill(words)
        button.click()
        expect(page.locator("#part-trial-records")).to_contain_text(words)


@pytest.mark.long
def test_a_form_states_the_price_of_the_moment_it_is_opened(visit, out):
    page = visit(f"?sweep={ENDED}")
    page.get_by_role("link", name="Delete", exact=True).click()
    expect(page.locator(".price")).to_contain_text("epsilon 13.61 ")
    page.get_by_role("link", name="Back").click()
    front = json.loads((out / ENDED / "front.json").read_text())
    for entry in front["ledger"].values():
        entry["epsilon"] *= 3
    (out / ENDED / "front.json").write_text(json.dumps(front))
    expect(page.locator("#part-head")).to_contain_text("40.8")
    page.get_by_role("link", name="Delete", exact=True).click()
    expect(page.locator(".price")).to_contain_text("epsilon 40.8")


@pytest.mark.long
def test_what_an_extension_would_cost_follows_the_number_that_is_typed(visit, out):
    folder = SweepFolder(out / ENDED)
    describe(folder, "completed")
    ledger = Ledger(folder.ledger)
    ledger.open("t0001", EVENT, marked=True)
    ledger.draw("t0001")
    page = visit(f"?sweep={ENDED}&do=extend")
    expect(page.locator(".price")).to_contain_text("with 1 more and about")
    field = page.get_by_label("Trials in all")
    field.fill(str(int(field.get_attribute("data-so-far")) + 7))
    expect(page.locator(".price")).to_contain_text("with 7 more.")
    field.fill("0")
    expect(page.locator(".price"), "it is of another number").to_be_hidden()
    field.fill(str(int(field.get_attribute("data-so-far")) + 2))
    expect(page.locator(".price")).to_contain_text("with 2 more.")
    expect(page.locator(".price")).to_be_visible()


@pytest.mark.long
@pytest.mark.usefixtures("driven")
def test_the_address_of_a_form_is_a_page_of_its_own(visit):
    page = visit(f"?sweep={RUNNING}&do=extend")
    expect(page.get_by_role("heading", name="Extend")).to_be_visible()
    page.get_by_role("link", name="Back").click()
    expect(page.locator("#part-head h1")).to_have_text("grows")
    assert query(page) == f"sweep={RUNNING}"
