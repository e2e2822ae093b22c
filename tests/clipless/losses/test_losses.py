"""Every loss: no logits found by search have a larger gradient than its constant, and some reach it."""

from math import exp, hypot, log1p, sqrt

import pytest
import torch

from clipless import TauBCE, TauCCE
from clipless.errors import UnsupportedError
from clipless.losses import (
    HKR,
    KR,
    LOSSES,
    MAE,
    ClassWeighted,
    CrammerSinger,
    KCosine,
    MulticlassHinge,
    MultilabelBCE,
    Reduction,
    Squared,
    WestonWatkins,
    loss_lipschitz,
    loss_rule,
)
from clipless.losses.softmax_ball import largest_softmax_error

TEMPERATURES = [0.01, 0.25, 1.0, 5.0, 100.0]
SKEWED = {1: (0.9, 0.1), 2: (0.9, 0.1), 3: (0.7, 0.2, 0.1), 10: (0.55, *[0.05] * 9)}


def gradient_norms(loss, logits, target):
    total = loss(logits, target).sum()
    (gradient,) = torch.autograd.grad(total, [logits], create_graph=True)
    return gradient.norm(dim=1)


def largest_gradient_norm(loss, logits, classes, starts=32, steps=50, *, scale=None, radius=None, soft=False):
    """Gradient ascent in float64 from random logits of the loss's own scale, for every target, within the ball."""
    generator = torch.Generator().manual_seed(logits)
    scale = getattr(loss, "temperature", 1.0) if scale is None else scale
    z = torch.randn(starts * classes, logits, dtype=torch.float64, generator=generator) * scale
    z.requires_grad_()
    target = torch.arange(classes).repeat(starts)
    if soft:
        target = torch.softmax(3 * torch.randn(len(z), max(logits, 2), dtype=torch.float64, generator=generator), dim=1)
    optimizer = torch.optim.Adam([z], lr=0.3 * scale)
    largest = 0.0
    for _ in range(steps):
        if radius is not None:
            with torch.no_grad():
                z.mul_((radius / z.norm(dim=1, keepdim=True)).clamp(max=1.0))
        norms = gradient_norms(loss, z, target)
        largest = max(largest, norms.max().item())
        if not norms.requires_grad:
            continue
        optimizer.zero_grad()
        (-norms.sum()).backward()
        optimizer.step()
    return largest


def every_loss(logits):
    """Losses for that many logits, with each reduction, and the scale of logits at which they are searched."""
    priors = SKEWED[logits]
    weights = tuple(range(1, max(logits, 2) + 1))
    found = [(KCosine(0.3), 0.1), (KCosine(20.0), 20.0), (ClassWeighted(KCosine(2.0), weights), 1.0)]
    for reduction in Reduction:
        found += [
            (MulticlassHinge(0.5, reduction), 0.3),
            (KR(None, reduction), 1.0),
            (KR(priors, reduction), 1.0),
            (HKR(10.0, 0.5, None, reduction), 0.2),
            (HKR(0.3, 2.0, priors, reduction), 1.0),
            (HKR(0.0, 1.0, priors, reduction), 1.0),
            (MAE(reduction), 1.0),
            (MultilabelBCE(0.3, reduction), 0.6),
            (ClassWeighted(MulticlassHinge(1.0, reduction), weights), 0.5),
        ]
        if logits > 1:
            found += [
                (WestonWatkins(0.5, reduction), 0.1),
                (ClassWeighted(WestonWatkins(2.0, reduction), weights), 0.5),
            ]
    if logits > 1:
        found += [(CrammerSinger(0.5), 0.3), (ClassWeighted(CrammerSinger(2.0), weights), 0.5)]
    found += [(Squared(0.7, 2.0), 1.0), (ClassWeighted(Squared(3.0), weights), 2.0)]
    tau = TauBCE if logits == 1 else TauCCE
    return [*found, (tau(0.3), 0.3), (ClassWeighted(tau(2.0), weights), 2.0)]


