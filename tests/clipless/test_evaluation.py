"""Scores of a model on rows that may be looked at."""

import pytest
import torch

from clipless import Network, evaluate, zoo
from clipless.certificates.certify import certified_radii, decisions, float64_logits
from clipless.certificates.outputs import Outputs, encoding_error
from clipless.datasets import Split
from clipless.errors import InvalidBoundError
from clipless.evaluation import attacked_accuracy
from clipless.layers import Dense, InputBall


def linear(weight):
    """A linear network with the given weight."""
    weight = torch.tensor(weight)
    model = Network([InputBall(100.0), Dense(weight.shape[1], weight.shape[0])], (weight.shape[1],))
    with torch.no_grad():
        model.layers[1].weight.copy_(weight)
    return model


def split(x, y):
    return Split(torch.tensor(x), torch.tensor(y))


def pairs_in_order(scores, labels):
    """AUROC by counting pairs; ties count one half."""
    positive, negative = scores[labels == 1], scores[labels == 0]
    wins = (positive[:, None] > negative).double() + 0.5 * (positive[:, None] == negative).double()
    return wins.mean().item()


def test_accuracy_and_certified_accuracy_are_shares_of_all_rows():
    model = linear([[1.0, 0.0], [0.0, 1.0]])
    data = split([[3.0, 1.0], [1.0, 2.0], [0.0, 5.0], [1.0, 1.1]], [0, 1, 0, 1])
    scores = evaluate(model, data, ["0.05", "1/2", "1.2", "9"])
    # distances to the diagonal: 2, 1 and 0.1 over sqrt(2); the third is decided wrongly
    assert scores == {
        "accuracy": 0.75,
        "certified@0.05": 0.75,
        "certified@1/2": 0.5,
        "certified@1.2": 0.25,
        "certified@9": 0.0,
        "auroc": pytest.approx(2 / 4),
        # gaps in score over sqrt(2): 3 and 2.1 of one positive, 0.1 - 5 below zero of the other
        "certified-auroc@0.05": 0.5,
        "certified-auroc@1/2": 0.5,
        "certified-auroc@1.2": 0.0,
        "certified-auroc@9": 0.0,
    }


def test_radii_keep_their_spelling():
    scores = evaluate(linear([[1.0, 0.0], [0.0, 1.0]]), split([[3.0, 1.0]], [0]), ["36/255", "0.10"])
    certified = {"certified@36/255", "certified@0.10", "certified-auroc@36/255", "certified-auroc@0.10"}
    assert set(scores) == {"accuracy", "auroc"} | certified


def test_a_row_is_certified_strictly_within_its_radius():
    model, data = linear([[1.0, 0.0], [0.0, 1.0]]), split([[3.0, 1.0]], [0])
    radius = certified_radii(model, float64_logits(model, data.x), data.y).item()
    radius -= encoding_error(data.x, radius).item()
    below = torch.tensor(radius, dtype=torch.float64).nextafter(torch.tensor(0.0, dtype=torch.float64)).item()
    assert evaluate(model, data, [repr(radius)])[f"certified@{radius!r}"] == 0.0
    assert evaluate(model, data, [repr(below)])[f"certified@{below!r}"] == 1.0


def test_what_is_certified_of_rows_around_a_large_centre_holds_for_rows_that_are_encoded_again():
    """Single precision has a grid of 1/16 near 10^6, on which rows are placed when the centre is subtracted."""
    centre, radius = 1e6, 0.02
    columns = torch.linspace(-0.9, 0.9, 2_001, dtype=torch.float64)[:, None]
    columns = torch.cat([columns, torch.zeros_like(columns)], dim=1)
    moved = columns - torch.sign(columns) * 0.99 * radius  # towards the boundary, at 0
    rows, again = ((one.float() - centre) for one in (columns, moved))
    bounded = Dense(2, 2, bias=True, bias_norm=3e6)
    with torch.no_grad():
        bounded.weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]) / 2**0.5)
        bounded.bias.copy_(torch.tensor([centre, -centre]) / 2**0.5)
    model = Network([InputBall(2e6), bounded], (2,))
    labels = (columns[:, 0] <= 0).long()
    held = decisions(float64_logits(model, again)) == labels
    assert not held.all(), "rows move by more than they were moved"
    data = Split(rows, labels)
    assert evaluate(model, data, [repr(radius)])[f"certified@{radius!r}"] <= held.double().mean().item()
    assert evaluate(model, data, ["5"])["certified@5"] == 0.0
    small = Split(columns.float(), labels)
    with torch.no_grad():
        bounded.bias.zero_()
    assert evaluate(model, small, [repr(radius)])[f"certified@{radius!r}"] > 0.9


