"""The training loop: which rows, how much noise, which denominator, whatever the data are.

Rows of zeros contribute nothing, so that gradients are the noise alone; a source whose normals are zero leaves the
summed, guarded gradients alone.
"""

from math import ceil, sqrt

import numpy as np
import pytest
import torch
from scipy import stats

from clipless import SGD, Network, TauCCE, fit
from clipless.datasets import Split
from clipless.errors import PlanError, UnsupportedError
from clipless.layers import Dense, GroupSort, InputBall
from clipless.plans.plan import NOISE_INFLATION
from clipless.privacy import noise_grid
from clipless.privacy.accounting.claim import claim
from clipless.privacy.accounting.lower_bound import attack_epsilon
from clipless.privacy.allocation import NoiseAllocation
from clipless.privacy.randomness import SecureSource
from clipless.testing import SeededSource
from clipless.training import trainer
from tests.clipless.factories import RecordingSource, accumulate_gradients, plan_for, weights, zeros

NAN, INF = float("nan"), float("inf")
STILL = SGD(1e-30)  # weights stay where they are


def silent(seed=0):
    return RecordingSource(seed, scale=0.0)


def network(seed=0, features=16, width=32, outputs=3, radius=2.0):
    g = torch.Generator().manual_seed(seed)
    layers = [InputBall(radius), Dense(features, width, generator=g), GroupSort(), Dense(width, outputs, generator=g)]
    return Network(layers, (features,))


def rows(count=40, features=16, outputs=3, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, features, generator=generator)
    return Split(x, torch.randint(0, outputs, (count,), generator=generator))


def repeated(count, seed=1):
    """One row again and again."""
    one = rows(1, seed=seed)
    return Split(one.x.repeat(count, 1), one.y.repeat(count))


def run(model, data, plan, loss=None, **options):
    """Train; return the gradients that the optimiser saw last, by name, after each epoch."""
    seen = []
    options = {"optimizer": STILL} | options
    for _ in fit(model, loss or TauCCE(0.1), data, plan, **options):
        seen.append({name: p.grad.clone() for name, p in model.named_parameters()})
    return seen


def summed(model, data, plan, keep=slice(None)):
    """The guarded gradients of the chosen rows, summed."""
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    accumulate_gradients(model, TauCCE(0.1), data.x[keep], data.y[keep], plan)
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    return found


# Noise


@pytest.mark.sampled(3)
@pytest.mark.parametrize("allocation", NoiseAllocation)
def test_the_noise_of_every_parameter_has_the_planned_deviation(allocation):
    model, data = network(features=16, width=64, outputs=32), zeros(8)
    plan = plan_for(model, data, noise_multiplier=1.7, epochs=120, sensitivity_fraction=0.5, allocation=allocation)
    seen = run(model, data, plan, source=SecureSource())
    deltas, sizes = list(plan.sensitivities.values()), list(plan.sizes.values())
    loads = [delta * sqrt(size) for delta, size in zip(deltas, sizes, strict=True)]
    for k, name in enumerate(plan.sensitivities):
        sigma = {
            NoiseAllocation.GLOBAL: 1.7 * sqrt(sum(d**2 for d in deltas)) / deltas[k],
            NoiseAllocation.PER_LAYER: 1.7 * sqrt(2),
            NoiseAllocation.MIN_VARIANCE: 1.7 * sqrt(sum(loads) / loads[k]),
        }[allocation]
        noise = torch.cat([step[name].flatten() for step in seen]).double().numpy()
        expected = sigma * deltas[k] / 8
        assert abs(noise.std() / expected - 1) <= 6 / sqrt(2 * noise.size)
        assert abs(noise.mean()) <= 6 * expected / sqrt(noise.size)
        assert stats.kstest(noise / expected, "norm").pvalue > 1e-9


