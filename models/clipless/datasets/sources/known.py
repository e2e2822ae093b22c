"""Known tables: their declarations ship with this package, their rows come from a local folder or OpenML.

The tables of ADBench arrive as numbers only; each has one range for all its columns. Those that arrive
standardised (magic.gamma, skin, yeast) were standardised by their publisher with statistics of all rows,
which a card must say.
"""

from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np
import pyarrow as pa

from clipless.datasets.dataset import Dataset
from clipless.datasets.metadata import Evaluation
from clipless.datasets.sources._base import BENCHMARK, DataSource
from clipless.datasets.sources.openml import Arrays, download, read_or_fetch
from clipless.datasets.splits import HashSplit
from clipless.datasets.tables.declarations import Numeric, Ranges
from clipless.datasets.tables.ranges_file import parse_ranges
from clipless.datasets.tables.table import TableFacts, encode_table, schema
from clipless.datasets.tables.table_file import Table, read_table
from clipless.errors import DataError

_STANDARDISED = (
    "The published numbers were standardised with statistics of all rows, an unpaid release: "
    "on private data the same preprocessing would void the guarantee."
)
_ADULT_DATA_ID = 1590


@dataclass(frozen=True, kw_only=True)
class KnownTable:
    """A published table."""

    name: str
    file: str  # where a local folder holds it; its last part alone is looked for too
    # one range for every column of an ADBench table; None where a codebook declares the columns
    bounds: tuple[float, float] | None = None
    data_id: int | None = None  # its number at OpenML; None where it is read from a local folder only
    conditions: tuple[str, ...] = ()  # further sentences for the card

    def ranges(self) -> Ranges:
        """Return the declarations of this table."""
        if self.bounds is None:
            name = f"{self.name}.yaml"
            return parse_ranges(
                resources.files("clipless.datasets").joinpath("codebooks", name).read_text("utf-8"), name
            )
        low, high = self.bounds
        return Ranges(
            name="clipless/datasets/sources/known.py",
            source="round numbers chosen by hand for the published table",
            target="y",
            classes=("0", "1"),
            others=Numeric(low=low, high=high),
        )

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.ranges().classes or ()

    def raw(self, data_dir: Path | None) -> Ranges:
        """Return the declarations of every column, in the table's order."""
        return replace(schema(self._table(data_dir).columns, self.ranges()), classes=None)

    def load(self, *, data_dir: Path | None, evaluation: Evaluation, splitting: HashSplit | None) -> Dataset:
        """Load the table."""
        source = TableFacts(
            name=self.name,
            split_name=self.name,
            evaluation=evaluation,
            public_because=BENCHMARK,
            training_published=True,
            splitting=splitting or HashSplit(),
            conditions=self.conditions,
        )
        return encode_table(self._table(data_dir), self.ranges(), source)

    def _table(self, data_dir: Path | None) -> Table:
        return _fetch(self) if data_dir is None else _local(self, data_dir)


SOURCES: tuple[DataSource, ...] = (
    KnownTable(name="adult", file="tabular/adult.csv.gz", data_id=_ADULT_DATA_ID),
    KnownTable(name="german", file="tabular/german.csv.gz"),
    KnownTable(name="nursery", file="tabular/nursery.csv.gz"),
    KnownTable(name="default-credit", file="tabular/default-credit.csv.gz"),
    # A range of [-1, 1] leaves numbers in [0, 1] as they are; the colour histograms of ALOI are mostly below
    # 0.25.
    KnownTable(name="aloi", file="adbench/ALOI.npz", bounds=(-0.25, 0.25)),
    KnownTable(name="campaign", file="adbench/campaign.npz", bounds=(-1, 1)),
    KnownTable(name="celeba", file="adbench/celeba.npz", bounds=(-1, 1)),
    KnownTable(name="donors", file="adbench/donors.npz", bounds=(-1, 1)),
    KnownTable(name="shuttle", file="adbench/shuttle.npz", bounds=(-150, 150)),
    KnownTable(name="magic.gamma", file="adbench/magic.gamma.npz", bounds=(-3, 3), conditions=(_STANDARDISED,)),
    KnownTable(name="skin", file="adbench/skin.npz", bounds=(-3, 3), conditions=(_STANDARDISED,)),
    KnownTable(name="yeast", file="adbench/yeast.npz", bounds=(-3, 3), conditions=(_STANDARDISED,)),
)


def _local(known: KnownTable, data_dir: Path) -> Table:
    places = (data_dir / known.file, data_dir / Path(known.file).name)
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise DataError(f"Expected {known.file} or {Path(known.file).name} in {data_dir} (--data-dir)")
    return read_table(path)


def _fetch(known: KnownTable) -> Table:
    if known.data_id is None:
        raise DataError(
            f"{known.name} is read from a local folder: pass --data-dir with a folder that holds {known.file}"
        )
    arrays = read_or_fetch(known.name, lambda: _download(known))
    return Table(
        f"OpenML {known.data_id}", {name: pa.array(array, pa.large_string()) for name, array in arrays.items()}
    )


def _download(known: KnownTable) -> Arrays:
    """Fetch a table as texts, with OpenML's ``class`` under the name that the codebook gives the target."""
    remedy = f"pass --data-dir with a folder that holds {known.file}"
    frame = download(known.name, known.data_id or 0, remedy, as_frame=True).frame
    target = str(known.ranges().target)
    return {
        target if name == "class" else str(name): np.array([_cell(value) for value in frame[name]], dtype=np.str_)
        for name in frame.columns
    }


def _cell(value: object) -> str:
    """Write a cell as the local file does: ``39`` for 39.0, ``?`` for a missing one."""
    if value is None or value != value:
        return "?"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()
