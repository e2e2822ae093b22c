"""Features of a user's own module: per example, bounded, and honest about where certificates hold."""

import pytest
import torch
from torch import nn

import clipless
from clipless.backbone import backbone_features
from clipless.errors import UnsupportedError


@pytest.fixture(scope="module")
def digits():
    return clipless.datasets.load("digits")


def network(*layers):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), *layers, nn.ReLU(), nn.Flatten()).eval()


def test_every_example_is_replaced_by_its_features(digits):
    made = backbone_features(digits, backbone := network(nn.BatchNorm2d(4)), name="tiny", feature_norm=100.0)
    assert made.metadata.input_shape == (256,)
    assert made.train.y is digits.train.y
    with torch.no_grad():
        torch.testing.assert_close(made.test.x, backbone(digits.test.x))
    assert not made.train.x.requires_grad


def test_norms_are_bounded_and_what_is_not_finite_is_zero(digits):
    class Wild(nn.Module):
        def forward(self, x):
            return torch.where(x.mean(dim=(1, 2, 3))[:, None] > 0.3, torch.nan, 1e9 * x.flatten(1))

    made = backbone_features(digits, Wild().eval(), name="wild", feature_norm=2.0)
    norms = made.train.x.norm(dim=1)
    assert set(norms.round(decimals=3).tolist()) == {0.0, 2.0}


def test_the_card_says_where_certificates_hold(digits):
    facts = backbone_features(digits, network(), name="tiny", feature_norm=1.0).metadata
    assert (facts.input_norm, facts.input_gain, facts.radius_unit) == (1.0, 1.0, "features of tiny")
    assert facts.conditions[-1] == (
        "Certified radii are in units of features of tiny: they bound no distance between pixels in [0, 1]."
    )
    assert "The weights of tiny are public: they were trained without the private rows." in facts.public_facts


def test_a_head_can_be_trained_on_the_features(digits):
    data = backbone_features(digits, network(), name="tiny", feature_norm=3.0)
    facts = data.metadata
    model = clipless.zoo.mlp(facts.input_shape, 10, input_norm=facts.input_norm, depth=1)
    plan = clipless.make_plan(
        model,
        clipless.TauCCE(0.1),
        population=len(data.train),
        batch_size=256,
        delta=1e-4,
        epsilon=8.0,
        epochs=1,
    )
    assert [epoch.epoch for epoch in clipless.fit(model, clipless.TauCCE(0.1), data.train, plan)] == [1]


def test_a_backbone_in_training_mode_is_refused(digits):
    with pytest.raises(UnsupportedError, match="Expected a backbone in evaluation mode"):
        backbone_features(digits, network(nn.Dropout()).train(), name="tiny", feature_norm=1.0)


def test_a_backbone_that_mixes_rows_is_refused(digits):
    mixing = network(nn.BatchNorm2d(4, track_running_stats=False))
    with pytest.raises(UnsupportedError, match="got one that mixes rows"):
        backbone_features(digits, mixing, name="tiny", feature_norm=1.0)


def test_a_backbone_without_a_row_for_each_example_is_refused(digits):
    class Mean(nn.Module):
        def forward(self, x):
            return x.flatten(1).mean(dim=0, keepdim=True)

    with pytest.raises(UnsupportedError, match=r"Expected one row of features for each example, got shape \(1, 64\)"):
        backbone_features(digits, Mean().eval(), name="tiny", feature_norm=1.0)


@pytest.mark.parametrize("radius", [0.0, float("nan"), float("inf")])
def test_a_radius_that_bounds_nothing_is_refused(digits, radius):
    with pytest.raises(ValueError, match="Expected 0 < radius < inf"):
        backbone_features(digits, network(), name="tiny", feature_norm=radius)
