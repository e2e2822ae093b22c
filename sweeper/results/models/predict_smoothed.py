"""Predictions for new rows by the smoothed classifier of a model: class by vote, its radius, and where it abstains.

`smoothed@R` of a sweep is a certificate of this classifier, and says nothing about the class that the saved model gives
by itself. It votes over noisy copies of a row (Cohen et al. 2019, arXiv 1902.02918), and the radius is proven from
counts (Clopper and Pearson 1934); `clipless.certificates.smoothed` has both. Noise, alpha and draws are those of the
point's test scores, as its card states them, so that the shares that the card reports are those of these predictions.

Shape letters: N rows.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING

from clipless.certificates.radii import MOST_DRAWS
from clipless.certificates.smoothed import Smoothing, certify_smoothed
from clipless.datasets import InputFormat, NewRows
from sweeper.errors import RecordError
from sweeper.results.models.predict import Predictor, beside_ids, warn

if TYPE_CHECKING:
    import pandas as pd

_SEED_BITS = 128


@dataclass(frozen=True, slots=True)
class SmoothedPredictor:
    """A model that predicts by the vote of its noisy copies of a row; called as `Predictor` is."""

    predictor: Predictor
    sigma: float  # standard deviation of the noise in every entry, in units of radii
    alpha: float  # probability, for each row, that its certificate is wrong by the chance of the draws
    draws: int  # that are counted for each row
    seed: int | None = None  # of the noise; None draws a new one from the operating system at every call

    @property
    def form(self) -> InputFormat:
        """How rows become the input of the model."""
        return self.predictor.form

    @property
    def exploratory(self) -> bool:
        """Whether nothing is guaranteed of the model."""
        return self.predictor.exploratory

    def __call__(self, rows: NewRows, *, tell: Callable[[str], None] | None = None) -> "pd.DataFrame":
        """Predict rows.

        Args:
            rows: as the model takes them.
            tell: as `Predictor` takes it.

        Returns:
            One line per row: the columns that are kept; ``class``, missing where the classifier abstains;
            ``abstained``; ``smoothed_radius``, within which the smoothed classifier decides for this class, 0 if none
            is certified; ``radius_unit``; ``sigma``, ``alpha`` and ``draws``, the same for all rows.

        Raises:
            RecordError: the rows have another shape than the model takes, or a kept column has the name of another.

        Guarantees:
            For each row, with probability at least 1 - alpha over its draws: the smoothed classifier of the float64
            network with noise of this sigma decides for the class at every input nearer than the radius, in the named
            unit, whatever the encoding of both rounds. This holds for rows that were chosen before the seed was drawn,
            and of one call: nothing covers the choice of one among several.
        """
        import pandas as pd

        self.predictor.check_shape(rows)
        found = certify_smoothed(self.predictor.model, rows.x, self._smoothing(rows.input_gain))
        columns = {
            "class": pd.Series(self.predictor.names_of(found.decided), dtype=object),
            "abstained": (found.decided < 0).numpy(),
            "smoothed_radius": self.predictor.radii_in_units(found.radii, rows, tell or warn).numpy(),
            "radius_unit": rows.radius_unit,
            "sigma": self.sigma,
            "alpha": self.alpha,
            "draws": self.draws,
        }
        return beside_ids(rows, columns)

    def _smoothing(self, input_gain: float) -> Smoothing:
        """Return how rows are smoothed whose tensor is ``input_gain`` times as far apart as they are."""
        seed = secrets.randbits(_SEED_BITS) if self.seed is None else self.seed
        return Smoothing(sigma=self.sigma * input_gain, alpha=self.alpha, draws=self.draws, seed=seed)

    def in_words(self) -> str:
        """Return what the predictions are of, in a sentence."""
        return (
            f"Classes are those of the smoothed classifier, a vote under noise of sigma {self.sigma:g} over "
            f"{self.draws:,} draws; each row's certificate is wrong with probability {self.alpha:g} at most."
        )


def smoothed_predictor(predictor: Predictor, draws: int | None = None, *, seed: int | None = None) -> SmoothedPredictor:
    """Return what predicts by the vote with the noise and alpha of the model's card.

    Args:
        predictor: of the model.
        draws: that are counted for each row, in place of those of the card: more prove larger radii.
        seed: public; by default, and for rows from people who may know it, a new one at every call.

    Raises:
        RecordError: the card has no smoothed certificates, or the number of draws or a number of the card is out of
            range.
    """
    made = predictor.smoothed
    if made is None:
        raise RecordError(
            "Expected a model with smoothed certificates on its card, got one without (smoothed in card.json); add "
            "smoothed@R to search.objectives and run the sweep to its end, or predict without smoothed"
        )
    is_whole = isinstance(draws, Integral) and not isinstance(draws, bool)
    if draws is not None and not (is_whole and 1 <= draws <= MOST_DRAWS):
        raise RecordError(f"Expected a whole number of draws from 1 to {MOST_DRAWS}, got {draws!r}; take more or fewer")
    found = SmoothedPredictor(predictor, made.sigma, made.alpha, int(made.draws if draws is None else draws), seed)
    try:
        found._smoothing(1.0)
    except ValueError as error:
        raise RecordError(f"{error} (smoothed in card.json); take the model with sweeper pick again") from None
    return found


def choose_predictor(predictor: Predictor, *, smoothed: bool, draws: int | None) -> Predictor | SmoothedPredictor:
    """Return the predictor, or with ``smoothed`` the one by its vote.

    Raises:
        RecordError: as `smoothed_predictor`, or draws that nothing takes.
    """
    if smoothed:
        return smoothed_predictor(predictor, draws)
    if draws is not None:
        raise RecordError(f"Expected no draws without smoothed, got {draws}; add smoothed, or leave draws out")
    return predictor
