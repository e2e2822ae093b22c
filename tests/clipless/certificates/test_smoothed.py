"""Smoothed certificates: their bound, the exact case of a linear classifier, attacks, and what they do not depend on."""

from dataclasses import replace
from fractions import Fraction
from math import comb, inf, nan, sqrt

import pytest
import torch
from scipy.stats import beta, binomtest, norm

from clipless import zoo
from clipless.certificates import smoothed
from clipless.certificates.certify import certify, decisions
from clipless.certificates.smoothed import Smoothing, certify_smoothed, lower_bound, quantile_below
from clipless.layers import Dense, InputBall
from clipless.network import Network
from clipless.projections import Free

ALPHA = 0.001
MARGIN = torch.tensor([0.0, 0.1, 0.4, 1.0, -0.3, 2.5])


def linear(features=5, gain=1.0, classes=2):
    """A classifier of two classes whose margin is ``gain * x[0]``, without a bound of inputs that matters."""
    dense = Dense(features, classes, constraint=Free())
    with torch.no_grad():
        dense.weight.zero_()
        dense.weight[-1, 0] = gain / 2.0 if classes == 2 else gain
        if classes == 2:
            dense.weight[0, 0] = -gain / 2.0
    return Network([InputBall(1e6), dense], (features,))


def rows(margins=MARGIN, features=5):
    x = torch.zeros(len(margins), features)
    x[:, 0] = margins
    return x


def small(seed=0, classes=3, **options):
    return zoo.build(
        "mlp", (6,), classes, input_norm=4.0, generator=torch.Generator().manual_seed(seed), width=8, **options
    )


def tail(hits, draws, bound):
    """P(Binomial(draws, bound) >= hits), exactly."""
    p = Fraction(bound)
    return sum(comb(draws, k) * p**k * (1 - p) ** (draws - k) for k in range(hits, draws + 1))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("draws", "alpha"), [(1, 0.3), (7, 0.05), (40, 0.001), (60, 0.01)])
def test_the_bound_is_that_of_clopper_and_pearson_and_never_above_it(draws, alpha):
    for hits in range(draws + 1):
        found = lower_bound(hits, draws, alpha)
        two_sided = binomtest(hits, draws).proportion_ci(1 - 2 * alpha, method="exact").low
        assert found == pytest.approx(two_sided, rel=1e-6)
        assert tail(hits, draws, found) <= Fraction(alpha) if hits else found == 0.0


@pytest.mark.parametrize("alpha", [1e-190, 1e-201, 1e-300, 5e-324])
@pytest.mark.parametrize(("hits", "draws"), [(8, 10), (9, 10), (99, 100)])
def test_an_alpha_of_which_double_precision_cannot_tell_gives_no_bound(hits, draws, alpha):
    found = lower_bound(hits, draws, alpha)
    assert tail(hits, draws, found) <= Fraction(alpha)
    assert (found == 0.0) == (alpha < 1e-200)


@pytest.mark.parametrize(("hits", "draws"), [(10**6, 10**6), (10**7, 10**7), (10**6 - 1, 10**6), (1, 10**7)])
def test_the_bound_of_many_draws_is_close_and_below_1(hits, draws):
    found = lower_bound(hits, draws, ALPHA)
    assert 0.0 < found < 1.0
    assert found == pytest.approx(float(beta.ppf(ALPHA, hits, draws - hits + 1)), rel=1e-7)
    assert quantile_below(found) < inf


def test_quantiles_are_rounded_down():
    for p in (1e-12, 0.1, 0.5, 0.6, 0.999, 1 - 2**-53):
        assert norm.cdf(quantile_below(p)) <= p * (1 + 1e-12)
        assert quantile_below(p) <= norm.ppf(p)
        assert quantile_below(p) == pytest.approx(norm.ppf(p), abs=2e-8)
    assert quantile_below(0.0) == quantile_below(nan) == quantile_below(1.0) == -inf


@pytest.mark.parametrize("counts", [(-1, 5), (6, 5), (0, 0)])
def test_counts_without_a_meaning_are_refused(counts):
    with pytest.raises(ValueError, match="hits"):
        lower_bound(*counts, ALPHA)