@pytest.mark.usefixtures("exact_sums")
def test_noise_is_drawn_afresh_at_every_step_for_every_entry():
    model, data = network(), zeros(8)
    seen = run(model, data, plan_for(model, data, epochs=50), source=SecureSource())
    table = torch.stack([torch.cat([g.flatten() for g in step.values()]) for step in seen]).numpy()
    scale = table / table.std(axis=1, keepdims=True)
    assert abs((scale[1:] * scale[:-1]).mean()) <= 6 / sqrt(scale[1:].size)
    assert len(np.unique(table)) > 0.999 * table.size


@pytest.mark.usefixtures("exact_sums")
def test_the_step_adds_the_drawn_normals_times_the_planned_deviations_over_the_batch_size():
    model, data, source = network(), rows(), RecordingSource()
    plan = plan_for(model, data, batch_size=10, epochs=3)
    seen = run(model, data, plan, source=source)
    batch = np.flatnonzero(source.masks[-1])
    clean = summed(model, data, plan, batch)
    pieces = source.normals[-1].split(list(plan.sizes.values()))
    for (name, gradient), piece in zip(clean.items(), pieces, strict=True):
        noise = piece.view_as(gradient) * plan.noise_stds[name]
        torch.testing.assert_close(seen[-1][name], (gradient + noise.float()) / 10, rtol=1e-4, atol=1e-5)


def test_noise_covers_the_rounding_of_its_own_arithmetic():
    model = network()
    plan = plan_for(model, rows(), noise_multiplier=3.0, allocation=NoiseAllocation.PER_LAYER)
    for name, std in plan.noise_stds.items():
        assert std == pytest.approx(3.0 * sqrt(2) * plan.sensitivities[name] * (1 + NOISE_INFLATION), rel=1e-12)


# Batches


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("batch_size", "epochs"), [(40, 3), (10, 4), (7, 2), (0.5, 1)])
def test_every_step_draws_one_batch_of_the_population_and_one_noise(batch_size, epochs):
    model, data, source = network(), rows(), RecordingSource()
    plan = plan_for(model, data, batch_size=batch_size, epochs=epochs)
    run(model, data, plan, source=source)
    steps = epochs * ceil(40 / batch_size)
    assert plan.event().steps == steps
    assert len(source.masks) == len(source.normals) == steps
    assert {len(mask) for mask in source.masks} == {40}
    assert set(source.rates) == {plan.event().sampling_rate} == {batch_size / 40}
    assert {len(noise) for noise in source.normals} == {sum(plan.sizes.values())}


@pytest.mark.usefixtures("exact_sums")
def test_the_rows_of_the_drawn_batch_are_those_that_are_summed():
    model, data, source = network(), rows(), silent()
    plan = plan_for(model, data, batch_size=10, epochs=6, sensitivity_fraction=0.5)
    seen = run(model, data, plan, source=source)
    for epoch, gradients in enumerate(seen):
        mask = source.masks[4 * (epoch + 1) - 1]
        expected = summed(model, data, plan, np.flatnonzero(mask))
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient * 10, expected[name], rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def drawn():
    """Rows in the last of an epoch's two batches, read off the gradients of equal rows; and the source."""
    model, data, source = network(), repeated(40), silent()
    plan = plan_for(model, data, batch_size=20, epochs=80)
    one = summed(model, data, plan, slice(1))["layers.3.weight"].flatten()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(noise_grid, "_RELEASED", 2.0**60)
        seen = run(model, data, plan, source=source)
    sizes = [(g["layers.3.weight"].flatten() @ one / one.square().sum() * 20).item() for g in seen]
    return np.array(sizes), source


def test_the_denominator_is_the_expected_batch_size_whatever_was_drawn(drawn):
    sizes, source = drawn
    assert sizes == pytest.approx([mask.sum() for mask in source.masks[1::2]], rel=1e-4)


def test_drawn_batch_sizes_are_binomial(drawn):
    sizes = np.rint(drawn[0])
    assert abs(sizes.mean() - 20) <= 5 * sqrt(10 / 80)
    assert 0.3 <= sizes.var() / 10 <= 2.5
    assert len(set(sizes)) > 5


