"""The noise of curves of private test rows: what is released together for one point of the front, and how noisy it is.

Released are certified accuracy at every radius, and with two classes the counts of both up to each predicted
probability: Gaussian mechanisms whose squared reciprocal multipliers add up to that of the declared one, so that a
point's curves are one event (`clipless.curves.release.Gaussian.share`). Grids are public: of the radii in the spec and
of what is declared of the data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from clipless.certificates.radii import parse_radius
from clipless.datasets import Metadata
from clipless.privacy.events import Relation
from sweeper.specification.objectives import radius_text

if TYPE_CHECKING:
    from clipless.curves.grid import Grid
    from clipless.curves.release import Gaussian

_RADII = 33  # beside those in the spec
_BEYOND = 2.0  # times the largest radius in the spec
_LOGITS = (-7.0, 7.0, 127)  # of thresholds of the probability, beside 1
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveNoise:
    """The noise of the curves of every point; all of it is public.

    Attributes:
        noise_multiplier: sigma of all curves of one point together.
        radii: at which certified accuracy is released, from 0.
        two_classes: whether the counts of both classes are released too.
        relation: which data sets are neighbours.
    """

    noise_multiplier: float
    radii: tuple[float, ...]
    two_classes: bool
    relation: Relation

    @classmethod
    def of(cls, noise_multiplier: float, names: Sequence[str], declared: Metadata, relation: Relation) -> "CurveNoise":
        """Return the noise for scores of these names, whose radii are among those of the curve."""
        named = [parse_radius(text) for name in names if (text := radius_text(name)) is not None]
        last = _BEYOND * max(named) if named else declared.input_norm / declared.input_gain
        radii = sorted({0.0, *named, *np.linspace(0.0, last, _RADII).tolist()})
        return cls(
            noise_multiplier=noise_multiplier,
            radii=tuple(radii),
            two_classes=len(declared.classes) == 2,
            relation=relation,
        )

    @property
    def mechanism(self) -> "Gaussian":
        """What each of the curves gets."""
        from clipless.curves.release import Gaussian  # prices are read without torch

        return Gaussian.share(self.noise_multiplier, 2 if self.two_classes else 1, self.relation)

    @property
    def probabilities(self) -> "Grid":
        """Thresholds of the predicted probability: as fine near 0 and 1 as in the middle, in the logarithm of odds."""
        from clipless.curves.grid import Grid

        low, high, count = _LOGITS
        return Grid(np.append(1.0 / (1.0 + np.exp(-np.linspace(low, high, count))), 1.0))

    @property
    def count_std(self) -> float:
        """Standard deviation of the noise of the number of rows that are certified at a radius."""
        from clipless.curves.release import change_of

        return self.mechanism.deviation(len(self.radii), change_of(self.relation))

    def to_json(self) -> dict[str, Any]:
        """Return what the plan of a trial says of the curves."""
        return {"noise_multiplier": self.noise_multiplier, "radii": len(self.radii), "two_classes": self.two_classes}
