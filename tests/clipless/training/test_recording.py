"""Recorded passes add what passes add; a recorder of this file stands in for a CUDA graph."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import clipless
from clipless import zoo
from clipless.datasets import Split
from clipless.plans.clipping import AdaptiveClipping
from clipless.plans.freezing import Freezing
from clipless.plans.method import Method, Schedule
from clipless.training import recording, trainer
from clipless.training.recording import RecordedPass, recordable
from tests.clipless.factories import RecordingSource
from tests.clipless.zoo.test_zoo import SMALL

ROWS = 40
LARGE = ("resnet", "wide-resnet", "vgg", "patch-net")  # whose kinds of layers others have too
CUDA = torch.device("cuda")


@pytest.fixture
def recorded(monkeypatch):
    """Recordings, each with how often it was replayed; recording runs the work once, as warming up does."""
    made = []

    def record(work):
        made.append(0)
        work()

        def replay():
            made[-1] += 1
            work()

        return replay

    monkeypatch.setattr(recording, "as_cuda_graph", record)
    monkeypatch.setattr(trainer, "recordable", lambda plan, _: recordable(plan, CUDA))
    return made


class Graph(TorchDispatchMode):
    """Keeps operations and their tensors, and repeats them on the same memory: what a CUDA graph does with kernels."""

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        del types
        found = operation(*args, **(kwargs or {}))
        self.operations.append((operation, args, kwargs or {}, found))
        return found

    def replay(self):
        with torch.no_grad():
            for operation, args, kwargs, held in self.operations:
                _keep(held, operation(*args, **kwargs))


def _keep(held, found):
    if isinstance(held, torch.Tensor):
        if held.untyped_storage().data_ptr() != found.untyped_storage().data_ptr():  # neither a view nor in place
            held.copy_(found)
    elif isinstance(held, (list, tuple)):
        for one, other in zip(held, found, strict=True):
            _keep(one, other)


def as_graph(work):
    work()
    with Graph() as graph:
        work()
    assert graph.operations
    return graph.replay


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in LARGE)) for name in SMALL])
def test_kernels_that_are_replayed_on_the_same_memory_train_the_same_network(name, monkeypatch):
    """No part of a pass is Python that a replay would leave out, and none depends on the rows that were recorded."""
    monkeypatch.setattr(recording, "as_cuda_graph", as_graph)
    monkeypatch.setattr(trainer, "recordable", lambda plan, _: recordable(plan, CUDA))
    plain, again = (train(name, recorded=recorded, undefined=False)[0] for recorded in (False, True))
    assert torch.equal(plain, again)


def train(name, *, recorded, method=Method.CLIPLESS, undefined=True, **plan):
    generator = torch.Generator().manual_seed(0)
    model = zoo.build(name, (1, 8, 8), 4, input_norm=2.0, generator=generator, bias=True, **SMALL[name])
    split = Split(torch.randn(ROWS, 1, 8, 8, generator=generator), torch.randint(4, (ROWS,), generator=generator))
    if undefined:
        split.x[3] = float("nan")
    loss = clipless.TauCCE(0.5)
    plan = clipless.make_plan(
        *(model, loss), population=ROWS, batch_size=8, delta=1e-3, noise_multiplier=1.0, epochs=2, method=method, **plan
    )
    source = RecordingSource(5)
    for _ in clipless.fit(model, loss, split, plan, micro_batch_size=6, source=source, recorded=recorded):
        pass
    return torch.cat([p.detach().flatten() for p in model.parameters()]), plan, source


@pytest.mark.sampled(5)
@pytest.mark.parametrize("method", [Method.CLIPLESS, Method.LIP_DP_SGD])
@pytest.mark.parametrize("name", ["lenet", "mixer", "scattering"])
def test_recorded_passes_train_the_same_network_bit_by_bit(name, method, recorded):
    plain, plan, _ = train(name, recorded=False, method=method)
    again, _, source = train(name, recorded=True, method=method)
    assert torch.equal(plain, again)
    assert len(recorded) == 1  # one shape, one recording
    assert recorded[0] >= plan.epochs * plan.steps_per_epoch - source.batches // 2


@pytest.mark.long
def test_a_pass_is_recorded_anew_when_layers_come_to_rest(recorded):
    freezing = Freezing(layers=1, after=0.5)
    plain, _, _ = train("lenet", recorded=False, freezing=freezing)
    again, _, _ = train("lenet", recorded=True, freezing=freezing)
    assert torch.equal(plain, again)
    assert len(recorded) == 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("method", "plan"),
    [
        (Method.CLIPLESS, {"follow_weights": True}),
        (Method.LIP_DP_SGD, {"follow_weights": True}),
        (Method.DP_SGD, {"clip_norm": 1.0}),
    ],
)
def test_passes_whose_sensitivities_move_are_not_recorded(method, plan, recorded):
    train("mlp", recorded=True, method=method, **plan)
    assert recorded == []


@pytest.mark.parametrize("clipping", [Schedule.LINEAR, AdaptiveClipping()])
def test_no_moving_clipping_norm_is_recorded(clipping):
    class Planned:
        method, follow_weights = Method.CLIPLESS, False

    Planned.clipping = clipping
    assert not recordable(Planned, CUDA)
    Planned.clipping = Schedule.CONSTANT
    assert recordable(Planned, CUDA)
    assert not recordable(Planned, torch.device("cpu"))


def test_rows_of_an_earlier_pass_do_not_count_in_a_later_one():
    seen = []
    recorded = RecordedPass(lambda x, y, counts: seen.append((x.tolist(), y.tolist(), counts.tolist())), 3, _plainly)
    recorded(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1, 2, 0]), "a")
    recorded(torch.tensor([4.0]), torch.tensor([1]), "a")
    assert seen == [
        ([1.0, 2.0, 3.0], [1, 2, 0], [True, True, True]),
        ([4.0, 0.0, 0.0], [1, 0, 0], [True, False, False]),
    ]


def test_a_recording_that_fails_leaves_none_behind():
    keys = []

    def record(work):
        keys.append(len(keys))
        if len(keys) == 2:
            raise RuntimeError("operation not permitted when stream is capturing")
        return work

    seen = []
    recorded = RecordedPass(lambda *held: seen.append(held), 2, record)
    rows = torch.zeros(1), torch.zeros(1)
    recorded(*rows, "a")
    with pytest.raises(RuntimeError, match="capturing"):
        recorded(*rows, "b")
    recorded(*rows, "b")  # sensitivities of an earlier recording are not taken for those of now
    assert len(keys) == 3
    assert len(seen) == 2


def _plainly(work):
    return work
