"""Tumours measured under a microscope, from scikit-learn: no network, no files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from clipless.datasets.dataset import Dataset
from clipless.datasets.metadata import Evaluation
from clipless.datasets.sources._base import BENCHMARK, DataSource
from clipless.datasets.splits import HashSplit
from clipless.datasets.tables.declarations import Numeric, Ranges
from clipless.datasets.tables.table import TableFacts, encode_table
from clipless.datasets.tables.table_file import Table

# Ranges of the nine measured quantities of a cell nucleus and of the fractal dimension: mean, standard error
# and worst value. They are the table of summary statistics printed in the public description of the data set
# (UCI; the docstring of `sklearn.datasets.load_breast_cancer`), widened to round numbers, so using them
# releases nothing.
MEASUREMENT_RANGES: dict[str, tuple[tuple[float, float], tuple[float, float], tuple[float, float]]] = {
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


class BreastCancer:
    """569 tumours of 30 measurements, benign or malignant (UCI, Wisconsin diagnostic)."""

    name = "breast_cancer"
    classes = ("benign", "malignant")

    def raw(self, data_dir: Path | None) -> Ranges:
        """Return the declarations of the measurements, in their order."""
        ranges = self._ranges([str(name) for name in _bunch().feature_names])
        return replace(ranges, source="see there", classes=None)  # as the data.json of earlier sweeps has it

    def load(self, *, data_dir: Path | None, evaluation: Evaluation, splitting: HashSplit | None) -> Dataset:
        """Load them."""
        bunch = _bunch()
        features = [str(name) for name in bunch.feature_names]
        columns = {name: pa.array(column) for name, column in zip(features, bunch.data.T, strict=True)}
        names = np.array([str(name) for name in bunch.target_names])
        table = Table(self.name, columns | {"diagnosis": pa.array(names[bunch.target], pa.large_string())})
        source = TableFacts(
            name=self.name,
            split_name=self.name,
            evaluation=evaluation,
            public_because=BENCHMARK,
            training_published=True,
            splitting=splitting or HashSplit(),
        )
        return encode_table(table, self._ranges(features), source)

    def _ranges(self, features: list[str]) -> Ranges:
        return Ranges(
            name="clipless/datasets/sources/breast_cancer.py",
            source="the summary table in the data set's public description, widened to round numbers",
            target="diagnosis",
            classes=self.classes,
            columns={name: _range(name) for name in features},
        )


def _bunch() -> Any:
    from sklearn.datasets import load_breast_cancer  # 0.5 s that other data sets need not pay

    return load_breast_cancer()


def _range(feature: str) -> Numeric:
    """Find the range of ``mean radius``, ``radius error`` or ``worst radius``."""
    mean, error, worst = MEASUREMENT_RANGES[feature.removeprefix("mean ").removeprefix("worst ").removesuffix(" error")]
    low, high = worst if feature.startswith("worst ") else error if feature.endswith(" error") else mean
    return Numeric(low=low, high=high)


SOURCES: tuple[DataSource, ...] = (BreastCancer(),)
