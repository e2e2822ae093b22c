"""What a private step costs beside the same step of an earlier version of this project, side by side in one run.

    git worktree add /tmp/earlier 05e40aa
    python benchmarks/step_before.py /tmp/earlier [--batch 250] [--rounds 15] [--threads 1]

For every network two processes live side by side, one that imports the earlier worktree and one that imports this one;
they take steps in turn. The table gives the medians of a step, the median over rounds of now / before, and how long it
takes to begin, the test of its passes included, for the first training of a shape in a process and for the next one.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any, Self

CHILD = "--child"
HERE = Path(__file__).resolve().parents[1]
POPULATION = 10_000
CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "mlp, digits": ((1, 8, 8), {"name": "mlp", "width": 64}),
    "mlp, 13 inputs": ((13, 1, 1), {"name": "mlp", "width": 32}),
    "convnet": ((1, 28, 28), {"name": "convnet", "width": 16, "depth": 2, "hidden": 128}),
    "lenet": ((1, 28, 28), {"name": "lenet"}),
    "mixer": ((1, 28, 28), {"name": "mixer", "patch": 7, "depth": 2}),
    "resnet": ((1, 14, 14), {"name": "resnet", "width": 8}),
    "convnet, dp-sgd": ((1, 28, 28), {"name": "convnet", "width": 16, "depth": 2, "hidden": 128, "clip_norm": 0.1}),
}


class Version:
    """A process that takes steps when it is told to.

    Args:
        root: the worktree that it imports.
        case: of `CASES`.
        options: of this script.
    """

    def __init__(self, root: Path, case: str, options: argparse.Namespace) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
        environment["PYTHONPATH"] = os.pathsep.join(map(str, (root, root / "models")))
        given = json.dumps({"case": case, "batch": options.batch, "threads": options.threads, "steps": options.steps})
        self._process = subprocess.Popen(
            [sys.executable, __file__, CHILD, given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.begun: dict[str, Any] = self.read()

    def read(self) -> Any:
        """Return its next line."""
        if self._process.stdout is None or not (line := self._process.stdout.readline()):
            raise RuntimeError("Expected a process that takes steps, got one that ended")
        return json.loads(line)

    def seconds(self) -> float:
        """Let it take some steps; return the mean time of one."""
        if self._process.stdin is not None:
            self._process.stdin.write("go\n")
            self._process.stdin.flush()
        return float(self.read())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def child(given: dict[str, Any]) -> None:
    """Build two trainings of one shape, then take steps of the second whenever a line comes."""
    import torch

    import clipless
    from clipless.datasets import Split
    from clipless.privacy.randomness import SecureSource
    from clipless.training.trainer import PrivateTrainer

    torch.set_num_threads(given["threads"])
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    row, options = CASES[given["case"]]
    options = dict(options)
    clipping = (
        {"clip_norm": options.pop("clip_norm"), "method": clipless.Method.DP_SGD} if "clip_norm" in options else {}
    )
    generator = torch.Generator().manual_seed(0)
    data = Split(torch.rand(POPULATION, *row, generator=generator), torch.arange(POPULATION) % 10)
    settings = {"population": POPULATION, "batch_size": given["batch"], "delta": 1e-5, "noise_multiplier": 1.0}
    before = []
    for _ in range(2):
        model, loss = clipless.zoo.build(input_shape=row, outputs=10, input_norm=5.0, **options), clipless.TauCCE(1.0)
        plan = clipless.make_plan(model, loss, epochs=1, **settings, **clipping)
        start = time.perf_counter()
        trainer = PrivateTrainer(model, loss, data, plan, clipless.Adam(1e-3), 512, SecureSource())
        if hasattr(trainer, "_places"):  # it has tested its passes
            size = trainer._places.size
        else:
            from clipless.plans.trainable import check_rows_apart

            size = trainer._micro_batch_size
            check_rows_apart(trainer._trained, [size])
        before.append(time.perf_counter() - start)
    batch = [torch.randperm(POPULATION, generator=generator)[: given["batch"]].sort().values for _ in range(4)]
    for rows in batch:
        trainer.step(rows)
    print(json.dumps({"before": before, "size": size, "file": clipless.__file__}), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        for number in range(given["steps"]):
            trainer.step(batch[number % len(batch)])
        print(json.dumps((time.perf_counter() - start) / given["steps"]), flush=True)


def main() -> None:
    """Print the table."""
    if sys.argv[1:2] == [CHILD]:
        child(json.loads(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("earlier", type=Path)
    parser.add_argument("--batch", type=int, default=250)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=CASES)
    options = parser.parse_args()
    print(f"batch {options.batch}, {options.threads} threads, {options.rounds} rounds of {options.steps} steps\n")
    print("| network | rows of a pass | ms before | ms now | now / before | to begin before: first, next | now |")
    print("|---|---|---|---|---|---|---|")
    for case in [options.only] if options.only else CASES:
        print(line(case, options), flush=True)


def line(case: str, options: argparse.Namespace) -> str:
    """Measure one network."""
    with Version(options.earlier.resolve(), case, options) as then, Version(HERE, case, options) as now:
        pairs = [(then.seconds(), now.seconds()) for _ in range(options.rounds)]
        before, after = (statistics.median(times) * 1e3 for times in zip(*pairs, strict=True))
        ratio = statistics.median(ours / theirs for theirs, ours in pairs)
        tests = [", ".join(f"{1e3 * seconds:.0f} ms" for seconds in one.begun["before"]) for one in (then, now)]
        sizes = f"{then.begun['size']} -> {now.begun['size']}"
    return f"| {case} | {sizes} | {before:.1f} | {after:.1f} | {ratio:.2f} | {tests[0]} | {tests[1]} |"


if __name__ == "__main__":
    main()