@pytest.mark.parametrize(
    "numbers", [{"sigma": 0.0}, {"sigma": nan}, {"alpha": 0.5}, {"alpha": 0.0}, {"draws": 0}, {"draws": 1.5}]
)
def test_settings_without_a_meaning_are_refused(numbers):
    with pytest.raises(ValueError, match="Expected"):
        Smoothing(**{"sigma": 1.0, **numbers})


@pytest.mark.sampled(4)
@pytest.mark.parametrize("classes", [1, 2])
@pytest.mark.parametrize("gain", [0.2, 3.0])
def test_a_linear_classifier_is_certified_up_to_its_distance_from_the_border(gain, classes):
    """Its smoothed classifier is itself: the largest true radius is |x[0]|, whatever sigma is."""
    one = Smoothing(sigma=0.7, alpha=ALPHA, draws=2000)
    found = certify_smoothed(linear(gain=gain, classes=classes), rows(), one)
    assert found.decided[1:].tolist() == [1, 1, 1, 0, 1]
    assert found.decided[0] == -1
    assert found.radii[0] == 0.0
    truth = rows()[:, 0].abs().double()
    assert (found.radii <= truth).all()
    assert (found.radii[1:] >= truth[1:] - 0.1).all()  # also beyond what 2,000 draws certify without the constant
    assert truth[-1] > one.sigma * one.largest_quantile


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bounded", [True, False])
def test_radii_are_rarely_above_the_truth(bounded, monkeypatch):
    """Of 150 independent certificates at alpha 0.2 about 30 may be: the bound is one-sided, and not two-sided."""
    if not bounded:
        monkeypatch.setattr(smoothed._Noisy, "_choose_reach", lambda *_: 0.0)
    one, x = Smoothing(sigma=1.0, alpha=0.2, draws=38), rows(torch.full((1,), 0.4))
    found = torch.cat([certify_smoothed(linear(), x, replace(one, seed=seed)).radii for seed in range(150)])
    wrong = int((found > 0.4).sum())
    assert binomtest(wrong, 150, 0.2, alternative="greater").pvalue > 1e-4
    assert bounded or wrong > 16  # at alpha / 2 and below there are fewer


def test_without_a_bound_of_the_network_it_is_the_certificate_of_cohen():
    model, one = linear(), Smoothing(sigma=0.5, alpha=ALPHA, draws=500)
    noisy = smoothed._Noisy(model, torch.device("cpu"), one)
    noisy._bounded = False
    label, radius = noisy.certify(rows()[3])
    hits = sum(int((decisions(part) == 1).sum()) for part in noisy._logits(rows()[3], "counted", 500))
    assert label == 1
    assert radius == pytest.approx(0.5 * norm.ppf(beta.ppf(ALPHA, hits, 501 - hits)), rel=1e-6)
    assert noisy.certify(rows()[5])[1] <= 0.5 * norm.ppf(ALPHA ** (1 / 500))


def test_without_a_bound_nothing_is_certified_beyond_the_truth():
    """Here the deviation of the noise decides: half of it would double the radius."""
    noisy = smoothed._Noisy(linear(), torch.device("cpu"), Smoothing(sigma=0.5, alpha=ALPHA, draws=2000))
    noisy._bounded = False
    label, radius = noisy.certify(rows()[2])
    assert label == 1
    assert 0.3 < radius <= 0.4


