"""What a stack gains: steps of M members trained as one against those of M trainings alone, side by side.

    python benchmarks/stacks.py [--sizes 2 4 8 16] [--rounds 5] [--threads 1] [--only mlp]

Networks: perceptrons on the rows of digits at several widths and batches, the LeNet on digits and at MNIST's size, the
scattering head on features of MNIST's size. Rows are zeros or noise: what is in them changes no time. In every round
each contender takes some steps in turn; the table gives the milliseconds of a member's step, and the median over
rounds of alone / stacked.
"""

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from time import perf_counter, process_time
from typing import Any

import torch

import clipless
from clipless.datasets import Split
from clipless.stacks import Member, fit_stack, stack_size

CLASSES = 10


@dataclass(frozen=True, kw_only=True)
class Case:
    """One network, its rows and its batches."""

    name: str
    architecture: str
    shape: tuple[int, ...]
    rows: int
    batch: int
    options: dict[str, Any]


CASES = [
    *(
        Case(
            name=f"mlp {width}-{width}-10, digits, batch {batch}",
            architecture="mlp",
            shape=(1, 8, 8),
            rows=1437,
            batch=batch,
            options={"width": width, "depth": 3},
        )
        for width, batch in ((32, 128), (64, 128), (64, 512), (256, 256), (1024, 512))
    ),
    Case(
        name="scattering head, 28 x 28, batch 512",
        architecture="scattering",
        shape=(1, 28, 28),
        rows=5120,
        batch=512,
        options={},
    ),
    Case(name="lenet, digits, batch 128", architecture="lenet", shape=(1, 8, 8), rows=1437, batch=128, options={}),
    Case(name="lenet, 28 x 28, batch 256", architecture="lenet", shape=(1, 28, 28), rows=2560, batch=256, options={}),
]


def member(case: Case, seed: int) -> Member:
    """A training of many epochs, unlike its neighbours in noise, temperature and learning rate."""
    generator = torch.Generator().manual_seed(seed)
    model = clipless.zoo.build(
        case.architecture, case.shape, CLASSES, input_norm=4.0, generator=generator, **case.options
    )
    loss = clipless.TauCCE(0.2 + 0.1 * seed)
    plan = clipless.make_plan(
        model,
        loss,
        population=case.rows,
        batch_size=case.batch,
        delta=1e-5,
        noise_multiplier=1.0 + seed,
        epochs=1000,
    )
    return Member(model=model, loss=loss, plan=plan, optimizer=clipless.Adam(1e-3 * (1 + seed)))


def seconds(epochs: Iterator[object], members: int, rounds: int) -> float:
    """Seconds that ``rounds`` epochs of every member take: of the processor with one thread, on the wall with more."""
    clock = process_time if torch.get_num_threads() == 1 else perf_counter
    start = clock()
    for _ in range(rounds * members):
        next(epochs)
    return clock() - start


def measure(case: Case, sizes: list[int], rounds: int) -> None:
    """Print the rows of one case."""
    generator = torch.Generator().manual_seed(0)
    data = Split(torch.rand((case.rows, *case.shape), generator=generator), torch.arange(case.rows) % CLASSES)
    auto = stack_size(member(case, 0), data, max(sizes))
    alone = member(case, 0)
    contenders: dict[int, Iterator[object]] = {
        0: clipless.fit(alone.model, alone.loss, data, alone.plan, optimizer=alone.optimizer)
    }
    for size in sizes:
        contenders[size] = iter(fit_stack([member(case, seed) for seed in range(size)], data))
    first = {size: seconds(epochs, max(1, size), 1) for size, epochs in contenders.items()}
    epochs_each = max(1, round(0.3 / first[0]))
    times: dict[int, list[float]] = {size: [] for size in contenders}
    for _, (size, epochs) in zip(range(rounds * len(contenders)), cycled(contenders), strict=False):
        steps = epochs_each * alone.plan.steps_per_epoch * max(1, size)
        times[size].append(1e3 * seconds(epochs, max(1, size), epochs_each) / steps)
    cells = [f"{statistics.median(times[0]):.2f}"]
    for size in sizes:
        gains = [lone / ours for lone, ours in zip(times[0], times[size], strict=True)]
        cells.append(f"{statistics.median(times[size]):.2f}, {statistics.median(gains):.2f}x")
    print(f"| {case.name} | {' | '.join(cells)} | {auto} |", flush=True)


def cycled(contenders: dict[int, Iterator[object]]) -> Iterator[tuple[int, Iterator[object]]]:
    """Yield the contenders in turn, without end."""
    for _ in count():
        yield from contenders.items()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{options.threads} threads, {options.rounds} rounds; milliseconds of a member's step, alone / stacked\n")
    print(f"| network | alone | {' | '.join(f'{size} members' for size in options.sizes)} | auto |")
    print("|---" * (len(options.sizes) + 3) + "|")
    for case in CASES:
        if options.only in case.name:
            measure(case, options.sizes, options.rounds)


if __name__ == "__main__":
    main()
