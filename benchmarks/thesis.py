"""Accuracy on tables at the epsilons of Barczewski (2025, chapter 5): DP-SGD, LIP-DP-SGD, and it with fixed norms.

    python benchmarks/thesis.py --data-dir FOLDER-OF-tabular [--runs 10] [--candidates 12] [--tables breast-cancer ...]

Contenders, on the spaces of ``sweeps/thesis``:

* dp-sgd: an ordinary ReLU network with cross-entropy, gradients of examples clipped
* lip-dp-sgd: each contribution divided by its own input norm, weights of norm at most C
* fixed norm: the same with weights of norm exactly C

Each contender has the same number of random candidates on one split that no run uses. The best few are trained again,
and the largest mean validation accuracy chooses the configuration of all runs. A run is a split of its own, 80 % of the
rows for training, and gives one test accuracy after the last epoch; runs of all contenders share splits and initial
seeds. The p-value is that of Wilcoxon's signed-rank test against dp-sgd.

Splits overlap, so p-values are optimistic, and the rows that candidates were chosen on are training and test rows of
the runs. Epsilon is that of one training whose configuration was fixed in advance: choosing it on these rows is not
paid for. Delta is 1/n with n the rows of the whole table, a little below 1/N of the training rows.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from scipy.stats import wilcoxon

import clipless
from clipless.datasets import Dataset, Split, load
from sweeper.search.space import sample
from sweeper.specification.fields.nested import flatten
from sweeper.specification.spec import Spec
from sweeper.specification.trial_config import TrialConfig
from sweeper.trials.build import build_loss, build_model, build_optimizer, build_plan

SWEEPS = Path(__file__).resolve().parents[1] / "sweeps" / "thesis"
PUBLISHED = {  # accuracy of DP-SGD and LIP-DP-SGD
    "breast-cancer": (77.3, 79.8),
    "adult": (82.4, 83.1),
    "german": (73.5, 74.6),
    "nursery": (91.9, 93.1),
    "default-credit": (80.9, 81.6),
}
EMBEDDED = ("breast-cancer",)
LIPSCHITZ = {"lip-dp-sgd": "spectral_ball", "fixed norm": "fixed_norm"}
CONTENDERS = ("dp-sgd", *LIPSCHITZ)
FINALISTS, TRAININGS = 3, 3


def spec_of(table: str, contender: str, splits: dict[str, Any]) -> Spec:
    """The ready spec of a table, for a contender and a split."""
    path = SWEEPS / f"{table}.yaml"
    ready = Spec.from_yaml(path)
    content = ready.to_plain()
    content["data"]["splits"] = splits
    if contender in LIPSCHITZ:
        content["model"]["constraint"] = LIPSCHITZ[contender]
    else:
        del content["model"]["weight_norm"]
        content["model"] |= {"constraint": "free", "activation": "relu"}
        (loss,) = ready.training.loss
        content["training"] |= {"method": "dp-sgd", "follow_weights": False, "loss": loss.name, "ghost_clipping": True}
    return Spec.from_mapping(content, str(path))


def accuracy(config: TrialConfig, data: Dataset, scored: Split, seed: int) -> float:
    """Accuracy on the scored rows after the last epoch."""
    loss = build_loss(config)
    model = build_model(config, data, loss, seed)
    plan = build_plan(config, model, loss, len(data.train))
    epochs = clipless.fit(
        model,
        loss,
        data.train,
        plan,
        optimizer=build_optimizer(config),
        ghost_clipping=bool(config.training.ghost_clipping),
    )
    for _ in epochs:
        pass
    return clipless.evaluate(model, scored)["accuracy"]


def chosen(spec: Spec, data: Dataset, candidates: int) -> TrialConfig:
    """The candidate with the largest mean validation accuracy, over several trainings of the best few."""
    configs = [spec.space.resolve(proposal) for proposal in sample(spec.space, candidates)]
    scores = [[accuracy(config, data, data.validation, seed=0)] for config in configs]
    best = sorted(range(candidates), key=lambda i: scores[i][0], reverse=True)[:FINALISTS]
    for i in best:
        scores[i] += [accuracy(configs[i], data, data.validation, seed) for seed in range(1, TRAININGS)]
    return configs[max(best, key=lambda i: statistics.mean(scores[i]))]


def p_value(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Two-sided Wilcoxon signed-rank test of paired runs; 1 where no run differs."""
    return float(wilcoxon(ours, theirs).pvalue) if list(ours) != list(theirs) else 1.0


def majority(split: Split) -> float:
    """Accuracy of always deciding for the largest class."""
    return float(torch.bincount(split.y).max()) / len(split)


def described(config: TrialConfig) -> str:
    """The values that were open."""
    flat = flatten(config.to_json())
    left_out = ("method", "privacy.", "optimizer", "schedule", "ghost", "loss.name", "architecture", "follow_weights")
    kept = {
        name.rpartition(".")[2]: value for name, value in flat.items() if not any(part in name for part in left_out)
    }
    return ", ".join(
        f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in kept.items()
    )


def main() -> None:
    """Print the results, and the configurations behind them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="without it, breast-cancer alone, which comes with scikit-learn")
    parser.add_argument("--tables", nargs="+", choices=PUBLISHED)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--candidates", type=int, default=12)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tables = options.tables or (EMBEDDED if options.data_dir is None else tuple(PUBLISHED))
    print(f"{options.runs} runs, {options.candidates} candidates for each contender\n")
    heads = ["table", "epsilon", "majority", "dp-sgd", *(head for name in LIPSCHITZ for head in (name, "p"))]
    heads += ["published dp-sgd", "published lip-dp-sgd"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
    notes = []
    for table in tables:
        found: dict[str, list[float]] = {}
        largest: list[float] = []
        for contender in CONTENDERS:
            start = time.perf_counter()
            tuning = spec_of(table, contender, {"validation": 0.2, "test": 0.01, "salt": "tuning"})
            config = chosen(tuning, load(**tuning.data_options(options.data_dir)), options.candidates)
            found[contender] = []
            for run in range(options.runs):
                spec = spec_of(table, contender, {"validation": 0.01, "test": 0.2, "salt": str(run)})
                data = load(**spec.data_options(options.data_dir))
                found[contender].append(accuracy(config, data, data.test, seed=run))
                largest.append(majority(data.test))
            notes.append(f"| {table} | {contender} | {described(config)} | {time.perf_counter() - start:.0f} |")
        cells = [shown(largest), shown(found["dp-sgd"])]
        for contender in LIPSCHITZ:
            cells += [shown(found[contender]), f"{p_value(found[contender], found['dp-sgd']):.3f}"]
        published = " | ".join(f"{value:.1f}" for value in PUBLISHED[table])
        print(f"| {table} | {tuning.privacy.epsilon} | {' | '.join(cells)} | {published} |", flush=True)
    print("\n| table | contender | configuration | seconds, search and runs |\n|---|---|---|---|")
    print("\n".join(notes))


def shown(accuracies: Sequence[float]) -> str:
    """Mean and standard deviation in %."""
    deviation = statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
    return f"{100 * statistics.mean(accuracies):.1f} +- {100 * deviation:.1f}"


if __name__ == "__main__":
    main()