KINDS_WITH_SCALES = [
    *((kind, "margin") for kind in (MulticlassHinge, HKR, WestonWatkins, CrammerSinger)),
    (KCosine, "floor"),
]
CASES = [
    pytest.param(loss, scale, logits, id=f"{loss}-{logits}") for logits in SKEWED for loss, scale in every_loss(logits)
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("loss", "scale", "logits"), CASES)
def test_no_logits_exceed_the_constant_and_some_attain_it(loss, scale, logits):
    constant = loss_lipschitz(loss, logits)
    assert 0.9 <= largest_gradient_norm(loss, logits, max(logits, 2), scale=scale) / constant <= 1 + 1e-12


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("loss", "scale", "logits"), CASES)
def test_soft_labels_do_not_exceed_the_constant(loss, scale, logits):
    found = largest_gradient_norm(loss, logits, max(logits, 2), starts=8, steps=25, scale=scale, soft=True)
    assert 0 < found <= loss_lipschitz(loss, logits) * (1 + 1e-12)


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("loss", "scale", "logits"), CASES)
def test_a_label_is_the_soft_label_of_one_class(loss, scale, logits):
    classes = max(logits, 2)
    z = torch.randn(classes, logits, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * scale
    hard, rows = torch.arange(classes), torch.eye(classes)
    torch.testing.assert_close(loss(z, hard), loss(z, rows), rtol=1e-12, atol=1e-12)


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("loss", "scale", "logits"), CASES)
def test_logits_that_are_not_finite_disturb_their_own_row_only(loss, scale, logits):
    classes = max(logits, 2)
    z = torch.randn(3, logits, generator=torch.Generator().manual_seed(0)) * scale
    target = torch.tensor([0, classes - 1, 1])
    found = []
    for value in (z[1, 0].item(), float("nan"), float("inf"), -float("inf")):
        leaf = z.clone()
        leaf[1, 0] = value
        losses = loss(leaf.requires_grad_(), target)
        losses.sum().backward()
        found.append((losses.detach()[[0, 2]], leaf.grad[[0, 2]]))
    for others, gradients in found[1:]:
        assert torch.equal(others, found[0][0])
        assert torch.equal(gradients, found[0][1])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("logits", [2, 3, 5, 10, 100, 1000])
@pytest.mark.parametrize(
    "radius", [0.0, 1.0, 12.0, *(pytest.param(radius, marks=pytest.mark.long) for radius in (0.1, 3.0, 5.0))]
)
def test_no_logits_within_a_ball_exceed_the_constant_for_that_ball_and_some_attain_it(logits, radius):
    """Also from random vertices of each number of competitors, which the derivation says cannot win."""
    temperature = 0.5
    loss = TauCCE(temperature)
    constant = loss_lipschitz(loss, logits, logit_norm=radius * temperature)
    generator = torch.Generator().manual_seed(logits)
    u = torch.randn(64, logits, dtype=torch.float64, generator=generator)
    for row in range(48):
        u[row] = u[row] * 0.1 - 0.3 / logits
        u[row, 1 : 2 + row % (logits - 1)] += 1.0 + row % 3
        u[row, 0] -= 1.0
    largest = 0.0
    for step in range(100):
        u = (u * radius / u.norm(dim=1, keepdim=True).clamp(min=1e-300)).requires_grad_()
        missed = torch.softmax(u, dim=1) - torch.eye(logits, dtype=torch.float64)[0]
        (uphill,) = torch.autograd.grad(missed.norm(dim=1).sum(), [u])
        z = (u.detach() * temperature).requires_grad_()
        largest = max(largest, gradient_norms(loss, z, torch.zeros(len(z), dtype=torch.int64)).max().item())
        u = u.detach() + 0.9**step * radius * uphill / uphill.norm(dim=1, keepdim=True).clamp(min=1e-300)
    assert 0.98 <= largest / constant <= 1 + 1e-12


@pytest.mark.sampled(3)
@pytest.mark.parametrize("logits", [3, 4, 6])
def test_a_dense_sample_of_a_ball_does_not_exceed_its_constant(logits):
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(200_000, logits, dtype=torch.float64, generator=generator)
    direction /= direction.norm(dim=1, keepdim=True)
    for radius in (0.5, 2.0, 4.0):
        p = torch.softmax(radius * direction, dim=1)
        p[:, 0] -= 1.0
        assert 0.9 <= p.norm(dim=1).max() / largest_softmax_error(logits, radius) <= 1


def test_two_competitors_among_ten_are_not_the_whole_story():
    """The point with all others at zero is 7 % too small."""
    u = torch.zeros(10, dtype=torch.float64)
    u[0], u[1] = -5 / sqrt(2), 5 / sqrt(2)
    two_class = torch.softmax(u, dim=0)
    two_class[0] -= 1.0
    assert two_class.norm().item() == pytest.approx(1.288, abs=5e-4)
    assert largest_softmax_error(10, 5.0) == pytest.approx(1.380, abs=1e-3)


@pytest.mark.parametrize("logits", [2, 3, 10])
def test_the_constant_for_a_ball_grows_from_that_of_equal_logits_to_that_of_no_ball(logits):
    radii = [0.0, 0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 1e3, 1e9, float("inf")]
    constants = [largest_softmax_error(logits, radius) for radius in radii]
    assert constants == sorted(constants)
    assert constants[0] == pytest.approx(sqrt(1 - 1 / logits))
    assert constants[-1] == sqrt(2)


