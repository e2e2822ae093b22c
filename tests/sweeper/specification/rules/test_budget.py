"""What a spec says of the budget of a sweep."""

import copy

import pytest

from sweeper.errors import SpecError
from sweeper.specification.spec import DEFAULT_TRIALS, Spec
from sweeper.specification.stages import StagePlan

STAGES = [{"trials": 8, "share": 0.1}, {"trials": 3, "share": 0.3}, {"trials": 1}]


@pytest.fixture
def budget(content):
    content["privacy"] = {"sweep_epsilon": 3.0, "delta": 1e-4}
    content["training"] |= {"learning_rate": {"log": [0.01, 0.1]}}
    return content


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


def test_trials_are_the_configurations_that_are_rehearsed_and_finals_those_that_are_trained(budget):
    spec = Spec.from_mapping(changed(budget, search={"trials": 24}, privacy={"finals": 3}))
    assert (spec.rehearsals, spec.stages) == (24, (StagePlan(3, 1.0),))
    explored = Spec.from_mapping(changed(budget, search={"trials": 24, "rehearse": False}, privacy={"finals": 3}))
    assert (explored.rehearsals, explored.trials, explored.stages[-1].trials) == (0, 24, 3)
    alone = changed(budget, training={"learning_rate": 0.02})
    assert (Spec.from_mapping(alone).rehearsals, Spec.from_mapping(alone).trials) == (0, 1)


def test_stages_are_those_that_are_given(budget):
    spec = Spec.from_mapping(changed(budget, privacy={"stages": STAGES}))
    assert spec.stages == (StagePlan(8, 0.1), StagePlan(3, 0.3), StagePlan(1, 0.6))
    assert spec.trials == 12
    assert Spec.from_mapping(spec.to_plain()).stages == spec.stages


def test_the_number_of_trials_counts_every_stage(budget):
    for trials in (1, 2, 5, 9, 40):
        spec = Spec.from_mapping(changed(budget, search={"trials": trials, "rehearse": False}))
        assert spec.trials == trials


def test_a_small_space_has_fewer_explorers(budget):
    for rehearse in (True, False):
        small = changed(budget, training={"learning_rate": [0.01, 0.02, 0.05]}, search={"rehearse": rehearse})
        spec = Spec.from_mapping(small)
        assert 1 <= spec.stages[0].trials <= 3
        assert spec.rehearsals == 3 * rehearse


def test_a_filter_has_no_stages(budget):
    privacy = {"epsilon": 1.0, "accounting": "filter"}
    spec = Spec.from_mapping(changed(budget, privacy=privacy))
    assert spec.stages == ()
    assert spec.trials == DEFAULT_TRIALS


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        (
            {"privacy": {"epsilon": 3.0}},
            "Expected no epsilon with sweep_epsilon, which gives every trial its noise (privacy.epsilon in the spec); "
            "leave it out, or set privacy.accounting: filter",
        ),
        (
            {"training": {"epochs": None}},
            "Expected epochs with sweep_epsilon, which gives the noise alone (training.epochs in the spec); add it",
        ),
        (
            {"privacy": {"stages": [{"trials": 8}, {"trials": 1}]}},
            "Expected a share of the budget for every stage but the last, which takes what is left "
            "(privacy.stages.0.share in the spec); add it, such as 0.1",
        ),
        (
            {"privacy": {"stages": [{"trials": 2, "share": 0.1}, {"trials": 3}]}},
            "Expected at most 2 trials in a stage that takes up the best of 2, got trials=3 "
            "(privacy.stages.1.trials in the spec); lower it",
        ),
        (
            {"privacy": {"stages": [{"trials": 2, "share": 0.5}, {"trials": 1, "share": 0.4}]}},
            "Expected no share for the last stage, which takes what is left, got share=0.4 "
            "(privacy.stages.1.share in the spec); leave it out",
        ),
        (
            {"privacy": {"stages": [{"trials": 3, "share": 0.5}, {"trials": 2, "share": 0.5}, {"trials": 1}]}},
            "Expected shares that leave something for the last stage, but these are 1 together "
            "(privacy.stages in the spec); lower them",
        ),
        (
            {"privacy": {"stages": STAGES}, "search": {"trials": 16}},
            "Expected no other number of trials than the 12 of privacy.stages, got trials=16 (search.trials in the "
            "spec); leave it out, or leave out privacy.stages",
        ),
        (
            {"training": {"method": ["clipless", "non-private"]}},
            "Expected private methods with sweep_epsilon: a trial without privacy fits no budget, got "
            "method='non-private' (training.method in the spec); leave it out",
        ),
        (
            {"privacy": {"sweep_epsilon": None, "epsilon": 1.0, "stages": STAGES}},
            "Expected no stages without sweep_epsilon, the budget that is divided (privacy.stages in the spec); "
            "add sweep_epsilon, or leave it out",
        ),
        (
            {"privacy": {"sweep_epsilon": None, "epsilon": 1.0, "accounting": "filter"}},
            "Expected no accounting without sweep_epsilon, the budget that is divided, got accounting='filter' "
            "(privacy.accounting in the spec); add sweep_epsilon, or leave it out",
        ),
        (
            {"privacy": {"epsilon": 1.0, "accounting": "filter", "spare_epochs": 2}},
            "Expected no spare_epochs with accounting: filter, which takes trials as long as they fit, got "
            "spare_epochs=2 (privacy.spare_epochs in the spec); leave it out",
        ),
        (
            {"privacy": {"epsilon": 1.0, "accounting": "filter", "relation": "replace-one"}},
            "Expected relation add-or-remove-one with accounting: filter, which adds up Renyi divergences, got "
            "relation='replace-one' (privacy.relation in the spec); use accounting: slots",
        ),
        (
            {"privacy": {"stages": STAGES, "finals": 2}},
            "Expected no finals beside stages, whose last one says how many there are, got finals=2 (privacy.finals in "
            "the spec); leave it out",
        ),
        (
            {"privacy": {"finals": 5}, "search": {"trials": 4}},
            "Expected at most 4 finals, the number of configurations that are tried, got finals=5 (privacy.finals in "
            "the spec); lower it",
        ),
        (
            {"data": {"evaluation": "exploratory"}, "search": {"rehearse": True}},
            "Expected no rehearse without evaluation: public, for they are trained on validation rows, got "
            "rehearse=True (search.rehearse in the spec); leave it out",
        ),
        (
            {"privacy": {"sweep_epsilon": None, "epsilon": 1.0}, "search": {"rehearse": True}},
            "Expected no rehearse without the slots of privacy.sweep_epsilon, whose noise they have, got rehearse=True "
            "(search.rehearse in the spec); leave it out, or add sweep_epsilon",
        ),
        (
            {"search": {"trials": 30}, "training": {"learning_rate": [0.01, 0.02, 0.05]}},
            "Expected trials <= 3, the number of configurations in the search space, got trials=30 (search.trials in "
            "the spec); lower it or open a hyperparameter: the same configuration twice costs privacy twice",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused_in_one_sentence(budget, sections, sentence):
    content = changed(budget, **sections)
    for fields in content.values():
        if isinstance(fields, dict):
            for name in [name for name, value in fields.items() if value is None]:
                del fields[name]
    with pytest.raises(SpecError) as error:
        Spec.from_mapping(content)
    assert str(error.value) == sentence
