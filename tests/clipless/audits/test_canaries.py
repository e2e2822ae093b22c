"""Canaries: one direction of a weight each, of exactly the norm that the guard lets through."""

import pytest
import torch
from torch import Tensor

from clipless import Method, TauCCE, make_plan, zoo
from clipless.audits.canaries import hadamard_basis, lay_canaries, operands_of, reached_multiplier
from clipless.audits.planted import Operands, plant_operands
from clipless.errors import AuditError
from clipless.layers import Conv1d, Dense, Flatten, InputBall
from clipless.network import Network
from clipless.training.batch_sums import sum_gradients

NETWORKS = {
    "convnet": lambda g: zoo.convnet((1, 8, 8), 4, input_norm=3.0, width=4, depth=2, hidden=8, generator=g),
    "patches": lambda g: zoo.patch_net((1, 8, 8), 4, input_norm=3.0, width=4, depth=2, hidden=8, generator=g),
    "tokens": lambda g: zoo.mixer((1, 4, 4), 2, input_norm=9.0, patch=2, depth=1, generator=g),
}
METHODS = {
    "clipless": {"method": Method.CLIPLESS},
    "lip-dp-sgd": {"method": Method.LIP_DP_SGD},
    "dp-sgd": {"method": Method.DP_SGD, "clip_norm": 0.7},
}


def plan_of(model, **options):
    return make_plan(
        model, TauCCE(1.0), population=1000, batch_size=100, delta=1e-4, noise_multiplier=1.0, epochs=1, **options
    )


def sums(model, plan, operands, rows, exact=False) -> dict[str, Tensor]:
    totals = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in model.named_parameters()}
    x, y = torch.zeros(rows, *model.input_shape), torch.zeros(rows, dtype=torch.int64)
    with plant_operands(model, rows, operands):
        sum_gradients(model, TauCCE(1.0), x, y, plan, totals, exact=exact)
    return totals


@pytest.mark.sampled(5)
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("network", NETWORKS)
def test_a_canary_is_one_direction_of_the_largest_norm_and_nothing_else(network, method, exact):
    model = NETWORKS[network](torch.Generator().manual_seed(0))
    plan = plan_of(model, **METHODS[method])
    entries = lay_canaries(model, plan, 64)
    canaries = torch.arange(len(entries[0].entry))
    for sign in (1.0, -1.0):
        for one_R in canaries[[0, len(canaries) // 2, -1]].split(1):
            totals = sums(model, plan, operands_of(entries, one_R, torch.tensor([sign])), 1, exact)
            for one in entries:
                value = totals.pop(one.parameter)
                share = sign * one.components(value)[one_R].item() / plan.sensitivities[one.parameter]
                assert (0.99 if method == "dp-sgd" or exact or network != "convnet" else 0.2) < share <= 1.0
                torch.testing.assert_close(value.norm().item(), share * plan.sensitivities[one.parameter])
            others = sum(float(total.norm()) / plan.sensitivities[name] for name, total in totals.items())
            assert others < 0.05


def test_dense_canaries_attain_their_sensitivity(training):
    audited = training()
    entries = lay_canaries(audited.model, audited.plan, 100)
    totals = sums(audited.model, audited.plan, operands_of(entries, torch.tensor([7]), torch.ones(1)), 1)
    assert len(entries) == 2
    for one in entries:
        assert totals[one.parameter].norm().item() == pytest.approx(audited.plan.sensitivities[one.parameter], rel=2e-3)


@pytest.mark.parametrize(("inputs", "outputs", "attained"), [(300, 256, 0.999), (256, 96, 0.999), (833, 10, 0.75)])
def test_canaries_of_wide_layers_attain_their_sensitivity_too(inputs, outputs, attained):
    """Where a single entry would be cut at a half, a third and a quarter of it."""
    model = Network([InputBall(1.0), Dense(inputs, outputs)], (inputs,))
    plan = plan_of(model)
    (one,) = lay_canaries(model, plan, 1000)
    chosen = torch.tensor([0, 1, 500, 999])
    totals = sums(model, plan, operands_of((one,), chosen, torch.ones(4)), 4)
    seen = one.components(totals[one.parameter]) / plan.sensitivities[one.parameter]
    assert attained < seen[chosen].min() <= seen[chosen].max() <= 1.0
    assert seen.abs().sort().values[:-4].max() < 1e-12


@pytest.mark.parametrize("count", [1, 2, 7, 10, 24, 64])
def test_directions_are_an_orthonormal_basis(count):
    basis, widest = hadamard_basis(count)
    torch.testing.assert_close(basis @ basis.mT, torch.eye(count, dtype=torch.float64))
    assert count / 2 < widest <= count
    assert (basis[:widest, :widest].abs() - widest**-0.5).abs().max() < 1e-15


@pytest.mark.parametrize("method", METHODS)
def test_canaries_do_not_interfere_and_those_left_out_add_nothing(training, method):
    audited = training(method)
    entries = lay_canaries(audited.model, audited.plan, 50)
    chosen, signs = torch.arange(50), torch.arange(50) % 2
    totals = sums(audited.model, audited.plan, operands_of(entries, chosen, signs), 50)
    for one in entries:
        seen = one.components(totals[one.parameter]) / audited.plan.sensitivities[one.parameter]
        assert torch.allclose(seen, signs.double(), atol=2e-3)
        assert len(one.entry.unique()) == 50


def test_canaries_reach_what_their_weights_share_of_the_noise_allows(training):
    plan = training().plan
    names = ["layers.1.weight", "layers.3.weight"]
    assert reached_multiplier(plan, list(plan.sensitivities)) == pytest.approx(plan.noise_multiplier)
    assert reached_multiplier(plan, names) > plan.noise_multiplier
    assert reached_multiplier(training("dp-sgd").plan, names[:1]) == plan.noise_multiplier


def test_under_clipping_of_whole_gradients_a_canary_has_one_weight(training):
    audited = training("dp-sgd")
    assert len(lay_canaries(audited.model, audited.plan, 100)) == 1


def test_planted_rows_leave_no_hook_and_no_other_row_changed(training):
    audited = training()
    operands = {"layers.1": Operands(torch.ones(1, 24), torch.ones(1, 24))}
    x, y = audited.rows.x[:3], audited.rows.y[:3]
    totals = [
        {name: torch.zeros_like(p, dtype=torch.float64) for name, p in audited.model.named_parameters()}
        for _ in range(2)
    ]
    for total, rows in zip(totals, (torch.arange(3), torch.tensor([1, 2])), strict=True):
        with plant_operands(audited.model, 3 - len(rows), operands if len(rows) < 3 else {}):
            sum_gradients(audited.model, audited.loss, x[rows], y[rows], audited.plan, total)
    assert all(not layer._forward_hooks and not layer._forward_pre_hooks for layer in audited.model.modules())


def test_a_network_without_room_for_canaries_is_refused():
    model = Network([InputBall(1.0), Conv1d(2, 3, 3, padding=1)], (2, 5))
    model = Network([*model.layers, Flatten()], (2, 5))
    with pytest.raises(AuditError, match="for canaries; found none"):
        lay_canaries(model, plan_of(model), 100)
    assert lay_canaries(Network([InputBall(1.0), Dense(2, 2)], (2,)), plan_of_dense(), 100)[0].entry.tolist() == [
        0,
        1,
        2,
        3,
    ]


def plan_of_dense():
    return plan_of(Network([InputBall(1.0), Dense(2, 2)], (2,)))
