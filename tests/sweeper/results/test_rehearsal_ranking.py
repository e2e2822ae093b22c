"""Rehearsed configurations stand in the order in which finalists are chosen, and are no results of the sweep."""

import math

import pytest

from sweeper.records import Objective, SweepStatus, Trial
from sweeper.results.rehearsal_ranking import rank_recorded, rank_rehearsals
from sweeper.results.sweep import load
from sweeper.specification.constraints import parse_constraint
from sweeper.store.manifest import Manifest
from sweeper.store.rehearsal_records import join_trainings
from sweeper.store.sweep_folder import SweepFolder

from ...factories import make_rehearsals

OBJECTIVES = tuple(Objective.named(name) for name in ("epsilon", "accuracy", "certified@0.25"))
FOUND = join_trainings(make_rehearsals((0.8, 0.5), (), (0.7, 0.7), (0.9, 0.1)))


def test_the_largest_hypervolume_is_first_and_a_configuration_without_scores_last():
    ranked = rank_rehearsals(FOUND, OBJECTIVES, {})
    assert [(one.place, one.id) for one in ranked] == [(1, "c0003"), (2, "c0001"), (3, "c0004"), (None, "c0002")]
    assert [one.volume for one in ranked[:3]] == pytest.approx([0.49, 0.4, 0.09])
    assert [one.scores() for one in ranked[2:]] == [
        "accuracy 0.900, certified@0.25 0.100, hypervolume 0.090",
        "accuracy is not a number in epoch 1",
    ]
    assert [one.best.epoch for one in ranked[:3]] == [2, 2, 2]


def test_one_score_is_its_own_hypervolume():
    found = join_trainings(make_rehearsals((0.8,), (0.9,), names=["accuracy"]))
    ranked = rank_rehearsals(found, OBJECTIVES[:2], {})
    assert [(one.id, one.scores()) for one in ranked] == [("c0002", "accuracy 0.900"), ("c0001", "accuracy 0.800")]


def test_constraints_of_the_spec_decide_first():
    wanted = [parse_constraint("accuracy >= 0.85", ["accuracy"])]
    assert rank_rehearsals(FOUND, OBJECTIVES, {}, wanted)[0].id == "c0004"
    search = {"objectives": ["epsilon", "accuracy", "certified@0.25"], "constraints": ["accuracy >= 0.85"]}
    assert rank_recorded(FOUND, OBJECTIVES, {}, {"search": search})[0].id == "c0004"


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


def test_a_sweep_without_rehearsals_has_none(tmp_path):
    folder = SweepFolder(tmp_path)
    folder.write_manifest(Manifest(name="small", status=SweepStatus.RUNNING, spec={}, source="s.yaml"))
    folder.save_trial(Trial(id="t0001", config={}))
    assert load(tmp_path).rehearsals() == ()
