"""What the guard and its exact sums cost on each kind of layer: a forward and a backward pass, with and without them.

    python benchmarks/layer_cost.py [--rows 512] [--rounds 15] [--threads 2] [--device cpu] [--parts]

Each layer stands alone behind trained ones, so its backward pass forms the gradient of its input too (not for the
scattering head and the first convolution, which see fixed inputs). Passes with and without the guard alternate; the
table gives the median time of both and the median of their ratio over rounds. With ``--parts``, what the guard of a
convolution does instead, beside the gradient of the kernel that it replaces.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from _step import start
from torch import Tensor, nn

from clipless.guards import convolution
from clipless.guards.exact_sums import Digits, whole_operand
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


def parts(layer: Conv2d, size: int, rows: int, device: str) -> dict[str, Callable[[], object]]:
    """The gradient of a kernel as torch computes it, and what its exact sum is made of, in caches as in a step."""
    generator = torch.Generator().manual_seed(0)
    kernel, stride, padding = layer.geometry
    x = torch.randn(rows, layer.in_channels, size, size, generator=generator).to(device)
    g = torch.randn(rows, layer.out_channels, size, size, generator=generator).to(device)
    scale_B = torch.ones(rows, dtype=torch.float64, device=device)
    at_once = convolution.rows_at_once(g, x, kernel)
    pieces = list(zip(g.split(at_once), x.split(at_once), scale_B.split(at_once), strict=True))
    digits = [Digits(g_n) for g_n, *_ in pieces]
    whole = [whole_operand(d, x_n, s_n, 1e-4) for d, (_, x_n, s_n) in zip(digits, pieces, strict=True)]
    weight = layer.weight.detach()
    wanted = [False, True, False]

    def by_torch() -> object:
        geometry = None, stride, padding, (1, 1), False, (0, 0), 1
        return torch.ops.aten.convolution_backward(g, x, weight, *geometry, wanted)

    def product() -> object:
        return [
            convolution.conv_product(d.values, w.clone(), kernel, stride, padding)
            for d, w in zip(digits, whole, strict=True)
        ]

    return {
        "the gradient by torch": by_torch,
        "cotangents to 8 bits": lambda: [Digits(g_n) for g_n, *_ in pieces],
        "inputs to 15 bits": lambda: [
            whole_operand(d, x_n, s_n, 1e-4) for d, (_, x_n, s_n) in zip(digits, pieces, strict=True)
        ],
        "patches and the product of integers": product,
    }


def seconds(work: Callable[[], object], device: str) -> float:
    """Time of one pass."""
    began = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def print_parts(rows: int, rounds: int, device: str) -> None:
    """Print the table of parts; those of a layer take turns."""
    names: list[str] = []
    for kind in kinds():
        if isinstance(kind.layer, Conv2d) and kind.layer.groups == 1 and not kind.exact:
            works = parts(kind.layer.to(device), kind.shape[-1], rows, device)
            if not names:
                names = list(works)
                print(f"| layer | {' | '.join(f'{name}, ms' for name in names)} |\n|---{'|---' * len(names)}|")
            times = [[seconds(work, device) for work in works.values()] for _ in range(rounds + 1)][1:]
            medians = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
            print(f"| {kind.name} | {' | '.join(f'{median:.1f}' for median in medians)} |", flush=True)


def main() -> None:
    """Print the table."""
    start()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--parts", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{options.rows} rows, {options.device}, {options.threads} threads, {options.rounds} rounds\n")
    if options.parts:
        print_parts(options.rows, options.rounds, options.device)
        return
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
