"""How many dots an inch of a PNG has."""

import zlib
from struct import pack

_PIXELS_OF_INCH = 96.0  # of a figure before it is drawn with several dots for each
_INCHES_OF_METRE = 1 / 0.0254
_HEADER_END = 33  # bytes: the signature of a PNG, and its header


def with_resolution(png: bytes, dots: float) -> bytes:
    """Return a PNG that says how many dots a pixel of its figure has, so that it is printed as wide as is wanted."""
    of_metre = round(dots * _PIXELS_OF_INCH * _INCHES_OF_METRE)
    chunk = b"pHYs" + pack(">IIB", of_metre, of_metre, 1)
    return png[:_HEADER_END] + pack(">I", len(chunk) - 4) + chunk + pack(">I", zlib.crc32(chunk)) + png[_HEADER_END:]
