"""How time and memory of a training step grow: with the batch, and with the number of parameters.

    python benchmarks/step_scaling.py [--batches 256 1024 8192] [--sizes small medium large] [--rounds 2]

The measurement of Bethune et al. (2024, arXiv 2305.16202), figure 5 and Tables 2 and 3: contenders and networks are
those of `_step.py`, of about 130 thousand, 500 thousand and 2 million parameters.

The first table gives the smallest time of a step over logical batches, each contender at its best physical batch, how
well a straight line in the batch explains these times, and the peak memory of a fresh process at the smallest and the
largest batch.

The second gives the slope of peak memory in the *physical* batch, by least squares: bytes per example. What it has
beyond that of the same network without privacy is the price of privacy; gradients of examples add 4 bytes a parameter.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from _step import Case, build, data, parameters, peak_mebibytes, seconds, start

HIDDEN = {"small": 80, "medium": 316, "large": 1264}
OPACUS = "opacus"
PHYSICAL = {
    "private": (256, 512),
    "lipschitz + projection": (256, 512),
    OPACUS: (32, 64, 128, 256),
    "opacus ghost": (128, 256, 512),
}
WITHOUT_PRIVACY = {"private": "lipschitz + projection", OPACUS: "relu", "opacus ghost": "relu"}  # the same network
MOST_BYTES = 2**30  # of gradients of examples at once


def best_physical(contender: str, common: dict[str, Any], size: str) -> int:
    """The physical batch with the smallest time per row, of those whose gradients of examples fit."""
    room = MOST_BYTES // (4 * parameters(HIDDEN[size]))
    several = [rows for rows in PHYSICAL[contender] if contender != OPACUS or rows <= room]
    times = {}
    for rows in several:
        case = Case(contender=contender, physical=rows, batch=rows, **common)
        times[rows] = seconds(build(case, data(rows, case.device)), case.device) / rows
    return min(times, key=times.__getitem__)


def line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Slope of the least-squares line, and the share of the variance that it explains."""
    slope, intercept = np.polyfit(x, y, 1)
    left = np.asarray(y) - (slope * np.asarray(x) + intercept)
    spread = float(np.var(y))
    return float(slope), 1.0 - float(np.var(left)) / spread if spread > 0 else 1.0


def over_logical_batches(options: argparse.Namespace) -> None:
    """Print the first table."""
    columns = [f"ms at {batch}" for batch in options.batches]
    ends = (min(options.batches), max(options.batches))
    heads = ["parameters", "contender", "physical batch", *columns, "R2 of a line", *(f"MiB at {b}" for b in ends)]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
    for size in options.sizes:
        common = {"hidden": HIDDEN[size], "threads": options.threads, "device": options.device}
        physical = {name: best_physical(name, common, size) for name in PHYSICAL}
        cases = {
            (name, batch): Case(contender=name, batch=batch, physical=min(rows, batch), **common)
            for name, rows in physical.items()
            for batch in options.batches
        }
        times: dict[tuple[str, int], float] = {}
        for batch in options.batches:
            split = data(batch, options.device)
            steps = {name: build(cases[name, batch], split) for name in PHYSICAL}
            for turn in range(options.rounds):
                for name, step in steps.items():
                    warm = turn == 0 and batch == ends[0]
                    taken = seconds(step, options.device, steps=1, warm=warm)
                    times[name, batch] = min(taken, times.get((name, batch), taken))
        for name, rows in physical.items():
            series = [times[name, batch] for batch in options.batches]
            peaks = [peak_mebibytes(cases[name, batch]) for batch in ends]
            cells = [*(f"{1e3 * t:.0f}" for t in series), f"{line(options.batches, series)[1]:.4f}"]
            cells += [f"{peak:.0f}" for peak in peaks]
            print(f"| {parameters(HIDDEN[size]):,} | {name} | {rows} | {' | '.join(cells)} |", flush=True)


def bytes_per_example(name: str, size: str, options: argparse.Namespace) -> float:
    """Slope of peak memory in the physical batch."""
    common = {"hidden": HIDDEN[size], "threads": options.threads, "device": options.device}
    cases = [Case(contender=name, batch=max(options.physical), physical=rows, **common) for rows in options.physical]
    return 2**20 * line(options.physical, [peak_mebibytes(case) for case in cases])[0]


def over_physical_batches(options: argparse.Namespace) -> None:
    """Print the second table."""
    print("\n| parameters | contender | KiB per example | beyond no privacy | 4 bytes a parameter, KiB |")
    print("|---|---|---|---|---|", flush=True)
    for size in options.sizes:
        names = dict.fromkeys([*WITHOUT_PRIVACY, *WITHOUT_PRIVACY.values()])
        slopes = {name: bytes_per_example(name, size, options) / 2**10 for name in names}
        whole = 4 * parameters(HIDDEN[size]) / 2**10
        for name, slope in slopes.items():
            beyond = f"{slope - slopes[WITHOUT_PRIVACY[name]]:.0f}" if name in WITHOUT_PRIVACY else ""
            print(f"| {parameters(HIDDEN[size]):,} | {name} | {slope:.0f} | {beyond} | {whole:.0f} |", flush=True)


def main() -> None:
    """Print both tables."""
    start()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[256, 1024, 8192])
    parser.add_argument("--physical", type=int, nargs="+", default=[64, 128, 256], help="of the second table")
    parser.add_argument("--sizes", nargs="+", choices=HIDDEN, default=list(HIDDEN))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{options.device}, {options.threads} threads, {options.rounds} rounds\n")
    over_logical_batches(options)
    over_physical_batches(options)


if __name__ == "__main__":
    main()
