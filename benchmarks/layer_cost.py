"""What the guard and its exact sums cost on each kind of layer: a forward and a backward pass, with and without them.

    python benchmarks/layer_cost.py [--rows 512] [--rounds 15] [--threads 2] [--device cpu]

Each layer stands alone behind trained ones, so its backward pass forms the gradient of its input too (not for the
scattering head and the first convolution, which see fixed inputs). Passes with and without the guard alternate; the
table gives the median time of both and the median of their ratio over rounds.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from _step import start
from torch import Tensor, nn

from clipless.guards.guard import guarded
from clipless.layers import Conv2d, Dense, Householder, Residual


@dataclass(frozen=True)
class Kind:
    """A layer, the shape of a row of its input, and whether that is fixed."""

    name: str
    layer: nn.Module
    shape: tuple[int, ...]
    fixed: bool = False
    exact: bool = False


def kinds() -> list[Kind]:
    """The layers that are measured."""
    return [
        Kind("dense 1568 -> 128", Dense(1568, 128), (1568,)),
        Kind("dense 1024 -> 1024", Dense(1024, 1024), (1024,)),
        Kind("scattering head 833 -> 10", Dense(833, 10), (833,), fixed=True),
        Kind("dense on 64 tokens, 64 -> 64", Dense(64, 64), (64, 64)),
        Kind("convolution 1 -> 16, 3x3, 28x28", Conv2d(1, 16, 3, padding=1), (1, 28, 28), fixed=True),
        Kind("convolution 16 -> 32, 3x3, 14x14", Conv2d(16, 32, 3, padding=1), (16, 14, 14)),
        Kind("convolution 32 -> 64, 3x3, 7x7", Conv2d(32, 64, 3, padding=1), (32, 7, 7)),
        Kind("the same, exact norms", Conv2d(32, 64, 3, padding=1), (32, 7, 7), exact=True),
        Kind("convolution 32 -> 32, 8 groups, 14x14", Conv2d(32, 32, 3, padding=1, groups=8), (32, 14, 14)),
        Kind("dense 1024 -> 256 with bias", Dense(1024, 256, bias=True), (1024,)),
        Kind("Householder, 256", Householder(256), (256,)),
        Kind("learned skip, 256", Residual([Dense(256, 256)], 0.5, learned=True), (256,)),
    ]


def passes(kind: Kind, rows: int, device: str) -> tuple[Callable[[], None], Callable[[], None]]:
    """One pass without a guard, and one with it."""
    generator = torch.Generator().manual_seed(0)
    layer = kind.layer.to(device)
    x = torch.randn(rows, *kind.shape, generator=generator).to(device).requires_grad_(not kind.fixed)
    g = torch.randn(layer(x).shape, generator=generator).to(device)
    names = [name for name, _ in layer.named_parameters()]
    totals = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in layer.named_parameters()}

    def forget() -> Tensor:
        x.grad = None
        layer.zero_grad()
        return layer(x)

    def plain() -> None:
        forget().backward(g)

    def private() -> None:
        with guarded(layer, dict.fromkeys(names, 100.0), exact=kind.exact, totals=totals):
            forget().backward(g)

    return plain, private


def seconds(work: Callable[[], None], device: str) -> float:
    """Time of one pass."""
    began = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    """Print the table."""
    start()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{options.rows} rows, {options.device}, {options.threads} threads, {options.rounds} rounds\n")
    print("| layer | without a guard, ms | with it, ms | ratio |\n|---|---|---|---|")
    for kind in kinds():
        plain, private = passes(kind, options.rows, options.device)
        for work in (plain, private):
            work()
        pairs = [(seconds(plain, options.device), seconds(private, options.device)) for _ in range(options.rounds)]
        without, with_it = (1e3 * statistics.median(times) for times in zip(*pairs, strict=True))
        ratio = statistics.median(b / a for a, b in pairs)
        print(f"| {kind.name} | {without:.1f} | {with_it:.1f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
