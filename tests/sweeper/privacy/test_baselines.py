"""What scores are compared with: where it comes from, and that nothing of private rows is in it."""

import json
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
import torch

from clipless.datasets import Evaluation, Split, load
from clipless.privacy.events import PoissonGaussian, Relation
from clipless.sketches.release import Sketch
from sweeper.errors import SpecError
from sweeper.privacy.baselines import Baselines, MajoritySource, warning
from sweeper.privacy.claims import Claim
from sweeper.privacy.held_out import doubt
from sweeper.records import ClassCounts, NoisyScores, Point
from sweeper.results import estimates
from sweeper.specification.spec import Spec
from tests.factories import plan_sweep, small_content

CONTENT = small_content(privacy={"noise_multiplier": 1.0, "delta": 1e-4})


def data_with(evaluation, labels=(0, 1, 1, 1)):
    """A data set whose validation labels are these."""
    data = load("digits")
    rows = torch.zeros(len(labels), 1, 8, 8)
    split = Split(x=rows, y=torch.tensor(labels))
    declared = replace(data.metadata, evaluation=evaluation)
    return replace(data, metadata=declared, validation=split, test=split)


@pytest.mark.parametrize("evaluation", [Evaluation.PUBLIC, Evaluation.EXPLORATORY])
def test_the_majority_of_rows_that_may_be_looked_at_is_counted(evaluation):
    found = Baselines.of(data_with(evaluation))
    assert found.majority == {"validation": 0.75, "test": 0.75}
    assert found.rows == {"validation": 4, "test": 4}
    assert found.constant("accuracy") == found.constant("certified@0.25") == found.constant("attacked@1/4") == 0.75
    assert found.constant("auroc") == 0.5
    assert found.constant("membership-auroc") is None


def test_of_private_rows_nothing_but_the_numbers_of_classes_and_rows_is_used():
    """The same for every content of the rows: no function of private labels is in a claim."""
    made = [
        Baselines.of(data_with(Evaluation.PRIVATE, labels)) for labels in ((0, 1, 1, 1), (3, 3, 3, 3), (0, 1, 2, 3))
    ]
    assert made[0] == made[1] == made[2]
    assert made[0].majority == {}
    assert made[0].rows == {"validation": 4, "test": 4}
    assert made[0].constant("accuracy") == pytest.approx(0.1)


def test_a_share_that_is_declared_stands_for_private_labels_alone():
    for evaluation, share in ((Evaluation.PRIVATE, 0.4), (Evaluation.PUBLIC, 0.75)):
        data = data_with(evaluation)
        declared = replace(data.metadata, largest_share=0.4)
        found = Baselines.of(replace(data, metadata=declared))
        assert found.majority == {"validation": share, "test": share}
        assert found.constant("accuracy", "test") == share
        assert found.majority_source == ("declared" if evaluation is Evaluation.PRIVATE else "rows")