def test_radii_are_in_raw_units():
    """A map in front that doubles distances halves every radius."""
    model, data = linear([[1.0, 0.0], [0.0, 1.0]]), split([[3.0, 1.0]], [0])
    assert evaluate(model, data, ["1.4"], input_gain=1.0)["certified@1.4"] == 1.0
    assert evaluate(model, data, ["1.4"], input_gain=2.0)["certified@1.4"] == 0.0
    assert evaluate(model, data, ["2.8"], input_gain=0.5)["certified@2.8"] == 1.0


@pytest.mark.parametrize("rows", [[[0.6, 0.0]], [[-0.6, 0.0], [0.6, 0.0]]])
def test_known_outputs_are_certified_by_the_weights_that_gave_them(rows):
    model, data = linear(rows), split([[0.5, 0.0], [-0.5, 0.0]], [1, 0])
    outputs, held = Outputs.of(model, data), evaluate(model, data, ["0.4", "0.6"])
    with torch.no_grad():
        model.layers[1].weight.mul_(0.01)
    assert evaluate(model, data, ["0.4", "0.6"], outputs=outputs) == held
    assert (held["certified-auroc@0.4"], held["certified-auroc@0.6"]) == (1.0, 0.0)


@pytest.mark.parametrize("outputs", [1, 2])
def test_two_classes_are_also_scored_by_the_order_of_pairs(outputs):
    model = zoo.mlp((4,), outputs, input_norm=3.0, width=6)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 4, generator=generator), torch.randint(0, 2, (60,), generator=generator)
    x[30:40] = x[20:30]  # ties
    logits = float64_logits(model, x)
    score = logits[:, 0] if outputs == 1 else logits[:, 1] - logits[:, 0]
    assert evaluate(model, Split(x, y))["auroc"] == pytest.approx(pairs_in_order(score, y))


@pytest.mark.parametrize("outputs", [1, 2])
def test_pairs_stay_in_order_within_half_their_gap_in_raw_units(outputs):
    """The score grows by 1 (one logit) or 2 (difference of two) per unit of the first feature."""
    weight = [[1.0, 0.0]] if outputs == 1 else [[-1.0, 0.0], [1.0, 0.0]]
    data = split([[4.0, 0.0], [1.0, 0.0], [0.0, 0.0], [2.0, 0.0]], [1, 1, 0, 0])
    radii = ["0.4", "0.6", "0.9", "1.1", "1.9", "2.1"]
    scores = evaluate(linear(weight), data, radii)  # gaps 4, 2, 1 and -1 in features
    assert [scores[f"certified-auroc@{r}"] for r in radii] == [0.75, 0.5, 0.5, 0.25, 0.25, 0.0]
    halved = evaluate(linear(weight), data, radii, input_gain=2.0)
    assert [halved[f"certified-auroc@{r}"] for r in radii] == [0.5, 0.25, 0.25, 0.0, 0.0, 0.0]


def test_more_classes_have_no_auroc():
    assert set(evaluate(zoo.mlp((4,), 3, input_norm=1.0), split([[0.0] * 4], [0]))) == {"accuracy"}


def test_one_class_alone_has_no_order_of_pairs():
    scores = evaluate(linear([[1.0, 0.0], [0.0, 1.0]]), split([[1.0, 0.0], [2.0, 0.0]], [0, 0]))
    assert scores["auroc"] != scores["auroc"]
    assert scores["accuracy"] == 1.0
    scores = evaluate(linear([[1.0, 0.0], [0.0, 1.0]]), split([[1.0, 0.0], [2.0, 0.0]], [0, 0]), ["0.1"])
    assert scores["certified-auroc@0.1"] != scores["certified-auroc@0.1"]


def test_one_logit_is_decided_at_zero():
    scores = evaluate(linear([[1.0, 0.0]]), split([[2.0, 0.0], [-1.0, 0.0], [-3.0, 0.0]], [1, 1, 0]), ["1.5"])
    assert scores["accuracy"] == pytest.approx(2 / 3)
    assert scores["certified@1.5"] == pytest.approx(2 / 3)
    assert scores["auroc"] == 1.0


