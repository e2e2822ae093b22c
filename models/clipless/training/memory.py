"""How many rows a device has room for in one pass, found before anything is drawn.

A pass over rows of zeros on a copy of the network takes the memory that one over the training rows will take, and
depends on none of them.
"""

import copy
import gc
from collections.abc import Callable, Hashable

import torch

from clipless.datasets import Split
from clipless.errors import PlanError
from clipless.losses import Loss
from clipless.network import Network, split_fixed_prefix
from clipless.plans.plan import Plan
from clipless.training.batch_sums import sum_gradients

# Numbers in single precision beside weight, gradient and sum for each trained entry: noise, its deviations and its grid
# in double precision, the optimiser's two moments, three averages.
_STATE = 12


class PassSizes:
    """Numbers of rows that fitted into memory, and that did not, by key; no number is tried twice."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[int, float]] = {}  # the most rows that had room, the fewest that had not

    def rows(self, key: Hashable, most: int, fits: Callable[[int], bool]) -> int:
        """Return ``most``, halved until that many rows have room.

        The key says what the rows are passed through, and where; ``fits`` tries a number of rows.

        Raises:
            PlanError: there is no room for one row.
        """
        rows = most
        while True:
            enough, too_many = self._known.get(key, (0, float("inf")))
            if rows < 1 or too_many <= 1:
                raise PlanError("Out of memory with micro-batches of one row; use a smaller model or more memory")
            if rows <= enough:
                return rows
            if rows < too_many:
                if fits(rows):
                    self._known[key] = (rows, too_many)
                    return rows
                self.note(key, rows)
            rows //= 2

    def note(self, key: Hashable, rows: int) -> None:
        """Remember that this many rows did not fit."""
        enough, too_many = self._known.get(key, (0, float("inf")))
        self._known[key] = (min(enough, rows - 1), min(too_many, rows))


def fits(
    network: Network,
    loss: Loss,
    plan: Plan,
    like: Split,
    rows: int,
    *,
    augmented: bool = False,
    ghost: bool = False,
    exact: bool = False,
    trainings: int = 1,
) -> bool:
    """Whether one pass over so many rows of zeros, as training takes them, has room on the device of ``like``.

    Of ``like`` only shape, types and device are looked at, and the network is copied. ``rows`` includes the copies of
    augmentation; ``augmented``: a fixed prefix is applied at every step; ``trainings`` run side by side on the device.

    Guarantees:
        No entry of ``like`` is read and nothing is drawn, so the answer is no release.
    """
    try:
        _pass(network, loss, plan, like, rows, augmented=augmented, ghost=ghost, exact=exact, trainings=trainings)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    else:
        return True
    release_memory()
    return False


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error reports a lack of memory, on any device."""
    texts = ("out of memory", "can't allocate memory")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(text in str(error) for text in texts)


def release_memory() -> None:
    """Release unused memory."""
    gc.collect()
    torch.cuda.empty_cache()


def memory_class(device: torch.device) -> tuple[str, int]:
    """Return the kind of a device and the magnitude of its free memory, 0 where that is not counted."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
    return device.type, int(free).bit_length()


def _pass(
    network: Network,
    loss: Loss,
    plan: Plan,
    like: Split,
    rows: int,
    *,
    augmented: bool,
    ghost: bool,
    exact: bool,
    trainings: int,
) -> None:
    model = copy.deepcopy(network)
    trained = model if augmented else split_fixed_prefix(model)[1]
    entries = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    state = torch.empty(_STATE * entries * trainings, device=like.x.device)
    x = torch.zeros((rows, *trained.input_shape), dtype=like.x.dtype, device=like.x.device)
    y = torch.zeros(rows, dtype=like.y.dtype, device=like.y.device)
    totals = {n: torch.zeros_like(p, dtype=torch.float64) for n, p in model.named_parameters() if p.requires_grad}
    sum_gradients(model, loss, x, y, plan, totals, forward=trained, ghost=ghost, exact=exact)
    del state  # held until here, as training holds it
