"""Tightness of a model's bounds, and the effects of its noise and its clipping: for public rows only.

Numbers computed here on private rows would be unpaid releases; `public_rows` is the door that refuses them.
"""

from clipless.diagnostics.diagnose import DEFAULT_ROWS, colour_norms, diagnose, input_norms, public_rows
from clipless.diagnostics.records import (
    ClippedParameter,
    ClippingBias,
    Diagnostics,
    Histogram,
    InputNorms,
    LayerDiagnosis,
    Norms,
    ParameterDiagnosis,
)

__all__ = [
    "DEFAULT_ROWS",
    "ClippedParameter",
    "ClippingBias",
    "Diagnostics",
    "Histogram",
    "InputNorms",
    "LayerDiagnosis",
    "Norms",
    "ParameterDiagnosis",
    "colour_norms",
    "diagnose",
    "input_norms",
    "public_rows",
]
