"""How many members are worth training as one on a device: measured on rows of zeros, before anything is drawn.

A stack saves the cost of calling operations. Where that is little of a step, as with convolutions on a CPU, it saves
nothing, and its activations leave the caches sooner.
"""

import copy
from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from math import log2
from time import perf_counter, process_time

import torch

from clipless.datasets import Split
from clipless.network import Network, split_fixed_prefix
from clipless.stacks.member import Member, step_form
from clipless.stacks.member_training import MemberTraining
from clipless.stacks.stack import RunningStack, rows_per_pass
from clipless.training.memory import is_out_of_memory, release_memory
from clipless.training.trainer import default_micro_batch

# A larger stack has to be quicker by this much: it is coarser to start, to stop and to lose.
_WORTH = 1.05
_SECONDS = 0.08  # of steps that are timed for each size, three at least
_LONG_SECONDS = 0.25  # of a lone step: calling operations is then too little of it for a stack to gain anything

_known: dict[Hashable, tuple[int, int]] = {}  # the best size, and the most members that were asked for


def stack_size(member: Member, data: Split, most: int = 16) -> int:
    """Return the number of members, at most ``most``, that train quickest as one; 1 where a stack gains nothing.

    Powers of two are tried until two in a row gain nothing, or one has no room. Each is timed in turn with the best one
    so far, so that what else the machine does delays both. The result is remembered for members whose steps are of this
    form, however many rows they train on. Of ``data`` only shape, types and device are looked at.

    Guarantees:
        No entry of ``data`` is read, and what is drawn is drawn for rows of zeros: the answer is no release.
    """
    form = step_form(member)
    if form is None:
        return 1
    rows = _rows(member, data)
    key = (form, round(8 * log2(rows)), str(data.x.device), torch.get_num_threads())
    best, tried = _known.get(key, (0, 0))
    if tried < most:
        best = _measure(member, data, most)
        _known[key] = best, most
    return min(best, most)


def _measure(member: Member, data: Split, most: int) -> int:
    best = StepTimer(member, data, 1)
    if best.seconds() > _LONG_SECONDS:
        return 1
    size = 2
    while size <= most:
        try:
            other = StepTimer(member, data, size)
            gain = _gain(best, other)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            release_memory()
            break
        if gain >= _WORTH:
            best = other
        elif size > 2 * best.members:  # two sizes that gain nothing
            break
        size *= 2
    return best.members


def _gain(one: "StepTimer", other: "StepTimer") -> float:
    """Return how many times as quick a member's step is in the other stack, both timed in turn."""
    times = [(one.seconds(), other.seconds()) for _ in range(3)]
    while sum(map(sum, times)) < _SECONDS:
        times.append((one.seconds(), other.seconds()))
    first, second = min(lone for lone, _ in times), min(together for _, together in times)
    return (first / one.members) / (second / other.members)


def _rows(member: Member, data: Split) -> int:
    """Return B, the rows of one member in a pass."""
    most = max(1, default_micro_batch(data.x.device.type) // member.copies)
    return rows_per_pass(member.plan.batch_size, member.plan.sampling_rate, most)


class StepTimer:
    """A stack of copies of a member, on rows of zeros, whose steps are timed; the first one has been taken."""

    def __init__(self, member: Member, data: Split, members: int) -> None:
        self.members, self._device, rows, zeros = members, data.x.device, _rows(member, data), _Zeros(data)
        copied = partial(replace, member, source=None, checkpoint=None, resumes_from=0)
        trainings = [
            MemberTraining(copied(model=copy.deepcopy(member.model)), zeros.rows, rows, zeros) for _ in range(members)
        ]
        self._running = RunningStack(trainings, rows, slotted=False)
        self.seconds()

    def seconds(self) -> float:
        """Take a step of every member and return how long it took."""
        # of one thread, processor time: what else the machine does would else decide
        clock = process_time if self._device.type == "cpu" and torch.get_num_threads() == 1 else perf_counter
        (draws,) = self._running.draw(1)
        self._wait()
        start = clock()
        self._running.step(draws)
        self._wait()
        return clock() - start

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


class _Zeros:
    """Rows of zeros in the place of the training rows, and of their features behind a fixed prefix."""

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