@pytest.mark.parametrize("temperature", [0.5, 4.0])
def test_the_constant_of_tau_bce_within_a_ball(temperature):
    loss = TauBCE(temperature)
    constant = loss_lipschitz(loss, 1, logit_norm=3.0)
    assert constant == pytest.approx(1 / (1 + exp(-3.0 / temperature)))
    assert 0.99 <= largest_gradient_norm(loss, 1, 2, radius=3.0) / constant <= 1 + 1e-12


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("loss", "scale", "logits"), CASES)
def test_no_logits_within_a_ball_exceed_any_constant_for_it(loss, scale, logits):
    for radius in (0.2, 3.0):
        constant = loss_lipschitz(loss, logits, logit_norm=radius)
        found = largest_gradient_norm(loss, logits, max(logits, 2), starts=8, steps=20, scale=scale, radius=radius)
        assert found <= constant * (1 + 1e-12) <= loss_lipschitz(loss, logits) * (1 + 2e-12)


@pytest.mark.parametrize("logits", [1, 2, 10])
def test_the_constant_of_squared_within_a_ball_is_attained_opposite_the_target(logits):
    """Far within the bound, so that the ball decides."""
    loss, radius = Squared(100.0, 2.0), 3.0
    constant = loss_lipschitz(loss, logits, logit_norm=radius)
    target = torch.full((1, logits), -1 / logits if logits > 1 else -0.5, dtype=torch.float64)
    target[0, -1] += 1.0
    away = (-radius * target / target.norm()).requires_grad_()
    assert gradient_norms(loss, away, torch.tensor([max(1, logits - 1)])).item() == pytest.approx(constant)
    assert constant == pytest.approx(radius + 2.0 * target.norm().item())


def test_squared_is_quadratic_up_to_its_bound_and_its_gradient_is_finite_at_the_target():
    loss = Squared(1.0, 2.0)
    z = torch.tensor([[4 / 3, -2 / 3, -2 / 3], [4 / 3, 0.0, -2 / 3], [4 / 3, 3.0, -2 / 3]], dtype=torch.float64)
    z.requires_grad_()
    losses = loss(z, torch.zeros(3, dtype=torch.int64))
    losses.sum().backward()
    residual = 3.0 + 2 / 3
    assert losses.tolist() == pytest.approx([0.0, (2 / 3) ** 2 / 2, residual - 0.5], abs=1e-12)
    assert z.grad.norm(dim=1).tolist() == pytest.approx([0.0, 2 / 3, 1.0], abs=1e-12)


def test_constants_in_closed_form():
    assert loss_lipschitz(MulticlassHinge(reduction=Reduction.SUM), 9) == pytest.approx(3.0)
    assert loss_lipschitz(MulticlassHinge(), 9) == pytest.approx(1 / 3)
    assert loss_lipschitz(KR(), 2) == pytest.approx(sqrt(2))
    assert loss_lipschitz(KR(), 10) == pytest.approx(1.054, abs=5e-4)
    assert loss_lipschitz(KR((0.9, 0.1)), 1) == pytest.approx(10.0)
    assert loss_lipschitz(KR((0.9, 0.1)), 2) == pytest.approx(hypot(10, 10) / 2)
    assert loss_lipschitz(HKR(10.0), 2) == pytest.approx(sqrt(2) + 10 / sqrt(2))
    assert loss_lipschitz(KCosine(4.0), 7) == 0.25
    assert loss_lipschitz(MAE(), 4) == 0.5
    assert loss_lipschitz(Squared(0.5), 4) == 0.5


@pytest.mark.parametrize("logits", SKEWED)
@pytest.mark.parametrize("alpha", [0.0, 0.5, 100.0])
def test_hkr_costs_no_more_than_its_parts(logits, alpha):
    priors = SKEWED[logits]
    parts = loss_lipschitz(KR(priors), logits) + alpha * loss_lipschitz(MulticlassHinge(), logits)
    assert loss_lipschitz(HKR(alpha, 1.0, priors), logits) <= parts * (1 + 1e-12)


def test_losses_by_hand():
    z = torch.tensor([[0.25, -0.5, 2.0]], dtype=torch.float64)
    y = torch.tensor([0])
    assert MulticlassHinge(1.0, Reduction.SUM)(z, y).item() == pytest.approx(0.75 + 0.5 + 3.0)
    assert MulticlassHinge(1.0)(z, y).item() == pytest.approx(4.25 / 3)
    kr = (-0.25 / 0.5 - 0.5 / 0.7 + 2.0 / 0.8) / 3
    assert KR((0.5, 0.3, 0.2))(z, y).item() == pytest.approx(kr)
    assert HKR(10.0, 1.0, (0.5, 0.3, 0.2))(z, y).item() == pytest.approx(kr + 10 * 4.25 / 3)
    assert KCosine(1.0)(z, y).item() == pytest.approx(1 - 0.25 / z.norm().item())
    assert KCosine(5.0)(z, y).item() == pytest.approx(1 - 0.25 / 5)
    assert MAE(Reduction.SUM)(z, y).item() == pytest.approx(0.75 + 0.5 + 2.0)
    assert ClassWeighted(MAE(Reduction.SUM), (2, 1, 1))(z, y).item() == pytest.approx(6.5)


def test_balanced_priors_are_the_default():
    z = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.arange(6) % 3
    for default, balanced in ((KR(), KR((1 / 3,) * 3)), (HKR(), HKR(priors=(1 / 3,) * 3))):
        torch.testing.assert_close(default(z, y), balanced(z, y))
        assert loss_lipschitz(default, 3) == pytest.approx(loss_lipschitz(balanced, 3))


def test_the_sum_of_kr_over_a_balanced_set_is_the_difference_of_means():
    z = torch.randn(40, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.arange(40) % 2
    difference = z[y == 0].mean() - z[y == 1].mean()
    assert KR()(z, y).mean().item() == pytest.approx(difference.item())


@pytest.mark.parametrize("shape", [(5,), (5, 1), (5, 4)])
def test_mae_takes_numbers_for_regression(shape):
    generator = torch.Generator().manual_seed(0)
    target = 10 * torch.randn(shape, generator=generator)
    z = torch.randn(5, shape[1] if len(shape) == 2 else 1, generator=generator)
    expected = (z - target.view(z.shape)).abs().sum(dim=1)
    torch.testing.assert_close(MAE(Reduction.SUM)(z, target), expected)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("temperature", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("logits", [2, 3, 10, 100])
def test_no_logits_exceed_the_constant_of_tau_cce_and_some_attain_it(temperature, logits):
    loss = TauCCE(temperature)
    ratio = largest_gradient_norm(loss, logits, logits, starts=max(4, 64 // logits)) / loss_lipschitz(loss, logits)
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


@pytest.mark.parametrize("loss", [kind() for kind in LOSSES.values()])
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


def test_a_bound_of_the_logits_that_is_none_is_refused():
    for bad in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="Expected logit_norm >= 0"):
            loss_lipschitz(TauCCE(), 3, logit_norm=bad)


def test_a_number_of_logits_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="at least 1 logit"):
        loss_lipschitz(MAE(), 0)
    with pytest.raises(ValueError, match="at least 2 logits"):
        loss_lipschitz(TauCCE(), 1)
    with pytest.raises(ValueError, match="1 logit"):
        loss_lipschitz(TauBCE(), 2)


NO_SCALES = (0.0, -1.0, float("nan"), float("inf"))
BAD_PRIORS = ((), (1.0,), (0.5, 0.6), (1.0, 0.0), (1.5, -0.5), (float("nan"), 0.5))
POSITIVE = [*KINDS_WITH_SCALES, *((kind, "temperature") for kind in (TauCCE, TauBCE, MultilabelBCE))]


@pytest.mark.parametrize(
    ("kind", "options", "match"),
    [
        *((kind, {n: bad}, f"Expected 0 < {n} < inf, got {n}={bad}") for kind, n in POSITIVE for bad in NO_SCALES),
        *((HKR, {"alpha": bad}, "Expected 0 <= alpha < inf") for bad in NO_SCALES[1:]),
        *((kind, {"priors": bad}, "Expected two or more priors") for kind in (KR, HKR) for bad in BAD_PRIORS),
    ],
)
def test_parameters_out_of_range_are_refused(kind, options, match):
    with pytest.raises(ValueError, match=match):
        kind(**options)


@pytest.mark.parametrize("kind", [MulticlassHinge, KR, HKR, MAE, MultilabelBCE, WestonWatkins])
def test_reductions_are_two(kind):
    assert kind(reduction="sum") == kind(reduction=Reduction.SUM) != kind()
    with pytest.raises(ValueError, match="Expected reduction sum or mean, got reduction='max'"):
        kind(reduction="max")


@pytest.mark.parametrize("loss", [KR((0.5, 0.5)), HKR(priors=[0.5, 0.5])])
def test_priors_fit_the_classes(loss):
    assert loss.output_size(2) == 2
    with pytest.raises(ValueError, match="Expected 2 classes, one for each prior, got 3"):
        loss.output_size(3)
    with pytest.raises(ValueError, match="Expected 3 priors for 3 logits, got 2"):
        loss_lipschitz(loss, 3)


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
