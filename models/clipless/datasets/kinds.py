"""The variants that a declaration of data chooses from: names without arrays."""

import enum

from clipless.errors import DeclarationError


class Evaluation(enum.Enum):
    """What the rows held back for validation and test are."""

    PUBLIC = "public"  # their scores cost nothing
    PRIVATE = "private"  # every score computed on them is a release that has to be paid
    EXPLORATORY = "exploratory"  # unpaid: watermarked, no guarantee

    @classmethod
    def parse(cls, value: "Evaluation | str") -> "Evaluation":
        """Return the member for ``value``.

        Raises:
            DeclarationError: not one of the three.
        """
        try:
            return cls(value)
        except ValueError:
            raise DeclarationError(
                f"Expected evaluation to be public, private or exploratory, got {value!r} (data.evaluation)"
            ) from None


class ColourSpace(enum.Enum):
    """In which coordinates the three colours of a pixel are given."""

    RGB = "rgb"
    GRAY = "gray"
    YIQ = "yiq"
    YUV = "yuv"
    HSV = "hsv"
