"""Colours of own epsilons, for marks and lines of trials that spent different ones."""

from collections.abc import Sequence
from math import log10
from typing import Any

from dashboards.figures._common import LOG, color_bar
from dashboards.figures._theme import Theme
from dashboards.figures._ticks import log_ticks
from sweeper.privacy.pricing import OWN

_ALIKE = 0.8  # ratio of the smallest to the largest own epsilon above which colours would tell nothing


def differ(own: Sequence[float]) -> bool:
    """Return whether own epsilons differ so much that colours tell them apart.

    >>> differ([1.0, 1.1]), differ([0.5, 8.0]), differ([])
    (False, True, False)
    """
    return bool(own) and 0.0 < min(own) < _ALIKE * max(own)


def shades(own: Sequence[float], theme: Theme) -> list[str]:
    """Return the colour of each own epsilon; they differ. The smallest is the darkest: dark is better everywhere."""
    low, high = log10(min(own)), log10(max(own))
    return [theme.scale[round((high - log10(one)) / (high - low) * (len(theme.scale) - 1))] for one in own]


def shaded_marker(own: Sequence[float], theme: Theme, what: str) -> dict[str, Any]:
    """Return what colours marks by own epsilons that differ, with a bar that names of ``what`` they are."""
    ticks = log_ticks(own, steps=(1, 2, 5))
    places = {"tickvals": [log10(tick) for tick in ticks["tickvals"]], "ticktext": ticks["ticktext"]}
    bar = color_bar(f"{OWN} of {what}{LOG}") | places | {"tickformat": None}
    ends = {"cmin": log10(min(own)), "cmax": log10(max(own))}
    scale = {"colorscale": theme.colorscale(), "reversescale": True}
    return {"color": [log10(one) for one in own], **scale, "colorbar": bar, **ends}
