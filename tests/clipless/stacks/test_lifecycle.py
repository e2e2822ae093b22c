"""Members end, are stopped and are replaced; what is refused."""

import copy
import gc
import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import clipless
from clipless.errors import PlanError, UnsupportedError
from clipless.losses import TauCCE
from clipless.plans.method import Method
from clipless.stacks import Member, Stack, fit_stack, shape_key, stackable
from clipless.stacks.member_training import FixedFeatures
from clipless.testing import SeededSource
from clipless.training.private_training import Epoch
from tests.clipless.factories import RecordingSource

from .members import ROWS, member, split, weights


def ends(members: list[Member]) -> list[Tensor]:
    return [weights(one.model) for one in members]


def test_others_that_end_are_stopped_or_replaced_change_no_bit_of_a_member() -> None:
    quiet = [member(0, epochs=6), member(1, epochs=6), member(2, epochs=6)]
    for _ in fit_stack(quiet, split()):
        pass
    busy = [member(0, epochs=2), member(1, epochs=6), member(2, epochs=6)]
    stack = fit_stack(busy, split())
    waiting = [member(5, epochs=2)]
    for place, epoch in stack:
        if (place, epoch.epoch) == (0, 2) and waiting:
            stack.refill(0, waiting.pop())
        if (place, epoch.epoch) == (1, 3):
            stack.stop(1)
        if (place, epoch.epoch) == (2, 4):
            stack.add(member(7, epochs=1))
            stack.refill(1, member(6, epochs=4))
    assert torch.equal(weights(busy[2].model), weights(quiet[2].model))


@pytest.mark.long
def test_a_member_that_comes_late_is_the_training_it_would_have_been() -> None:
    first = [member(0), member(1), member(2)]
    for _ in fit_stack(first, split()):
        pass
    late = member(2)
    stack = fit_stack([member(0), member(1), member(4, epochs=1)], split())
    for place, epoch in stack:
        if (place, epoch.epoch) == (2, 1):
            stack.stop(2)
            stack.refill(2, late)
            break
    told = [epoch.epoch for place, epoch in stack if place == 2]
    assert told == [1, 2, 3, 4]
    assert torch.equal(weights(late.model), weights(first[2].model))


def test_what_is_stopped_is_trained_no_further_and_draws_nothing() -> None:
    source = RecordingSource(1)
    members = [member(0), member(1, source=source, epochs=4)]
    stack = fit_stack(members, split())
    rounds = iter(stack)
    assert [next(rounds)[0] for _ in range(2)] == [0, 1]
    held, drawn = weights(members[1].model), (source.batches, len(source.normals))
    stack.stop(1)
    assert [place for place, _ in rounds] == [0, 0, 0]
    assert torch.equal(weights(members[1].model), held)
    assert (source.batches, len(source.normals)) == drawn


def test_one_that_is_stopped_before_its_epoch_is_told_is_told_no_more() -> None:
    stack = fit_stack([member(0), member(1)], split())
    told = []
    for place, epoch in stack:
        told.append((place, epoch.epoch))
        stack.stop(1)
    assert told == [(0, 1), (0, 2), (0, 3), (0, 4)]


def test_what_has_ended_stays_as_it_is_while_others_train() -> None:
    members = [member(0, epochs=1, averaging=0.5), member(1, epochs=3)]
    stack = iter(fit_stack(members, split()))
    next(stack)
    held = weights(members[0].model)
    assert [place for place, _ in stack] == [1, 1, 1]
    assert torch.equal(weights(members[0].model), held)


def test_what_leaves_a_stack_takes_its_weights_along() -> None:
    members = [member(0, epochs=1), member(1), member(2)]
    stack = fit_stack(members, split())
    for place, _ in stack:
        if place == 1:
            stack.stop(1)
            break
    held = {p.untyped_storage().data_ptr() for one in members[:2] for p in one.model.parameters()}
    others = {p.untyped_storage().data_ptr() for p in members[2].model.parameters()}
    assert not held & others


@pytest.mark.long
def test_a_model_holds_its_average_while_it_is_shown_and_trains_on_from_its_weights() -> None:
    plain, averaged = [member(0), member(1)], [member(0, averaging=0.9), member(1)]
    shown = [weights(plain[0].model) for place, _ in fit_stack(plain, split()) if place == 0]
    averages = [weights(averaged[0].model) for place, _ in fit_stack(averaged, split()) if place == 0]
    assert not any(torch.equal(a, b) for a, b in zip(shown, averages, strict=True))
    assert torch.equal(weights(plain[1].model), weights(averaged[1].model))


def test_a_stack_takes_only_members_of_its_shape() -> None:
    wide = member(0, architecture="mlp")
    other = member(1, architecture="lenet")
    assert not stackable(wide, other)
    with pytest.raises(PlanError, match="of one shape"):
        fit_stack([wide, other], split())
    stack = fit_stack([wide], split())
    with pytest.raises(PlanError, match="of one shape"):
        stack.add(member(1, optimizer=clipless.SGD(0.1)))
    assert [epoch.epoch for _, epoch in stack] == [1, 2, 3, 4]


