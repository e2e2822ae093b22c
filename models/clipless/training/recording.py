"""Passes of one shape, which can be recorded once and replayed.

On a small network a host takes longer to ask for a pass than a GPU to answer. What is replayed are the kernels that the
recorded pass started, on the same memory: guards and exact sums with it. Only what lies in the fixed tensors changes,
which are rows, targets and which of them count.

Shape letters: B rows of a pass.
"""

from collections.abc import Callable, Hashable
from typing import final

import torch
from torch import Tensor

from clipless.guards.exact_sums import pad
from clipless.losses import Loss
from clipless.plans.method import Schedule
from clipless.plans.plan import Plan
from clipless.training.batch_sums import CountedLoss

Replay = Callable[[], None]
_WARM = 3  # passes before one is recorded: what is made once and kept must not be made inside


@final
class RecordedPass:
    """Replays a pass over rows, which are filled up to its size; recorded anew whenever its key changes.

    Args:
        run: takes (B, ...) rows, targets and (B,) whether each counts; it may look at no number. Rows that do not count
            must add nothing.
        size: B.
        record: returns what replays the work that a function starts; a CUDA graph by default.
    """

    def __init__(
        self, run: Callable[[Tensor, Tensor, Tensor], None], size: int, record: Callable[[Replay], Replay] | None = None
    ) -> None:
        self._run, self._size = run, size
        self._record = record or as_cuda_graph
        self._key: Hashable = None
        self._made: tuple[Replay, Tensor, Tensor, Tensor] | None = None

    def __call__(self, x: Tensor, y: Tensor, key: Hashable, counts_B: Tensor | None = None) -> None:
        """Pass rows on, all of which count unless ``counts_B`` says otherwise.

        ``key`` stands for everything else that the recorded pass depends on.
        """
        if self._made is None or key != self._key:
            self._made = None  # a recording that fails must leave none for another key
            self._made, self._key = self._begin(x, y), key
        replay, held_x, held_y, held_counts_B = self._made
        held_x.copy_(pad(x, self._size))
        held_y.copy_(pad(y, self._size))
        held_counts_B.fill_(value=False)
        held_counts_B[: len(x)] = True if counts_B is None else counts_B
        replay()

    def _begin(self, x: Tensor, y: Tensor) -> tuple[Replay, Tensor, Tensor, Tensor]:
        held_x, held_y = (t.new_zeros((self._size, *t.shape[1:])) for t in (x, y))
        counts_B = torch.zeros(self._size, dtype=torch.bool, device=x.device)
        return self._record(lambda: self._run(held_x, held_y, counts_B)), held_x, held_y, counts_B


class FixedSizePasses:
    """The passes of a training over rows that are filled up to one size.

    Args:
        add: adds the gradients of rows and targets under a loss and a plan; of all rows, or of the first ``rows``.
        loss: of the training.
        size: rows of a pass.
        recorded: record the first pass and replay it; see `recordable`.
    """

    def __init__(self, add: Callable[..., None], loss: Loss, size: int, *, recorded: bool) -> None:
        self._add, self._loss, self._size = add, loss, size
        self._recorded = RecordedPass(self._add_counted, size) if recorded else None
        self._plan: Plan | None = None

    def __call__(self, x: Tensor, y: Tensor, plan: Plan, counts_B: Tensor | None = None) -> None:
        """Add the gradients of at most ``size`` rows, all of which count unless ``counts_B`` says otherwise."""
        if self._recorded is not None:
            self._plan = plan
            self._recorded(x, y, frozenset(plan.sensitivities.items()), counts_B)
        elif counts_B is None:
            self._add(self._loss, pad(x, self._size), pad(y, self._size), plan, len(x))
        else:
            self._add(CountedLoss(self._loss, counts_B), x, y, plan)

    def _add_counted(self, x: Tensor, y: Tensor, counts_B: Tensor) -> None:
        self._add(CountedLoss(self._loss, counts_B), x, y, self._plan)


def recordable(plan: Plan, device: torch.device) -> bool:
    """Whether one pass is as good as another: on CUDA, where sensitivities change at most when layers come to rest."""
    fixed = plan.clipping is Schedule.CONSTANT and not plan.follow_weights
    return device.type == "cuda" and plan.method.bounded and fixed


def as_cuda_graph(work: Replay) -> Replay:
    """Record a CUDA graph, after some passes that find kernels and fill caches."""
    here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
    aside.wait_stream(here)
    with torch.cuda.stream(aside):
        for _ in range(_WARM):
            work()
    here.wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay
