"""What a training step does with its gradient, what a user may do between epochs, and what fit refuses."""

import pytest
import torch

from clipless import SGD, Adam, Epoch, TauCCE, fit, zoo
from clipless.datasets import Split
from clipless.errors import PlanError, UnsupportedError
from clipless.layers import GroupSort
from clipless.plans.method import Schedule
from clipless.testing import SeededSource
from clipless.training import trainer
from clipless.training.optimizers import Descent
from tests.clipless.factories import RecordingSource, mlp, plan_for, rows, weights, zeros

STILL = SGD(1e-30)  # weights stay where they are


def last_noise(source, plan, name):
    """What the last step adds to the summed gradient of the first parameter, over the batch size."""
    assert next(iter(plan.sizes)) == name
    return (source.normals[-1][: plan.sizes[name]] * plan.noise_stds[name] / plan.batch_size).float()


def test_training_moves_by_the_learning_rate_and_projects():
    model, data, source = mlp(16, width=32), rows(features=16), RecordingSource()
    plan = plan_for(model, data)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    next(fit(model, TauCCE(0.1), data, plan, optimizer=SGD(0.01), source=source))
    gradients = {name: p.grad for name, p in model.named_parameters()}
    for layer, name in ((model.layers[2], "layers.2.weight"), (model.layers[4], "layers.4.weight")):
        expected = layer.constraint.project(before[name] - 0.01 * gradients[name])
        torch.testing.assert_close(layer.weight.detach(), expected)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("optimizer", [SGD(10.0), SGD(0.5, momentum=0.9), Adam(0.5)])
@pytest.mark.parametrize("name", zoo.ARCHITECTURES)
def test_every_step_ends_within_the_constraints(optimizer, name):
    model = zoo.build(name, (1, 8, 8), 3, input_norm=1.0)
    data = Split(torch.rand(20, 1, 8, 8), torch.zeros(20, dtype=torch.int64))
    for _ in fit(model, TauCCE(), data, plan_for(model, data, TauCCE(), epochs=3), optimizer=optimizer):
        for p in model.parameters():
            assert torch.linalg.matrix_norm(p.detach().flatten(1).double(), 2) <= 1 + 1e-6


@pytest.mark.sampled(3)
@pytest.mark.parametrize("optimizer", [SGD(0.1, momentum=0.5), Adam(0.01), None])
def test_the_same_source_trains_the_same_model(optimizer):
    trained = []
    for seed in (0, 0, 1):
        model, data = mlp(16, width=32), rows(features=16)
        plan = plan_for(model, data, batch_size=10, epochs=2)
        list(fit(model, TauCCE(0.1), data, plan, optimizer=optimizer, source=SeededSource(seed)))
        trained.append(weights(model))
    assert torch.equal(trained[0], trained[1])
    assert not torch.equal(trained[0], trained[2])


def test_training_without_much_noise_learns():
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, 3, (300,), generator=generator)
    x = torch.randn(300, 16, generator=generator) * 0.3 + 2.0 * torch.nn.functional.one_hot(y, 16)
    model, data = mlp(16, width=32), Split(x, y)
    plan = plan_for(model, data, batch_size=100, noise_multiplier=0.1, epochs=10)
    list(fit(model, TauCCE(0.1), data, plan, optimizer=Adam(0.02), source=SeededSource(0)))
    assert (model(x).argmax(dim=1) == y).double().mean() > 0.95


def test_epochs_are_numbered_and_carry_the_planned_epsilon():
    model, data = mlp(16, width=32), rows(features=16)
    plan = plan_for(model, data, batch_size=20, epochs=4)
    found = list(fit(model, TauCCE(0.1), data, plan))
    assert found == [Epoch(t, epsilon) for t, epsilon in enumerate(plan.epsilon_curve(), start=1)]


def test_nothing_is_drawn_before_the_first_epoch_is_asked_for_nor_after_the_last():
    model, data, source = mlp(16, width=32), rows(features=16), RecordingSource()
    plan = plan_for(model, data, batch_size=20, epochs=5)
    epochs = fit(model, TauCCE(0.1), data, plan, source=source)
    assert source.normals == []
    next(epochs)
    next(epochs)
    assert len(source.normals) == 4
    epochs.close()
    assert len(source.normals) == 4


def test_gradients_that_gather_elsewhere_during_a_step_end_training(monkeypatch):
    """They would reach the optimiser without noise."""
    gathered = trainer.sum_gradients

    def elsewhere(model, *arguments, **options):
        gathered(model, *arguments, **options)
        model.layers[2].weight.grad = torch.ones_like(model.layers[2].weight)

    monkeypatch.setattr(trainer, "sum_gradients", elsewhere)
    model, data = mlp(16, width=32), rows(features=16)
    before = weights(model).clone()
    with pytest.raises(PlanError, match="one was formed elsewhere during the step"):
        next(fit(model, TauCCE(0.1), data, plan_for(model, data)))
    assert torch.equal(weights(model), before)


# Between epochs the model is in the user's hands


@pytest.mark.usefixtures("exact_sums")
def test_gradients_that_a_user_adds_between_epochs_do_not_enter_the_next_step():
    model, data, source = mlp(16, width=32), zeros(8), RecordingSource()
    plan = plan_for(model, data, epochs=2)
    epochs = fit(model, TauCCE(0.1), data, plan, optimizer=STILL, source=source)
    next(epochs)
    model(rows(features=16).x).sum().backward()
    next(epochs)
    torch.testing.assert_close(model.layers[2].weight.grad.flatten(), last_noise(source, plan, "layers.2.weight"))


def forget_gradients(model):
    model.zero_grad()


