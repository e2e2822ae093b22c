"""Losses by name, class weights, several labels at once, and hinges on differences: constants and values by hand."""

from math import exp, sqrt

import pytest
import torch

from clipless import make_plan, zoo
from clipless.errors import UnsupportedError
from clipless.losses import (
    LOSSES,
    ClassWeighted,
    CrammerSinger,
    MultilabelBCE,
    Reduction,
    TauBCE,
    TauCCE,
    WestonWatkins,
    build_loss,
    loss_lipschitz,
)


def gradient_norms(loss, z, target):
    (gradient,) = torch.autograd.grad(loss(z, target).sum(), [z])
    return gradient.norm(dim=1)


@pytest.mark.parametrize("weights", [(), (1.0,), (0.0, 0.0), (1.0, -1.0), (1.0, float("nan")), (1.0, float("inf"))])
def test_bad_class_weights_are_refused(weights):
    with pytest.raises(ValueError, match="Expected a finite weight >= 0 for each class"):
        ClassWeighted(TauCCE(), weights)


def test_class_weights_fit_the_classes():
    loss = ClassWeighted(TauBCE(), (1.0, 3.0))
    assert loss.output_size(2) == 1
    assert loss_lipschitz(loss, 1) == 3.0
    with pytest.raises(ValueError, match="Expected 2 classes, one for each weight, got 3"):
        loss.output_size(3)
    with pytest.raises(ValueError, match="Expected 3 weights for 3 logits, got 2"):
        loss_lipschitz(ClassWeighted(TauCCE(), (1.0, 3.0)), 3)


def test_every_named_loss_has_a_constant():
    found = {name: loss_lipschitz(kind(), kind().output_size(2)) for name, kind in LOSSES.items()}
    assert found == pytest.approx(
        {
            "tau-cce": sqrt(2.0),
            "tau-bce": 1.0,
            "hinge": 1 / sqrt(2.0),
            "kr": sqrt(2.0),
            "hkr": sqrt(2.0) + 10 / sqrt(2.0),
            "k-cosine": 1.0,
            "mae": 1 / sqrt(2.0),
            "squared": 1.0,
            "multilabel-bce": 1 / sqrt(2.0),
            "weston-watkins": 1 / sqrt(2.0),
            "crammer-singer": sqrt(2.0),
        }
    )


def test_a_loss_is_built_by_name_with_public_class_weights():
    assert build_loss("weston-watkins", margin=2.0, reduction="sum") == WestonWatkins(2.0, Reduction.SUM)
    assert build_loss("tau-cce", temperature=0.5, class_weights=[1.0, 3.0]) == ClassWeighted(TauCCE(0.5), (1.0, 3.0))
    with pytest.raises(UnsupportedError, match=r"Expected a loss among mae, .*, got 'focal'"):
        build_loss("focal")


@pytest.mark.parametrize("logits", [1, 2, 3, 10, 40])
@pytest.mark.parametrize("reduction", Reduction)
@pytest.mark.parametrize("radius", [0.0, 0.3, 2.0, 30.0])
def test_multilabel_bce_attains_its_constant_within_a_ball_at_equal_logits(logits, reduction, radius):
    loss = MultilabelBCE(0.7, reduction)
    constant = loss_lipschitz(loss, logits, logit_norm=radius)
    share = 1.0 if reduction is Reduction.SUM else 1.0 / logits
    assert constant == pytest.approx(share * sqrt(logits) / (1 + exp(-radius / (0.7 * sqrt(logits)))))
    z = torch.full((1, logits), radius / sqrt(logits), dtype=torch.float64, requires_grad=True)
    assert gradient_norms(loss, z, torch.zeros(1, logits)).item() == pytest.approx(constant, rel=1e-9)


