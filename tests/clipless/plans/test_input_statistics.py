"""Private statistics: one row moves each sum by at most 1, each release is charged, the constants are right."""

from math import inf, nan, sqrt

import pytest
import torch

from clipless import TauCCE, fit, load, make_plan, save, zoo
from clipless.bounds import Signal, WeightNorms, bound_layer, bound_network
from clipless.certificates.certify import measured_bounds
from clipless.datasets import Split
from clipless.errors import PlanError
from clipless.layers import Dense, Flatten, InputBall, Residual, ScaleByQuantile, Standardise
from clipless.layers.statistics import PaidStatistics
from clipless.network import Network
from clipless.plans.input_statistics import _ContributionPass, release_statistics, releases
from clipless.plans.method import Method
from clipless.plans.plan import NOISE_INFLATION
from clipless.privacy.accounting.claim import claim
from clipless.privacy.sampling import PoissonSampler
from clipless.testing import SeededSource, coupled_rows
from tests.clipless.factories import RecordingSource

LAYERS = {
    "vectors": (lambda: Standardise(6, 3.0, 0.01), (6,)),
    "maps": (lambda: Standardise(2, 3.0, 0.01), (2, 4, 5)),
    "quantile": (lambda: ScaleByQuantile(0.01, 10.0, 0.5), (2, 3)),
}


@pytest.fixture(params=LAYERS)
def case(request):
    make, shape = LAYERS[request.param]
    return make(), shape


def rows(shape, count=50, seed=0, scale=1.0):
    return scale * torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


def bounded_sum(layer, x):
    return _ContributionPass(Network([layer], x.shape[1:]), 0, layer).sum(x, torch.ones(len(x), dtype=torch.bool))


@pytest.mark.parametrize("value", [0.0, 1.0, 1e6, 1e-25, 3e38, nan, inf])
def test_one_row_moves_a_sum_by_at_most_one(case, value):
    layer, shape = case
    x = rows(shape)
    x[0] = x[0] * value
    full, fewer = (bounded_sum(layer, part) for part in (x.roll(-1, 0), x[1:]))
    assert full.isfinite().all()
    assert (full - fewer).norm() <= 1


def test_the_largest_contribution_is_nearly_one(case):
    layer, shape = case
    flat = torch.ones(1, *shape)
    if isinstance(layer, Standardise):  # all of the norm on one feature, the same everywhere
        flat[:, 1:] = 0.0
        flat *= 3.0 / flat.norm()
    assert layer.contributions(flat).norm() == pytest.approx(1.0)


class _Greedy(PaidStatistics):
    def contributions(self, x):
        return 100.0 * x

    def settle(self, mean_M, shape):
        del mean_M, shape


def test_a_layer_that_contributes_too_much_is_held_to_one():
    """Privacy does not rest on the layer: what it returns is clipped."""
    x = rows((3,))
    full, fewer = (bounded_sum(_Greedy(1), part) for part in (x.roll(-1, 0), x[1:]))
    assert 0.999 <= (full - fewer).norm() <= 1.0


def settled(layer, x, noise_std=0.0, batch_size=None, micro_batch_size=16, source=None):
    network, source = Network([layer], x.shape[1:]), source or SeededSource(0)
    batch_size = batch_size or len(x)
    sampler = PoissonSampler(len(x), batch_size / len(x), source)
    release_statistics(
        network,
        Split(x, torch.zeros(len(x), dtype=torch.int64)),
        sampler,
        source,
        noise_std=noise_std,
        batch_size=batch_size,
        micro_batch_size=micro_batch_size,
    )
    return layer


