import pytest
from dash import no_update

from dashboards.figures import sweep_figures
from dashboards.live.page_state import CONTROLS, LABELLED, PageState, clicked, controlled, stamp_of, update, values_of
from dashboards.live.skeleton import PARTS_OF, figures_of, layout
from dashboards.live.view import Action, Tab, View
from sweeper.errors import RecordError

from .conftest import ENDED, RUNNING

OUTPUTS = ("search", "shown", *CONTROLS, "marks", "max", *(f"label-{name}" for name in LABELLED))
START = values_of(View(), PageState())


@pytest.fixture
def page(snapshots, parts):
    """A browser without a screen: it keeps what it is told, as Dash does."""

    class Page:
        def __init__(self):
            self.search, self.shown, self.values, self.labels, self.marks = "", None, dict(START), {}, {}
            self.click = None

        def turn(self):
            found = dict(
                zip(OUTPUTS, update(snapshots, parts, self.search, self.click, self.values, self.shown), strict=True)
            )
            said = {name: value for name, value in found.items() if value is not no_update}
            self.search = said.get("search", self.search)
            self.shown = said.get("shown", self.shown)
            self.marks = said.get("marks", self.marks)
            self.values |= {name: said[name] for name in CONTROLS if name in said}
            self.labels |= {name: said[f"label-{name}"] for name in LABELLED if f"label-{name}" in said}
            return said

        def open(self, search):
            self.search = search
            return self.turn()

        def move(self, control, value):
            self.values[control] = value
            return self.turn()

    return Page()


def test_the_first_page_is_the_list(page):
    page.open("")
    assert list(page.shown["resources"]) == ["part-sweeps"]
    assert page.shown["title"] == "Sweeps"


def test_a_tick_without_news_sends_nothing(page):
    page.open(f"?sweep={ENDED}")
    assert page.turn() == {}
    assert page.turn() == {}


def test_only_what_changed_gets_another_address(page, growing, clock):
    growing.start("t0001")
    page.open(f"?sweep={RUNNING}")
    before = dict(page.shown["resources"])
    growing.add("t0001", 1, 0.5, 0.5)
    clock.now += 100
    said = page.turn()
    assert "search" not in said
    assert page.shown["resources"].keys() == before.keys()
    assert all(page.shown["resources"][place] != address for place, address in before.items())
    page.move("axis", [])
    moved = {place for place, address in page.shown["resources"].items() if "axis=linear" in address}
    assert moved == {"figure-front", "figure-price"}


@pytest.mark.parametrize("tab", Tab)
def test_every_tab_has_its_figures_and_parts(page, tab):
    page.open(f"?sweep={ENDED}&tab={tab.value}")
    places = set(page.shown["resources"]) - {"part-head", "marks-front"}
    assert places == {f"figure-{n}" for n in figures_of(tab)} | {f"part-{n}" for n in PARTS_OF[tab]}
    assert page.shown["tab"] == tab.value
    assert page.shown["tabs"]["front"] == f"/?sweep={ENDED}"


def test_every_figure_of_the_report_has_a_place():
    placed = {name for tab in Tab for name in figures_of(tab)} | {"front-3d"}
    assert placed == set(sweep_figures())
    assert all(f"figure-{name}" in str(layout()) for name in placed - {"front-3d"})


def test_an_address_sets_every_control(page):
    page.open(f"?sweep={ENDED}&view=3d&axis=linear&radius=certified%400.25&max-epsilon=3&min=certified%400.25%3D0.3")
    assert page.values == {
        "space": "3d",
        "axis": [],
        "radius": 2,
        "max-epsilon": 0.48,
        "minimum-0": 0.0,
        "minimum-1": 0.3,
        "minimum-2": 0.0,
    }
    assert page.marks == {0: "0", 1: "0.1", 2: "0.25", 3: "0.5"}
    assert page.labels == {
        "max-epsilon": "epsilon ≤ 3",
        "minimum-0": "accuracy ≥ any",
        "minimum-1": "certified@0.25 ≥ 30.0 %",
        "minimum-2": "",
    }
    assert "figure/front-3d" in page.shown["resources"]["figure-front"]
    assert page.turn() == {}  # rounding of a slider asks for nothing


@pytest.mark.parametrize(
    ("control", "value", "query"),
    [
        ("space", "3d", "&view=3d"),
        ("axis", [], "&axis=linear"),
        ("radius", 3, "&radius=certified%400.5"),
        ("max-epsilon", 0.0, "&max-epsilon=1"),
        ("minimum-0", 0.9, "&min=accuracy%3D0.9"),
        ("minimum-1", 0.25, "&min=certified%400.25%3D0.25"),
    ],
)
def test_a_control_goes_into_the_address_and_back(page, control, value, query):
    page.open(f"?sweep={ENDED}")
    said = page.move(control, value)
    assert said["search"] == f"?sweep={ENDED}{query}"
    assert page.turn() == {}
    page.open(f"?sweep={ENDED}")
    assert page.values == START
    page.open(f"?sweep={ENDED}{query}")
    assert page.values[control] == value