def replace_gradients(model):
    for p in model.parameters():
        p.grad = torch.zeros_like(p)


def move_there_and_back(model):
    model.double().float()


@pytest.mark.usefixtures("exact_sums")
@pytest.mark.parametrize("act", [forget_gradients, replace_gradients, move_there_and_back])
def test_noise_reaches_the_optimiser_whatever_a_user_did_to_the_gradients(act):
    model, data, source = mlp(16, width=32), zeros(8), RecordingSource()
    plan = plan_for(model, data, epochs=2)
    epochs = fit(model, TauCCE(0.1), data, plan, optimizer=STILL, source=source)
    next(epochs)
    act(model)
    next(epochs)
    torch.testing.assert_close(model.layers[2].weight.grad.flatten(), last_noise(source, plan, "layers.2.weight"))


def test_low_precision_that_begins_after_the_call_is_refused():
    model, data = mlp(16, width=32), rows(features=16)
    epochs = fit(model, TauCCE(0.1), data, plan_for(model, data))
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(UnsupportedError, match="autocast"):
        next(epochs)


def test_hooks_that_are_added_between_epochs_are_refused():
    model, data = mlp(16, width=32), rows(features=16)
    epochs = fit(model, TauCCE(0.1), data, plan_for(model, data, epochs=2))
    next(epochs)
    model.layers[2].weight.register_hook(lambda g: 100 * g)
    with pytest.raises(UnsupportedError, match="hooks"):
        next(epochs)


def test_a_frozen_layer_is_left_alone():
    model, data = mlp(16, width=32), rows(features=16)
    model.layers[2].weight.requires_grad_(False)
    before = model.layers[2].weight.clone()
    plan = plan_for(model, data)
    assert list(plan.sizes) == ["layers.4.weight"]
    list(fit(model, TauCCE(0.1), data, plan))
    assert torch.equal(model.layers[2].weight, before)


# Refusals: before anything is drawn


def refused(error, match, model, loss, data, plan, **options):
    source = RecordingSource()
    with pytest.raises(error, match=match):
        fit(model, loss, data, plan, source=source, **options)
    assert source.normals == []


@pytest.fixture
def planned():
    model, data = mlp(16, width=32), rows(features=16)
    return model, TauCCE(0.1), data, plan_for(model, data)


def test_other_rows_than_planned_are_refused(planned):
    model, loss, _, plan = planned
    refused(PlanError, "Expected the 40 rows", model, loss, rows(features=16, count=41), plan)


@pytest.mark.parametrize(
    ("given", "options", "error", "match"),
    [
        ({"model": mlp(16, width=16)}, {}, PlanError, "model and loss that the plan was made for"),
        ({"loss": torch.nn.CrossEntropyLoss()}, {}, UnsupportedError, "No Lipschitz constant"),
        *(({}, {"micro_batch_size": size}, PlanError, "micro_batch_size") for size in (0, -1, float("nan"))),
        ({}, {"optimizer": torch.optim.SGD}, UnsupportedError, "SGD or Adam"),
    ],
)
def test_what_does_not_fit_is_refused(planned, given, options, error, match):
    chosen = dict(zip(("model", "loss", "data", "plan"), planned, strict=True)) | given
    refused(error, match, *chosen.values(), **options)


def test_hooks_and_autocast_are_refused(planned):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        refused(UnsupportedError, "autocast", *planned)
    planned[0].layers[2].register_forward_hook(lambda *_: None)
    refused(UnsupportedError, "hooks", *planned)


@pytest.mark.parametrize("change", ["exchanged", "added", "removed"])
def test_layers_that_change_between_epochs_are_refused(change):
    """The guard is armed on the layers of the model; those that are trained must be these."""
    model, data = mlp(16, width=32), rows(features=16)
    epochs = fit(model, TauCCE(0.1), data, plan_for(model, data, epochs=2), source=SeededSource(0))
    next(epochs)
    if change == "exchanged":
        model.layers[2] = mlp(16, width=32, seed=1).layers[2]
    elif change == "added":
        model.layers.insert(1, GroupSort())
    else:
        del model.layers[3]
    with pytest.raises(PlanError, match="layers that training began with"):
        next(epochs)


def test_a_schedule_falls_over_all_planned_steps(monkeypatch):
    model, data = mlp(16, width=32), rows(features=16)
    plan = plan_for(model, data, batch_size=10, epochs=2)  # 4 steps an epoch
    rates = []
    real = Descent.step

    def spy(descent):
        rates.append(descent.learning_rate)
        real(descent)

    monkeypatch.setattr(Descent, "step", spy)
    list(fit(model, TauCCE(0.1), data, plan, optimizer=SGD(0.8), schedule=Schedule.LINEAR, source=SeededSource(0)))
    assert rates == pytest.approx([0.8 * (1 - t / 8) for t in range(8)])


def test_epochs_show_the_average_and_training_goes_on_from_the_weights():
    data = rows(features=16)

    def run(averaging):
        model = mlp(16, width=32)
        plan = plan_for(model, data, batch_size=10, epochs=3)
        options = {"optimizer": SGD(0.5), "averaging": averaging, "source": SeededSource(0)}
        shown = [weights(model).clone() for _ in fit(model, TauCCE(0.1), data, plan, **options)]
        return shown, weights(model)

    plain, _ = run(None)
    nearly_plain, _ = run(1e-9)
    averaged, final = run(0.9)
    for a, b in zip(plain, nearly_plain, strict=True):
        torch.testing.assert_close(a, b)
    assert not torch.allclose(plain[-1], averaged[-1], atol=1e-3)
    assert torch.equal(final, averaged[-1])
    assert (averaged[0] - averaged[2]).norm() < (plain[0] - plain[2]).norm()