def probability(model, x, label, sigma, draws=20_000, seed=1):
    noise = torch.randn((draws, *x.shape), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return float((decisions(model(x.double() + sigma * noise)) == label).double().mean())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", [{}, {"constraint": Free(), "bias": True}], ids=["orthogonal", "free"])
def test_no_attack_within_the_radius_turns_the_smoothed_classifier(options):
    """Steps along the gradient of the smoothed margin, and at random, right up to the border of the ball."""
    model, one = small(**options), Smoothing(sigma=0.5, alpha=1e-4, draws=1500)
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(4, 6, generator=generator)
    found = certify_smoothed(model, x, one)
    double = model.double()
    certified = [i for i in range(4) if found.decided[i] >= 0]
    assert len(certified) >= 2
    for i in certified:
        label, radius = int(found.decided[i]), float(found.radii[i])
        noise = torch.randn((1000, 6), generator=generator, dtype=torch.float64)
        moved = x[i].double().clone()
        for _ in range(10):
            moved.requires_grad_()
            logits = double(moved + 0.5 * noise)
            other = logits.scatter(1, torch.full((1000, 1), label), -inf).amax(dim=1)
            (gradient,) = torch.autograd.grad(torch.tanh(4 * (logits[:, label] - other)).mean(), moved)
            offset = moved.detach() - 0.4 * radius * gradient / gradient.norm().clamp(min=1e-30) - x[i].double()
            moved = x[i].double() + offset * min(1.0, radius / float(offset.norm()))
        away = torch.randn(2, 6, generator=generator, dtype=torch.float64)
        for place in (moved, *(x[i].double() + radius * away / away.norm(dim=1, keepdim=True))):
            assert probability(double, place.detach(), label, 0.5) > 0.5 - 4 / sqrt(4 * 20_000)


def test_the_constant_of_the_network_saves_draws():
    model, x = linear(), rows(torch.tensor([3.0]))
    few, many = (Smoothing(sigma=0.5, alpha=ALPHA, draws=draws) for draws in (100, 10_000))
    assert certify_smoothed(model, x, few).radii[0] > many.sigma * many.largest_quantile


def test_it_is_no_certificate_of_the_network_itself():
    """A spike that noise averages away: the network decides otherwise at x than the smoothed classifier."""

    class Spike(torch.nn.Module):
        def forward(self, x):
            return torch.where((x.abs() < 0.1).all(dim=1), 1.0, -1.0)[:, None]

    spike = smoothed._Noisy(linear(classes=1), torch.device("cpu"), Smoothing(sigma=1.0, draws=200))
    spike._network, spike._bounded = Spike(), False
    assert Spike()(torch.zeros(1, 5))[0, 0] > 0
    assert spike.certify(torch.zeros(5))[0] == 0


def test_a_row_depends_on_itself_alone_and_on_no_pass(monkeypatch):
    model, one = small(), Smoothing(sigma=0.4, draws=300, seed=7)
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(4))
    whole = certify_smoothed(model, x, one)
    order = torch.tensor([3, 0, 4, 2, 1])
    other = certify_smoothed(model, x[order], one)
    assert torch.equal(whole.radii[order], other.radii)
    monkeypatch.setattr(smoothed, "_DRAWN_AT_ONCE", 37)
    again = certify_smoothed(model, x[:2], one)
    assert torch.equal(again.radii, whole.radii[:2])
    assert torch.equal(again.decided, whole.decided[:2])
    assert not torch.equal(certify_smoothed(model, x, replace(one, seed=8)).radii, whole.radii)


def test_it_neither_reads_nor_moves_the_generators_of_a_training():
    model, one = small(), Smoothing(sigma=0.4, draws=50)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = certify_smoothed(model, torch.ones(2, 6), one)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert torch.equal(certify_smoothed(model, torch.ones(2, 6), one).radii, first.radii)
    assert next(model.parameters()).dtype == torch.float32


def test_the_draws_that_choose_are_not_those_that_are_counted():
    noisy = smoothed._Noisy(linear(), torch.device("cpu"), Smoothing(sigma=1.0, draws=200))
    first, counted = (torch.cat(list(noisy._logits(rows()[2], name, 50))) for name in ("selection", "counted"))
    assert abs(float(torch.corrcoef(torch.stack([first[:, 0], counted[:, 0]]))[0, 1])) < 0.6
    assert not (first == counted).any()


def test_rows_without_finite_logits_get_no_certificate():
    x = rows(torch.tensor([1.0, nan, inf]))
    found = certify_smoothed(linear(), x, Smoothing(sigma=0.5, draws=50))
    assert found.decided.tolist() == [1, -1, -1]
    assert found.radii.tolist()[1:] == [0.0, 0.0]


def test_rows_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"shape \(5,\)"):
        certify_smoothed(linear(), torch.zeros(2, 4), Smoothing(sigma=1.0))


def test_the_radius_of_a_row_may_exceed_that_of_the_network():
    """Two kinds of certificates: neither bounds the other."""
    model = small()
    x = torch.randn(6, 6, generator=torch.Generator().manual_seed(5))
    found = certify_smoothed(model, x, Smoothing(sigma=0.3, draws=2000))
    own = certify(model, x, found.decided.clamp(min=0))
    assert (found.radii > own).any()
