"""Data sets and a metric that a fuzzed spec may name: plug-ins, which any process finds beside ``sweep_fuzz.py``.

Images are made of a fixed seed, a few hundred of a few dozen pixels. `install` writes the description by which
Python finds plug-ins, into a folder that goes in front of the path of this process and of those it starts.
"""

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _fuzz_specs import SHARE_METRIC
from _fuzz_tables import IMAGE_CLASSES, IMAGES

from clipless.datasets import Dataset, Evaluation, HashSplit, Metadata, Split
from clipless.datasets.splits import Part, assign_by_hash, row_bytes
from clipless.network import Network
from sweeper.specification.plugins import Metric, metric

ROWS = 220
HERE = Path(__file__).resolve().parent


def install(folder: Path) -> None:
    """Let this process and its children find the plug-ins of this module."""
    described = folder / "fuzz_plugins-1.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: fuzz-plugins\nVersion: 1\n", encoding="utf-8")
    sets = "".join(f"{name} = _fuzz_data:{name.replace('-', '_')}\n" for name in IMAGES)
    points = f"[sweeper.datasets]\n{sets}\n[sweeper.metrics]\n{SHARE_METRIC} = _fuzz_data:recall\n"
    (described / "entry_points.txt").write_text(points, encoding="utf-8")
    places = [str(folder), str(HERE)]
    sys.path[:0] = [place for place in places if place not in sys.path]
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*places, *([known] if known else [])])


def _images(name: str, data_dir: Any, evaluation: Evaluation | None, splits: Any) -> Dataset:
    """Return made-up images: noise, brighter at a place that the class decides."""
    del data_dir
    shape, classes = IMAGES[name], IMAGE_CLASSES[name]
    draw = np.random.default_rng(len(name))
    y_N = draw.integers(0, classes, ROWS)
    x = draw.random((ROWS, *shape)) * 0.6
    x[np.arange(ROWS), :, y_N, y_N] += 0.4
    splitting = splits if isinstance(splits, HashSplit) else HashSplit()
    fractions = {"validation": splitting.validation, "test": splitting.test_fraction}
    parts_N = assign_by_hash(row_bytes(x.reshape(ROWS, -1)), name, salt=splitting.salt, **fractions)
    inputs, labels = torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y_N.astype(np.int64))
    taken = (
        Split(inputs[parts_N == part], labels[parts_N == part]) for part in (Part.TRAIN, Part.VALIDATION, Part.TEST)
    )
    return Dataset(_facts(name, evaluation or Evaluation.PUBLIC), *taken)


def _facts(name: str, evaluation: Evaluation) -> Metadata:
    return Metadata(
        name=name,
        input_shape=IMAGES[name],
        classes=tuple(f"c{label}" for label in range(IMAGE_CLASSES[name])),
        evaluation=evaluation,
        unit="row",
        input_norm=float(np.sqrt(np.prod(IMAGES[name]))),
        input_gain=1.0,
        radius_unit="pixels in [0, 1]",
        public_facts=("Everything about these rows is made up.",),
        conditions=(),
        split_by_row=True,
    )


fuzz_gray, fuzz_colour, fuzz_odd = (partial(_images, name) for name in IMAGES)


def _recall(model: Network, split: Split, declared: Metadata) -> float:
    """Return the share of rows of the first class that are decided for it."""
    del declared
    with torch.no_grad():
        logits = model(split.x)
    said = (logits[:, 0] > 0).long() if logits.shape[1] == 1 else logits.argmax(dim=1)
    first = split.y == 0
    return float((said[first] == 0).double().mean()) if bool(first.any()) else 0.0


recall: Metric = metric("maximize", share=True)(_recall)
