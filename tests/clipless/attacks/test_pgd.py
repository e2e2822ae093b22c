"""PGD: between the certificate and the clean accuracy, and exact where the answer is known."""

import pytest
import torch

from clipless import Network, evaluate, zoo
from clipless.attacks import PGD
from clipless.certificates.certify import certified_radii, float64_logits
from clipless.datasets import Split
from clipless.evaluation import attacked_accuracy
from clipless.layers import Dense, Flatten, InputBall


@pytest.mark.sampled(5)
@pytest.mark.parametrize("radius", ["0.1", "0.25", "0.5", "1"])
def test_certified_is_at_most_attacked_is_at_most_clean(trained, held_back, radius):
    scores = evaluate(trained, held_back, [radius])
    attacked = attacked_accuracy(trained, held_back, radius, attack=PGD(steps=15, restarts=2))
    assert scores[f"certified@{radius}"] <= attacked <= scores["accuracy"]
    assert scores["accuracy"] > 0.7


@pytest.mark.sampled(2)
def test_no_certified_row_is_broken(trained, held_back):
    moved = PGD(steps=15, restarts=2)(trained, held_back.x, held_back.y, 0.5)
    logits = float64_logits(trained, held_back.x)
    certified = certified_radii(trained, logits, held_back.y) > 0.5
    assert (float64_logits(trained, moved).argmax(dim=1) == held_back.y)[certified].all()


def linear(classes, generator):
    return Network([InputBall(1e3), Flatten(), Dense(12, classes, generator=generator)], (3, 4))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("classes", [1, 2, 3, 10])
def test_pgd_finds_what_there_is_to_find_on_a_linear_model(classes):
    """The distance to the nearest hyperplane decides; all but rows at the border itself are settled."""
    generator = torch.Generator().manual_seed(0)
    model = linear(classes, generator)
    with torch.no_grad():
        model.layers[2].weight.mul_(3.0)  # unconstrained
    x = torch.randn(200, 3, 4, generator=generator)
    w = model.layers[2].weight.detach().double()
    logits = float64_logits(model, x)
    if classes == 1:
        y = (logits[:, 0] > 0).long()
        distance = logits[:, 0].abs() / w.norm()
    else:
        y = logits.argmax(dim=1)
        apart = (w[y][:, None] - w).norm(dim=2)
        gaps = (logits.gather(1, y[:, None]) - logits) / apart
        distance = gaps.nan_to_num(nan=torch.inf).amin(dim=1)
    radius = distance.median().item()
    moved = float64_logits(model, PGD(restarts=9)(model, x, y, radius))
    fooled = ((moved[:, 0] > 0).long() if classes == 1 else moved.argmax(dim=1)) != y
    assert not fooled[distance > radius].any()
    assert fooled[distance < 0.99 * radius].all()


def test_pgd_stays_in_the_ball_and_leaves_the_model_alone(trained, held_back):
    before = {name: p.clone() for name, p in trained.state_dict().items()}
    grads = {name: p.grad.clone() for name, p in trained.named_parameters()}
    moved = PGD(steps=5, restarts=2)(trained, held_back.x[:50], held_back.y[:50], 0.3)
    assert moved.dtype == torch.float64
    distance = (moved - held_back.x[:50].double()).flatten(1).norm(dim=1)
    assert 0.1 < distance.max() <= 0.3
    assert all(torch.equal(p, before[name]) for name, p in trained.state_dict().items())
    assert all(p.requires_grad and torch.equal(p.grad, grads[name]) for name, p in trained.named_parameters())


@pytest.mark.sampled(2)
def test_pgd_repeats_for_its_seed(trained, held_back):
    rows = (trained, held_back.x[:20], held_back.y[:20], 0.3)
    first, again, other = PGD(seed=1)(*rows), PGD(seed=1)(*rows), PGD(seed=2)(*rows)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_many_rows_are_attacked_in_pieces():
    generator = torch.Generator().manual_seed(0)
    model = linear(2, generator)
    x = torch.randn(1500, 3, 4, generator=generator)
    y = float64_logits(model, x).argmax(dim=1)
    assert PGD(steps=1, restarts=0)(model, x, y, 0.1).shape == x.shape


def test_rows_that_are_not_finite_are_not_moved():
    model = zoo.mlp((4,), 2, input_norm=2.0, width=4)
    x = torch.tensor([[float("nan"), 1.0, 0.0, 0.0], [float("inf"), 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    y = float64_logits(model, x).argmax(dim=1)
    assert 0.0 <= evaluate(model, Split(x, y), ["0.1"])["certified@0.1"] <= attacked_accuracy(model, Split(x, y), "0.1")


@pytest.mark.long
def test_the_radius_is_in_raw_units():
    model = Network([InputBall(100.0), Dense(2, 1)], (2,))
    with torch.no_grad():
        model.layers[1].weight.copy_(torch.tensor([[1.0, 0.0]]))
    split = Split(torch.tensor([[1.0, 0.0], [3.0, 0.0], [-1.0, 0.0]]), torch.tensor([1, 1, 1]))
    assert attacked_accuracy(model, split, "0.9") == pytest.approx(2 / 3)
    assert attacked_accuracy(model, split, "1.1") == pytest.approx(1 / 3)
    assert attacked_accuracy(model, split, "0.9", 2.0) == pytest.approx(1 / 3)


def test_an_attack_that_leaves_the_ball_is_refused():
    model = zoo.mlp((4,), 2, input_norm=2.0, width=4)
    split = Split(torch.ones(1, 4), torch.tensor([0]))
    with pytest.raises(ValueError, match=r"Expected moves of at most 0.1, got one of 2.0"):
        attacked_accuracy(model, split, "0.1", attack=lambda *rows: rows[1].double() + 1.0)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_radii_and_gains_out_of_range_are_refused(bad):
    model = zoo.mlp((4,), 2, input_norm=2.0, width=4)
    split = Split(torch.ones(1, 4), torch.tensor([0]))
    with pytest.raises(ValueError, match="Expected 0 < radius < inf"):
        PGD()(model, split.x, split.y, bad)
    with pytest.raises(ValueError, match="Expected 0 < input_gain < inf"):
        attacked_accuracy(model, split, "0.1", bad)


@pytest.mark.parametrize("options", [{"steps": 0}, {"restarts": -1}])
def test_numbers_of_steps_and_restarts_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match="Expected steps >= 1 and restarts >= 0"):
        PGD(**options)
