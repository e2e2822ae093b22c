"""The guard and the analytic sensitivities against neighbouring batches."""

import pytest
import torch
from torch import nn

from clipless import TauBCE, TauCCE, zoo
from clipless.bounds import bound_network
from clipless.errors import PlanError
from clipless.guards.convolution import patch_counts
from clipless.guards.guard import guarded
from clipless.layers import Dense, Flatten, InputBall
from clipless.losses import loss_lipschitz
from clipless.network import Network
from clipless.testing import broken_weights, coupled_rows, neighbour_ratios, unguarded_ratios
from tests.clipless.factories import BLOCKS, images, plan_of_step, seeded

ZOO = {
    "mlp": lambda g: zoo.mlp((1, 8, 8), 4, input_norm=3.0, width=12, depth=3, generator=g),
    "convnet": lambda g: zoo.convnet((1, 8, 8), 4, input_norm=3.0, width=4, depth=2, hidden=8, generator=g),
    "patch-net": lambda g: zoo.patch_net((1, 8, 8), 4, input_norm=3.0, width=4, depth=2, hidden=8, generator=g),
}
NETWORKS = [*ZOO, *BLOCKS]
NAN, INF = float("nan"), float("inf")


def network(name):
    return ZOO[name](seeded()) if name in ZOO else Network(BLOCKS[name](), (1, 8, 8))


HARD_EXAMPLES = {
    "zero": 0.0,
    "ordinary": 1.0,
    "large": 1e6,
    "overflowing": 3e38,
    "tiny": 1e-25,
    "denormal": 1e-41,
    "nan": NAN,
    "inf": INF,
    "minus-inf": -INF,
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("name", "exact"), [*((name, False) for name in NETWORKS), ("convnet", True)])
@pytest.mark.parametrize("example", HARD_EXAMPLES)
@pytest.mark.parametrize("factor", [1.0, 30.0, 1e12, 1e30, NAN, INF])
def test_no_neighbour_moves_a_guarded_sum_by_more_than_its_sensitivity(name, example, factor, exact):
    model, loss = network(name), TauCCE(0.1)
    plan = plan_of_step(model, loss, sensitivity_fraction=0.3)
    x, y = images()
    x[0] = x[0] * HARD_EXAMPLES[example] if HARD_EXAMPLES[example] == HARD_EXAMPLES[example] else NAN
    with broken_weights(model, factor):
        ratios = neighbour_ratios(model, loss, x, y, plan, exact=exact)
    assert set(ratios) == {path for path, _ in model.named_parameters()}
    for parameter, ratio in ratios.items():
        assert ratio <= (1 if name in ZOO else 1 + 1e-4), (parameter, ratio)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_guard_is_what_holds_when_bounds_are_broken(name):
    """Every kind of parameter breaks its sensitivity without its guard: the test above can fail."""
    model, loss = network(name), TauCCE(0.1)
    plan = plan_of_step(model, loss, sensitivity_fraction=1e-3)
    x, y = images()
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for parameter_name, parameter in parameters.items():
            if not parameter_name.endswith(("angle", "mix")):
                parameter.mul_(3.0)
    worst = dict.fromkeys(parameters, 0.0)
    for i in range(len(x)):
        gradients = torch.autograd.grad(loss(model(x[i : i + 1]), y[i : i + 1]).sum(), list(parameters.values()))
        for key, gradient in zip(parameters, gradients, strict=True):
            worst[key] = max(worst[key], (gradient.norm() / plan.sensitivities[key]).item())
    assert min(worst.values()) > 1.5, worst


@pytest.mark.parametrize("bad", [NAN, INF])
def test_a_bad_weight_in_one_layer_leaves_the_other_sums_finite(bad):
    model, loss = network("mlp"), TauCCE()
    plan = plan_of_step(model, loss)
    with torch.no_grad():
        model.layers[4].weight[0, 0] = bad
    ratios = neighbour_ratios(model, loss, *images(), plan)
    assert all(ratio <= 1 for ratio in ratios.values()), ratios


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NETWORKS)
def test_no_example_found_by_search_exceeds_the_analytic_sensitivity(name):
    model, loss = network(name).double(), TauCCE(0.05)
    sensitivities = bound_network(model, dtype=torch.float64).sensitivities(loss_lipschitz(loss, 4))
    x, y = images(2, seed=5, scale=2.0)
    found = unguarded_ratios(model, loss, x.double(), y, sensitivities, steps=60 if name in ZOO else 25)
    assert min(found.values()) > 0, found
    assert max(found.values()) <= 1 + 1e-6, found
    assert max(found.values()) >= 0.9 or name not in ("mlp", "patch-net"), found


