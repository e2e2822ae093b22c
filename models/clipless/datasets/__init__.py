"""Data sets: tensors beside the public facts that a privacy guarantee rests on.

Nothing here downloads at import, and nothing computes a statistic of private rows.
"""

from clipless.datasets.catalog import available, load
from clipless.datasets.declarations import Categorical, Drop, Numeric, Ranges
from clipless.datasets.metadata import Dataset, Evaluation, Metadata, Split
from clipless.datasets.ranges import load_ranges
from clipless.datasets.splits import ColumnSplit, HashSplit
from clipless.datasets.template import write_ranges_template

__all__ = [
    "Categorical",
    "ColumnSplit",
    "Dataset",
    "Drop",
    "Evaluation",
    "HashSplit",
    "Metadata",
    "Numeric",
    "Ranges",
    "Split",
    "available",
    "load",
    "load_ranges",
    "write_ranges_template",
]
