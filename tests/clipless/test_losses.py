"""Every loss: no logits found by search have a larger gradient than its constant, and some reach it."""

from math import exp, log1p, sqrt

import pytest
import torch

from clipless import TauBCE, TauCCE
from clipless.errors import UnsupportedError
from clipless.losses import LOSSES, loss_lipschitz, loss_rule

TEMPERATURES = [0.01, 0.25, 1.0, 5.0, 100.0]


def gradient_norms(loss, logits, target):
    total = loss(logits, target).sum()
    (gradient,) = torch.autograd.grad(total, [logits], create_graph=True)
    return gradient.norm(dim=1)


def largest_gradient_norm(loss, logits, classes, starts=32, steps=50):
    """Gradient ascent in float64 from ``starts`` random logits of the loss's own scale."""
    generator = torch.Generator().manual_seed(logits)
    z = torch.randn(starts, logits, dtype=torch.float64, generator=generator) * loss.temperature
    z.requires_grad_()
    target = torch.randint(0, classes, (starts,), generator=generator)
    optimizer = torch.optim.Adam([z], lr=0.3 * loss.temperature)
    largest = 0.0
    for _ in range(steps):
        norms = gradient_norms(loss, z, target)
        largest = max(largest, norms.max().item())
        optimizer.zero_grad()
        (-norms.sum()).backward()
        optimizer.step()
    return largest


@pytest.mark.parametrize("temperature", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("logits", [2, 3, 10, 100])
def test_no_logits_exceed_the_constant_of_tau_cce_and_some_attain_it(temperature, logits):
    loss = TauCCE(temperature)
    ratio = largest_gradient_norm(loss, logits, logits) / loss_lipschitz(loss, logits)
    assert 0.99 <= ratio <= 1 + 1e-12


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_no_logit_exceeds_the_constant_of_tau_bce_and_some_attain_it(temperature):
    loss = TauBCE(temperature)
    ratio = largest_gradient_norm(loss, 1, 2) / loss_lipschitz(loss, 1)
    assert 0.99 <= ratio <= 1 + 1e-12


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e3, 1e30])
def test_extreme_logits_do_not_exceed_the_constant(scale):
    generator = torch.Generator().manual_seed(0)
    z = (torch.randn(64, 5, dtype=torch.float64, generator=generator) * scale).requires_grad_()
    target = torch.randint(0, 5, (64,), generator=generator)
    assert gradient_norms(TauCCE(0.5), z, target).max() <= sqrt(2.0) * (1 + 1e-12)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_the_temperature_divides_the_logits(temperature):
    z = torch.tensor([[0.3, -0.4]], dtype=torch.float64)
    expected = temperature * log1p(exp(-0.7 / temperature))
    assert TauCCE(temperature)(z, torch.tensor([0])).item() == pytest.approx(expected)
    single = torch.tensor([[0.7]], dtype=torch.float64)
    assert TauBCE(temperature)(single, torch.tensor([1])).item() == pytest.approx(expected)


@pytest.mark.parametrize("loss", [TauCCE(0.3), TauBCE(0.3)])
def test_the_loss_of_a_row_depends_on_that_row_alone(loss):
    columns = loss.output_size(2)
    z = torch.randn(4, columns, generator=torch.Generator().manual_seed(1)).requires_grad_()
    (gradient,) = torch.autograd.grad(loss(z, torch.tensor([0, 1, 1, 0]))[2], [z])
    assert gradient[2].norm() > 0
    assert torch.equal(gradient[[0, 1, 3]], torch.zeros(3, columns))


def test_losses_say_how_many_logits_they_need():
    assert TauCCE().output_size(7) == 7
    assert TauBCE().output_size(2) == 1
    with pytest.raises(ValueError, match="two classes for tau-bce, got 3"):
        TauBCE().output_size(3)


def test_a_number_of_logits_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="at least 2 logits"):
        loss_lipschitz(TauCCE(), 1)
    with pytest.raises(ValueError, match="1 logit"):
        loss_lipschitz(TauBCE(), 2)


@pytest.mark.parametrize("kind", LOSSES.values())
@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_temperatures_are_refused(kind, temperature):
    with pytest.raises(ValueError, match="temperature"):
        kind(temperature)


class Doubled(TauCCE):  # type: ignore[misc]
    def __call__(self, logits, target):
        return 2 * super().__call__(logits, target)


@pytest.mark.parametrize("loss", [Doubled(), torch.nn.CrossEntropyLoss()])
def test_a_loss_without_a_constant_of_its_own_is_refused(loss):
    with pytest.raises(UnsupportedError, match=f"No Lipschitz constant for loss {type(loss).__name__}"):
        loss_lipschitz(loss, 2)


def test_a_second_constant_for_a_loss_is_refused():
    with pytest.raises(ValueError, match="already has a Lipschitz constant"):
        loss_rule(TauCCE)(lambda *_: 0.0)


def test_every_named_loss_has_a_constant():
    assert {name: loss_lipschitz(kind(), kind().output_size(2)) for name, kind in LOSSES.items()} == {
        "tau-cce": sqrt(2.0),
        "tau-bce": 1.0,
    }
