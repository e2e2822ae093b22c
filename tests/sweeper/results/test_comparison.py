import json
from dataclasses import replace
from math import inf

import pytest
from scipy import stats

from clipless.privacy.events import Relation
from sweeper.cli.tables import comparison_view
from sweeper.pareto.dominance import Box, hypervolume
from sweeper.privacy.pricing import Price
from sweeper.records import Objective
from sweeper.results.comparison import ONE_RUN, PRICE, ComparisonError, compare


@pytest.fixture
def front(make_front, trial, make_point, objectives, claim):
    """Make the front of one run that reaches ``accuracy`` at epsilon 1."""

    def make(accuracy, name="digits", *, plan=None, claimed=None, names=None):
        return make_front(
            [make_point("t0001", 1, 1.0, accuracy, 0.5)],
            sweep=name,
            objectives=objectives if names is None else tuple(map(Objective.named, names)),
            trials=[replace(trial, plan=replace(trial.plan, **(plan or {})))],
            claim=replace(claim, **(claimed or {})),
        )

    return make


def labelled(*fronts):
    return [(f"sweep-{i}", front) for i, front in enumerate(fronts)]


def test_every_hypervolume_is_measured_in_one_box(front, objectives):
    fronts = [front(0.5), front(0.75, "other")]
    found = compare(labelled(*fronts))
    assert [run.hypervolume for run in found.runs] == [hypervolume(f.points, objectives) for f in fronts]
    assert [group.name for group in found.groups] == ["digits", "other"]
    assert found.conflicts == ()


def test_with_one_run_of_each_no_confidence_is_claimed(front):
    (difference,) = compare(labelled(front(0.5), front(0.75, "other"))).differences
    assert difference.mean == pytest.approx(0.5 * 0.5 * (0.5 - 0.75))
    assert (difference.low, difference.high, difference.p) == (None, None, None)
    assert ONE_RUN in str(difference)
    (difference,) = compare(labelled(front(0.5), front(0.6), front(0.75, "other"))).differences
    assert difference.p is None


def test_with_several_runs_the_interval_is_welchs_and_the_p_value_mann_and_whitneys(front):
    runs = [front(a) for a in (0.5, 0.52, 0.55)] + [front(a, "other") for a in (0.7, 0.75, 0.71, 0.72)]
    found = compare(labelled(*runs))
    (difference,) = found.differences
    one, other = (group.volumes for group in found.groups)
    interval = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    assert (difference.low, difference.high) == pytest.approx((interval.low, interval.high))
    assert difference.low < difference.mean < difference.high < 0
    assert difference.p == pytest.approx(2 / 35)  # exact: of 35 rankings, two are as extreme
    assert "95 % interval" in str(difference)


def test_sweeps_of_one_name_that_are_of_different_specs_are_named(front):
    fronts = labelled(front(0.5, "a"), front(0.6, "a"), front(0.7, "b"))
    spec = {"name": "a", "search": {"seed": 1}, "training": {"epochs": 3, "loss": {"temperature": 1.0}}}
    other = {"name": "a", "search": {"seed": 2}, "training": {"epochs": 4, "loss": {"name": "cce"}}}
    specs = dict(zip([label for label, _ in fronts], (spec, other, spec), strict=True))
    (said,) = compare(fronts, specs=specs).mixtures
    assert said.endswith("differ in training.epochs, training.loss.temperature, training.loss.name")
    assert said in compare(fronts, specs=specs).remarks
    again = spec | {"search": {"seed": 2}}
    assert compare(fronts, specs=dict(zip(specs, (spec, again, other), strict=True))).mixtures == ()
    assert compare(fronts).mixtures == ()


def test_the_number_of_pairs_is_not_corrected_for_and_that_is_said_where_there_are_p_values(front):
    said, names = "The p-values are not corrected for the number of pairs.", ("digits", "other", "third")
    once = [front(0.5 + 0.1 * i, name) for i, name in enumerate(names)]
    twice = compare(labelled(*once, *(front(0.52 + 0.1 * i, name) for i, name in enumerate(names))))
    assert twice.uncorrected == said
    assert said in " ".join(repr(twice).split())
    assert said in map(str, comparison_view(twice).renderables)
    for few in (once, [front(a, name) for a, name in ((0.5, "a"), (0.6, "a"), (0.7, "b"), (0.8, "b"))]):
        assert compare(labelled(*few)).uncorrected == ""


