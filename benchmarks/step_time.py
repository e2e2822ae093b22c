"""What a private training step costs: time and peak memory, side by side in one run.

    python benchmarks/step_time.py [--batch 2048] [--rounds 9] [--threads 2] [--device cpu]

Contenders on one MNIST-sized convolutional network (two 3x3 blocks of 16 and 32 channels, 1568-128-10), each at its
best physical batch out of a few (larger logical batches are accumulated): `_step.py` says what they are.

Contenders are timed in turn, round by round. The table gives the median and the smallest time of a step, the median
over rounds of private / it (what runs one after the other shares the machine's mood), and the peak memory of a
fresh process that runs only that contender.
"""

import argparse
import statistics
from typing import Any

import torch
from _step import Case, build, data, peak_mebibytes, seconds, start

PHYSICAL = {
    "private": (256, 512),
    "lipschitz + projection": (256, 512),
    "lipschitz": (256, 512),
    "relu": (256, 512),
    "opacus": (64, 128, 256),
}


def main() -> None:
    """Print the table."""
    start()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    common: dict[str, Any] = {"batch": options.batch, "threads": options.threads, "device": options.device}
    split = data(options.batch, options.device)
    cases = [Case(contender=name, physical=rows, **common) for name, several in PHYSICAL.items() for rows in several]
    steps = {case: build(case, split) for case in cases}
    trial = {case: min(seconds(step, options.device) for _ in range(2)) for case, step in steps.items()}
    best = {name: min((case for case in cases if case.contender == name), key=trial.__getitem__) for name in PHYSICAL}
    times: dict[str, list[float]] = {name: [] for name in best}
    for _ in range(options.rounds):
        for name, case in best.items():
            times[name].append(seconds(steps[case], options.device))
    print(f"logical batch {options.batch}, {options.device}, {options.threads} threads, {options.rounds} rounds\n")
    print("| contender | physical batch | median ms | smallest ms | private / it (median of rounds) | peak MiB |")
    print("|---|---|---|---|---|---|")
    for name, case in best.items():
        median, least = statistics.median(times[name]), min(times[name])
        ratio = statistics.median(ours / it for ours, it in zip(times["private"], times[name], strict=True))
        peak = peak_mebibytes(case)
        print(f"| {name} | {case.physical} | {median * 1e3:.0f} | {least * 1e3:.0f} | {ratio:.2f} | {peak:.0f} |")


if __name__ == "__main__":
    main()