def test_the_right_end_of_the_slider_is_no_limit(page):
    page.open(f"?sweep={ENDED}&max-epsilon=3")
    assert page.move("max-epsilon", 2.0)["search"] == f"?sweep={ENDED}"


@pytest.mark.parametrize(("epsilon", "place"), [(1e9, 2.0), (1e-9, -2.0), (-3.0, 2.0)])
def test_a_limit_beyond_the_slider_stays_in_the_address(page, epsilon, place):
    page.open(f"?sweep={ENDED}&max-epsilon={epsilon:g}")
    assert page.values["max-epsilon"] == place
    assert "search" not in page.turn()


def test_a_tick_that_overtakes_a_control_does_what_the_control_asks(page):
    page.open(f"?sweep={ENDED}")
    page.values["max-epsilon"] = 0.0
    assert page.turn()["search"] == f"?sweep={ENDED}&max-epsilon=1"


def test_a_click_picks_a_point_and_a_moved_filter_lets_go_of_it(page, sweep):
    page.open(f"?sweep={ENDED}")
    point = sweep.front_points[2]
    name = f"{point.trial}.{point.epoch}"
    page.click = {"point": name, "time": 17}
    said = page.turn()
    assert said["search"] == f"?sweep={ENDED}&point={name}"
    assert f"point={name}" in page.shown["resources"]["part-picked"]
    page.move("radius", 1)
    assert f"point={name}" in page.search
    page.move("minimum-0", 0.5)
    assert "point=" not in page.search
    assert page.turn() == {}
    page.click = page.click | {"time": 18}
    page.turn()
    assert f"point={name}" in page.search
    page.open(f"?sweep={ENDED}")
    assert "point=" not in page.search


@pytest.mark.parametrize(
    "click", [None, "", {}, {"time": 5}, {"point": None, "time": 5}, {"point": "<b>"}, {"point": ["t0001.1"]}]
)
def test_a_click_elsewhere_picks_nothing(click):
    assert clicked(click) is None


@pytest.mark.parametrize("click", [None, [], {}, {"time": None}, {"time": "noon"}])
def test_a_click_without_a_time_is_none(click):
    assert stamp_of(click) == 0


def test_links_win_over_controls_that_still_stand_elsewhere(page):
    page.open(f"?sweep={ENDED}&max-epsilon=3&view=3d")
    page.open("")
    assert page.search == ""
    assert page.values["max-epsilon"] == 2.0


def test_controls_that_the_sweep_does_not_have_ask_for_nothing():
    shown = PageState(radii=("accuracy",), names=("accuracy",))
    values = START | {"radius": 5, "minimum-1": 0.5, "minimum-2": 0.5, "space": None}
    assert controlled(View(sweep="s"), shown, values) == View(sweep="s")


@pytest.mark.parametrize("search", ["?sweep=nobody", "?sweep=..%2F..", "?compare=nobody&compare=other"])
def test_what_does_not_exist_is_said_to_be_missing(page, search):
    page.open(search)
    assert page.shown["resources"] == {}
    assert "Expected the name of a sweep" in page.shown["notice"]


def test_an_error_is_said_without_the_folders_of_this_machine(page, parts, monkeypatch, out):
    def broken(_):
        raise RecordError(f"Cannot read {out / ENDED / 'requests.jsonl'}: Is a directory")

    monkeypatch.setattr(parts, "standing", broken)
    page.open(f"?sweep={ENDED}")
    assert page.shown["notice"] == f"Cannot read {ENDED}/requests.jsonl: Is a directory"


def test_the_address_of_a_form_has_no_version_that_it_could_be_kept_under(page):
    for action in Action:
        page.open(f"?sweep={ENDED}&do={action.value}")
        assert page.shown["resources"] == {"part-action": f"/live/part/action?sweep={ENDED}&do={action.value}"}


def test_a_sweep_without_a_front_has_only_a_head(page, growing):
    (growing.folder.path / "front.json").unlink()
    page.open(f"?sweep={RUNNING}")
    assert list(page.shown["resources"]) == ["part-head"]
    page.open(f"?compare={RUNNING}&compare={ENDED}")
    assert "has no front yet" in page.shown["notice"]


def test_a_comparison_names_every_sweep_in_its_addresses(page, growing):
    growing.start("t0001")
    page.open(f"?compare={ENDED}&compare={RUNNING}&axis=linear")
    assert set(page.shown["resources"]) == {
        "part-compared",
        "figure-fronts",
        "figure-attainment",
        "figure-hypervolumes",
    }
    for address in page.shown["resources"].values():
        assert f"compare={ENDED}&compare={RUNNING}&" not in address or "axis=linear" in address
    assert page.shown["running"]
