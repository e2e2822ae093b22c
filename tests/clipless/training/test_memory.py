"""Room for a pass is found with rows of zeros: nothing is read, nothing drawn, nothing of the model touched."""

import copy

import pytest
import torch

import clipless
from clipless.datasets import Split
from clipless.errors import PlanError
from clipless.layers import ScaleByQuantile, Standardise
from clipless.network import Network
from clipless.plans.method import Method
from clipless.training import memory
from clipless.training.memory import PassSizes, fits, is_out_of_memory, memory_class


@pytest.fixture
def made():
    loss = clipless.losses.LOSSES["tau-cce"](temperature=1.0)
    network = clipless.zoo.build("mlp", (6,), 3, input_norm=1.0, generator=torch.Generator().manual_seed(0), width=8)
    return network, loss


def plan(network, loss, **options):
    given = {"population": 100, "batch_size": 20, "delta": 1e-5, "noise_multiplier": 1.0, "epochs": 1}
    return clipless.make_plan(network, loss, **given | options)


class Unread(torch.Tensor):
    """Rows whose shape and type may be seen, and nothing else."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function.__name__ not in ("__get__", "dim"):
            raise AssertionError(f"{function.__name__} of the rows")
        return super().__torch_function__(function, types, args, kwargs or {})


@pytest.mark.parametrize("options", [{}, {"method": Method.LIP_DP_SGD}, {"method": Method.DP_SGD, "clip_norm": 1.0}])
def test_a_pass_reads_no_row_and_leaves_no_gradient(made, options):
    network, loss = made
    rows = Split(torch.rand(100, 6).as_subclass(Unread), torch.zeros(100, dtype=torch.int64).as_subclass(Unread))
    before = copy.deepcopy(network.state_dict())
    assert fits(network, loss, plan(network, loss, **options), rows, 40)
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())


def test_paid_statistics_are_not_settled_for_it(made):
    network, loss = made
    whole = Network([Standardise(6, 1.0, 0.1), ScaleByQuantile(0.1, 1.0), *network.layers], (6,))
    rows = Split(torch.rand(100, 6), torch.zeros(100, dtype=torch.int64))
    assert fits(whole, loss, plan(whole, loss), rows, 40, trainings=2)
    assert torch.equal(whole.layers[0].mean, torch.zeros(6))


def test_a_pass_takes_as_many_rows_as_are_asked_for_and_only_a_lack_of_memory_is_an_answer(made, monkeypatch):
    network, loss = made
    rows = Split(torch.rand(100, 6), torch.zeros(100, dtype=torch.int64))
    errors = {64: torch.OutOfMemoryError("CUDA out of memory"), 32: RuntimeError("shapes do not match")}
    seen = []

    def short(_model, _loss, x, *_args, **_options):
        seen.append(tuple(x.shape))
        if len(x) in errors:
            raise errors[len(x)]

    monkeypatch.setattr(memory, "sum_gradients", short)
    assert not fits(network, loss, plan(network, loss), rows, 64)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        fits(network, loss, plan(network, loss), rows, 32)
    assert fits(network, loss, plan(network, loss), rows, 16)
    assert seen == [(64, 6), (32, 6), (16, 6)]


def test_rows_are_halved_until_they_have_room_and_nothing_is_tried_twice():
    room, tried = PassSizes(), []

    def fits(rows):
        tried.append(rows)
        return rows <= 100

    assert room.rows("a", 512, fits) == 64
    assert tried == [512, 256, 128, 64]
    assert room.rows("a", 512, fits) == 64
    assert room.rows("a", 50, fits) == 50
    assert len(tried) == 4
    assert room.rows("a", 90, fits) == 90
    assert room.rows("b", 512, lambda _: True) == 512
    room.note("a", 64)
    assert room.rows("a", 512, fits) == 32


def test_there_has_to_be_room_for_one_row():
    room = PassSizes()
    for _ in range(2):
        with pytest.raises(PlanError, match="Out of memory with micro-batches of one row"):
            room.rows("a", 8, lambda _: False)


@pytest.mark.parametrize(("error", "is_it"), [(MemoryError(), True), (RuntimeError("no"), False)])
def test_what_a_lack_of_memory_looks_like(error, is_it):
    assert is_out_of_memory(error) is is_it


def test_the_memory_of_a_processor_is_not_counted():
    assert memory_class(torch.device("cpu")) == ("cpu", 0)
