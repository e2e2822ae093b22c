from dataclasses import replace

import pytest

from dashboards.figures import comparison_figures, sweep_figures
from dashboards.live import page_state
from dashboards.live.page_state import show_view
from dashboards.live.skeleton import PARTS_OF, document, figures_of
from dashboards.live.view import Action, Tab, View
from sweeper.errors import RecordError
from sweeper.records import Point

from .conftest import ENDED, RUNNING

ANY = [("own epsilon ≤ any", 2.0, None), ("accuracy ≥ any", 0.0, None), ("certified@0.25 ≥ any", 0.0, None)]


@pytest.fixture
def state(snapshots, parts):
    """What the page shows at an address."""
    return lambda search: show_view(snapshots, parts, View.parse(search))


def filters(state):
    return [(one.label, one.slider, one.box) for one in state.filters]


def test_the_first_page_is_the_list(state):
    found = state("")
    assert list(found.resources) == ["part-sweeps"]
    assert found.title == "Sweeps"


def test_only_what_changed_gets_another_address(state, growing, clock):
    growing.start("t0001")
    before = state(f"?sweep={RUNNING}")
    assert state(f"?sweep={RUNNING}") == before
    growing.add("t0001", 1, 0.5, 0.5)
    clock.now += 100
    after = state(f"?sweep={RUNNING}")
    assert after.resources.keys() == before.resources.keys()
    assert (before.filters, filters(after)) == ((), ANY), "nothing is to pick before there is a point"
    assert all(after.resources[place] != address for place, address in before.resources.items())
    linear = state(f"?sweep={RUNNING}&axis=linear").resources
    moved = {place for place, address in linear.items() if address != after.resources[place]}
    assert moved == {"figure-front", "figure-price"}


@pytest.mark.parametrize("tab", Tab)
def test_every_tab_has_its_figures_and_parts(state, tab):
    found = state(f"?sweep={ENDED}&tab={tab.value}")
    places = set(found.resources) - {"part-head", "marks-front"}
    assert places == {f"figure-{n}" for n in figures_of(tab)} | {f"part-{n}" for n in PARTS_OF[tab]}
    assert found.tab == tab.value
    assert found.links["tab-front"] == f"/?sweep={ENDED}"


def test_without_a_certificate_the_tab_of_radii_does_not_lead_anywhere(small):
    plain = small([Point(trial="t", epoch=1, values={"epsilon": 1.0, "accuracy": 0.5})])
    view = View(sweep="s")
    assert "tab-robustness" not in page_state._links(plain, view, view)
    assert "tab-robustness" in page_state._links(small([]), view, view)  # points may come
    assert "tab-robustness" in page_state._links(plain, replace(view, tab=Tab.ROBUSTNESS), view)


def test_every_figure_of_the_report_has_a_place():
    placed = {name for tab in Tab for name in figures_of(tab)} | {"front-3d"}
    assert placed == set(sweep_figures())
    assert all(f'id="figure-{name}"' in document("1") for name in placed - {"front-3d"})


def test_an_address_sets_every_control(state):
    address = f"?sweep={ENDED}&view=3d&axis=linear&radius=certified%400.25&max-epsilon=3&min=certified%400.25%3D0.3"
    found = state(address)
    assert (found.solid, found.linear, found.radius) == (True, True, 2)
    assert [mark for _, mark in found.radii] == ["0", "0.1", "0.25", "0.5"]
    assert filters(found) == [("own epsilon ≤ 3", 0.48, 3.0), ANY[1], ("certified@0.25 ≥ 30.0 %", 0.3, 30.0)]
    assert found.filters[2].box_label == "certified@0.25 ≥ as a number, in percent"
    assert "figure/front-3d" in found.resources["figure-front"]
    steer = f"/?sweep={ENDED}&max-epsilon=3&min=certified%400.25%3D0.3&do=steer"
    assert found.links["steer"] == steer
    plain = state(f"?sweep={ENDED}")
    assert (plain.solid, plain.linear, plain.radius, filters(plain)) == (False, False, 0, ANY)


def test_an_address_that_is_no_address_of_a_control_sets_none(state):
    found = state(f"?sweep={ENDED}&view=4d&axis=5&radius=certified%409&max-epsilon=1e400&min=accuracy%3D1e308")
    assert (found.solid, found.linear, found.radius, filters(found)) == (False, False, 0, ANY)


@pytest.mark.parametrize(("epsilon", "place"), [(1e9, 2.0), (1e-9, -2.0), (-3.0, 2.0)])
def test_a_limit_beyond_the_slider_is_in_the_box(state, epsilon, place):
    found = state(f"?sweep={ENDED}&max-epsilon={epsilon}").filters[0]
    assert (found.slider, found.box) == (place, epsilon)


def test_a_point_that_was_chosen_is_picked(state, sweep):
    point = sweep.front_points[2]
    name = f"{point.trial}.{point.epoch}"
    assert f"point={name}" in state(f"?sweep={ENDED}&point={name}").resources["part-picked"]
    assert "point=" not in state(f"?sweep={ENDED}&point=%3Cb%3E").resources["part-picked"]


@pytest.mark.parametrize("search", ["?sweep=nobody", "?sweep=..%2F..", "?compare=nobody&compare=other"])
def test_what_does_not_exist_is_said_to_be_missing(state, search):
    found = state(search)
    assert found.resources == {}
    assert "Expected the name of a sweep" in found.notice


def test_an_error_is_said_without_the_folders_of_this_machine(state, parts, monkeypatch, out):
    def broken(_):
        raise RecordError(f"Cannot read {out / ENDED / 'requests.jsonl'}: Is a directory")

    monkeypatch.setattr(parts, "standing", broken)
    assert state(f"?sweep={ENDED}").notice == f"Cannot read {ENDED}/requests.jsonl: Is a directory"


def test_the_address_of_a_form_has_no_version_that_it_could_be_kept_under(state):
    for action in Action:
        found = state(f"?sweep={ENDED}&do={action.value}")
        assert found.resources == {"part-action": f"/live/part/action?sweep={ENDED}&do={action.value}"}


def test_a_sweep_without_a_front_has_only_a_head(state, growing):
    (growing.folder.path / "front.json").unlink()
    assert list(state(f"?sweep={RUNNING}").resources) == ["part-head"]
    assert "has no front yet" in state(f"?compare={RUNNING}&compare={ENDED}").notice


def test_a_comparison_names_every_sweep_in_its_addresses(state, growing):
    growing.start("t0001")
    found = state(f"?compare={ENDED}&compare={RUNNING}&axis=linear")
    assert set(found.resources) == {"part-compared", *(f"figure-{name}" for name in comparison_figures())}
    for address in found.resources.values():
        assert f"axis=linear&compare={ENDED}&compare={RUNNING}&" in address
