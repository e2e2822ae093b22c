"""What each tool does, over HTTP as a client calls it."""

import json

import pytest

from sweeper.privacy.card.content import PriceFacts
from sweeper.service.mcp import tools
from sweeper.service.mcp.tools import TOOLS
from sweeper.service.responses.models import FrontSummary
from sweeper.specification.spec import schema
from sweeper.specification.yaml_file import parse_mapping
from sweeper.store.actions import read_actions

from ..conftest import DONE, SPEC

CONTENT = parse_mapping(SPEC, "the spec")
ANSWERS = {tool.name: tool.answer for tool in TOOLS}


def test_the_data_that_specs_may_name_are_listed(tool):
    found = tool("describe_data").content
    assert {"name": "digits", "description": "1,797 images of digits, 8 x 8; comes with scikit-learn"} in found["data"]
    assert found["tables"] == []


@pytest.mark.long
def test_every_key_of_a_spec_is_described_in_little_room_and_one_key_in_full(tool):
    found = tool("describe_spec").content
    whole = schema()
    for section, inner in whole["properties"].items():
        target = whole["$defs"].get(inner.get("$ref", "").rpartition("/")[2], {})
        assert set(found["keys"][section].get("keys", {})) == set(target.get("properties", {}))
    assert len(json.dumps(found)) < 12_500
    training = found["keys"]["training"]["keys"]
    assert training["epochs"] == {"type": "integer", "minimum": 1, "default": None, "open": True}
    assert "or" not in training["loss"]
    (loss,) = tool("describe_spec", key="training.loss").content["keys"].values()
    assert {"name", "temperature"} in [set(one["keys"]) for one in loss["or"]]
    assert "Expected a section or a key of the spec" in tool("describe_spec", key="training.lost").error


def test_a_spec_is_checked_and_priced_and_nothing_is_kept(tool, out):
    assert tool("check_spec", spec=CONTENT).content == {
        "name": "tiny",
        "trials": 3,
        "price": "Price: the composition of 3 trials, each up to epsilon 3 at delta 0.0001, for the search and every "
        "model. Each further trial adds to it. privacy.sweep_epsilon in the spec fixes it beforehand.",
        "epsilon": None,
        "delta": 0.0001,
        "account": None,
        "plan": None,
    }
    assert "(data.name in the submitted spec)" in tool("check_spec", spec={**CONTENT, "data": {"name": "../x"}}).error
    assert not [path for path in out.iterdir() if path.is_dir()]


def test_a_sweep_is_submitted_once_by_its_key_and_says_its_price(tool, out):
    first = tool("submit_sweep", spec=CONTENT, key="mine").content
    assert (first["state"], first["name"], first["trials"]) == ("queued", "tiny", 3)
    assert first["price"].startswith("Price: the composition of 3 trials")
    assert tool("submit_sweep", spec=CONTENT, key="mine").content["id"] == first["id"]
    assert (
        "this one came with another spec" in tool("submit_sweep", spec={**CONTENT, "name": "other"}, key="mine").error
    )
    assert tool("submit_sweep", spec=CONTENT).content["id"] != first["id"]
    assert len([path for path in out.iterdir() if path.is_dir()]) == 2
    assert tool("list_sweeps", limit=1).content["total"] == 2


def test_a_sweep_is_watched_with_its_price(tool, make_sweep):
    make_sweep()
    found = tool("watch_sweep", sweep=DONE, seconds=30).content  # it has ended: there is nothing to wait for
    assert found["state"] == "completed"
    assert found["front"]["ledger"]["everything"]["epsilon"] == 9.0
    assert "versions" not in found


def test_a_client_waits_until_a_sweep_changes(tool, door, supervisor_of, monkeypatch):
    name = tool("submit_sweep", spec=CONTENT).content["id"]
    looks = []

    async def pause(_):
        looks.append(1)
        if len(looks) == 1:
            supervisor_of.stop(name, by="ada")
        door.app.state.parts.states.forget(name)

    monkeypatch.setattr(tools, "sleep", pause)
    assert tool("watch_sweep", sweep=name, seconds=30).content["state"] != "queued"
    assert looks


@pytest.mark.long
def test_a_client_waits_no_longer_than_it_said(tool, monkeypatch):
    name = tool("submit_sweep", spec=CONTENT).content["id"]
    times = iter([0.0, 1.0, 2.0, 3.0])
    monkeypatch.setattr(tools, "current_time", lambda: next(times))
    monkeypatch.setattr(tools, "PAUSE_SECONDS", 0.0)
    assert tool("watch_sweep", sweep=name, seconds=2).content["state"] in ("queued", "starting")
    assert next(times) == 3.0, "two looks"


