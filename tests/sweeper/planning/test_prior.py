"""The prior that ships: its file, its provenance, and the configurations that it puts in front of a search."""

from dataclasses import replace

import pytest
import torch

from clipless.datasets import Dataset, Evaluation, Split
from sweeper.errors import SpecError
from sweeper.planning.configurations import can_be_planned
from sweeper.planning.defaults import complete
from sweeper.planning.prior import load_prior, prior_facts, project
from sweeper.search.space import sample
from sweeper.specification.dimensions import Dimension
from sweeper.specification.fields.ranges import Choices, Range
from sweeper.specification.left_out import PublicNumbers
from sweeper.specification.search import Prior
from sweeper.specification.spec import Spec
from tests.factories import make_metadata, plan_sweep

BARE = {"name": "t", "data": {"name": "breast_cancer"}, "privacy": {"sweep_epsilon": 3}}
WRITTEN = BARE | {
    "model": {"architecture": "mlp", "width": [16, 32]},
    "training": {"epochs": 3, "batch_size": 50, "learning_rate": {"log": [0.001, 0.005]}},
}


def table_of(rows, columns=6, classes=2):
    """A table of zeros with so many training rows."""
    names = tuple(map(str, range(classes)))
    facts = make_metadata(name="breast_cancer", input_shape=(columns,), classes=names, input_norm=columns**0.5)
    splits = [
        Split(torch.zeros(1, columns).expand(count, columns), torch.zeros(count, dtype=torch.int64))
        for count in (rows, rows // 4, rows // 4)
    ]
    return Dataset(facts, *splits)


def with_(content, **sections):
    return Spec.from_mapping(
        content | {name: content.get(name, {}) | keys for name, keys in sections.items()}, "t.yaml"
    )


def test_the_file_says_where_its_configurations_come_from():
    prior = load_prior()
    assert prior.name == Prior.TABLES.value
    assert prior.made
    assert "benchmarks/prior.py" in prior.command
    assert {one.name for one in prior.sources if one.held_out} == {"german", "magic.gamma", "shuttle"}
    assert all(one.source and one.rows > 100 and one.columns > 1 and one.classes > 1 for one in prior.sources)


def test_every_number_of_rows_and_every_budget_has_a_region():
    prior = load_prior()
    for rows in (1, 300, 1_000, 1_001, 50_000, 10**9):
        for epsilon in (0.01, 1, 3, 1e6, float("inf")):
            assert prior.region(rows, epsilon).configurations
    assert prior.regions[-1].rows is prior.regions[-1].epsilon is None
    assert len({(one.rows, one.epsilon) for one in prior.regions}) == len(prior.regions)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("rows", [300, 1_000, 4_000, 50_000])
@pytest.mark.parametrize(("columns", "classes", "epsilon"), [(3, 2, 1), (60, 5, 3)])
def test_its_configurations_lie_in_the_default_space_and_can_be_planned(rows, columns, classes, epsilon):
    data = table_of(rows, columns, classes)
    spec = with_(BARE, privacy={"sweep_epsilon": epsilon})
    completed, plan = complete(spec, data).spec, plan_sweep(spec, data)
    found = load_prior().first_configurations(
        completed.dimensions, PublicNumbers(rows=rows, columns=columns, classes=classes), epsilon
    )
    assert list(completed.first) == found
    assert len(found) >= 3
    open_ = {one.name: one.space for one in completed.dimensions if one.space is not None}
    known = load_prior().region(rows, epsilon).configurations
    for one, wanted in zip(found, known, strict=True):
        assert one.keys() == open_.keys()
        exact = {name: value for name, value in wanted.items() if name in open_}
        assert exact.items() <= one.items()
        assert can_be_planned(plan.shared, data, one, plan.spending.first_slot)


def test_they_are_proposed_first_and_a_sweep_of_one_trial_trains_the_first():
    data = table_of(2_000)
    plan = plan_sweep(with_(BARE, search={"trials": 8}), data)
    assert tuple(sample(plan.shared.space, len(plan.first))) == plan.first
    one = plan_sweep(with_(BARE, search={"trials": 1}), data)
    assert one.first == plan.first[:1] == tuple(sample(one.shared.space, 1))
    private = plan_sweep(with_(BARE, search={"trials": 1, "rehearse": False}), data)
    assert (private.trials, private.rehearsals, private.first) == (1, 0, plan.first[:1])


@pytest.mark.long
def test_explorers_begin_with_them():
    spec = with_(BARE, privacy={"sweep_epsilon": 3, "stages": [{"trials": 2, "share": 0.2}, {"trials": 1}]})
    assert len(plan_sweep(spec, table_of(2_000)).first) == 2


def test_a_space_that_somebody_wrote_gets_the_nearest_configurations():
    completed = complete(with_(WRITTEN), table_of(2_000)).spec
    assert completed.search.prior is Prior.TABLES
    assert completed.first
    for one in completed.first:
        assert one.keys() == {"model.width", "training.learning_rate"}
        assert one["model.width"] in (16, 32)
        assert 0.001 <= one["training.learning_rate"] <= 0.005


@pytest.mark.parametrize(
    "sections",
    [
        {"search": {"prior": "none"}},
        {"search": {"first": [{"training.learning_rate": 0.004}]}},
        {"search": {"warm_start": "earlier"}},
        {"search": {"selection": "private"}},
        {"search": {"sampler": "grid"}, "training": {"learning_rate": [0.01, 0.02]}},
        {"model": {"architecture": [{"name": "patch-net", "patch": 2}], "width": 8}},
        {"training": {"loss": "hinge"}},
        {"training": {"method": "dp-sgd"}},
    ],
)
def test_there_is_no_prior_where_a_user_says_what_to_try_or_where_it_knows_nothing(sections):
    data = table_of(2_000)
    completed = complete(with_(WRITTEN, **sections), data)
    assert not {"search.prior", "search.first"} & {one.field for one in completed.chosen}
    assert prior_facts(completed.spec.search.prior) == ()


def test_images_have_no_prior(digits):
    assert complete(with_(WRITTEN, data={"name": "digits"}), digits).spec.search.prior is None


def test_a_prior_that_cannot_be_used_is_refused():
    for sections in ({"training": {"loss": "hinge"}}, {"search": {"selection": "private"}}):
        search = {**sections.get("search", {}), "prior": "tables-1"}
        spec = with_(WRITTEN, **{**sections, "search": search})
        with pytest.raises(
            SpecError, match=r"holds some of the prior, got prior='tables-1' \(search.prior in t.yaml\)"
        ):
            complete(spec, table_of(2_000))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("evaluation", [Evaluation.PUBLIC, Evaluation.EXPLORATORY])
def test_the_claim_names_the_tables_that_it_was_learned_from(evaluation):
    data = table_of(2_000)
    data = replace(data, metadata=replace(data.metadata, evaluation=evaluation))
    (fact,) = prior_facts(Prior.TABLES)
    claim = plan_sweep(with_(WRITTEN, search={"rehearse": False}), data).claim
    assert fact in claim.public
    assert "tables-1" in fact
    for one in load_prior().sources:
        assert (one.name in fact) is not one.held_out
    without = plan_sweep(with_(WRITTEN, search={"prior": "none", "rehearse": False}), data).claim
    assert fact not in without.public


def test_a_number_becomes_the_nearest_that_a_space_holds():
    def of(space, wanted):
        found = project({"a": wanted}, [Dimension("a", "a", space)])
        return None if found is None else found.get("a")

    assert of(Choices((1, 10, 100)), 40) == 100
    assert of(Choices((1, 10, 100)), 30) == 10
    assert of(Choices((1, 10)), 10) == 10
    assert of(Range(low=0.1, high=1.0), 3) == 1.0
    assert of(Range(low=0.1, high=1.0), 0.01) == 0.1
    assert of(Range(low=2, high=8, step=2, integer=True), 7) == 6
    assert of(Range(low=1, high=8, integer=True, log=True), 2.7) == 2
    assert of(Choices((False, True)), True) is True
    assert of(Choices(("x", "y")), "z") is None
    assert of(Choices((False, True)), 1) is None
    assert project({"a": 1}, [Dimension("b", "b", 2)]) == {}
