"""What a published data set offers under its name.

A new one is a file here with an instance in its ``SOURCES``, and a line in the list of `clipless.datasets.catalog`.
"""

from pathlib import Path
from typing import Protocol

from clipless.datasets.dataset import Dataset
from clipless.datasets.metadata import Evaluation
from clipless.datasets.raw_rows import RawRows
from clipless.datasets.splits import HashSplit

BENCHMARK = "the data set is a published benchmark"


class DataSource(Protocol):
    """A published data set."""

    @property
    def name(self) -> str:
        """Name of the data set."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; label ``i`` is ``classes[i]``."""

    def raw(self, data_dir: Path | None) -> RawRows:
        """Return the raw format of a row: declarations, and for a table the names and order of its columns.

        Raises:
            DataError: a table that cannot be read.
        """

    def load(self, *, data_dir: Path | None, evaluation: Evaluation, splitting: HashSplit | None) -> Dataset:
        """Load the rows.

        A ``data_dir`` is read instead of fetching; ``splitting`` left out means the source's own fractions.

        Raises:
            DataError: the folder lacks the file, the file is not what its name says, or there is no network.
        """