def test_batches_come_from_the_secure_source_by_default(monkeypatch):
    class Quiet(SecureSource):  # type: ignore[misc]
        def normal(self, count, device="cpu"):
            return torch.zeros(count, device=device)

    monkeypatch.setattr(trainer, "SecureSource", Quiet)
    model, data = network(), rows()
    plan = plan_for(model, data, batch_size=10)
    first, second = (torch.cat([g.flatten() for g in run(model, data, plan)[0].values()]) for _ in range(2))
    assert (first - second).norm() > 0.1 * first.norm()


def test_noise_comes_from_the_secure_source_by_default():
    model, data = network(), zeros(8)
    plan = plan_for(model, data)
    torch.manual_seed(0)
    first = run(model, data, plan)[0]["layers.1.weight"]
    torch.manual_seed(0)
    assert not torch.equal(first, run(model, data, plan)[0]["layers.1.weight"])


@pytest.mark.usefixtures("exact_sums")
def test_empty_batches_are_steps_with_noise():
    model, data, source = network(), rows(4), RecordingSource()
    plan = plan_for(model, data, batch_size=0.04, delta=0.01)
    seen = run(model, data, plan, source=source)
    assert len(source.normals) == 100
    assert source.masks[-1].sum() == 0
    expected = source.normals[-1][: plan.sizes["layers.1.weight"]] * plan.noise_stds["layers.1.weight"] / 0.04
    torch.testing.assert_close(seen[0]["layers.1.weight"].flatten(), expected.float())


def test_an_empty_batch_adds_nothing():
    model, data = network(), rows()
    found = summed(model, data, plan_for(model, data), slice(0))
    assert all(torch.equal(g, torch.zeros_like(g)) for g in found.values())


@pytest.mark.parametrize("micro_batch_size", [1, 32, 40])
def test_a_batch_may_be_accumulated_from_pieces(micro_batch_size):
    model, data = network(), rows()
    plan = plan_for(model, data, batch_size=20)
    whole = run(model, data, plan, source=SeededSource(3))[0]
    parts = run(model, data, plan, source=SeededSource(3), micro_batch_size=micro_batch_size)[0]
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-4, atol=1e-5)


# Sensitivity


@pytest.mark.usefixtures("exact_sums")
@pytest.mark.parametrize("fraction", [1.0, 0.1])
@pytest.mark.parametrize("factor", [1.0, 1e3])
def test_no_row_contributes_more_than_the_sensitivity(fraction, factor):
    """Also with weights that break every bound: the guard is armed while gradients are formed."""
    model, data = network(), repeated(40)
    plan = plan_for(model, data, sensitivity_fraction=fraction)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(factor)
    for name, mean in run(model, data, plan, source=silent())[0].items():
        assert mean.norm() <= plan.sensitivities[name] * (1 + 1e-4)


def test_the_guard_acts_only_while_gradients_are_formed():
    model, data = network(), rows()
    plan = plan_for(model, data, epochs=2, batch_size=20)
    epochs = fit(model, TauCCE(0.1), data, plan)
    for _ in epochs:
        assert all(model.layers[i].guards is None for i in (1, 3))
    interrupted = fit(model, TauCCE(0.1), data, plan)
    next(interrupted)
    interrupted.close()
    assert all(model.layers[i].guards is None for i in (1, 3))


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_rows_that_are_not_finite_count_as_rows_of_zeros(bad):
    data = rows()
    poisoned, blank = data.x.clone(), data.x.clone()
    poisoned[::3, 2], blank[::3] = bad, 0.0
    trained = []
    for x in (poisoned, blank):
        model = network()
        plan = plan_for(model, data, batch_size=20, epochs=3)
        list(fit(model, TauCCE(0.1), Split(x, data.y), plan, source=SeededSource(0)))
        trained.append(weights(model))
    assert trained[0].isfinite().all()
    assert torch.equal(*trained)


