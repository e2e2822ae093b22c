"""AutoAttack through an optional package: refused by name without it, between certificate and clean with it."""

import sys

import pytest
import torch

from clipless import evaluate, zoo
from clipless.attacks import AutoAttack
from clipless.certificates.certify import float64_logits
from clipless.datasets import Split
from clipless.errors import UnsupportedError
from clipless.evaluation import attacked_accuracy

SMALL = AutoAttack(iterations=10, queries=50)


def test_without_the_package_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "art.attacks", None)
    model = zoo.mlp((4,), 2, input_norm=2.0, width=4)
    with pytest.raises(UnsupportedError, match=r"pip install 'sweeper\[attacks\]'"):
        AutoAttack()(model, torch.ones(1, 4), torch.tensor([0]), 0.1)


def test_inputs_and_radii_that_are_not_finite_are_refused():
    model = zoo.mlp((4,), 2, input_norm=2.0, width=4)
    with pytest.raises(ValueError, match="Expected finite inputs"):
        AutoAttack()(model, torch.full((1, 4), float("nan")), torch.tensor([0]), 0.1)
    with pytest.raises(ValueError, match="Expected 0 < radius < inf"):
        AutoAttack()(model, torch.ones(1, 4), torch.tensor([0]), float("inf"))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("radius", ["0.25", "0.5"])
def test_certified_is_at_most_attacked_is_at_most_clean(trained, held_back, radius):
    pytest.importorskip("multiprocess")
    pytest.importorskip("art")
    rows = Split(held_back.x[:100], held_back.y[:100])
    scores = evaluate(trained, rows, [radius])
    attacked = attacked_accuracy(trained, rows, radius, attack=SMALL)
    assert scores[f"certified@{radius}"] <= attacked <= scores["accuracy"]
    assert attacked < scores["accuracy"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_rows_of_features_and_few_logits_are_attacked(outputs):
    pytest.importorskip("multiprocess")
    pytest.importorskip("art")
    generator = torch.Generator().manual_seed(0)
    model = zoo.mlp((4,), outputs, input_norm=4.0, width=8, generator=generator)
    x = torch.randn(40, 4, generator=generator)
    logits = float64_logits(model, x)
    y = (logits[:, 0] > 0).long() if outputs == 1 else logits.argmax(dim=1)
    attacked = attacked_accuracy(model, Split(x, y), "0.5", attack=SMALL)
    assert evaluate(model, Split(x, y), ["0.5"])["certified@0.5"] <= attacked < 1.0


@pytest.mark.parametrize("shape", [(2, 12, 12), (1, 12, 5)])
def test_images_are_attacked_by_windows_where_they_are_large_enough(shape):
    pytest.importorskip("multiprocess")
    pytest.importorskip("art")
    generator = torch.Generator().manual_seed(0)
    model = zoo.mlp(shape, 4, input_norm=30.0, width=8, generator=generator)
    x = torch.rand(20, *shape, generator=generator)
    y = float64_logits(model, x).argmax(dim=1)
    attacked = attacked_accuracy(model, Split(x, y), "2", attack=SMALL)
    assert evaluate(model, Split(x, y), ["2"])["certified@2"] <= attacked < 1.0
