"""Predictions for new rows: class, scores, probabilities and a certified radius, by a float64 forward pass.

The model is one that ``sweeper pick`` wrote, or the point that it would take. Rows are encoded exactly as in training,
by declarations that travel with the model. Whatever is computed here from released weights and new rows costs the
training rows nothing. `sweeper.results.models.predict_smoothed` predicts by the vote under noise instead.

Shape letters: N rows, K logits.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import clipless
from clipless.certificates.certify import certified_radii, decisions, float64_logits
from clipless.certificates.outputs import encoding_error
from clipless.datasets import InputFormat, NewRows
from sweeper.adapters import read
from sweeper.errors import RecordError
from sweeper.papers.files import CARD_NAME, CONFIG_NAME, MODEL_NAME, check_no_record, check_replaces
from sweeper.privacy.card.content import SmoothedTable
from sweeper.results.sweep import Picked, load
from sweeper.rounding import number_of, round_down
from sweeper.store.input_format import read_input
from sweeper.store.jsonl import read_object
from sweeper.store.manifest import MANIFEST_NAME

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

_DIGITS = 6  # of a number in CSV: sums of float32 weights carry no more
_RADII = ("certified_radius", "smoothed_radius")
_CROSS_ENTROPIES = ("tau-cce", "tau-bce")


@dataclass(frozen=True, slots=True)
class Predictor:
    """A model with what is needed to give it rows."""

    model: clipless.Network
    form: InputFormat
    exploratory: bool
    temperature: float | None = None  # of the cross-entropy that the model was trained with, None for other losses
    smoothed: SmoothedTable | None = None  # how its card says that its smoothed certificates were made

    def __call__(self, rows: NewRows, *, tell: Callable[[str], None] | None = None) -> "pd.DataFrame":
        """Predict rows.

        Args:
            rows: as the model takes them. Those that the encoder does not take are predicted from zeros, and nothing is
                certified of them: how far they are from a row that it takes is unknown.
            tell: is called with a sentence if there are such rows; by default it is a warning.

        Returns:
            One line per row: the columns that are kept; ``class``; ``score <class>``, the logit (for one logit z: 0
            and z); where the loss was a cross-entropy, ``probability <class>``, the softmax of the scores at its
            temperature, which training fitted and nothing has calibrated; ``certified_radius``, within which no input
            changes the class, 0 if none is certified; ``radius_unit``. The class of a row whose logits are not finite
            is missing.

        Raises:
            RecordError: the rows have another shape than the model takes, or a kept column has the name of another.

        Guarantees:
            Every input nearer than the radius, in the named unit, is given the same class by the float64 network (see
            `clipless.certificates.certify.certified_radii`), whatever the encoding of both rounds (`encoding_error`).
        """
        import pandas as pd

        self.check_shape(rows)
        logits_NK = float64_logits(self.model, rows.x, alone=True)
        decided_N = decisions(logits_NK)
        radii_N = certified_radii(self.model, logits_NK, decided_N.clamp(min=0), inputs=rows.x)
        radii_N = self.radii_in_units(radii_N, rows, tell or warn)
        classes = self.form.classes
        scores = logits_NK.T if logits_NK.shape[1] > 1 else (torch.zeros_like(logits_NK[:, 0]), logits_NK[:, 0])
        found = {
            "class": pd.Series(self.names_of(decided_N), dtype=object),
            **{f"score {name}": score.numpy() for name, score in zip(classes, scores, strict=True)},
            **self._probabilities(torch.stack(tuple(scores))),
            "certified_radius": radii_N.numpy(),
            "radius_unit": rows.radius_unit,
        }
        return beside_ids(rows, found)

    def check_shape(self, rows: NewRows) -> None:
        """Refuse rows of another shape than the model takes.

        Raises:
            RecordError: they have one.
        """
        shape = tuple(rows.x.shape[1:])
        if shape != self.model.input_shape:
            raise RecordError(
                f"Expected rows of shape {self.model.input_shape} for the model, got {shape} from {self.form.name}; "
                f"take model and data.json from one sweep"
            )

    def names_of(self, decided_N: torch.Tensor) -> list[str | None]:
        """Return the names of classes (N,) int64, ``None`` for -1."""
        return [None if decided < 0 else self.form.classes[decided] for decided in decided_N.tolist()]

    def radii_in_units(self, radii_N: torch.Tensor, rows: NewRows, tell: Callable[[str], None]) -> torch.Tensor:
        """Return radii (N,), given in units of the model's input tensor, in those of the rows.

        Guarantees:
            They are less by what the encoding of both rows rounds, at least 0, and 0 of a row that the encoder does not
            take; ``tell`` is called with a sentence if there are such rows.
        """
        found_N = (radii_N - encoding_error(rows.x, radii_N)).clamp(min=0.0) / rows.input_gain
        if rows.not_taken is None:
            return found_N
        tell(self._about_rows_not_taken(rows.not_taken))
        return found_N.masked_fill(rows.not_taken, 0.0)

    def _about_rows_not_taken(self, not_taken_N: torch.Tensor) -> str:
        encoder = "" if self.form.features is None else f" {self.form.features.name!r}"
        return (
            f"The encoder{encoder} does not take {int(not_taken_N.sum())} of {number_of(len(not_taken_N), 'row')} (the "
            f"first is row {int(not_taken_N.int().argmax()) + 1}): they are predicted from zeros, as in training, and "
            "their certified radius is 0."
        )

    def _probabilities(self, scores_KN: torch.Tensor) -> "dict[str, NDArray[np.float64]]":
        if self.temperature is None:
            return {}
        shares_KN = torch.softmax(scores_KN / self.temperature, dim=0)
        return {f"probability {name}": row.numpy() for name, row in zip(self.form.classes, shares_KN, strict=True)}


def warn(said: str) -> None:
    """Warn whoever called a predictor."""
    warnings.warn(said, stacklevel=4)


def beside_ids(rows: NewRows, found: Mapping[str, Any]) -> "pd.DataFrame":
    """Return columns of predictions as a table, behind the columns of the file that are kept.

    Raises:
        RecordError: a kept column has the name of another.
    """
    import pandas as pd

    taken = next((name for name in rows.ids if name in found), None)
    if taken is not None:
        raise RecordError(f"Expected columns to keep that are none of the predictions', got {taken!r}; rename it")
    return pd.DataFrame({**{name: pd.Series(cells) for name, cells in rows.ids.items()}, **found})


def predictor_of(picked: Picked, data_dir: Path | None = None) -> Predictor:
    """Return a picked model with what is needed to give it rows.

    Raises:
        SweeperError: its sweep does not say how rows are encoded, and the data of its spec cannot be found.
        clipless.errors.ModelFileError: the model cannot be read.
    """
    form, card = picked.sweep.input_format(data_dir), picked.card.content
    return Predictor(picked.model(), form, card.exploratory, temperature_of(picked.trial.config), card.smoothed)


def load_predictor(
    source: str | Path,
    *,
    max_epsilon: float | None = None,
    minimum: Mapping[str, float] | None = None,
    max_price: float | None = None,
    data_dir: Path | None = None,
) -> Predictor:
    """Load a picked model, or the one that ``sweeper pick`` would take of a sweep.

    Args:
        source: a folder that ``sweeper pick`` wrote, the ``model.safetensors`` in it, or the folder of a sweep.
        max_epsilon: sweep: largest own epsilon, fixed in advance.
        minimum: sweep: smallest values by objective.
        max_price: sweep: its largest price, an epsilon.
        data_dir: sweep: local copies of data sets.

    Raises:
        RecordError: neither of them, or conditions for a model that is picked already.
        PickError: no point meets the conditions.
        clipless.errors.CliplessError: the model or its ``data.json`` cannot be read.
    """
    path = Path(source)
    if (path / MANIFEST_NAME).is_file():
        return predictor_of(load(path).pick(max_epsilon, minimum, max_price=max_price), data_dir)
    if max_epsilon is not None or max_price is not None or minimum:
        raise RecordError(f"Expected no conditions for a model that is picked already, {path}; name the sweep instead")
    folder = path if path.is_dir() else path.parent
    model = path / MODEL_NAME if path.is_dir() else path
    if not model.is_file():
        raise RecordError(
            f"Expected the folder of a sweep, or one that sweeper pick wrote, got {path}; sweeper pick takes a model"
        )
    form = read_input(folder)
    card = read_object(folder / CARD_NAME)
    config = read_object(folder / CONFIG_NAME) if (folder / CONFIG_NAME).is_file() else {}
    exploratory, smoothed = bool(card.get("exploratory")), _smoothed_of(card, folder / CARD_NAME)
    return Predictor(clipless.load(model), form, exploratory, temperature_of(config), smoothed)


def _smoothed_of(card: Mapping[str, Any], path: Path) -> SmoothedTable | None:
    """Return what a card that was read says of smoothed certificates, ``None`` where it has none."""
    content = card.get("smoothed")
    remedy = "take the model with sweeper pick again"
    return None if content is None else read(SmoothedTable, content, f"in {path}", remedy, "smoothed")


def temperature_of(config: Mapping[str, object]) -> float | None:
    """Return the temperature at which a configuration's loss is a cross-entropy of the logits, None for other losses.

    >>> temperature_of({"training": {"loss": {"name": "tau-cce", "temperature": 0.5}}})
    0.5
    """
    training = config.get("training")
    loss = training.get("loss") if isinstance(training, Mapping) else None
    if not isinstance(loss, Mapping) or loss.get("name") not in _CROSS_ENTROPIES:
        return None
    found = loss.get("temperature", 1.0)
    return float(found) if isinstance(found, int | float) and found > 0 else None


def predictions_as_csv(frame: "pd.DataFrame") -> str:
    """Return predictions as CSV, numbers with the digits that say something; columns that were kept stay as they are.

    Guarantees:
        No radius is larger than the certified one.
    """
    shown = frame.copy()
    for name in frame.columns[frame.columns.get_loc("class") :]:
        if name in _RADII:
            shown[name] = [float(round_down(radius, _DIGITS)) for radius in frame[name]]
        elif frame[name].dtype.kind == "f":
            shown[name] = [float(f"{number:.{_DIGITS}g}") for number in frame[name]]
    return str(shown.to_csv(index=False))


def check_output(path: Path, data: Path | None = None) -> None:
    """Refuse a file that predictions of the rows in ``data`` cannot be written to, before they are made.

    Raises:
        RecordError: another suffix, the file of the rows themselves, or one that a sweep or a model is read from.
    """
    if path.suffix not in (".csv", ".parquet"):
        raise RecordError(f"Expected a file name that ends in .csv or .parquet, got {path} (--output)")
    if data is not None and path.exists() and path.samefile(data):
        raise RecordError(f"Expected another file than that of the rows, got {path}: it would replace them (--output)")
    check_no_record(path)


def write_predictions(frame: "pd.DataFrame", path: Path) -> None:
    """Write predictions as csv or parquet, as the suffix says.

    Raises:
        RecordError: as `check_output`, a table of something else in its place, or not written.
    """
    check_output(path)
    content = predictions_as_csv(frame).encode() if path.suffix == ".csv" else frame.to_parquet(index=False)
    check_replaces(path, content)
    try:
        path.write_bytes(content)
    except OSError as error:
        raise RecordError(f"Cannot write {path}: {error.strerror or error}; choose another with --output") from error
