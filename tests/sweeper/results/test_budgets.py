"""What budgets buy, as metrics and in words."""

import math
from dataclasses import replace

import pytest

from clipless.privacy.exposure import Basis, Exposure, Risk
from sweeper.privacy.pricing import Price
from sweeper.records import Objective
from sweeper.results.budgets import best_values, description, tells_own_epsilons


@pytest.fixture
def priced(make_front, make_point):
    points = [make_point("t0001", *row) for row in ((1, 0.9, 0.5, 0.4), (2, 2.9, 0.8, 0.3), (3, 9, 0.9, 0))]
    return lambda ledger=None, **more: make_front(points, sweep="my_*sweep*", ledger=ledger or {}, **more)


def price(epsilon, events=3):
    return Price(epsilon=epsilon, delta=1e-4, events=events, statement=f"It costs {epsilon}.")


def test_the_best_value_within_each_epsilon_is_a_metric(priced):
    front = priced()
    found = best_values(front.front_points, front.objectives)
    assert found["best/accuracy"] == 0.9
    assert found["best/accuracy/eps1"] == 0.5
    assert found["best/accuracy/eps3"] == found["best/accuracy/eps8"] == 0.8
    assert found["best/certified/1_4/eps3"] == 0.4
    assert not any("epsilon" in name for name in found)
    assert best_values((), front.objectives) == {}


def test_the_description_has_costs_a_table_and_where_to_look(priced):
    said = description(
        priced({"winner": price(9.5), "everything": price(9.5)}), status="completed", page="http://h/sweeps/x"
    )
    assert said.startswith("**my\\_\\*sweep\\***: completed; 1 trial, 3 of 3 points on the front.")
    assert said.count("It costs 9.5.") == 1
    assert "**Best accuracy: t0001, epoch 3**\n\n- accuracy 0.900 on validation rows" in said
    best, certified = "0.800: t0001, epoch 2, own epsilon 2.9", "0.400: t0001, epoch 1, own epsilon 0.9001"
    assert f"| 3 | {best} | {certified} |" in said
    assert "| 5 |" not in said, "as 3, which buys the same"
    assert said.index("It costs 9.5.") < said.index("## Best points by own epsilon")
    assert "if its configuration and epoch were fixed in advance" in said
    assert "- [Live page](http://h/sweeps/x)\n- [Report](artifact-of-this-run:front.html)" in said


def test_what_an_attacker_finds_is_said_to_depend_on_a_price_that_is_not_proven(priced, claim):
    risk = Risk(caught=(0.01, 0.08, 0.4), advantage=0.4, basis=Basis.PROFILE)
    meant = {"winner": replace(price(9.5), exposure=Exposure(risk=risk, groups=()))}
    for chosen, said in (((), "Of 1,000 "), (("extended",), "If the price holds, which is not proven: of 1,000 ")):
        front = priced(meant, claim=replace(claim, chosen=chosen))
        assert f"\n{said}people" in description(front, status="completed")


def test_radii_behind_an_encoder_are_said_to_be_of_its_features(priced, claim):
    said = "- Certified radii are in units of the features of seen, not in units of the raw input.\n"
    behind = replace(claim, radius_unit="units of the features of seen")
    assert said in description(priced({"winner": price(5.0)}, claim=behind), status="completed")
    assert "Certified radii are" not in description(priced({"winner": price(5.0)}), status="completed")
    assert claim.radii_in_words([]) == behind.radii_in_words([Objective.named("accuracy")]) == ""


def test_of_a_private_selection_no_epsilon_of_a_single_training_is_told(priced):
    hidden = Price(epsilon=math.inf, delta=1e-4, events=0, statement="The front may not leave.")
    front = priced({"winner": price(5.0), "front": hidden, "everything": hidden})
    assert not tells_own_epsilons(front)
    assert "| own epsilon at most" not in description(front, status="completed")
    assert "It costs 5.0." in description(front, status="completed")
    assert not tells_own_epsilons(priced())


def test_an_exploratory_sweep_says_so_first(priced, claim):
    said = description(priced({"winner": price(5.0)}, claim=replace(claim, exploratory=True)), status="completed")
    assert said.index("Exploratory: no guarantee") < said.index("It costs 5.0.")
