"""Rehearsed configurations stand in the order in which finalists are chosen, and are no results of the sweep."""

import math
from dataclasses import replace

import pytest

from sweeper.privacy.baselines import Baselines
from sweeper.records import Objective, SweepStatus, Trial
from sweeper.results.rehearsal_ranking import Rehearsed, rank_recorded, rank_rehearsals, ranked_by
from sweeper.results.sweep import load
from sweeper.store.manifest import Manifest
from sweeper.store.rehearsal_records import RehearsedEpoch, join_trainings
from sweeper.store.sweep_folder import SweepFolder

from ...factories import make_rehearsals

OBJECTIVES = tuple(Objective.named(name) for name in ("epsilon", "accuracy", "certified@0.25"))
FOUND = join_trainings(make_rehearsals((0.8, 0.5), (), (0.7, 0.7), (0.9, 0.1)))
EASY, HARD = ({"accuracy": 0.55, "certified@0.25": 1.0},), ({"accuracy": 0.8, "certified@0.25": 1.0},)
PARTS = ((EASY, EASY), (), (EASY, HARD), (HARD, HARD))


def test_the_largest_hypervolume_is_first_and_a_configuration_without_scores_last():
    ranked = rank_rehearsals(FOUND, OBJECTIVES, {})
    assert [(one.place, one.id) for one in ranked] == [(1, "c0003"), (2, "c0001"), (3, "c0004"), (None, "c0002")]
    assert [one.volume for one in ranked[:3]] == pytest.approx([0.49, 0.4, 0.09])
    assert [one.scores(OBJECTIVES) for one in ranked[2:]] == [
        "accuracy 0.900, certified@0.25 0.100",
        "accuracy is not a number in epoch 1",
    ]
    assert [one.best.epoch for one in ranked[:3]] == [2, 2, 2]


def test_one_score_is_its_own_hypervolume():
    found = join_trainings(make_rehearsals((0.8,), (0.9,), names=["accuracy"]))
    ranked = rank_rehearsals(found, OBJECTIVES[:2], {})
    assert [(one.id, one.scores(OBJECTIVES[:2])) for one in ranked] == [
        ("c0002", "accuracy 0.900"),
        ("c0001", "accuracy 0.800"),
    ]


def test_scores_that_rank_are_shown_first_and_recalls_of_classes_only_if_they_rank():
    names, judged = ["accuracy", "balanced_accuracy", "recall@0", "recall@1"], ["epsilon", "balanced_accuracy"]
    found = join_trainings(make_rehearsals((0.9, 0.5, 0.9, 0.1), (0.7, 0.6, 0.5, 0.7), names=names))
    objectives = [Objective.named(name) for name in judged]
    first, second = rank_rehearsals(found, objectives, {})
    assert first.scores(objectives) == "balanced_accuracy 0.600, accuracy 0.700"
    assert second.scores(objectives) == "balanced_accuracy 0.500, accuracy 0.900"
    assert first.scores([*objectives, Objective.named("recall@1")]).startswith("balanced_accuracy 0.600, recall@1 0.7")
    assert ranked_by(objectives) == "ranked by balanced_accuracy"


def test_constraints_of_the_spec_decide_first():
    search = {"objectives": ["epsilon", "accuracy", "certified@0.25"], "constraints": ["accuracy >= 0.85"]}
    assert rank_recorded(FOUND, OBJECTIVES, {}, {"search": search})[0].id == "c0004"


def test_what_a_constant_prediction_dominates_recommends_none_of_a_recorded_sweep(claim):
    search = {"objectives": ["epsilon", "accuracy", "certified@0.25"]}
    for share, ids in ((0.5, ["c0003", "c0001", "c0004", "c0002"]), (0.68, ["c0001", "c0003", "c0004", "c0002"])):
        baselines = Baselines(classes=("a", "b"), majority={"validation": share})
        recorded = replace(claim, baselines=baselines).to_json()
        assert [one.id for one in rank_recorded(FOUND, OBJECTIVES, {}, {"search": search}, recorded)] == ids