@pytest.mark.parametrize("shape", [(6,), (2, 4, 5)])
@pytest.mark.parametrize("count", [1, 3])
def test_means_and_deviations_are_those_of_the_rows(shape, count):
    x = 0.3 * rows(shape, 400) + 0.5
    layer = settled(Standardise(shape[0], 100.0, 1e-3, count), x)
    axes = [0, *range(2, x.dim())]
    torch.testing.assert_close(layer.mean, x.mean(dim=axes), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(layer.scale, x.std(dim=axes, correction=0), rtol=2e-2, atol=1e-3)
    standard = layer(x)
    torch.testing.assert_close(standard.mean(dim=axes), torch.zeros(shape[0]), rtol=0, atol=1e-2)
    torch.testing.assert_close(standard.std(dim=axes), torch.ones(shape[0]), rtol=2e-2, atol=0)


def test_deviations_do_not_fall_below_the_floor():
    layer = settled(Standardise(3, 10.0, 0.25), torch.ones(40, 3))
    assert torch.equal(layer.scale, torch.full((3,), 0.25))


@pytest.mark.parametrize(
    "make", [lambda least: Standardise(3, 10.0, least), lambda least: ScaleByQuantile(least, 10.0)]
)
def test_no_divisor_that_is_allowed_underflows(make):
    """The paid release is over by then: a divisor of 0 would make it worth nothing."""
    least = float(torch.finfo(torch.float32).tiny)
    layer = settled(make(least), torch.zeros(40, 3))
    assert (layer.scale >= least).all()
    assert 0.0 < measured_bounds(Network([layer, InputBall(1.0), Dense(3, 2)], (3,))).lipschitz() < inf
    with pytest.raises(ValueError, match=r"Expected 1\.18e-38 <="):
        make(0.9 * least)


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
def test_the_quantile_is_that_of_the_norms(quantile):
    x = rows((5,), 2000)
    layer = settled(ScaleByQuantile(0.01, 10.0, quantile, bins=400), x, micro_batch_size=300)
    share = (x.norm(dim=1) <= layer.scale).double().mean()
    assert quantile <= share <= quantile + 0.03


def test_noise_may_hide_a_quantile_but_not_leave_the_range():
    x = rows((5,), 20)
    for seed in range(20):
        layer = settled(ScaleByQuantile(0.1, 10.0, 0.9), x, noise_std=50.0, source=SeededSource(seed))
        assert 0.1 * (1 - 1e-6) <= layer.scale <= 10.0 * (1 + 1e-6)


def test_every_sum_carries_the_noise():
    zeros = torch.zeros(30, 4)
    first = settled(Standardise(4, 1.0, 1e-3, 8), zeros, noise_std=2.0, batch_size=30).mean
    again = torch.cat(
        [settled(Standardise(4, 1.0, 1e-3, 8), zeros, 2.0, 30, source=SeededSource(i)).mean for i in range(60)]
    )
    assert not torch.equal(first, torch.zeros(4))
    assert again.std().item() == pytest.approx(2.0 * sqrt(2) / (30 * sqrt(8)), rel=0.15)


def test_a_sum_is_of_the_drawn_rows(monkeypatch):
    x = rows((5,), 40)
    monkeypatch.setattr(PoissonSampler, "batches", lambda _, steps, __: iter([torch.tensor([3, 7])] * steps))
    layer = settled(Standardise(5, 100.0, 1e-6), x, batch_size=2)
    torch.testing.assert_close(layer.mean, x[[3, 7]].mean(dim=0), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("drawn", [[], [3, 7], list(range(40))])
def test_the_denominator_of_a_mean_is_the_expected_batch_size_whatever_was_drawn(drawn, monkeypatch):
    """Noise over the drawn number of rows would tell that number: another mechanism than the one that is priced."""
    x = rows((5,), 40)
    monkeypatch.setattr(PoissonSampler, "batches", lambda _, steps, __: iter([torch.tensor(drawn).long()] * steps))
    layer = settled(Standardise(5, 100.0, 1e-6), x, batch_size=8)
    torch.testing.assert_close(layer.mean, x[drawn].sum(dim=0) / 8, rtol=1e-3, atol=1e-3)


def test_micro_batches_do_not_matter():
    x = rows((6,), 37)
    whole, parts = (settled(Standardise(6, 2.0, 0.01), x, micro_batch_size=m) for m in (64, 5))
    torch.testing.assert_close(whole.scale, parts.scale)


def network(*layers, classes=3, features=6):
    generator = torch.Generator().manual_seed(0)
    return Network([*layers, InputBall(2.0), Flatten(), Dense(features, classes, generator=generator)], (features,))


def plan_for(model, **options):
    numbers = {"batch_size": 20, "delta": 1e-6, "noise_multiplier": 1.5, "epochs": 2}
    return make_plan(model, TauCCE(), population=60, **(numbers | options))


def data(count=60):
    return Split(rows((6,), count), torch.arange(count) % 3)


@pytest.mark.parametrize("method", [Method.CLIPLESS, Method.LIP_DP_SGD, Method.DP_SGD])
def test_releases_are_charged_like_steps(method):
    options = {"method": method} | ({"clip_norm": 1.0} if method is Method.DP_SGD else {})
    plain = plan_for(network(), **options)
    paid = plan_for(network(Standardise(6, 3.0, 0.1, 2), ScaleByQuantile(0.1, 10.0)), **options)
    assert (plain.preliminary_steps, paid.preliminary_steps) == (0, 3)
    assert paid.event().steps == plain.event().steps + 3 == 9
    assert paid.event(1).steps == 6
    assert paid.epsilon_curve()[0] == claim(paid.event(1), 1e-6).epsilon
    assert paid.epsilon_curve()[-1] > plain.epsilon_curve()[-1]
    assert paid.to_json()["preliminary_steps"] == 3


def test_a_budget_covers_the_releases():
    model = network(Standardise(6, 3.0, 0.1, 4))
    by_noise = plan_for(model, epsilon=2.0, noise_multiplier=None)
    assert 0.98 * 2.0 <= claim(by_noise.event(), 1e-6).epsilon <= 2.0
    by_epochs = plan_for(model, epsilon=4.0, epochs=None)
    assert claim(by_epochs.event(), 1e-6).epsilon <= 4.0
    assert claim(by_epochs.event(by_epochs.epochs + 1), 1e-6).epsilon > 4.0


def test_training_draws_a_batch_and_noise_for_everything_that_is_charged():
    model, source = network(Standardise(6, 3.0, 0.1, 2)), RecordingSource()
    plan = plan_for(model)
    for _ in fit(model, TauCCE(), data(), plan, source=source):
        pass
    assert source.batches == plan.event().steps == len(source.normals)
    assert [len(drawn) for drawn in source.normals[:2]] == [12, 12]


def test_training_without_privacy_learns_the_exact_statistics():
    model, rows_ = network(Standardise(6, 100.0, 0.01)), data()
    plan = plan_for(model, method=Method.NON_PRIVATE, noise_multiplier=None, batch_size=60)
    next(fit(model, TauCCE(), rows_, plan))
    torch.testing.assert_close(model.layers[0].mean, rows_.x.mean(dim=0), rtol=1e-3, atol=1e-3)


def test_a_plan_for_other_releases_is_refused():
    plan = plan_for(network(Standardise(6, 3.0, 0.1, 1)))
    with pytest.raises(PlanError, match="private statistics that the plan was made for"):
        fit(network(Standardise(6, 3.0, 0.1, 5)), TauCCE(), data(), plan)


@pytest.mark.parametrize(
    "layers",
    [[InputBall(1.0), Dense(6, 6), Standardise(6, 1.0, 0.1)], [Residual([Standardise(6, 1.0, 0.1)])]],
    ids=["behind weights", "inside a layer"],
)
def test_statistics_of_anything_but_fixed_maps_of_a_row_are_refused(layers):
    with pytest.raises(PlanError, match="private statistics"):
        releases(Network(layers, (6,)))


def test_sensitivities_do_not_depend_on_the_learned_constants():
    model = network(Standardise(6, 3.0, 0.1), ScaleByQuantile(0.1, 10.0))
    before = plan_for(model).sensitivities
    model.layers[0].settle(torch.full((12,), 0.3), (6,))
    model.layers[1].scale.fill_(0.5)
    assert plan_for(model).sensitivities == before


def test_certificates_fold_the_learned_constants_in():
    model = network(Standardise(6, 3.0, 0.1))
    plain = bound_network(network(), WeightNorms.MEASURED).lipschitz()
    model.layers[0].scale.copy_(torch.tensor([0.5, 1.0, 2.0, 1.0, 1.0, 1.0]))
    assert bound_network(model, WeightNorms.MEASURED).lipschitz() == pytest.approx(plain / 0.5, rel=1e-4)
    scaled = network(ScaleByQuantile(0.1, 10.0))
    scaled.layers[0].scale.fill_(4.0)
    assert bound_network(scaled, WeightNorms.MEASURED).lipschitz() == pytest.approx(plain / 4.0, rel=1e-4)


@pytest.mark.parametrize("shape", [(6,), (6, 3, 2)])
def test_outputs_and_distances_stay_within_the_bounds(shape):
    layer = Standardise(6, 3.0, 0.1).double()
    layer.mean.copy_(torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
    layer.scale.copy_(torch.linspace(0.5, 2.0, 6))
    bound = bound_layer(layer, Signal(shape, 1.5), WeightNorms.MEASURED)
    worst = -layer.mean.view(-1, *[1] * (len(shape) - 1)).expand(shape)
    for x in (*rows(shape, 20).double(), worst):
        x = 1.5 * x / x.norm()
        assert layer(x[None]).norm() <= bound.output.norm
    a, b = torch.zeros(1, *shape).double(), torch.zeros(1, *shape).double()
    b[:, 0] = 1.0  # the feature of the smallest deviation
    assert (layer(a) - layer(b)).norm() == pytest.approx(bound.input_gain * (a - b).norm())


def test_layers_never_couple_rows(case):
    layer, shape = case
    x = rows(shape, 8)
    for value in (100.0, nan, inf):
        assert coupled_rows(layer, x, 3, torch.full(shape, value)) == []
        assert coupled_rows(layer.contributions, x, 3, torch.full(shape, value)) == []


def test_models_keep_their_constants_on_disk(tmp_path):
    model = network(Standardise(6, 3.0, 0.1, 2), ScaleByQuantile(0.1, 10.0, 0.7, 16))
    for _ in fit(model, TauCCE(), data(), plan_for(model), source=SeededSource(0)):
        pass
    save(model, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert again.layers[0].config() == model.layers[0].config()
    assert again.layers[1].config() == model.layers[1].config()
    assert torch.equal(again(data().x), model(data().x))
    assert not torch.equal(model.layers[0].mean, torch.zeros(6))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Standardise(0, 1.0, 0.1),
        lambda: Standardise(3, inf, 0.1),
        lambda: Standardise(3, 1.0, 0.0),
        lambda: Standardise(3, 1.0, 0.1, 0),
        lambda: ScaleByQuantile(1.0, 1.0),
        lambda: ScaleByQuantile(0.0, 1.0),
        lambda: ScaleByQuantile(0.1, 1.0, 1.0),
        lambda: ScaleByQuantile(0.1, 1.0, nan),
        lambda: ScaleByQuantile(0.1, 1.0, 0.5, 1),
        lambda: ScaleByQuantile(0.1, 1.0, releases=1.5),
    ],
)
def test_arguments_out_of_range_are_refused(make):
    with pytest.raises(ValueError, match="Expected"):
        make()


def test_the_inflation_covers_these_sums_too(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "clipless.training.private_training.release_statistics", lambda *_, noise_std, **__: seen.append(noise_std)
    )
    model = network(Standardise(6, 3.0, 0.1))
    fit(model, TauCCE(), data(), plan_for(model), source=SeededSource(0))
    assert seen == [1.5 * (1 + NOISE_INFLATION)]


def test_every_architecture_takes_them_in_front():
    model = zoo.mlp((6,), 3, input_norm=2.0)
    both = Network([Standardise(6, 3.0, 0.1), *model.layers], (6,))
    assert plan_for(both).preliminary_steps == 1