def test_weights_that_are_not_finite_end_no_other_rows_privacy():
    """Noise is drawn and added even when nothing sensible can be learnt any more."""
    model, data, source = network(), rows(), RecordingSource()
    plan = plan_for(model, data)
    with torch.no_grad():
        model.layers[1].weight[0, 0] = NAN
    gradients = run(model, data, plan, source=source)[0]
    assert all(g.isfinite().all() for g in gradients.values())


def neighbour_statistics(noise_multiplier, repetitions=150):
    """How an adversary tells whether one row took part: the noisy sums along its contributions.

    Returns:
        Statistics with and without the row, scaled to unit variance, and their exact distance.
    """
    model, data = network(), rows(8)
    plan = plan_for(model, data, noise_multiplier=noise_multiplier, epochs=repetitions, sensitivity_fraction=0.01)
    row = summed(model, data, plan, slice(1))
    distance = sqrt(sum((row[k].norm() / plan.noise_stds[k]).item() ** 2 for k in row))
    without = Split(data.x.clone(), data.y)
    without.x[0] = 0.0
    samples = []
    for seed, split in enumerate((data, without)):
        seen = run(model, split, plan, source=SeededSource(seed))
        along = (
            torch.stack([g[k] * 8 for g in seen]).flatten(1) @ row[k].flatten() / plan.noise_stds[k] ** 2 for k in row
        )
        samples.append((sum(along) / distance).double().numpy())
    return samples, distance, plan


@pytest.mark.long
def test_neighbours_are_told_apart_as_well_as_is_priced_and_no_better():
    (with_row, without), distance, plan = neighbour_statistics(noise_multiplier=0.25)
    assert 0.99 / 0.25 <= distance * (1 + NOISE_INFLATION) <= 1.0001 / 0.25
    assert with_row.mean() - without.mean() == pytest.approx(distance, abs=6 * sqrt(2 / len(without)))
    assert without.std() == pytest.approx(1.0, abs=6 / sqrt(2 * len(without)))
    cut = (with_row.mean() + without.mean()) / 2
    assert min((with_row > cut).mean(), (without < cut).mean()) > 0.9
    assert attack_epsilon(plan.event(1), 1e-6) <= claim(plan.event(1), 1e-6).epsilon


def test_neighbours_are_hidden_by_much_noise():
    (with_row, without), _, _ = neighbour_statistics(noise_multiplier=10.0)
    cut = np.median(np.concatenate([with_row, without]))
    assert abs((with_row > cut).mean() - (without > cut).mean()) <= 0.25


# What a caller does between two epochs


@pytest.mark.parametrize("set_to_none", [True, False])
def test_clearing_gradients_between_epochs_does_not_leave_the_noise_out(set_to_none):
    """``zero_grad`` drops the buffers that noise is added to; a raw gradient must never reach the optimiser."""
    trained = []
    for clears in (False, True):
        model, data = network(), zeros(20)
        plan = plan_for(model, data, epochs=3)
        for _ in fit(model, TauCCE(0.1), data, plan, optimizer=SGD(0.1), source=SeededSource(5)):
            if clears:
                model.zero_grad(set_to_none=set_to_none)
        trained.append(weights(model))
    assert torch.equal(*trained)


def test_a_hook_added_between_epochs_is_refused():
    model, data = network(), zeros(20)
    epochs = fit(model, TauCCE(0.1), data, plan_for(model, data, epochs=3), source=SeededSource(5))
    next(epochs)
    model.layers[1].register_full_backward_hook(lambda *_: None)
    with pytest.raises(UnsupportedError, match="hooks"):
        next(epochs)


def test_a_gradient_that_gathers_elsewhere_stops_the_step(monkeypatch):
    model, data = network(), zeros(20)

    def elsewhere(model, *_, **_options):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)

    monkeypatch.setattr(trainer, "sum_gradients", elsewhere)
    with pytest.raises(PlanError, match="gather where the noise is added"):
        next(fit(model, TauCCE(0.1), data, plan_for(model, data, batch_size=20), source=SeededSource(5)))
