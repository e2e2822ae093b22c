"""Data sets: tensors beside the public facts that a privacy guarantee rests on.

Nothing here downloads at import, and nothing computes a statistic of private rows.
"""

from clipless.datasets.catalog import available, load
from clipless.datasets.declarations import Categorical, Drop, Numeric, Ranges
from clipless.datasets.input_format import input_format
from clipless.datasets.metadata import Dataset, Evaluation, Metadata, Split
from clipless.datasets.new_rows import InputFormat, NewRows
from clipless.datasets.preparation import ColourSpace, Preparation, prepare
from clipless.datasets.ranges import load_ranges
from clipless.datasets.splits import ColumnSplit, HashSplit
from clipless.datasets.template import write_ranges_template

__all__ = [
    "Categorical",
    "ColourSpace",
    "ColumnSplit",
    "Dataset",
    "Drop",
    "Evaluation",
    "HashSplit",
    "InputFormat",
    "Metadata",
    "NewRows",
    "Numeric",
    "Preparation",
    "Ranges",
    "Split",
    "available",
    "input_format",
    "load",
    "load_ranges",
    "prepare",
    "write_ranges_template",
]