def test_a_sketch_that_is_paid_for_says_how_frequent_the_classes_are():
    event = PoissonGaussian(noise_multiplier=5.0, sampling_rate=1.0, steps=1, relation=Relation.ADD_OR_REMOVE_ONE)
    sketch = Sketch(event=event, sums=((300.0, 1.0), (-2.0, 0.0), (100.0, 9.0)))
    found = Baselines(classes=("a", "b", "c")).with_sketch(sketch, 10**9)
    assert found.constant("accuracy") == found.constant("accuracy", "test") == pytest.approx(300 / 398)
    assert found.constant("balanced_accuracy") == pytest.approx(1 / 3)
    assert found.majority_source == "sketch"
    low, high = found.ends("accuracy")
    assert (low, high) == pytest.approx((0.754 - 0.0327, 0.754 + 0.0332), abs=1e-3)
    said = f"reaches 0.754 [{low:.3f}, {high:.3f}], by the private sketch"
    assert found.in_words("accuracy", "test").endswith(said)
    assert found.ends("balanced_accuracy") == (1 / 3, 1 / 3)
    rare = replace(sketch, sums=((300.0,), (2.0,), (10.0,)))
    low, high = (known := Baselines(classes=("a", "b", "c")).with_sketch(rare, 400)).ends("accuracy")
    assert f"reaches 0.962 [{low:.3f}, {high:.3f}]. Use" in known.advice(["accuracy"])
    few = replace(found, majority={}).with_sketch(sketch, 40)
    assert few.ends("accuracy")[0] < 0.6, "new rows may be of other classes"
    noisy = replace(sketch, event=replace(event, noise_multiplier=100.0))
    assert Baselines(classes=("a", "b", "c")).with_sketch(noisy, 400).majority == {}, (
        "noise of the total is not far below it"
    )
    declared = Baselines(classes=("a", "b", "c"), majority={"validation": 0.6})
    assert declared.with_sketch(sketch, 400) == declared
    rounded = replace(
        declared, majority=dict.fromkeys(("validation", "test"), 0.7), majority_source=MajoritySource.DECLARED
    )
    assert rounded.with_sketch(sketch, 400) == rounded
    misspelt = replace(rounded, majority=dict.fromkeys(rounded.majority, 0.5)).with_sketch(sketch, 400)
    assert misspelt.constant("accuracy", "test") == pytest.approx(300 / 398)
    said = "by the private sketch (the ranges file declares 0.500: perhaps a class is misspelt)"
    assert misspelt.in_words("accuracy", "test").endswith(said)
    crowded = replace(rounded, majority=dict.fromkeys(rounded.majority, 0.5)).with_sketch(rare, 400)
    assert f"{said}. Use search.objectives" in crowded.advice(["accuracy"])
    assert found.with_sketch(None, 400) == found
    nothing = replace(sketch, sums=((-1.0,), (-2.0,), (-0.5,)))
    assert Baselines(classes=("a", "b", "c")).with_sketch(nothing, 400).majority == {}


def test_an_evaluation_that_nobody_knows_counts_as_private():
    data = data_with(Evaluation.PUBLIC)
    object.__setattr__(data.metadata, "evaluation", "open")
    assert Baselines.of(data).majority == {}


def test_what_was_reached_without_privacy_is_what_the_spec_says_and_is_named_as_public():
    spec = Spec.from_mapping(CONTENT | {"search": {"without_privacy": {"accuracy": 0.976}}})
    claim = plan_sweep(spec, load("digits")).claim
    assert claim.baselines.without_privacy == {"accuracy": 0.976}
    assert any("without privacy, as the spec gives it: accuracy 0.976" in sentence for sentence in claim.public)
    assert plan_sweep(Spec.from_mapping(CONTENT), load("digits")).claim.baselines.without_privacy == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"accuracy": 1.2}, "a share from 0 to 1"),
        ({"accuracy": True}, "a share from 0 to 1"),
        ({"accuracy": float("nan")}, "a share from 0 to 1"),
        ({"epsilon": 0.5}, "better when larger"),
        ({"membership-auroc": 0.5}, "better when larger"),
        ({"nonsense": 0.5}, "better when larger"),
        ([0.9], "scores by name"),
    ],
)
def test_a_score_that_is_none_is_refused(given, said):
    with pytest.raises(SpecError, match=said):
        Spec.from_mapping(CONTENT | {"search": {"without_privacy": given}})


def test_a_claim_keeps_its_baselines_on_its_way_through_a_file():
    claim = plan_sweep(Spec.from_mapping(CONTENT), load("digits")).claim
    content = json.loads(json.dumps(claim.to_json()))
    again = Claim(**content | {"baselines": Baselines(**content["baselines"])})
    assert again.baselines.majority == claim.baselines.majority
    assert list(again.baselines.classes) == [str(digit) for digit in range(10)]


def counts(rows, decided, correct):
    return ClassCounts(rows=rows, decided=decided, correct=correct)


def test_a_classifier_that_nearly_always_says_the_same_is_named():
    said = warning(counts((760, 240), (970, 30), (755, 25)), ("no", "yes"))
    assert "'no' for 97.0 % of the test rows" in said
    assert "balanced accuracy is 54.9 %, that of the majority-class baseline 50.0 %" in said