def nan_logits(outputs, monkeypatch):
    logits = torch.full((3, outputs), float("nan"), dtype=torch.float64)
    monkeypatch.setattr("clipless.certificates.outputs.float64_logits", lambda *_, **_options: logits)
    data = split([[0.0] * 4] * 3, [0, 0, 1])
    return evaluate(zoo.mlp((4,), outputs, input_norm=1.0), data, ["0.1"])


@pytest.mark.parametrize("outputs", [1, 2])
def test_logits_that_are_not_numbers_are_wrong(outputs, monkeypatch):
    scores = nan_logits(outputs, monkeypatch)
    assert scores["certified@0.1"] == 0.0
    assert scores["auroc"] != scores["auroc"]
    assert scores["accuracy"] == 0.0
    assert scores["certified-auroc@0.1"] == 0.0


def test_rows_that_are_not_finite_are_scored_as_rows_of_zeros():
    model = zoo.mlp((2,), 2, input_norm=3.0, width=4)
    broken = evaluate(model, split([[float("nan"), 1.0], [1.0, 2.0]], [0, 1]), ["0.1"])
    blank = evaluate(model, split([[0.0, 0.0], [1.0, 2.0]], [0, 1]), ["0.1"])
    assert broken == blank


def test_weights_that_are_not_finite_are_refused():
    model = linear([[1.0, float("nan")], [0.0, 1.0]])
    with pytest.raises(InvalidBoundError, match="finite"):
        evaluate(model, split([[1.0, 0.0]], [0]))


@pytest.mark.parametrize("gain", [0.0, -1.0, float("nan"), float("inf")])
def test_an_input_gain_out_of_range_is_refused(gain):
    with pytest.raises(ValueError, match="input_gain"):
        evaluate(linear([[1.0], [0.0]]), split([[1.0]], [0]), input_gain=gain)


def test_a_radius_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="radius"):
        evaluate(linear([[1.0], [0.0]]), split([[1.0]], [0]), ["far"])


# Units of several rows


def of_units(scores, labels, sizes):
    """A split whose model decides by the sign of a score, and that model."""
    offsets = torch.tensor([0, *sizes]).cumsum(0)
    return Split(torch.tensor(scores)[:, None], torch.tensor(labels), offsets), linear([[1.0]])


def test_a_score_is_the_mean_over_units_of_the_mean_over_their_rows():
    data, model = of_units([2.0, -2.0, -2.0, 0.3, -1.0], [1, 1, 1, 1, 0], [3, 1, 1])
    scores = evaluate(model, data, ["0.5"])
    assert scores["accuracy"] == pytest.approx((1 / 3 + 1 + 1) / 3)
    assert scores["certified@0.5"] == pytest.approx((1 / 3 + 0 + 1) / 3)
    assert attacked_accuracy(model, data, "0.5") == pytest.approx((1 / 3 + 0 + 1) / 3)


def test_a_pair_of_rows_has_the_weight_of_both():
    generator = torch.Generator().manual_seed(0)
    sizes = [1, 5, 2, 9, 1, 3, 30, 2]
    count = sum(sizes)
    x = torch.randn(count, generator=generator).tolist()
    labels = (torch.rand(count, generator=generator) < 0.4).long().tolist()
    data, model = of_units(x, labels, sizes)
    scores = evaluate(model, data, ["0.01", "0.2", "100"])
    score, y, weight = data.x[:, 0], data.y, data.weights()
    pair = weight[y == 1][:, None] * weight[y == 0]
    gap = (score[y == 1][:, None] - score[y == 0]).double()
    assert scores["auroc"] == pytest.approx(float((pair * (gap > 0)).sum() / pair.sum()))
    for radius in ("0.01", "0.2", "100"):
        share = float((pair * (gap > 2 * float(radius))).sum() / pair.sum())
        assert scores[f"certified-auroc@{radius}"] == pytest.approx(share)


def test_units_of_one_row_are_scored_as_rows_are():
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(40, 1, generator=generator), torch.randint(0, 2, (40,), generator=generator)
    model = linear([[1.0]])
    units, rows = (evaluate(model, Split(x, y, one), ["0.1"]) for one in (torch.arange(41), None))
    assert units == pytest.approx(rows)
