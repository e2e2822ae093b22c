"""The table that `price.py` measures, as a file and as Markdown; the one place that reads and writes it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from _measured_ways import Mean, Spending

TABLE = Path(__file__).with_name("price.json")
FIGURES = ("accuracy", "certified", "hypervolume")

Three = tuple[float, float, float]  # the figures, in their order


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one way to spend a price came to on one task: means over seeds, and their standard errors, of one none."""

    task: str
    price: float
    way: str
    seeds: int
    validation: Three
    test: Three
    validation_errors: Three | None
    test_errors: Three | None

    def spending(self) -> Spending:
        """The row as the figure of ways takes it."""
        errors = self.validation_errors or (None, None, None)
        accuracy, certified, _ = (Mean(*pair) for pair in zip(self.validation, errors, strict=True))
        return Spending(task=self.task, epsilon=self.price, way=self.way, accuracy=accuracy, certified=certified)


@dataclass(frozen=True, kw_only=True)
class Note:
    """Agreement and price ratios of a task and price.

    Attributes:
        taus: Kendall's tau of explorers and finals, for accuracy and certified accuracy.
        rehearsal_taus: the same of rehearsals.
        ratios: price of everything over the largest epsilon of a model that leaves, with one final and with three.
        seconds: that measuring took, less what the cache held.
    """

    task: str
    price: float
    date: str
    taus: tuple[float, float]
    rehearsal_taus: tuple[float, float]
    ratios: tuple[float, float]
    seconds: float


@dataclass(frozen=True)
class Table:
    """Everything that was measured, by task and price in the order of measuring."""

    rows: tuple[Row, ...] = ()
    notes: tuple[Note, ...] = ()

    @classmethod
    def read(cls, path: Path = TABLE) -> "Table":
        """Read a table; an empty one if there is no file."""
        if not path.exists():
            return cls()
        content = json.loads(path.read_text(encoding="utf-8"))
        return cls(tuple(_row(row) for row in content["rows"]), tuple(_note(note) for note in content["notes"]))

    def write(self, path: Path) -> None:
        """Write the table, one line a row."""
        parts = [
            f'"{name}": [\n' + ",\n".join(json.dumps(asdict(one)) for one in several) + "\n]"
            for name, several in (("rows", self.rows), ("notes", self.notes))
        ]
        path.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")

    def with_(self, rows: Sequence[Row], note: Note) -> "Table":
        """Return the table with another measurement, in the place of an earlier one of that task and price."""
        other = [one for one in self.rows if (one.task, one.price) != (note.task, note.price)]
        notes = [one for one in self.notes if (one.task, one.price) != (note.task, note.price)]
        order = list(dict.fromkeys(one.task for one in (*self.notes, note)))
        place = {task: i for i, task in enumerate(order)}
        return Table(
            tuple(sorted((*other, *rows), key=lambda one: (place[one.task], one.price))),
            tuple(sorted((*notes, note), key=lambda one: (place[one.task], one.price))),
        )

    def markdown(self) -> str:
        """Both tables."""
        heads = ["task", "P", "way", *FIGURES, *(f"{name}, test" for name in FIGURES)]
        bars = {(row.task, row.price): row for row in self.rows if row.way == "each P"}
        first = [_line(_cells(row, bars[row.task, row.price])) for row in self.rows]
        more = ["task", "P", "tau of explorers", "tau of rehearsals", "ratio, one final", "three finals", "date"]
        second = [_line(_note_cells(note)) for note in self.notes]
        return "\n".join([*_head(heads), *first, "", *_head(more), *second])


def _row(content: dict[str, object]) -> Row:
    triples = ("validation", "test", "validation_errors", "test_errors")
    return Row(**content | {name: _tuple(content[name]) for name in triples})  # type: ignore[arg-type]


def _note(content: dict[str, object]) -> Note:
    pairs = ("taus", "rehearsal_taus", "ratios")
    return Note(**content | {name: _tuple(content[name]) for name in pairs})  # type: ignore[arg-type]


def _tuple(values: object) -> tuple[float, ...] | None:
    return tuple(values) if isinstance(values, list) else None


def _head(heads: Sequence[str]) -> list[str]:
    return [_line(heads), f"|{'---|' * len(heads)}"]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(row: Row, bar: Row) -> list[str]:
    cells = [f"{row.task}, {row.seeds} {'seed' if row.seeds == 1 else 'seeds'}", f"{row.price:g}", row.way]
    for values, errors, bars in (
        (row.validation, row.validation_errors, bar.validation),
        (row.test, row.test_errors, bar.test),
    ):
        said = ["" if error is None else f" ± {100 * error:.1f}" for error in errors or (None, None, None)]
        shares = [value / one for value, one in zip(values, bars, strict=True)]
        cells += [f"{100 * v:.1f}{e} ({share:.2f})" for v, e, share in zip(values, said, shares, strict=True)]
    return cells


def _note_cells(note: Note) -> list[str]:
    taus = [f"{a:.2f} / {b:.2f}" for a, b in (note.taus, note.rehearsal_taus)]
    return [note.task, f"{note.price:g}", *taus, *(f"{ratio:.2f}" for ratio in note.ratios), note.date]