def test_a_front_has_its_best_points_first_and_its_price(tool, make_sweep):
    make_sweep()
    found = tool("show_front", sweep=DONE, limit=2).content
    assert found["total"] == 3
    assert [point["values"]["accuracy"] for point in found["points"]] == [0.9, 0.7]
    assert found["points"][0]["config"] == {"training": {"learning_rate": 0.2}}
    assert found["price"]["everything"]["epsilon"] == 9.0


def test_trials_have_the_price_of_their_sweep_beside_them(tool, make_sweep):
    make_sweep()
    found = tool("list_trials", sweep=DONE, limit=1).content
    assert (found["total"], found["trials"][0]["trial"]) == (2, "t0002")
    assert found["price"]["everything"]["epsilon"] == 9.0


def test_sweeps_are_compared_with_their_prices(tool, make_sweep):
    make_sweep()
    make_sweep("other-20250102-000000")
    found = tool("compare_sweeps", sweeps=[DONE, "other-20250102-000000"]).content
    assert [row["front_points"] for row in found["sweeps"]] == [3, 3]
    assert all(row["price"]["everything"]["epsilon"] == 9.0 for row in found["sweeps"])
    assert found["price"].startswith("If you choose a model by comparing sweeps")
    assert "at least two different sweeps" in tool("compare_sweeps", sweeps=[DONE, DONE]).error


def test_a_sweep_is_enqueued_to_steered_and_extended(tool, make_sweep, out):
    make_sweep()
    values = {"training.learning_rate": 0.05}
    assert tool("enqueue_configuration", sweep=DONE, values=values).content["values"] == values
    assert (
        "training.learning_rates"
        in tool("enqueue_configuration", sweep=DONE, values={"training.learning_rates": 1}).error
    )
    assert tool("steer_sweep", sweep=DONE, region=["epsilon <= 3"]).content["region"] == ["epsilon <= 3"]
    assert tool("stop_sweep", sweep=DONE).error.startswith("Nothing to stop: ")
    assert "completed all of them" in tool("resume_sweep", sweep=DONE).error
    assert tool("extend_sweep", sweep=DONE, trials=9).content["state"] in ("queued", "starting")
    done = [(one.kind.value, one.by) for one in read_actions(out / DONE)]
    assert done == [(kind, "a local user") for kind in ("enqueue", "steer", "extend")]


def test_a_point_is_picked_by_reference_with_its_price(tool, make_sweep):
    make_sweep()
    found = tool("pick_point", sweep=DONE, max_epsilon=2.5, minimum={"accuracy": 0.6})
    assert found.error is None, found.error
    assert (found.content["trial"], found.content["epoch"]) == ("t0001", 2)
    assert found.content["model"] == f"/api/v1/sweeps/{DONE}/models/t0001/2"
    assert found.content["papers"] == f"/api/v1/sweeps/{DONE}/papers?max_epsilon=2.5&min=accuracy%3D0.6"
    assert found.content["guarantee"]["chosen_afterwards"]["epsilon"] > 0
    assert "model of t0001" not in json.dumps(found.content)
    assert tool("pick_point", sweep=DONE, minimum={"accuracy": 0.99}).error.startswith(
        "The service refuses these conditions"
    )


def models(annotation, seen=None):
    """Every model within a model."""
    seen = set() if seen is None else seen
    if annotation in seen:
        return seen
    for field in annotation.model_fields.values():
        stack = [field.annotation]
        while stack:
            one = stack.pop()
            stack += getattr(one, "__args__", ())
            if isinstance(one, type) and hasattr(one, "model_fields"):
                seen |= {one} | models(one, seen | {annotation})
    return seen


@pytest.mark.parametrize("name", ["show_front", "list_trials", "compare_sweeps", "pick_point", "watch_sweep"])
def test_no_score_is_answered_without_its_price(name):
    answer = FrontSummary if name == "watch_sweep" else ANSWERS[name]
    field = answer.model_fields["ledger" if name == "watch_sweep" else "price"]
    assert field.is_required()
    assert name == "pick_point" or name == "compare_sweeps" or PriceFacts in models(answer)


def test_only_these_tools_show_scores():
    shown = {
        name
        for name, answer in ANSWERS.items()
        if {"values", "points", "trials", "hypervolume"} & set(answer.model_fields)
    }
    assert shown - {"check_spec", "submit_sweep", "enqueue_configuration"} == {
        "show_front",
        "list_trials",
        "pick_point",
    }
