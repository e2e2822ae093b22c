"""Random data of fuzzed sweeps: small tables with their declarations, and a few images; see ``sweep_fuzz.py``."""

import csv
import gzip
import io
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import yaml
from _fuzz_chance import Chance, Section

IMAGES: Final = {"fuzz-gray": (1, 8, 8), "fuzz-colour": (3, 6, 6), "fuzz-odd": (1, 7, 9)}
IMAGE_CLASSES: Final = {"fuzz-gray": 3, "fuzz-colour": 2, "fuzz-odd": 4}


def draw_images(chance: Chance) -> tuple[Section, Section, int]:
    """Return the section ``data`` of a spec over images, no files, and the number of classes."""
    name = chance.pick(list(IMAGES))
    data: Section = {"name": name}
    if chance.maybe(0.5):
        data["evaluation"] = chance.pick(["public", "private", "exploratory"])
    if IMAGES[name][0] == 3 and chance.maybe(0.5):
        data["colour"] = chance.pick(["rgb", "gray", "yiq", "yuv", "hsv"])
    if chance.maybe(0.3):
        data["centre"] = 0.5
    if chance.maybe(0.2):
        data["normalise"] = chance.pick([1.0, 3.0])
    return data, {}, IMAGE_CLASSES[name]


def draw_table(chance: Chance) -> tuple[Section, Section, int]:
    """Return the section ``data`` of a spec over a table, its files, and the number of classes."""
    rows, classes = chance.whole(60, 400), chance.pick([2, 2, 2, 3, 4, 5])
    columns, declared = _columns(chance, rows)
    labels = _labels(chance, columns, rows, classes)
    names = [f"c{label}" for label in range(classes)]
    columns["y"] = [names[label] for label in labels]
    data: Section = {"target": "y", "ranges": "ranges.yaml"}
    data["evaluation"] = chance.pick(["public", "public", "private", "exploratory"])
    if chance.maybe(0.15):
        columns["who"] = chance.random.sample(range(10 * rows), rows)
        declared["who"] = {"drop": True}
        data["unit"] = "who"
    if chance.maybe(0.2):
        columns["part"] = [chance.pick(["a", "a", "a", "b", "c"]) for _ in range(rows)]
        data["splits"] = {"column": "part", "train": ["a"], "validation": ["b"], "test": ["c"]}
    elif chance.maybe(0.4):
        data["splits"] = {"validation": chance.pick([0.2, 0.3]), "test": chance.pick([0.15, 0.3])}
        data["splits"] |= {"salt": "pepper"} if chance.maybe(0.5) else {}
    if chance.maybe(0.1):
        data["normalise"] = chance.pick([0.5, 2.0])
    if chance.maybe(0.1):
        data["centre"] = 0.25
    suffix = chance.pick(["csv", "csv", "csv.gz", "npz", "parquet"])
    data["path"] = f"table.{suffix}"
    ranges: Section = {"source": "made up", "target": {"column": "y", "classes": names}, "columns": declared}
    files = {"ranges.yaml": yaml.safe_dump(ranges, sort_keys=False).encode(), data["path"]: _file(columns, suffix)}
    return data, files, classes


def _columns(chance: Chance, rows: int) -> tuple[Section, Section]:
    columns: Section = {}
    declared: Section = {}
    for i in range(chance.whole(3, 20)):
        name = f"x{i}"
        if chance.maybe(0.25):
            kinds = [f"k{j}" for j in range(chance.whole(2, 5))]
            other = chance.maybe(0.3)
            columns[name] = [chance.pick([*kinds, "odd"] if other else kinds) for _ in range(rows)]
            declared[name] = {"categories": kinds, **({"unknown": "other"} if other else {})}
        else:
            low = chance.pick([0, -1, 10])
            columns[name] = [round(chance.random.uniform(low, low + 4), 3) for _ in range(rows)]
            declared[name] = {"low": low, "high": low + chance.pick([4, 2, 5])}
            if chance.maybe(0.2):
                declared[name]["missing"] = low + 1
                columns[name] = [float("nan") if chance.maybe(0.1) else value for value in columns[name]]
    return columns, declared


def _labels(chance: Chance, columns: Section, rows: int, classes: int) -> list[int]:
    numbers = [column for column in columns.values() if isinstance(column[0], float)]
    if not numbers or chance.maybe(0.1):  # labels that nothing tells
        return [chance.whole(0, classes - 1) for _ in range(rows)]
    ranks = np.argsort(np.argsort(np.nan_to_num(np.asarray(numbers[0]))))
    found = ranks * classes // rows
    return [chance.whole(0, classes - 1) if chance.maybe(0.15) else int(one) for one in found]


def _file(columns: Section, suffix: str) -> bytes:
    buffer = io.BytesIO()
    if suffix == "npz":
        arrays: Section = {name: np.asarray(column) for name, column in columns.items()}
        np.savez(buffer, **arrays)
    elif suffix == "parquet":
        pyarrow.parquet.write_table(pa.table({name: pa.array(column) for name, column in columns.items()}), buffer)
    else:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(["" if v != v else v for v in column] for column in columns.values()), strict=True))
        return gzip.compress(text.getvalue().encode(), mtime=0) if suffix == "csv.gz" else text.getvalue().encode()
    return buffer.getvalue()