def test_runs_without_spread_or_of_one_spec_claim_no_difference(front):
    (difference,) = compare(labelled(front(0.5), front(0.5), front(0.6, "o"), front(0.6, "o"))).differences
    assert difference.low is None
    found = compare(labelled(front(0.5), front(0.6), front(0.7)))
    assert found.differences == ()
    best, median, worst = found.surfaces()["digits"]
    assert [s.steps for s in (best, median, worst)] == [((1.0, 0.7),), ((1.0, 0.6),), ((1.0, 0.5),)]


CONFLICTS = [
    ({"plan": {"delta": 1e-5}}, "one delta, got 0.0001 (sweep-0) and 1e-05 (sweep-1)"),
    (
        {"plan": {"relation": Relation.REPLACE_ONE}},
        "one relation, got add-or-remove-one (sweep-0) and replace-one (sweep-1)",
    ),
    ({"claimed": {"population": 999}}, "the same data, got digits with 1000 training rows"),
    ({"claimed": {"data": "mnist"}}, "the same data"),
    ({"claimed": {"data": "mnist"}, "plan": {"delta": 1e-5}}, "Expected sweeps of the same data"),
    ({"claimed": {"evaluation": "private"}}, "the same data"),
    ({"claimed": {"unit": "patient"}}, "the same data"),
    ({"names": ["epsilon", "accuracy"]}, "the same objectives, got accuracy, certified@1/4, epsilon (sweep-0)"),
]


@pytest.mark.parametrize(("other", "said"), CONFLICTS)
def test_sweeps_that_are_not_comparable_are_refused_unless_asked_for(front, other, said):
    fronts = labelled(front(0.5), front(0.6, "other", **other))
    with pytest.raises(ComparisonError) as caught:
        compare(fronts)
    assert said in str(caught.value)
    assert "--anyway" in str(caught.value)
    conflict, *_ = compare(fronts, anyway=True).conflicts
    assert said in conflict


def test_different_objectives_are_compared_by_those_they_share(front):
    found = compare(labelled(front(0.5), front(0.6, "o", names=["epsilon", "accuracy"])), anyway=True)
    assert [o.name for o in found.objectives] == ["epsilon", "accuracy"]
    with pytest.raises(ComparisonError, match="epsilon and another objective in every sweep, got epsilon shared"):
        compare(labelled(front(0.5), front(0.6, names=["epsilon", "certified@1/2"])), anyway=True)


def test_one_sweep_twice_is_no_comparison(front):
    with pytest.raises(ComparisonError, match="at least two different sweeps"):
        compare([("a", front(0.5)), ("a", front(0.5))])


def test_the_box_can_be_chosen(front, objectives):
    fronts = [front(0.5), front(0.75)]
    found = compare(labelled(*fronts), reference={"epsilon": 10.0, "accuracy": 0.25}, log_epsilon=False)
    reference = {"epsilon": 10.0, "accuracy": 0.25, "certified@1/4": 0.0}
    box = Box(reference=reference, ideal=Box.default(objectives).ideal, log_epsilon=False)
    assert [run.hypervolume for run in found.runs] == [hypervolume(f.points, objectives, box) for f in fronts]


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ({"auroc": 0.5}, "a reference for one of epsilon, accuracy, certified@1/4, got 'auroc'"),
        ({"epsilon": 0.001}, "a finite reference worse than the ideal 0.01, got epsilon=0.001"),
        ({"accuracy": 1.0}, "worse than the ideal 1, got accuracy=1"),
    ],
)
def test_a_reference_that_is_none_is_refused(front, reference, said):
    with pytest.raises(ComparisonError, match=said):
        compare(labelled(front(0.5), front(0.6)), reference=reference)


