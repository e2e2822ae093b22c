"""Small images of digits that come with scikit-learn: no network, no files."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from clipless.datasets.dataset import Dataset, Split
from clipless.datasets.metadata import Evaluation
from clipless.datasets.raw_rows import Pixels
from clipless.datasets.sources._base import DataSource, image_metadata, level_shares
from clipless.datasets.splits import HashSplit, Part, assign_by_hash, row_bytes


class Digits:
    """1,797 images of digits, 8 x 8 pixels of 17 grey levels."""

    name = "digits"
    classes = tuple("0123456789")

    def raw(self, data_dir: Path | None) -> Pixels:
        """Return the format of an image."""
        return Pixels((8, 8), 16)

    def load(self, *, data_dir: Path | None, evaluation: Evaluation, splitting: HashSplit | None) -> Dataset:
        """Load them."""
        from sklearn.datasets import load_digits  # 0.5 s that other data sets need not pay

        bunch: Any = load_digits()
        levels_NHW = bunch.images.astype(np.uint8)
        splitting, raw = splitting or HashSplit(), self.raw(data_dir)
        fractions = {"validation": splitting.validation, "test": splitting.test_fraction}
        parts_N = assign_by_hash(row_bytes(levels_NHW), self.name, salt=splitting.salt, **fractions)
        metadata = image_metadata(self.name, self.classes, raw, evaluation, splitting, largest_is="their largest level")
        x, y_N = level_shares(levels_NHW, raw), torch.from_numpy(bunch.target.astype(np.int64))
        train, validation, test = (
            Split(x[parts_N == part], y_N[parts_N == part]) for part in (Part.TRAIN, Part.VALIDATION, Part.TEST)
        )
        return Dataset(metadata, train, validation, test)


SOURCES: tuple[DataSource, ...] = (Digits(),)