@pytest.mark.parametrize("logits", [1, 2, 3, 10])
def test_no_rows_of_several_labels_exceed_the_constant_of_multilabel_bce_within_a_ball(logits):
    """Random directions, single bright logits among them, and targets anywhere in the cube, corners included."""
    loss, generator = MultilabelBCE(0.7, Reduction.SUM), torch.Generator().manual_seed(logits)
    direction = torch.randn(4000, logits, dtype=torch.float64, generator=generator) ** 3
    target = torch.rand(4000, logits, dtype=torch.float64, generator=generator)
    target[:2000] = (direction[:2000] < 0).double()
    for radius in (0.1, 1.0, 5.0, 1e3):
        z = (radius * direction / direction.norm(dim=1, keepdim=True)).requires_grad_()
        constant = loss_lipschitz(loss, logits, logit_norm=radius)
        assert 0.8 * constant <= gradient_norms(loss, z, target).max() <= constant * (1 + 1e-12)


def test_targets_outside_the_cube_do_not_enlarge_the_gradient():
    loss = MultilabelBCE(1.0, Reduction.SUM)
    z = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    assert gradient_norms(loss, z, torch.tensor([[100.0, -100.0, 0.5]])).item() <= loss_lipschitz(loss, 3)


def test_multilabel_bce_of_one_label_is_tau_bce_on_each_output():
    z = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows = torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0], [0.5, 0, 1]], dtype=torch.float64)
    each = sum(TauBCE(0.4)(z[:, k : k + 1], rows[:, k]) for k in range(3))
    torch.testing.assert_close(MultilabelBCE(0.4, Reduction.SUM)(z, rows), each)
    torch.testing.assert_close(MultilabelBCE(0.4)(z, rows), each / 3)


def test_the_logit_norm_lowers_the_sensitivities_of_multilabel_bce():
    model = zoo.mlp((4,), 6, input_norm=1.0, width=8, depth=2)
    plan = make_plan(model, MultilabelBCE(), population=100, batch_size=10, delta=1e-3, noise_multiplier=1.0, epochs=1)
    assert plan.sensitivities["layers.4.weight"] == pytest.approx(1 / sqrt(6) / (1 + exp(-1 / sqrt(6))), rel=1e-3)


def test_hinges_on_differences_by_hand():
    z = torch.tensor([[0.25, -0.5, 2.0]], dtype=torch.float64)
    y = torch.tensor([0])
    assert WestonWatkins(1.0, Reduction.SUM)(z, y).item() == pytest.approx(0.25 + 2.75)
    assert WestonWatkins(1.0)(z, y).item() == pytest.approx(3.0 / 3)
    assert CrammerSinger(1.0)(z, y).item() == pytest.approx(2.75)
    assert CrammerSinger(1.0)(z, torch.tensor([2])).item() == 0.0


@pytest.mark.parametrize("logits", [2, 3, 10])
def test_weston_watkins_is_the_multi_margin_loss_over_the_number_of_classes(logits):
    z = torch.randn(20, logits, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.arange(20) % logits
    expected = torch.nn.functional.multi_margin_loss(z, y, margin=0.7, reduction="none")
    torch.testing.assert_close(WestonWatkins(0.7)(z, y), expected)


def test_constants_of_hinges_on_differences():
    assert loss_lipschitz(WestonWatkins(), 10) == pytest.approx(0.949, abs=5e-4)
    assert loss_lipschitz(WestonWatkins(reduction="sum"), 10) == pytest.approx(sqrt(90))
    assert loss_lipschitz(CrammerSinger(), 10) == sqrt(2)
    for name, loss in (("weston-watkins", WestonWatkins()), ("crammer-singer", CrammerSinger())):
        with pytest.raises(ValueError, match=f"at least 2 logits for {name}, got 1"):
            loss_lipschitz(loss, 1)


@pytest.mark.parametrize("radius", [1e-6, 1.0, 100.0])
@pytest.mark.parametrize("loss", [WestonWatkins(0.5), WestonWatkins(0.5, "sum"), CrammerSinger(0.5)])
def test_hinges_on_differences_attain_their_constant_in_every_ball(loss, radius):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(500, 4, dtype=torch.float64, generator=generator)
    z = (z * min(radius, 0.1) / z.norm(dim=1, keepdim=True)).requires_grad_()
    largest = gradient_norms(loss, z, torch.arange(500) % 4).max().item()
    assert largest == pytest.approx(loss_lipschitz(loss, 4, logit_norm=radius), rel=1e-12)
