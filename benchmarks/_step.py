"""Steps of training, private and not, on one family of networks: what `step_time.py` and `step_scaling.py` measure.

The network is an MNIST-sized convolutional one: two 3x3 blocks of 16 and 32 channels, then dense layers
1568-``hidden``-10. Activations hardly change with ``hidden``, parameters do.

Contenders:

* private: the guarded step of `clipless.fit`, with noise and projection; recorded: its passes as a CUDA graph
* lipschitz: the same network without privacy (no guard, no noise), with and without its projection
* relu: a plain ReLU / max-pool network of the same widths, without privacy
* opacus: that plain network under Opacus' hooks (per-example gradients), flat clipping
* opacus ghost: the same clipping by Opacus' two backward passes, which keep norms instead of gradients
"""

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

import clipless
from clipless.datasets import Split
from clipless.privacy.randomness import SecureSource
from clipless.training.trainer import PrivateTrainer

Step = Callable[[], None]
OWN_PEAK = "--own-peak"
RECORDED = "private, recorded"


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is measured.

    Attributes:
        contender: see the module.
        batch: logical batch size.
        physical: rows per forward pass; a larger batch is accumulated.
        hidden: features between the two dense layers.
        threads: of torch.
        device: where everything lives.
    """

    contender: str
    batch: int
    physical: int
    hidden: int = 128
    threads: int = 2
    device: str = "cpu"


def parameters(hidden: int) -> int:
    """Number of parameters of the Lipschitz network."""
    return sum(p.numel() for p in lipschitz_network(hidden).parameters())


def data(batch: int, device: str) -> Split:
    """Random images: time does not depend on what they show."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(2 * batch, 1, 28, 28, generator=generator).to(device)
    return Split(x, torch.randint(0, 10, (2 * batch,), generator=generator).to(device))


def lipschitz_network(hidden: int) -> clipless.Network:
    """The network of this project."""
    return clipless.zoo.convnet((1, 28, 28), 10, input_norm=10.0, width=16, depth=2, hidden=hidden)


def plain_network(hidden: int) -> nn.Module:
    """The same widths with ReLU and max pooling."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1568, hidden), nn.ReLU(), nn.Linear(hidden, 10)),
    )


def private(case: Case, split: Split) -> Step:
    """One step of private training."""
    model, loss = lipschitz_network(case.hidden).to(case.device), clipless.TauCCE(1.0)
    plan = clipless.make_plan(
        model, loss, population=len(split), batch_size=case.batch, delta=1e-5, noise_multiplier=1.0, epochs=1
    )
    trainer = PrivateTrainer(
        *(model, loss, split, plan, clipless.Adam(1e-3), case.physical, SecureSource()),
        recorded=case.contender == RECORDED,
    )
    rows = torch.arange(case.batch, device=case.device)
    return lambda: trainer.step(rows)


def without_privacy(case: Case, split: Split, model: nn.Module, *, project: bool) -> Step:
    """One step of ordinary training, accumulated like the private one."""
    model = model.to(case.device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        for rows in torch.arange(case.batch, device=case.device).split(case.physical):
            total = nn.functional.cross_entropy(model(split.x[rows]), split.y[rows], reduction="sum")
            (total / case.batch).backward()
        optimizer.step()
        if project and isinstance(model, clipless.Network):
            model.project()

    return step


def opacus(case: Case, split: Split) -> Step:
    """One step of Opacus: hooks form per-example gradients, then flat clipping and noise."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    model = GradSampleModule(plain_network(case.hidden).to(case.device))
    inner = torch.optim.Adam(model.parameters(), 1e-3)
    optimizer = DPOptimizer(inner, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=case.batch)

    def step() -> None:
        chunks = torch.arange(case.batch, device=case.device).split(case.physical)
        for i, rows in enumerate(chunks):
            optimizer.signal_skip_step(do_skip=i < len(chunks) - 1)
            nn.functional.cross_entropy(model(split.x[rows]), split.y[rows]).backward()
            optimizer.step()
            optimizer.zero_grad()

    return step


def opacus_ghost(case: Case, split: Split) -> Step:
    """One step of Opacus with ghost clipping: a pass for the norms, another for the clipped sum."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    model = GradSampleModuleFastGradientClipping(plain_network(case.hidden).to(case.device), max_grad_norm=1.0)
    inner = torch.optim.Adam(model.parameters(), 1e-3)
    optimizer = DPOptimizerFastGradientClipping(
        inner, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=case.batch
    )
    loss = DPLossFastGradientClipping(model, optimizer, nn.CrossEntropyLoss())

    def step() -> None:
        chunks = torch.arange(case.batch, device=case.device).split(case.physical)
        for i, rows in enumerate(chunks):
            optimizer.signal_skip_step(do_skip=i < len(chunks) - 1)
            loss(model(split.x[rows]), split.y[rows]).backward()
            optimizer.step()
            optimizer.zero_grad()

    return step


def build(case: Case, split: Split) -> Step:
    """Return the step of a contender."""
    match case.contender:
        case "private" | "private, recorded":
            return private(case, split)
        case "opacus":
            return opacus(case, split)
        case "opacus ghost":
            return opacus_ghost(case, split)
        case "relu":
            return without_privacy(case, split, plain_network(case.hidden), project=False)
        case "lipschitz" | "lipschitz + projection" as name:
            return without_privacy(case, split, lipschitz_network(case.hidden), project="projection" in name)
        case unknown:
            raise ValueError(f"Expected a contender, got {unknown!r}")


def seconds(step: Step, device: str, steps: int = 3, *, warm: bool = True) -> float:
    """Mean time of consecutive steps, as in training, after one that fills the caches if they are not ``warm``ed."""
    if warm:
        step()
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps


def peak_mebibytes(case: Case) -> float:
    """Peak memory of a fresh process that takes two steps of this contender only, the second with Adam's state."""
    command = [sys.executable, sys.argv[0], OWN_PEAK, json.dumps(asdict(case))]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def start() -> None:
    """Settle the process, first thing in a script; in one that `peak_mebibytes` started, measure and exit.

    The allocator's settings are those that trials run with (`sweeper.backend.on_ray.cluster`), the same for everyone;
    they have to stand in the environment when a process begins.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    if sys.argv[1:2] == [OWN_PEAK]:
        _own_peak(Case(**json.loads(sys.argv[2])))
        sys.exit()
    from sweeper.backend.environment import worker_environment

    settings = {name: value for name, value in worker_environment(1).items() if name.startswith("MALLOC_")}
    if not settings.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | settings)


def _own_peak(case: Case) -> None:
    torch.set_num_threads(case.threads)
    step = build(case, data(case.batch, case.device))
    for _ in range(2):
        step()
    if case.device == "cuda":
        print(torch.cuda.max_memory_allocated() / 2**20)
    else:
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        print(int(status["VmHWM"].split()[0]) / 2**10)  # of this program alone; ru_maxrss would count its parent
