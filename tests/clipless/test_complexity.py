"""The guard costs no term of batch times parameters: neither in what a step keeps, nor in what it ever forms.

Tensors are counted as they are made, by bytes, so nothing here depends on clocks, allocators or other programs.
"""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from clipless import TauCCE, make_plan, zoo
from clipless.plans.method import Method
from clipless.projections import Free
from clipless.zoo import LayerOptions
from tests.clipless.factories import accumulate_gradients

SMALL, LARGE = 8, 24
NETWORKS = {
    "mlp": lambda constraint: zoo.mlp(
        (1, 8, 8), 10, input_norm=3.0, width=512, depth=3, options=LayerOptions(constraint=constraint)
    ),
    "convnet": lambda constraint: zoo.convnet(
        (1, 8, 8), 10, input_norm=3.0, width=32, depth=2, hidden=512, options=LayerOptions(constraint=constraint)
    ),
    "biased": lambda constraint: zoo.mlp(
        (1, 8, 8),
        10,
        input_norm=3.0,
        width=512,
        depth=3,
        options=LayerOptions(activation="householder", bias=True, constraint=constraint),
    ),
}
GUARDED = [Method.CLIPLESS, Method.LIP_DP_SGD]


def step(name, method):
    """A network, and what adds the gradient of a batch of random rows to its parameters."""
    model, loss = NETWORKS[name](None if method.bounded else Free()), TauCCE(1.0)
    budget = {"epochs": 1} if method is Method.NON_PRIVATE else {"epochs": 1, "noise_multiplier": 1.0}
    clip = {"clip_norm": 1.0} if method is Method.DP_SGD else {}
    plan = make_plan(model, loss, population=1000, batch_size=100, delta=1e-4, method=method, **budget, **clip)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def accumulate(rows):
        x = torch.randn(rows, 1, 8, 8, generator=torch.Generator().manual_seed(rows))
        accumulate_gradients(model, loss, x, torch.zeros(rows, dtype=torch.long), plan)

    accumulate(SMALL)  # caches are filled
    return model, accumulate


class Formed(TorchDispatchMode):
    """Bytes of every tensor that an operation returns, in memory of its own: views count once."""

    def __init__(self):
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        del types
        result = func(*args, **(kwargs or {}))
        inputs = {t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in inputs:
                self.total += tensor.untyped_storage().nbytes()
        return result


def formed_bytes(accumulate, rows):
    with Formed() as formed:
        accumulate(rows)
    return formed.total


def kept_bytes(accumulate, rows):
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        accumulate(rows)
    return sum(kept.values())


def flops(accumulate, rows):
    def whole_numbers(a, b, **_):
        return 2 * a[0] * a[1] * b[1]

    with FlopCounterMode(display=False, custom_mapping={torch.ops.aten._int_mm: whole_numbers}) as counter:
        accumulate(rows)
    return counter.get_total_flops()


def per_row(count, accumulate):
    return (count(accumulate, LARGE) - count(accumulate, SMALL)) / (LARGE - SMALL)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("method", GUARDED)
@pytest.mark.parametrize("count", [kept_bytes, formed_bytes])
def test_privacy_adds_a_few_activations_of_memory_to_a_row_and_no_parameters(name, method, count):
    model, guarded = step(name, method)
    _, plain = step(name, Method.NON_PRIVATE)
    own = 4 * sum(parameter.numel() for parameter in model.parameters())
    without = per_row(count, plain)
    assert without > 0
    added = per_row(count, guarded) - without
    assert added <= 2 * without  # most of it whole numbers that are forgotten at once
    assert added <= 0.15 * own


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_gradients_of_examples_would_have_been_seen(name):
    """The clipping of ordinary networks forms them: the test above can fail."""
    model, clipped = step(name, Method.DP_SGD)
    _, plain = step(name, Method.NON_PRIVATE)
    own = 4 * sum(parameter.numel() for parameter in model.parameters())
    assert per_row(formed_bytes, clipped) - per_row(formed_bytes, plain) >= own


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("method", GUARDED)
def test_a_guarded_step_multiplies_the_same_matrices_and_is_linear_in_the_batch(name, method):
    """Two digits of the cotangents, where one of the three products of a step was."""
    _, guarded = step(name, method)
    _, plain = step(name, Method.NON_PRIVATE)
    assert 0 < flops(guarded, LARGE) <= 1.5 * flops(plain, LARGE)
    assert flops(guarded, LARGE) * SMALL == flops(guarded, SMALL) * LARGE
