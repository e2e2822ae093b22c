"""Two small data sets that come with scikit-learn: no network, no files."""

from math import sqrt
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from clipless.datasets.facts import ROW_COUNTS, evaluation_facts, split_fact
from clipless.datasets.kinds import Evaluation
from clipless.datasets.metadata import Dataset, Metadata, Split
from clipless.datasets.splits import HashSplit, Part, assign_by_hash, row_bytes
from clipless.datasets.tables.declarations import Numeric, Ranges
from clipless.datasets.tables.table import Source, encode_table
from clipless.datasets.tables.table_file import Table

PIXEL_UNIT = "pixels in [0, 1]"
_BENCHMARK = "the data set is a published benchmark"

# Ranges of the nine measured quantities of a cell nucleus and of the fractal dimension: mean, standard error
# and worst value. They are the table of summary statistics printed in the public description of the data set
# (UCI; the docstring of `sklearn.datasets.load_breast_cancer`), widened to round numbers, so using them
# releases nothing.
BREAST_CANCER_RANGES: dict[str, tuple[tuple[float, float], tuple[float, float], tuple[float, float]]] = {
    "radius": ((5, 30), (0, 3), (5, 40)),
    "texture": ((5, 40), (0, 5), (10, 50)),
    "perimeter": ((40, 200), (0, 25), (50, 260)),
    "area": ((100, 2600), (0, 550), (100, 4300)),
    "smoothness": ((0.05, 0.17), (0, 0.04), (0.05, 0.25)),
    "compactness": ((0, 0.35), (0, 0.15), (0, 1.1)),
    "concavity": ((0, 0.45), (0, 0.4), (0, 1.3)),
    "concave points": ((0, 0.21), (0, 0.06), (0, 0.3)),
    "symmetry": ((0.1, 0.31), (0, 0.08), (0.15, 0.7)),
    "fractal dimension": ((0.04, 0.1), (0, 0.03), (0.05, 0.21)),
}


def load_digits(*, evaluation: Evaluation = Evaluation.PUBLIC, splitting: HashSplit | None = None) -> Dataset:
    """Load 1797 images of digits, 8 x 8 pixels of 17 grey levels, scaled to [0, 1]."""
    from sklearn.datasets import load_digits as load  # 0.5 s that other data sets need not pay

    bunch: Any = load()
    levels_NHW = bunch.images.astype(np.uint8)
    splitting = splitting or HashSplit()
    parts_N = assign_by_hash(
        row_bytes(levels_NHW),
        "digits",
        validation=splitting.validation,
        test=splitting.test_fraction,
        salt=splitting.salt,
    )
    facts, conditions = evaluation_facts(evaluation, public_because=_BENCHMARK)
    metadata = Metadata(
        name="digits",
        input_shape=(1, 8, 8),
        classes=tuple("0123456789"),
        evaluation=evaluation,
        unit="row",
        input_norm=sqrt(64),
        input_gain=1.0,
        radius_unit=PIXEL_UNIT,
        public_facts=(
            "Pixels are divided by 16, their largest level: no norm exceeds the root of their number.",
            split_fact(splitting),
            ROW_COUNTS,
            *facts,
        ),
        conditions=conditions,
        training_published=True,
        split_by_row=True,
    )
    x_NCHW, y_N = levels_NHW[:, None].astype(np.float32) / np.float32(16), bunch.target.astype(np.int64)
    return Dataset(
        metadata, *(_take(x_NCHW, y_N, parts_N == part) for part in (Part.TRAIN, Part.VALIDATION, Part.TEST))
    )


def _take(x: NDArray[np.float32], y_N: NDArray[np.int64], chosen_N: NDArray[np.bool_]) -> Split:
    return Split(torch.from_numpy(x[chosen_N]), torch.from_numpy(y_N[chosen_N]))


def load_breast_cancer(*, evaluation: Evaluation = Evaluation.PUBLIC, splitting: HashSplit | None = None) -> Dataset:
    """Load 569 tumours of 30 measurements, benign or malignant (UCI, Wisconsin diagnostic)."""
    from sklearn.datasets import load_breast_cancer as load

    bunch: Any = load()
    features = [str(name) for name in bunch.feature_names]
    columns = {name: pa.array(column) for name, column in zip(features, bunch.data.T, strict=True)}
    names = np.array([str(name) for name in bunch.target_names])
    table = Table("breast_cancer", columns | {"diagnosis": pa.array(names[bunch.target], pa.large_string())})
    ranges = Ranges(
        name="clipless/datasets/sources/embedded.py",
        source="the summary table in the data set's public description, widened to round numbers",
        target="diagnosis",
        classes=("benign", "malignant"),
        columns={name: _breast_cancer_range(name) for name in features},
    )
    source = Source(
        name="breast_cancer",
        split_name="breast_cancer",
        evaluation=evaluation,
        public_because=_BENCHMARK,
        training_published=True,
        splitting=splitting or HashSplit(),
    )
    return encode_table(table, ranges, source)


def _breast_cancer_range(feature: str) -> Numeric:
    """Find the range of ``mean radius``, ``radius error`` or ``worst radius``."""
    mean, error, worst = BREAST_CANCER_RANGES[
        feature.removeprefix("mean ").removeprefix("worst ").removesuffix(" error")
    ]
    low, high = worst if feature.startswith("worst ") else error if feature.endswith(" error") else mean
    return Numeric(low=low, high=high)
