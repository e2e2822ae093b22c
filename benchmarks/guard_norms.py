"""Which norm should the guard clip by on maps: the product bound, or that of each example's own gradient?

    python benchmarks/guard_norms.py --data-dir FOLDER [--epochs 6] [--seeds 3] [--fractions 0.01 0.03 0.1 0.3]

Trains one 3x3 convolutional network on MNIST at epsilon 3 by clipless training, at each sensitivity fraction with both
norms; noise and price are the same in each pair. Prints validation accuracy (mean and standard deviation over seeds)
and the time of a training.
"""

import argparse
import statistics
import time
from pathlib import Path

import torch

import clipless


def accuracy(data: clipless.datasets.Dataset, fraction: float, exact: bool, epochs: int, seed: int) -> float:
    """Validation accuracy, in %, of one training."""
    generator = torch.Generator().manual_seed(seed)
    shape = data.metadata.input_shape
    model = clipless.zoo.convnet(shape, 10, input_norm=10.0, width=8, depth=2, hidden=64, generator=generator)
    loss = clipless.TauCCE(0.1)
    plan = clipless.make_plan(
        model,
        loss,
        population=len(data.train),
        batch_size=2048,
        delta=1e-5,
        epsilon=3.0,
        epochs=epochs,
        sensitivity_fraction=fraction,
    )
    for _ in clipless.fit(model, loss, data.train, plan, optimizer=clipless.Adam(0.005), exact_norms=exact):
        pass
    return 100 * clipless.evaluate(model, data.validation)["accuracy"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--fractions", type=float, nargs="+", default=[0.01, 0.03, 0.1, 0.3])
    options = parser.parse_args()
    data = clipless.datasets.load("mnist", data_dir=options.data_dir)
    print(f"{options.epochs} epochs, {options.seeds} seeds\n")
    print("| sensitivity fraction | product bound | s | exact norm | s |\n|---|---|---|---|---|")
    for fraction in options.fractions:
        cells = []
        for exact in (False, True):
            start = time.perf_counter()
            found = [accuracy(data, fraction, exact, options.epochs, seed) for seed in range(options.seeds)]
            seconds = (time.perf_counter() - start) / options.seeds
            deviation = statistics.stdev(found) if len(found) > 1 else 0.0
            cells.append(f"{statistics.mean(found):.1f} +- {deviation:.1f} | {seconds:.0f}")
        print(f"| {fraction:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
