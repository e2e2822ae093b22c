"""AUROC on tables of ADBench at epsilon 1: ours, DP-SGD on an ordinary network, one without privacy, and DP-EBM.

    python benchmarks/tabular.py --data-dir FOLDER-OF-adbench [--splits 5] [--trials 16] [--tables yeast ...]
    python benchmarks/tabular.py --data-dir FOLDER-OF-adbench --methods bins

`bins` is clipless training on columns that are declared with twelve bins, read from the same file as a user's own.

The published protocol (Bethune et al. 2024, Table 7): the best validation AUROC of a sweep whose trials all end at
epsilon 1, on a split into 80 % and 20 %; here mean and standard deviation over several splits. The best of a sweep is
an optimistic score, and choosing it costs what the ledger says; both hold for every column but DP-EBM's (Nori et al.
2021; `pip install interpret-core`), which trains its default configuration once. Prints one row a table.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import yaml
from sklearn.metrics import roc_auc_score

import clipless
from clipless.datasets.sources.known import SOURCES
from sweeper.driver.options import Options
from sweeper.driver.runner import run
from sweeper.specification.spec import Spec

SWEEPS = Path(__file__).resolve().parents[1] / "sweeps"
TABLES = ("aloi", "campaign", "magic", "shuttle", "yeast")
DP_EBM = "dp-ebm"
BINS = "bins"
METHODS = ("clipless", "dp-sgd", "non-private", DP_EBM, BINS)


def spec_of(table: str, method: str, split: int, trials: int) -> Spec:
    """The ready spec of a table, for another method and split; methods that need no bound train without constraint."""
    path = SWEEPS / f"{table}.yaml"
    content = Spec.from_yaml(path).to_plain()
    content["data"]["splits"]["salt"] = str(split)
    content["training"]["method"] = "clipless" if method in (DP_EBM, BINS) else method
    content["search"] |= {"trials": trials, "seed": split, "prior": "none"}  # it was learned from these tables
    if method not in ("clipless", DP_EBM, BINS):
        content["model"] |= {"constraint": "free"}
    return Spec.from_mapping(content, str(path))


def with_bins(spec: Spec, data_dir: Path, folder: Path) -> Spec:
    """The same spec of the table's file, whose columns are declared with twelve bins in a file of this folder."""
    content = spec.to_plain()
    known = next(source for source in SOURCES if source.name == spec.data.name)
    ranges, one = known.ranges(), known.ranges().others
    declared = {"low": one.low, "high": one.high, "bins": 12}
    target = {"column": ranges.target, "classes": list(ranges.classes)}
    path = folder / f"{spec.name}.ranges.yaml"
    path.write_text(yaml.safe_dump({"source": ranges.source, "target": target, "others": declared}))
    content["data"] |= {"path": str(data_dir / Path(known.file).name), "ranges": str(path), "evaluation": "public"}
    content["data"].pop("name")
    return Spec.from_mapping(content, str(path))


def best_auroc(spec: Spec, data_dir: Path, out: Path) -> tuple[float, float]:
    """The largest AUROC of a sweep, and the mean seconds of one of its trials."""
    start = time.perf_counter()
    front = run(spec, Options(out=out, data_dir=data_dir)).front()
    seconds = (time.perf_counter() - start) / spec.trials
    return max(point.values["auroc"] for point in front.points), seconds


def ebm_auroc(spec: Spec, data_dir: Path) -> tuple[float, float]:
    """The AUROC of an explainable boosting machine on the same split and at the same price, and its seconds."""
    from interpret.privacy import DPExplainableBoostingClassifier

    data = clipless.datasets.load(**spec.data_options(data_dir))
    (train, y), (held_out, truth) = ((part.x.numpy(), part.y.numpy()) for part in (data.train, data.validation))
    start = time.perf_counter()
    machine = DPExplainableBoostingClassifier(
        feature_types=["continuous"] * train.shape[1],
        privacy_bounds=np.tile([-1.0 if train.min() < 0.0 else 0.0, 1.0], (train.shape[1], 1)),  # of the encoding
        epsilon=spec.privacy.epsilon,
        delta=spec.privacy.delta,
        n_jobs=1,
    )
    machine.fit(train, y)
    return roc_auc_score(truth, machine.predict_proba(held_out)[:, 1]), time.perf_counter() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    options = parser.parse_args()
    heads = [f"{method} | s/trial" for method in options.methods]
    print(f"{options.splits} splits, {options.trials} trials each\n")
    print(f"| table | {' | '.join(heads)} |\n|---|{'---|---|' * len(heads)}", flush=True)
    with tempfile.TemporaryDirectory() as out:
        for table in options.tables:
            cells = []
            for method in options.methods:
                specs = [spec_of(table, method, split, options.trials) for split in range(options.splits)]
                if method == BINS:
                    specs = [with_bins(spec, options.data_dir, Path(out)) for spec in specs]
                found = [
                    ebm_auroc(spec, options.data_dir)
                    if method == DP_EBM
                    else best_auroc(spec, options.data_dir, Path(out))
                    for spec in specs
                ]
                scores, seconds = ([100 * score for score, _ in found], statistics.mean(s for _, s in found))
                deviation = statistics.stdev(scores) if len(scores) > 1 else 0.0
                cells.append(f"{statistics.mean(scores):.1f} +- {deviation:.1f} | {seconds:.1f}")
            print(f"| {table} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
