"""What is done to each example before training: declared constants, without torch; `maps` does it."""

from dataclasses import dataclass
from math import inf, isfinite

from clipless.datasets.metadata import ColourSpace
from clipless.errors import DeclarationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """What is done to each example, in this order; everything here is public.

    Attributes:
        colour: coordinates of the pixels' colours; other than RGB for images of three channels in [0, 1] only.
        centre: constant to subtract: one number, or one for each channel; declared, never computed from the data.
        normalise: norm that each example is scaled to; the zero example stays zero.
    """

    colour: ColourSpace = ColourSpace.RGB
    centre: tuple[float, ...] = ()
    normalise: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.colour, ColourSpace):
            known = ", ".join(space.value for space in ColourSpace)
            raise DeclarationError(f"Expected a colour space among {known}, got {self.colour!r} (data.colour)")
        if not all(isfinite(number) for number in self.centre):
            raise DeclarationError(f"Expected finite numbers to subtract, got {self.centre!r} (data.centre)")
        if self.normalise is not None and not 0 < self.normalise < inf:
            raise DeclarationError(f"Expected 0 < normalise < inf, got {self.normalise!r} (data.normalise)")
