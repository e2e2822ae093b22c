"""A training that goes on from its checkpoint is the training that was never killed, bit for bit."""

import pytest
import torch

from clipless import SGD, Adam, Network, TauCCE, fit, make_plan
from clipless.errors import PlanError
from clipless.layers import ClipGradient, Dense, GroupSort, InputBall, Standardise
from clipless.plans.clipping import AdaptiveClipping
from clipless.stacks import Member, fit_stack
from clipless.training.checkpoint import load_state
from tests.clipless.factories import RecordingSource, rows

EPOCHS = 4
LOSS = TauCCE(0.5)


def network():
    g = torch.Generator().manual_seed(0)
    layers = [Dense(6, 8, generator=g), GroupSort(), Dense(8, 3, generator=g), ClipGradient(0.7)]
    return Network([Standardise(6, 3.0, floor=0.1), InputBall(4.0), *layers], (6,))


def plan_of(model, **more):
    settings = {"population": 60, "batch_size": 20, "delta": 1e-4, "noise_multiplier": 1.0, "epochs": EPOCHS}
    return make_plan(model, LOSS, clipping=AdaptiveClipping(), **(settings | more))


def train(model, source, checkpoint=None, epochs=EPOCHS, optimizer=None, **more):
    """Train until an epoch has been shown; return the epochs and the weights that were shown with them."""
    shown = []
    options = {"averaging": 0.5, "source": source, "checkpoint": checkpoint, "optimizer": optimizer or Adam(0.05)}
    for epoch in fit(model, LOSS, rows(60), plan_of(model, **more), **options):
        shown.append((epoch, {name: tensor.clone() for name, tensor in model.state_dict().items()}))
        if epoch.epoch == epochs:
            break
    return shown


def assert_same(shown, expected):
    assert [epoch for epoch, _ in shown] == [epoch for epoch, _ in expected]
    for (_, weights), (_, others) in zip(shown, expected, strict=True):
        for name, tensor in weights.items():
            assert torch.equal(tensor, others[name]), name


@pytest.mark.sampled(5)
@pytest.mark.parametrize("optimizer", [Adam(0.05), SGD(0.05, momentum=0.9)], ids=["adam", "sgd"])
@pytest.mark.parametrize("killed_after", [1, 3, 4])
def test_a_killed_training_goes_on_as_if_it_had_not_been(optimizer, killed_after, tmp_path):
    whole = train(network(), RecordingSource(), optimizer=optimizer)
    source = RecordingSource()
    first = train(network(), source, tmp_path / "t", epochs=killed_after, optimizer=optimizer)
    assert_same(first, whole[:killed_after])
    second = train(network(), source, tmp_path / "t", optimizer=optimizer)
    assert_same(second, whole[killed_after - 1 :])  # the epoch that the checkpoint holds is shown once more
    assert source.batches == 1 + EPOCHS * plan_of(network()).steps_per_epoch  # statistics are not released again


def test_the_state_is_on_the_disk_before_an_epoch_is_shown(tmp_path):
    model = network()
    for epoch in fit(model, LOSS, rows(60), plan_of(model), source=RecordingSource(), checkpoint=tmp_path / "t"):
        assert load_state(tmp_path / "t", plan_of(network())).epoch == epoch.epoch


@pytest.mark.sampled(4)
@pytest.mark.parametrize("spoil", ["missing", "torn", "of a model", "of another plan"])
def test_without_a_usable_checkpoint_a_training_begins_anew(spoil, tmp_path):
    path, source = tmp_path / "t", RecordingSource()
    if spoil != "missing":
        train(network(), RecordingSource(), path, epochs=2, **({"noise_multiplier": 2.0} if "plan" in spoil else {}))
    if spoil == "torn":
        path.write_bytes(path.read_bytes()[:-50])
    if spoil == "of a model":
        import clipless

        clipless.save(network(), path)
    assert load_state(path, plan_of(network())) is None
    assert_same(train(network(), source, path), train(network(), RecordingSource()))
    assert load_state(path, plan_of(network())).epoch == EPOCHS


@pytest.mark.parametrize("held", [0, 1])
def test_a_training_that_has_to_resume_draws_nothing_without_its_state(held, tmp_path):
    """Whoever was charged for the rest alone would get the whole training from a state that is missing or too old."""
    if held:
        train(network(), RecordingSource(), tmp_path / "t", epochs=held)
    source, model = RecordingSource(), network()
    with pytest.raises(PlanError, match="state of epoch 2"):
        fit(model, LOSS, rows(60), plan_of(model), source=source, checkpoint=tmp_path / "t", resumes_from=2)
    member = Member(
        model=model, loss=LOSS, plan=plan_of(model), source=source, checkpoint=tmp_path / "t", resumes_from=2
    )
    with pytest.raises(PlanError, match="state of epoch 2"):
        fit_stack([member], rows(60))
    assert source.batches == 0


def test_a_checkpoint_holds_no_batch_and_no_generator(tmp_path):
    train(network(), RecordingSource(), tmp_path / "t", epochs=2)
    state = load_state(tmp_path / "t", plan_of(network()))
    kinds = {name.split(".")[0] for name in state.tensors}
    assert kinds == {"model", "optimizer", "average"}
    assert all(60 not in tensor.shape for tensor in state.tensors.values())  # nothing has a place for each row
