"""What a spec says of the budget of a sweep."""

import copy
import re

import pytest

from sweeper.specification.search import SKETCH_SHARE
from sweeper.specification.spec import DEFAULT_TRIALS, Spec
from sweeper.specification.stages import StagePlan
from tests.factories import spec_error

STAGES = [{"trials": 8, "share": 0.1}, {"trials": 3, "share": 0.3}, {"trials": 1}]


@pytest.fixture
def budget(content):
    content["privacy"] = {"sweep_epsilon": 3.0, "delta": 1e-4}
    content["training"] |= {"learning_rate": {"log": [0.01, 0.1]}}
    return content


BOTH_ENDS = (StagePlan(1, 0.003), StagePlan(1, 0.997))


def changed(content, **sections):
    changed = copy.deepcopy(content)
    for section, fields in sections.items():
        changed.setdefault(section, {}).update(fields)
    return changed


def test_a_newcomer_writes_the_budget_and_nothing_else(budget):
    spec = Spec.from_mapping(budget)
    assert (spec.rehearsals, spec.stages, spec.trials) == (DEFAULT_TRIALS, (StagePlan(1, 1.0),), 1)


def test_without_public_rows_explorers_read_training_rows(budget):
    for sections in ({"search": {"rehearse": False}}, {"data": {"evaluation": "exploratory"}}):
        spec = Spec.from_mapping(changed(budget, **sections))
        assert spec.rehearsals == 0
        assert spec.trials == sum(stage.trials for stage in spec.stages) == DEFAULT_TRIALS
        assert sum(stage.share for stage in spec.stages) == pytest.approx(1.0)
        assert spec.stages[-1].trials == 1
        assert [stage.trials for stage in spec.stages] == sorted((s.trials for s in spec.stages), reverse=True)


def test_private_rows_of_a_table_are_rehearsed_on_a_sketch_and_others_where_that_is_asked_for(budget):
    private = {"evaluation": "private"}
    table = changed(budget, data={"name": "breast_cancer"} | private, privacy={"score_noise": 20.0})
    own = changed(table, data={"name": None, "path": "own.csv"})
    for content in (table, own):
        spec = Spec.from_mapping(content)
        assert (spec.rehearsals, spec.sketch_share, spec.stages) == (DEFAULT_TRIALS, SKETCH_SHARE, BOTH_ENDS)
        assert spec.search.rehearse is None
        one = Spec.from_mapping(changed(content, privacy={"finals": 1}))
        assert (one.sketch_share, one.stages) == (SKETCH_SHARE, (StagePlan(1, 1.0),))
    for fields in ({"search": {"rehearse": False}}, {"data": {"name": "digits"}}, {"privacy": {"stages": STAGES}}):
        spec = Spec.from_mapping(changed(table, **fields))
        assert (spec.rehearsals, spec.sketch_share, len(spec.stages)) == (0, 0.0, 3)
    fixed = changed(table, training={"learning_rate": 0.02})
    assert Spec.from_mapping(fixed).sketch_share == 0.0
    for trials, finals in ((1, 1), (3, 3)):  # nothing to choose
        every = changed(table, search={"trials": trials}, privacy={"finals": finals})
        assert Spec.from_mapping(every).sketch_share == 0.0
    for evaluation in ("public", "exploratory"):
        asked = changed(budget, data={"evaluation": evaluation}, search={"rehearse": "sketch", "trials": 5})
        spec = Spec.from_mapping(asked)
        assert (spec.rehearsals, spec.sketch_share) == (5, SKETCH_SHARE)
        assert Spec.from_mapping(spec.to_plain()) == spec


def test_both_ends_of_a_front_are_trained_where_that_is_asked_for_or_scores_are_few(budget):
    asked = {"privacy": {"finals": "auto"}}
    assert Spec.from_mapping(budget).has_low_end is False  # scores are free
    spec = Spec.from_mapping(changed(budget, **asked))
    assert (spec.stages, spec.trials, spec.rehearsals) == (BOTH_ENDS, 2, DEFAULT_TRIALS)
    assert sum(stage.share for stage in spec.stages) == 1.0
    assert Spec.from_mapping(spec.to_plain()).stages == BOTH_ENDS
    explorers = Spec.from_mapping(changed(budget, search={"rehearse": False}, **asked))
    assert (explorers.has_low_end, explorers.stages[-1].trials, explorers.trials) == (False, 1, DEFAULT_TRIALS)


def test_trials_are_the_configurations_that_are_rehearsed_and_finals_those_that_are_trained(budget):
    spec = Spec.from_mapping(changed(budget, search={"trials": 24}, privacy={"finals": 3}))
    assert (spec.rehearsals, spec.stages) == (24, (StagePlan(3, 1.0),))
    explored = Spec.from_mapping(changed(budget, search={"trials": 24, "rehearse": False}, privacy={"finals": 3}))
    assert (explored.rehearsals, explored.trials, explored.stages[-1].trials) == (0, 24, 3)
    alone = changed(budget, training={"learning_rate": 0.02})
    assert (Spec.from_mapping(alone).rehearsals, Spec.from_mapping(alone).trials) == (0, 1)


