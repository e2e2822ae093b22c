"""How many members are worth training as one on a device: measured on rows of zeros, before anything is drawn.

A stack saves the cost of calling operations. Where that is little of a step, as with convolutions on a CPU, it saves
nothing, and its activations leave the caches sooner.
"""

import copy
from collections.abc import Hashable
from dataclasses import replace
from time import perf_counter, process_time

import torch

from clipless.datasets import Split
from clipless.fixed_prefix import split_fixed_prefix
from clipless.network import Network
from clipless.stacks.member import Member, shape_key
from clipless.stacks.stack import RunningStack, rows_per_pass
from clipless.stacks.trainee import Trainee
from clipless.training.memory import is_out_of_memory, release_memory
from clipless.training.trainer import default_micro_batch

# A larger stack has to be quicker by this much: it is coarser to start, to stop and to lose.
_WORTH = 1.05
_SECONDS = 0.25  # of steps that are timed for each size, three at least

_known: dict[Hashable, int] = {}


def stack_size(member: Member, data: Split, most: int = 16) -> int:
    """Return the number of members, at most ``most``, that train quickest as one; 1 where a stack gains nothing.

    Powers of two are tried until two in a row gain nothing, or one has no room; the result is remembered for members of
    this shape. Of ``data`` only shape, types and device are looked at.

    Guarantees:
        No entry of ``data`` is read, and what is drawn is drawn for rows of zeros: the answer is no release.
    """
    key = shape_key(member)
    if key is None:
        return 1
    key = (key, str(data.x.device), torch.get_num_threads(), most)
    if key not in _known:
        _known[key] = _measured(member, data, most)
    return _known[key]


def _measured(member: Member, data: Split, most: int) -> int:
    best, least = 1, step_time(member, data, 1)
    size = 2
    while size <= most:
        try:
            found = step_time(member, data, size)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            release_memory()
            break
        if found * _WORTH <= least:
            best, least = size, found
        elif size > 2 * best:  # two sizes that gain nothing
            break
        size *= 2
    return best


def step_time(member: Member, data: Split, members: int) -> float:
    """Return the seconds that a step of each member takes in a stack of so many, on rows of zeros."""
    plan, device = member.plan, data.x.device
    most = max(1, default_micro_batch(device.type) // member.copies)
    rows = rows_per_pass(plan.batch_size, plan.sampling_rate, most)
    zeros = _Zeros(data)
    trainees = [
        Trainee(
            replace(member, model=copy.deepcopy(member.model), source=None, checkpoint=None), zeros.rows, rows, zeros
        )
        for _ in range(members)
    ]
    running = RunningStack(trainees, rows)
    _timed(running)
    times = [_timed(running) for _ in range(3)]
    while sum(times) < _SECONDS:
        times.append(_timed(running))
    return min(times) / members


def _timed(running: RunningStack) -> float:
    device = running.device
    # of one thread, processor time: what else the machine does would else decide
    clock = process_time if device.type == "cpu" and torch.get_num_threads() == 1 else perf_counter
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = clock()
    running.step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - start


class _Zeros:
    """Rows of zeros in the place of the training rows, and of what a fixed prefix makes of them."""

    def __init__(self, like: Split) -> None:
        self.rows = Split(_zeros(like.x, len(like)), _zeros(like.y, len(like)))

    def of(self, network: Network) -> tuple[int, Split]:
        """Return how many layers the fixed prefix has, and zeros in the shape of its output."""
        prefix, rest = split_fixed_prefix(network)
        row = self.rows.x.new_zeros((1, *rest.input_shape))
        return len(prefix.layers), replace(self.rows, x=_zeros(row, len(self.rows)))


def _zeros(like: torch.Tensor, rows: int) -> torch.Tensor:
    """Return zeros in the memory of one row."""
    return like.new_zeros((1, *like.shape[1:])).expand(rows, *like.shape[1:])