def test_the_first_of_a_prior_leads_where_no_other_is_better_by_more_than_the_error():
    scores = [one.volume for one in rank_rehearsals(FOUND, OBJECTIVES, {})[:3]]
    found = [replace(one, parts=parts) for one, parts in zip(FOUND, PARTS, strict=True)]
    search = {"objectives": ["epsilon", "accuracy", "certified@0.25"], "prior": "tables-1"}
    led = rank_recorded(found, OBJECTIVES, {}, {"search": search})
    assert [one.id for one in led] == ["c0001", "c0003", "c0004", "c0002"]
    assert [one.volume for one in led[:3]] == pytest.approx([scores[1], scores[0], scores[2]])
    assert [one.error for one in led] == [pytest.approx(0.102, abs=1e-3), None, None, None]
    for other in ({**search, "prior": "none"}, {name: value for name, value in search.items() if name != "prior"}):
        ranked = rank_recorded(found, OBJECTIVES, {}, {"search": other})
        assert (ranked[0].id, ranked[0].error) == ("c0003", None)
    surer = [replace(one, parts=parts[:1] * 2) for one, parts in zip(FOUND, PARTS, strict=True)]
    assert rank_recorded(surer, OBJECTIVES, {}, {"search": search})[0].id == "c0003"


@pytest.mark.parametrize("best", [0.51, 0.6, math.nan])
def test_where_no_rehearsal_ranks_better_than_chance_within_its_error_that_is_said(best):
    def both(*aurocs):
        halves = [(0.9, {"auroc": auroc}) for auroc in aurocs]
        mean = {"accuracy": 0.9, "auroc": sum(aurocs) / 2}
        parts = tuple(({"accuracy": accuracy} | more,) for accuracy, more in halves)
        return replace(FOUND[0], epochs=(RehearsedEpoch(1, "", mean),), parts=parts)

    found = [both(0.46, 0.5), both(0.52, 0.48), both(best + 0.02, best - 0.02)]
    said = rank_rehearsals(found, OBJECTIVES[:2], {}).doubt
    if best == 0.51:
        assert "(largest AUROC 0.510, error 0.020): the model may give every row the same answer." in said
    else:
        assert said == ""
    assert rank_rehearsals(found[:2], OBJECTIVES[:2], {}).doubt == rank_rehearsals(FOUND, OBJECTIVES, {}).doubt == ""


def test_the_trials_of_a_configuration_are_those_that_train_all_its_values():
    config = FOUND[2].config
    other = {**config, "model": {"width": 32}}
    ranked = rank_rehearsals(FOUND, OBJECTIVES, {"t0001": other, "t0002": config, "t0003": config})
    assert [one.trials for one in ranked] == [("t0002", "t0003"), (), (), ()]


def test_a_table_has_a_row_for_each_configuration_and_no_epsilon():
    table = rank_rehearsals(FOUND, OBJECTIVES, {}).to_dataframe()
    assert table["configuration"].tolist() == ["c0003", "c0001", "c0004", "c0002"]
    assert table["rehearsed_on"].unique().tolist() == ["public"]
    assert table["config.training.learning_rate"].tolist() == pytest.approx([0.03, 0.01, 0.04, 0.02])
    assert math.isnan(table["accuracy"].iloc[3])
    assert not [name for name in table.columns if "epsilon" in name or name in ("trial", "on_front", "model")]


def test_rehearsals_show_themselves_as_a_count_and_a_table_that_fit_a_screen():
    ranked = rank_rehearsals(FOUND, OBJECTIVES, {"t0002": FOUND[2].config})
    head, heads, first, *rest = repr(ranked).splitlines()
    assert head == "4 configurations rehearsed, no points of the sweep"
    assert heads.split()[:3] == ["place", "configuration", "accuracy"]
    assert first.split()[:2] == ["1", "c0003"]
    assert first.endswith("t0002")
    assert len(rest) == 3
    html = ranked._repr_html_()
    assert html.startswith(f"<p><b>{head}</b></p><table>")
    assert "<td>c0003</td>" in html
    many = Rehearsed([*ranked] * 5)
    assert len(repr(many).splitlines()) == 12
    assert "20 configurations rehearsed, no points of the sweep; the best 10, to_dataframe() has all" in repr(many)
    assert repr(Rehearsed()) == "No configuration was rehearsed."
    assert Rehearsed()._repr_html_() == f"<p>{Rehearsed()!r}</p>"


def test_a_sweep_without_rehearsals_has_none(tmp_path):
    folder = SweepFolder(tmp_path)
    folder.write_manifest(Manifest(name="small", status=SweepStatus.RUNNING, spec={}, source="s.yaml"))
    folder.save_trial(Trial(id="t0001", config={}))
    assert load(tmp_path).rehearsals() == ()