def test_stages_are_those_that_are_given_and_their_trials_are_counted(budget):
    spec = Spec.from_mapping(changed(budget, privacy={"stages": STAGES}))
    assert spec.stages == (StagePlan(8, 0.1), StagePlan(3, 0.3), StagePlan(1, 0.6))
    assert spec.trials == 12
    assert Spec.from_mapping(spec.to_plain()).stages == spec.stages
    for trials in (1, 2, 5, 9, 40):
        spec = Spec.from_mapping(changed(budget, search={"trials": trials, "rehearse": False}))
        assert spec.trials == trials
    privacy = {"epsilon": 1.0, "accounting": "filter"}
    spec = Spec.from_mapping(changed(budget, privacy=privacy))
    assert spec.stages == ()
    assert spec.trials == DEFAULT_TRIALS


def test_a_small_space_has_fewer_explorers(budget):
    for rehearse in (True, False):
        small = changed(budget, training={"learning_rate": [0.01, 0.02, 0.05]}, search={"rehearse": rehearse})
        spec = Spec.from_mapping(small)
        assert 1 <= spec.stages[0].trials <= 3
        assert spec.rehearsals == 3 * rehearse


NO_BUDGET = {"privacy.sweep_epsilon": ..., "privacy.epsilon": 1.0}
FILTER = {"privacy.epsilon": 1.0, "privacy.accounting": "filter"}
LEARNING_RATE = "training.learning_rate"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"privacy.epsilon": 3.0}, r"no epsilon with sweep_epsilon.*\(privacy\.epsilon in .*leave it out"),
        ({"training.epochs": ...}, r"epochs with sweep_epsilon.*\(training\.epochs in .*add it"),
        ({"privacy.stages": [{"trials": 8}, {"trials": 1}]}, r"a share .*\(privacy\.stages\.0\.share in .*add it, such as 0\.1"),
        ({"privacy.stages": [{"trials": 2, "share": 0.1}, {"trials": 3}]}, r"at most 2 trials.*got trials=3 \(privacy\.stages\.1\.trials in .*lower it"),
        ({"privacy.stages": [{"trials": 2, "share": 0.5}, {"trials": 1, "share": 0.4}]}, r"no share for the last.*got share=0\.4 \(privacy\.stages\.1\.share in .*leave it out"),
        ({"privacy.stages": [{"trials": 3, "share": 0.5}, {"trials": 2, "share": 0.5}, {"trials": 1}]}, r"these are 1 together \(privacy\.stages in .*lower them"),
        ({"privacy.stages": STAGES, "search.trials": 16}, r"the 12 of privacy\.stages, got trials=16 \(search\.trials in .*leave it out"),
        ({"training.method": ["clipless", "non-private"]}, r"private methods.*got method='non-private' \(training\.method in .*leave it out"),
        (NO_BUDGET | {"privacy.stages": STAGES}, r"no stages without sweep_epsilon.*\(privacy\.stages in .*add sweep_epsilon"),
        (NO_BUDGET | FILTER, r"no accounting without sweep_epsilon.*got accounting='filter' \(privacy\.accounting in .*add sweep_epsilon"),
        (FILTER | {"privacy.spare_epochs": 2}, r"no spare_epochs.*got spare_epochs=2 \(privacy\.spare_epochs in .*leave it out"),
        ({"privacy.stages": STAGES, "privacy.finals": 2}, r"no finals beside stages.*got finals=2 \(privacy\.finals in .*leave it out"),
        ({"privacy.finals": "two"}, r"auto, or an integer finals >= 1.*got finals='two' \(privacy\.finals in "),
        ({"privacy.finals": 0}, r"finals >= 1.*got finals=0 \(privacy\.finals in "),
        ({"privacy.finals": 5, "search.trials": 4}, r"at most 4 finals.*got finals=5 \(privacy\.finals in .*lower it"),
        ({"data.evaluation": "exploratory", "search.rehearse": True}, r"evaluation: public.*got rehearse=True \(search\.rehearse in .*leave it out"),
        (NO_BUDGET | {"search.rehearse": "sketch"}, r"the slots of privacy\.sweep_epsilon.*got rehearse='sketch' \(search\.rehearse in .*add sweep_epsilon"),
        ({"search.rehearse": "draft"}, r"Expected rehearse true, false or sketch, got rehearse='draft' \(search\.rehearse in"),
        (NO_BUDGET | {"search.rehearse": True}, r"the slots of privacy\.sweep_epsilon.*got rehearse=True \(search\.rehearse in .*add sweep_epsilon"),
        ({"search.trials": 30, LEARNING_RATE: [0.01, 0.02, 0.05]}, r"trials <= 3.*got trials=30 \(search\.trials in .*lower it or open"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused_in_one_sentence(budget, changes, said):
    assert re.search(said, spec_error(budget, **changes))
