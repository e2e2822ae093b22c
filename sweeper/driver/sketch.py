"""Rows to rehearse on without public ones: synthetic, drawn from a private sketch of the training rows.

The sketch is drawn once in the life of a sweep: it is entered into the ledger, its noise is drawn, and what was
released is recorded in the folder. What comes after it, rows and rehearsals, is post-processing, and can be made again
of the record.
"""

from dataclasses import replace

import numpy as np
import torch

from clipless.datasets import Dataset, Evaluation, Split
from clipless.errors import DataError
from clipless.privacy.events import PoissonGaussian
from clipless.privacy.randomness import RandomSource
from clipless.sketches.release import Sketch, SketchForm, release_sketch
from clipless.sketches.synthetic import draw_rows, estimate_moments
from sweeper.driver.recording.spending import SpendingRecord
from sweeper.errors import RecordError
from sweeper.privacy.sketch_file import read_sketch, write_sketch
from sweeper.store.sweep_folder import SweepFolder
from sweeper.trials.rehearsal import HALVES, MOST_SYNTHETIC

LOST = (
    "The sketch of the training rows was entered into the ledger, but the driver died before it was recorded. The "
    "budget has no second one: nothing is rehearsed, and the search proposes what is trained."
)
_SEED = 0  # of the synthetic rows: public, so that they can be drawn again


def take_sketch(
    event: PoissonGaussian, data: Dataset, folder: SweepFolder, spending: SpendingRecord, source: RandomSource
) -> Sketch | None:
    """Return the sketch of a sweep: as it is recorded, or drawn now; ``None`` where it was lost.

    Args:
        event: what the budget has for it.
        data: its training rows are sketched.
        folder: of the sweep.
        spending: enters it.
        source: of the noise, secret.

    Raises:
        RecordError: the ledger or the folder cannot be read or written, or the ledger has lost the sketch.

    Guarantees:
        The sketch is in the ledger, on the disk, before its noise is drawn, and no row is read for a second one.
    """
    recorded = read_sketch(folder.sketch)
    if recorded is not None:
        if not spending.has_sketched:
            raise RecordError(f"Expected the sketch of {folder.sketch} in its ledger, got none; restore ledger.jsonl")
        return recorded
    if spending.has_sketched:
        return None
    form = SketchForm.of(data.metadata)
    spending.enter_sketch(event)
    sketch = release_sketch(form, data.train, event, source)
    write_sketch(folder.sketch, sketch)
    return sketch


def draw_synthetic(sketch: Sketch, data: Dataset) -> Dataset:
    """Return a data set of synthetic rows, as many to validate on as both halves of a rehearsal take.

    Training rows, of which rehearsals look at the number alone, are zeros.

    Guarantees:
        A function of the sketch and of public facts: of the rows of ``data`` their number alone.

    Raises:
        RecordError: a sketch of other rows.
    """
    declared, count = data.metadata, len(data.train)
    form = SketchForm.of(declared)
    try:
        moments = estimate_moments(form, sketch, count)
    except DataError as error:
        raise RecordError(f"{error} (sketch.json); restore the data, or start another sweep") from None
    rows = draw_rows(form, moments, HALVES * min(count, MOST_SYNTHETIC), np.random.default_rng(_SEED))
    empty = Split(torch.zeros((count, form.size)), torch.zeros(count, dtype=torch.int64))
    return Dataset(replace(declared, evaluation=Evaluation.PUBLIC), train=empty, validation=rows, test=rows)