@pytest.mark.parametrize(
    ("classes", "share", "objectives", "advised"),
    [
        (2, 0.85, ["epsilon", "accuracy"], "auroc"),
        (3, 0.9, ["epsilon", "certified@0.1"], "balanced_accuracy"),
        (2, 0.84, ["epsilon", "accuracy"], ""),
        (2, 0.9, ["epsilon", "accuracy", "balanced_accuracy"], ""),
        (2, 0.9, ["epsilon", "certified-auroc@0.1"], ""),
    ],
)
def test_where_one_class_has_nearly_all_rows_other_objectives_are_advised(classes, share, objectives, advised):
    known = Baselines(classes=("a", "b", "c")[:classes], majority={"validation": share})
    said = known.advice(objectives)
    assert said.endswith(f"Use search.objectives: [epsilon, {advised}].") if advised else said == ""


@pytest.mark.parametrize(
    "found",
    [
        counts((970, 30), (970, 30), (970, 30)),  # right, on rows that are nearly all alike
        counts((500, 500), (700, 300), (480, 280)),  # says both
        counts((10, 0), (10, 0), (10, 0)),  # rows of one class
    ],
)
def test_others_are_not(found):
    assert warning(found) == ""


def test_recall_and_precision_are_of_each_class_and_missing_where_there_is_nothing_to_count():
    found = counts((4, 0, 6), (5, 0, 5), (3, 0, 4))
    assert found.recalls == (0.75, None, pytest.approx(4 / 6))
    assert found.precisions == (0.6, None, 0.8)
    assert found.balanced_accuracy == pytest.approx((0.75 + 4 / 6) / 2)
    assert found.most_decided == (0, 0.5)


def test_the_majority_is_of_units_whose_rows_share_the_weight_of_one():
    data = data_with(Evaluation.PUBLIC, (1, 1, 1, 1, 0, 0))
    units = Split(data.test.x, data.test.y, torch.tensor([0, 4, 5, 6]))
    assert Baselines.of(replace(data, validation=units)).majority["validation"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("shares", "noise", "validation"),
    [
        ((0.65, 0.35), 16.0, 230),
        ((0.65, 0.35), 2.0, 8500),
        ((0.4, 0.2, 0.2, 0.2), 16.0, 230),
        ((1 / 6,) * 6, 16.0, 230),
        ((0.9, *[0.1 / 49] * 49), 8.0, 230),
    ],
    ids=["two", "few training rows", "four", "alike", "fifty"],
)
def test_the_interval_of_a_sketched_share_holds_it_and_no_constant_model_is_called_better(shares, noise, validation):
    rng, held, certain = np.random.default_rng(3), [], []
    event = PoissonGaussian(noise_multiplier=noise, sampling_rate=1.0, steps=1, relation=Relation.ADD_OR_REMOVE_ONE)
    claim = Claim.about(load("digits").metadata, 1000, delta=1e-5)
    baselines = Baselines(classes=tuple(map(str, shares)), rows={"validation": validation, "test": 230})
    for _ in range(400):
        counts = rng.multinomial(1000, shares) * sqrt(0.1) + event.noise_multiplier * rng.normal(size=len(shares))
        known = baselines.with_sketch(Sketch(event=event, sums=tuple((float(one),) for one in counts)), 1000)
        low, high = known.ends("accuracy")
        held.append(low <= max(shares) <= high)
        seen = rng.binomial(230, max(shares)) / 230 + 0.036 * rng.normal()
        score, interval = estimates.share(seen, 0.036**2, 230)
        noisy = NoisyScores(is_final=True, released={}, intervals={"accuracy": interval})
        point = Point(trial="t0001", epoch=1, values={"accuracy": score}, noisy=noisy)
        certain.append("perhaps" not in doubt(point, "accuracy", replace(claim, baselines=known)))
    assert np.mean(held) >= 0.95
    assert np.mean(certain) <= 0.05


def test_a_share_that_is_declared_is_counted_on_no_rows():
    declared = Baselines(classes=("no", "yes"), majority={"validation": 0.76}, majority_source=MajoritySource.DECLARED)
    assert declared.in_words("accuracy") == "the majority-class baseline reaches 0.760, as the ranges file declares"
    counted = replace(declared, majority_source=MajoritySource.ROWS)
    assert counted.in_words("accuracy").endswith("0.760 on validation rows")