def test_the_bound_of_a_composed_network_is_attained():
    model, loss = Network([InputBall(2.0), Flatten(), Dense(6, 3)], (6,)).double(), TauCCE(0.01)
    sensitivities = bound_network(model, dtype=torch.float64).sensitivities(loss_lipschitz(loss, 3))
    x = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 5
    found = unguarded_ratios(model, loss, x, torch.tensor([0, 1, 2]), sensitivities, steps=60)
    assert 0.99 <= found["layers.2.weight"] <= 1 + 1e-6


def test_the_guard_scales_to_exactly_its_threshold():
    model, loss = Network([InputBall(2.0), Flatten(), Dense(6, 3)], (6,)), TauCCE(0.01)
    plan = plan_of_step(model, loss, sensitivity_fraction=0.1)
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)) * 5
    y = (model(x).argmax(dim=1) + 1) % 3  # confident mistakes: every cotangent has norm sqrt(2)
    found = [neighbour_ratios(model, loss, x, y, plan, row)["layers.2.weight"] for row in range(4)]
    assert found == pytest.approx([1.0] * 4, rel=1e-2)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_guard_that_does_not_act_leaves_the_gradient_alone(name):
    model, loss = network(name), TauCCE()
    x, y = images()
    free = torch.autograd.grad(loss(model(x), y).sum(), list(model.parameters()))
    sensitivities = {key: 20.0 for key, _ in model.named_parameters()}
    with guarded(model, sensitivities) as guards:
        loss(model(x), y).sum().backward()
    for a, guard in zip(free, guards.values(), strict=True):  # one operand has 8 bits
        assert (a - guard.total).norm() <= (3e-2 if name in ZOO else 5e-2) * a.norm()
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("replacement", [0.0, 5.0, NAN, INF])
def test_no_bit_of_another_row_depends_on_a_row(name, replacement):
    model = network(name)
    x, _ = images(9)
    assert coupled_rows(model, x, 4, torch.full_like(x[4], replacement)) == []


@pytest.mark.parametrize("name", NETWORKS)
def test_input_gradients_of_other_rows_do_not_depend_on_a_row(name):
    model, loss = network(name), TauCCE()
    x, y = images(9)

    def input_gradient(rows):
        rows = rows.clone().requires_grad_()
        with guarded(model, {key: 0.01 for key, _ in model.named_parameters()}):
            (g,) = torch.autograd.grad(loss(model(rows), y).sum(), rows)
        return g

    changed = x.clone()
    changed[4] = NAN
    others = [0, 1, 2, 3, 5, 6, 7, 8]
    assert torch.equal(input_gradient(x)[others], input_gradient(changed)[others])


def test_binary_networks_are_guarded_too():
    model, loss = zoo.mlp((5,), 1, input_norm=2.0, width=6), TauBCE(0.01)
    plan = plan_of_step(model, loss, sensitivity_fraction=0.5)
    x = torch.randn(8, 5, generator=torch.Generator().manual_seed(0)) * 100
    with broken_weights(model, 50.0):
        ratios = neighbour_ratios(model, loss, x, torch.tensor([0, 1] * 4), plan)
    assert max(ratios.values()) <= 1


def test_patches_are_counted_by_folding_ones():
    counts = patch_counts((4, 4), (3, 3), (1, 1), (1, 1))
    assert counts.tolist()[0] == [4, 6, 6, 4]
    assert counts.max().item() == 9
    assert patch_counts((5, 5), (2, 2), (2, 2), (0, 0)).max().item() == 1


@pytest.mark.parametrize("bad", [None, 0.0, -1.0, NAN, INF])
def test_a_parameter_without_a_usable_sensitivity_is_refused(bad):
    model = Network([InputBall(1.0), Dense(3, 2)], (3,))
    with (
        pytest.raises(PlanError, match=r"layers\.1\.weight"),
        guarded(model, {"layers.1.weight": bad} if bad is not None else {}),
    ):
        pass


def test_a_parameter_without_a_guard_is_refused():
    model = Network([InputBall(1.0), nn.Linear(3, 2)], (3,))
    with pytest.raises(PlanError, match="guarded layer"), guarded(model, {"layers.1.weight": 1.0}):
        pass


def test_the_guard_is_disarmed_after_an_error():
    model = Network([InputBall(1.0), Dense(3, 2)], (3,))
    with pytest.raises(RuntimeError, match="inside"), guarded(model, {"layers.1.weight": 1.0}):
        raise RuntimeError("inside")
    assert model.layers[1].guards is None
