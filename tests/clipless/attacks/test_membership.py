"""Membership inference: strong on a model that learned its rows by heart, nothing on one that never saw them."""

import pytest
import torch

from clipless import TauBCE, TauCCE, zoo
from clipless.attacks import MembershipScore, threshold_attack
from clipless.datasets import Split


def noise(seed, rows=80, classes=4):
    """Rows whose labels cannot be learned, only remembered."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 30, generator=generator)
    return Split(x, torch.randint(0, classes, (rows,), generator=generator))


def fitted(split, loss, outputs, steps=150):
    model = zoo.mlp((30,), outputs, input_norm=10.0, width=64, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model(split.x), split.y).mean().backward()
        optimizer.step()
    return model


CASES = [pytest.param(TauCCE(0.5), 4, 4, id="four classes"), pytest.param(TauBCE(0.5), 1, 2, id="one logit")]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("loss", "outputs", "classes"), CASES)
def test_a_model_that_learned_by_heart_gives_its_rows_away(loss, outputs, classes):
    members, others = noise(0, classes=classes), noise(1, classes=classes)
    model = fitted(members, loss, outputs)
    score = threshold_attack(model, loss, members, others)
    assert 0.85 < score.auroc <= 1.0
    assert 0.6 < score.advantage <= 1.0


@pytest.mark.parametrize(("loss", "outputs", "classes"), CASES)
def test_a_model_that_never_saw_the_rows_gives_nothing_away(loss, outputs, classes):
    model = fitted(noise(5, classes=classes), loss, outputs, steps=20)
    members, others = noise(0, 400, classes), noise(1, 400, classes)
    score = threshold_attack(model, loss, members, others)
    assert score.auroc == pytest.approx(0.5, abs=0.08)
    assert 0.0 <= score.advantage < 0.2


class ByFirstFeature:
    """A loss that says what the rows hold, to check the scores by hand."""

    def __call__(self, logits, target):
        return logits[:, 0] + 0.0 * target

    def output_size(self, classes):
        return classes


def test_scores_by_hand():
    model = zoo.mlp((1,), 1, input_norm=100.0, depth=1)
    with torch.no_grad():
        model.layers[-1].weight.fill_(1.0)
    inside, outside = torch.tensor([[1.0], [2.0], [5.0]]), torch.tensor([[3.0], [4.0], [6.0]])
    y = torch.zeros(3, dtype=torch.int64)
    score = threshold_attack(model, ByFirstFeature(), Split(inside, y), Split(outside, y))
    assert score == MembershipScore(auroc=pytest.approx(7 / 9), advantage=pytest.approx(2 / 3))


def test_what_cannot_be_scored_is_refused():
    model, rows = zoo.mlp((30,), 4, input_norm=10.0, width=8), noise(0)
    nothing = Split(rows.x[:0], rows.y[:0])
    with pytest.raises(ValueError, match="Expected rows on both sides, got 80 members and 0 others"):
        threshold_attack(model, TauCCE(), rows, nothing)

    class Broken(ByFirstFeature):
        def __call__(self, logits, target):
            return super().__call__(logits, target) * float("nan")

    with pytest.raises(ValueError, match="Expected finite losses"):
        threshold_attack(model, Broken(), rows, rows)
