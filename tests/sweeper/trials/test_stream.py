"""The rows of a trial as one text each: what a trial reports is what the driver takes."""

import json
import math

import pytest

from sweeper.adapters import dump, parse
from sweeper.records import TrialPlan
from sweeper.trials.stream import EpochRow, FirstDrawRow, FreeRow, PlanRow, row_from_text, row_to_text


@pytest.fixture
def noisy(plan_json):
    scores = {"names": ["accuracy"], "noise_multiplier": 3.0, "apart": True, "std": {"validation": 0.1, "test": 0.2}}
    scores |= {"rows": {"validation": 100, "test": 50}, "epochs": [1, 2]}
    return parse(TrialPlan, plan_json | {"scores": scores, "repeats": 3})


def test_every_row_is_read_back_as_it_was(plan, noisy):
    for row in (
        PlanRow(attempt="a", plan=plan),
        PlanRow(attempt="b", plan=noisy, kept=5, scores_kept=2, placed={"node": "10.0.0.1", "device": "cpu"}),
        FirstDrawRow(),
        EpochRow(epoch=1, values={"certified@36/255": 0.5}),
        EpochRow(epoch=2, values={"epsilon": math.inf}, repeats={"accuracy": (0.1, 0.3)}, model="models/m", done=True),
        EpochRow(
            epoch=3,
            values={"accuracy": 0.2},
            model="models/t-3",
            free=(
                FreeRow(made_from="slow", values={"accuracy": 0.5}, repeats={"accuracy": (0.4, 0.6)}, model="models/s"),
                FreeRow(made_from="quick", values={"accuracy": 0.6}),
            ),
        ),
    ):
        text = row_to_text(row)
        assert "\n" not in text
        assert row_from_text(text) == row
    assert math.isnan(row_from_text(row_to_text(EpochRow(epoch=1, values={"accuracy": math.nan}))).values["accuracy"])


def test_an_epoch_names_every_model_that_was_saved_at_it():
    free = (FreeRow(made_from="a", values={}, model="models/a"), FreeRow(made_from="b", values={}))
    assert EpochRow(epoch=1, values={}, model="models/e", free=free).models == ("models/e", "models/a")
    assert EpochRow(epoch=1, values={}, free=free[1:]).models == ()


@pytest.mark.parametrize("change", [{"kind": "gift"}, {"more": 1}, {"plan": {}}, {"plan": None}])
def test_what_is_no_row_is_refused(plan, change):
    content = json.loads(row_to_text(PlanRow(attempt="a", plan=plan))) | change
    with pytest.raises((TypeError, ValueError)):
        row_from_text(json.dumps(content))


def test_a_plan_is_kept_as_it_was(plan_json, noisy):
    assert dump(parse(TrialPlan, plan_json)) == plan_json
    assert parse(TrialPlan, dump(noisy)) == noisy


@pytest.mark.parametrize("name", ["event", "delta", "repeats", "secure_generator"])
def test_a_plan_that_says_too_little_is_none(name, plan_json):
    del plan_json[name]
    with pytest.raises(ValueError, match=name):
        parse(TrialPlan, plan_json)
