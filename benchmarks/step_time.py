"""What a private training step costs: time and peak memory, side by side in one run.

    python benchmarks/step_time.py [--batch 2048] [--rounds 9] [--threads 2] [--device cpu]

Contenders on one MNIST-sized convolutional network (two 3x3 blocks of 16 and 32 channels, 1568-128-10), each at its
best physical batch out of a few (larger logical batches are accumulated):

* private: the guarded step of `clipless.fit`, with noise and projection
* lipschitz: the same network without privacy (no guard, no noise), with and without its projection
* relu: a plain ReLU / max-pool network of the same widths, without privacy
* opacus: that plain network under Opacus' hooks (per-example gradients), flat clipping

Contenders are timed in turn, round by round. The table gives the median and the smallest time of a step, the median
over rounds of private / it (what runs one after the other shares the machine's mood), and the peak memory of a
fresh process that runs only that contender.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import clipless
from clipless.datasets import Split
from clipless.privacy.randomness import SecureSource
from clipless.training import PrivateTrainer
from sweeper.cluster import worker_environment

Step = Callable[[], None]
PHYSICAL = {
    "private": (256, 512),
    "lipschitz + projection": (256, 512),
    "lipschitz": (256, 512),
    "relu": (256, 512),
    "opacus": (64, 128, 256),
}


def data(batch: int, device: str) -> Split:
    """Random images: time does not depend on what they show."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(2 * batch, 1, 28, 28, generator=generator).to(device)
    return Split(x, torch.randint(0, 10, (2 * batch,), generator=generator).to(device))


def lipschitz_network() -> clipless.Network:
    """The network of this project."""
    return clipless.zoo.convnet((1, 28, 28), 10, input_norm=10.0, width=16, depth=2, hidden=128)


def plain_network() -> nn.Module:
    """The same widths with ReLU and max pooling."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1568, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


def private(split: Split, batch: int, physical: int) -> Step:
    """One step of private training."""
    device = split.x.device
    model, loss = lipschitz_network().to(device), clipless.TauCCE(1.0)
    plan = clipless.make_plan(
        model, loss, population=len(split), batch_size=batch, delta=1e-5, noise_multiplier=1.0, epochs=1
    )
    trainer = PrivateTrainer(model, loss, split, plan, clipless.Adam(1e-3), physical, SecureSource())
    rows = torch.arange(batch, device=device)
    return lambda: trainer.step(rows)


def without_privacy(model: nn.Module, split: Split, batch: int, physical: int, project: bool) -> Step:
    """One step of ordinary training, accumulated like the private one."""
    model = model.to(split.x.device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        for rows in torch.arange(batch, device=split.x.device).split(physical):
            total = nn.functional.cross_entropy(model(split.x[rows]), split.y[rows], reduction="sum")
            (total / batch).backward()
        optimizer.step()
        if project and isinstance(model, clipless.Network):
            model.project()

    return step


def opacus(split: Split, batch: int, physical: int) -> Step:
    """One step of Opacus: hooks form per-example gradients, then flat clipping and noise."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    model = GradSampleModule(plain_network().to(split.x.device))
    inner = torch.optim.Adam(model.parameters(), 1e-3)
    optimizer = DPOptimizer(inner, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=batch)

    def step() -> None:
        chunks = torch.arange(batch, device=split.x.device).split(physical)
        for i, rows in enumerate(chunks):
            optimizer.signal_skip_step(do_skip=i < len(chunks) - 1)
            nn.functional.cross_entropy(model(split.x[rows]), split.y[rows]).backward()
            optimizer.step()
            optimizer.zero_grad()

    return step


def build(name: str, split: Split, batch: int, physical: int) -> Step:
    """Return the step of a contender."""
    match name:
        case "private":
            return private(split, batch, physical)
        case "opacus":
            return opacus(split, batch, physical)
        case "relu":
            return without_privacy(plain_network(), split, batch, physical, project=False)
        case _:
            return without_privacy(lipschitz_network(), split, batch, physical, project="projection" in name)


def seconds(step: Step, device: str, steps: int = 3) -> float:
    """Mean time of consecutive steps, as in training, after one that fills the caches."""
    step()
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps


def peak_mebibytes(name: str, options: argparse.Namespace, physical: int) -> float:
    """Peak memory of a fresh process that runs this contender only."""
    command = [sys.executable, __file__, "--only", name, "--physical", str(physical), "--batch", str(options.batch)]
    command += ["--threads", str(options.threads), "--device", options.device]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def run_only(options: argparse.Namespace) -> None:
    """Run one contender for three steps and print its peak memory."""
    step = build(options.only, data(options.batch, options.device), options.batch, options.physical)
    for _ in range(3):
        step()
    if options.device == "cuda":
        print(torch.cuda.max_memory_allocated() / 2**20)
    else:
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        print(int(status["VmHWM"].split()[0]) / 2**10)  # of this program alone; ru_maxrss would count its parent


def keep_buffers() -> None:
    """Start again with the allocator settings that trials run with (`sweeper.cluster`); the same for everyone."""
    settings = {name: value for name, value in worker_environment(1).items() if name.startswith("MALLOC_")}
    if not settings.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | settings)


def main() -> None:
    """Print the table."""
    keep_buffers()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", choices=list(PHYSICAL), help=argparse.SUPPRESS)
    parser.add_argument("--physical", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    if options.only:
        run_only(options)
        return
    split = data(options.batch, options.device)
    candidates = {(name, p): build(name, split, options.batch, p) for name, ps in PHYSICAL.items() for p in ps}
    trial = {key: min(seconds(step, options.device) for _ in range(2)) for key, step in candidates.items()}
    best = {name: min((key for key in candidates if key[0] == name), key=trial.__getitem__) for name in PHYSICAL}
    times: dict[str, list[float]] = {name: [] for name in best}
    for _ in range(options.rounds):
        for name, key in best.items():
            times[name].append(seconds(candidates[key], options.device))
    print(f"logical batch {options.batch}, {options.device}, {options.threads} threads, {options.rounds} rounds\n")
    print("| contender | physical batch | median ms | smallest ms | private / it (median of rounds) | peak MiB |")
    print("|---|---|---|---|---|---|")
    for name, (_, physical) in best.items():
        median, least = statistics.median(times[name]), min(times[name])
        ratio = statistics.median(ours / it for ours, it in zip(times["private"], times[name], strict=True))
        peak = peak_mebibytes(name, options, physical)
        print(f"| {name} | {physical} | {median * 1e3:.0f} | {least * 1e3:.0f} | {ratio:.2f} | {peak:.0f} |")


if __name__ == "__main__":
    main()
