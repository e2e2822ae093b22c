"""Data sets: tensors beside the public facts that a privacy guarantee rests on.

Nothing here downloads at import, and nothing computes a statistic of private rows. Names are imported when they
are first used.
"""

from typing import TYPE_CHECKING

from clipless.imports import lazy_names

if TYPE_CHECKING:
    from clipless.datasets.catalog import available, load
    from clipless.datasets.dataset import Dataset, Split
    from clipless.datasets.features.declaration import Features, find_features, known_encoders
    from clipless.datasets.maps import prepare
    from clipless.datasets.metadata import ColourSpace, Evaluation, Metadata, Preparation
    from clipless.datasets.new_rows.reading import InputFormat, NewRows, input_format
    from clipless.datasets.splits import ColumnSplit, HashSplit
    from clipless.datasets.tables.declarations import Categorical, Drop, Numeric, Ranges
    from clipless.datasets.tables.ranges_file import load_ranges
    from clipless.datasets.tables.template import write_ranges_template

__all__ = [
    "Categorical",
    "ColourSpace",
    "ColumnSplit",
    "Dataset",
    "Drop",
    "Evaluation",
    "Features",
    "HashSplit",
    "InputFormat",
    "Metadata",
    "NewRows",
    "Numeric",
    "Preparation",
    "Ranges",
    "Split",
    "available",
    "find_features",
    "input_format",
    "known_encoders",
    "load",
    "load_ranges",
    "prepare",
    "write_ranges_template",
]

_HOMES = {
    "clipless.datasets.catalog": "available load",
    "clipless.datasets.dataset": "Dataset Split",
    "clipless.datasets.features.declaration": "Features find_features known_encoders",
    "clipless.datasets.maps": "prepare",
    "clipless.datasets.metadata": "ColourSpace Evaluation Metadata Preparation",
    "clipless.datasets.new_rows.reading": "InputFormat NewRows input_format",
    "clipless.datasets.splits": "ColumnSplit HashSplit",
    "clipless.datasets.tables.declarations": "Categorical Drop Numeric Ranges",
    "clipless.datasets.tables.ranges_file": "load_ranges",
    "clipless.datasets.tables.template": "write_ranges_template",
}

__getattr__ = lazy_names(__name__, _HOMES)