@pytest.mark.parametrize("method", [Method.DP_SGD, Method.NON_PRIVATE])
def test_methods_without_bounds_are_never_stacked(method: Method) -> None:
    model = clipless.zoo.mlp((1, 8, 8), 3, input_norm=4.0, width=4)
    spent = {"epochs": 1} if method is Method.NON_PRIVATE else {"epochs": 1, "noise_multiplier": 1.0, "clip_norm": 1.0}
    plan = clipless.make_plan(model, TauCCE(), population=ROWS, batch_size=20, delta=1e-3, method=method, **spent)
    one = Member(model=model, loss=TauCCE(), plan=plan)
    assert shape_key(one) is None
    assert not stackable(one, one)
    with pytest.raises(PlanError, match="of one shape"):
        fit_stack([one], split())


def test_no_member_is_refused_and_no_stack_is_empty() -> None:
    with pytest.raises(PlanError, match="at least one member"):
        fit_stack([], split())


def test_a_place_is_refilled_only_when_it_is_empty() -> None:
    stack = fit_stack([member(0)], split())
    with pytest.raises(PlanError, match="empty place"):
        stack.refill(0, member(1))


def test_layers_belong_to_one_member() -> None:
    one, other = member(0), member(1)
    with pytest.raises(PlanError, match="layers of its own"):
        fit_stack([one, one], split())
    other.model.layers[3] = one.model.layers[3]
    with pytest.raises(PlanError, match="layers of its own"):
        fit_stack([one, other], split())


def test_weights_belong_to_one_member() -> None:
    one, other = member(0), member(1)
    other.model.layers[2].weight = one.model.layers[2].weight
    with pytest.raises(PlanError, match="layers that training began with"):
        next(iter(fit_stack([one, other], split())))


def test_a_member_that_clipless_fit_refuses_is_refused() -> None:
    stack = fit_stack([member(0)], split())
    hooked = member(1)
    hooked.model.layers[2].register_forward_hook(lambda *_: None)
    with pytest.raises(UnsupportedError, match="hooks"):
        stack.add(hooked)
    foreign = member(1)
    with pytest.raises(PlanError, match="model and loss"):
        stack.add(Member(model=foreign.model, loss=TauCCE(9.0), plan=member(2).plan))
    assert len(list(stack)) == 4


def changed(stack: Stack, members: list[Member]) -> Iterator[tuple[int, Epoch]]:
    for told in stack:
        yield told
        members[0].model.layers[2].weight.data = members[0].model.layers[2].weight.detach().clone()


def test_weights_that_are_moved_during_training_are_refused() -> None:
    members = [member(0), member(1)]
    with pytest.raises(PlanError, match="layers that training began with"):
        list(changed(fit_stack(members, split()), members))


def test_nothing_follows_a_round_that_broke_off() -> None:
    class Failing(SeededSource):
        def random_bytes(self, count: int) -> bytearray:
            if count != 4 * ROWS:  # those of a batch
                raise RuntimeError("no noise today")
            return super().random_bytes(count)

    stack = fit_stack([member(0), member(1, source=Failing(0))], split())
    with pytest.raises(RuntimeError, match="no noise"):
        next(iter(stack))
    with pytest.raises(PlanError, match="broke off"):
        next(iter(stack))


def test_two_iterations_take_turns() -> None:
    source = RecordingSource(0)
    stack = fit_stack([member(0, source=source, epochs=3)], split())
    first, second = iter(stack), iter(stack)
    assert [next(first)[1].epoch, next(second)[1].epoch, next(first)[1].epoch] == [1, 2, 3]
    assert list(first) == list(second) == []
    assert source.batches == 3 * 5


@pytest.mark.long
def test_a_stacked_network_is_saved_and_copied_as_any_other(tmp_path) -> None:
    members = [member(0), member(1)]
    for place, _ in fit_stack(members, split()):
        model = members[place].model
        clipless.save(model, tmp_path / "model.safetensors")
        assert torch.equal(weights(clipless.load(tmp_path / "model.safetensors")), weights(model))
        assert torch.equal(weights(copy.deepcopy(model)), weights(model))
        assert 0 <= clipless.evaluate(model, split(), ["0.1"])["certified@0.1"] <= 1


@pytest.mark.long
def test_features_are_shared_by_equal_prefixes_and_kept_while_a_member_has_them() -> None:
    features = FixedFeatures(split())
    models = [
        member(seed, architecture="scattering", input_norm=norm).model for seed, norm in enumerate((4.0, 4.0, 5.0))
    ]
    depth, first = features.of(models[0])
    assert depth == len(models[0].layers) - 3
    assert features.of(models[1])[1] is first
    assert features.of(models[2])[1] is not first
    kept = weakref.ref(first)
    del first
    gc.collect()
    assert kept() is None