def test_an_exploratory_sweep_makes_the_comparison_exploratory(front):
    assert not compare(labelled(front(0.5), front(0.6))).exploratory
    assert compare(labelled(front(0.5, claimed={"exploratory": True}), front(0.6))).exploratory


def test_all_sweeps_together_cost_at_most_the_sums_of_their_prices(front):
    def priced(epsilon, accuracy=0.5, unproven=None, **claimed):
        price = Price(epsilon=epsilon, delta=1e-5, events=2, unproven=unproven)
        return replace(front(accuracy, claimed=claimed), ledger={"winner": price})

    found = compare(labelled(priced(1.5), priced(2.0), priced(3.0)))
    assert (found.price.epsilon, found.price.delta, found.price.events) == (6.5, pytest.approx(3e-5), 6)
    assert found.price_in_words == f"{PRICE}: at most epsilon 6.5 at delta 3e-05 (sum of all 3)."
    steered = compare(labelled(priced(1.5), priced(2.0, unproven="Results steer it.")))
    assert steered.price_in_words == f"{PRICE}: about epsilon 3.5 at delta 2e-05 (not proven) (sum of both)."
    assert [line.endswith(" 2 (not proven)") for line in repr(steered).splitlines()[1:3]] == [False, True]
    assert repr(steered.price) == "Price(epsilon 3.5 at delta 2e-05 (not proven))"
    for other in (front(0.5), priced(inf), priced(1.0, exploratory=True)):
        assert compare(labelled(priced(1.5), other)).price is None
    assert compare(labelled(priced(1.5), priced(1.0, data="another")), anyway=True).price is None


def test_the_comparison_is_plain_values(front):
    found = compare(labelled(front(0.5), front(0.6), front(0.7, "other")))
    content = json.loads(json.dumps(found.to_json()))
    assert [row["sweep"] for row in content["runs"]] == ["sweep-0", "sweep-1", "sweep-2"]
    assert content["differences"][0]["first"] == "digits"
    assert content["attainment"]["digits"][0]["steps"] == [[1.0, 0.6]]
    assert content["box"]["log_epsilon"] is True
    assert content["price"] == f"{PRICE}."


@pytest.mark.parametrize("certificate", ["certified@0.5", "smoothed@0.5", "attacked@0.5"])
def test_certificates_in_different_units_are_never_on_one_axis(front, certificate):
    names = ("epsilon", "accuracy", certificate)
    pixels = front(0.5, names=names)
    features = front(0.6, "other", names=names, claimed={"radius_unit": "units of the features of tiny"})
    with pytest.raises(ComparisonError, match="Expected sweeps of one unit of radii, got"):
        compare(labelled(pixels, features))
    found = compare(labelled(pixels, features), anyway=True)
    assert [objective.name for objective in found.objectives] == ["epsilon", "accuracy"]
    only = ("epsilon", certificate)
    with pytest.raises(ComparisonError, match="Expected epsilon and another objective in every sweep, got epsilon"):
        compare(labelled(front(0.5, names=only), replace(features, objectives=features.objectives[::2])), anyway=True)


def test_a_comparison_shows_itself_with_the_price_of_a_choice(front):
    found = compare(labelled(front(0.5), front(0.75, "<other>")))
    lines = repr(found).splitlines()
    assert lines[0].split() == ["name", "sweep", "trials", "best", "accuracy", "hypervolume", "price"]
    assert lines[3].startswith("hypervolume of digits (unknown price) minus <other> (unknown price): -")
    assert " ".join(lines[-2:]).endswith("not the price of its own sweep.")
    assert "&lt;other&gt;" in found._repr_html_()
    caption, body = found.to_latex().split(r"\label")
    assert "not the price of its own sweep." in caption
    assert body.count(r"\textless{}other\textgreater{} & ") == 1
    assert list(found.to_dataframe()["sweep"]) == ["sweep-0", "sweep-1"]
    marked = compare(labelled(front(0.5, claimed={"exploratory": True}), front(0.6)))
    assert "exploratory: no guarantee" in repr(marked)
