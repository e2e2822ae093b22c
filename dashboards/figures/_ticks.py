"""Where the ticks of an axis stand: at round numbers, on a linear and on a logarithmic scale."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import ceil, floor, isfinite, log10
from typing import Any

from dashboards.text import is_fraction, number

MOST_TICKS = 6
_TICKS = (1, 2, 3, 5)
_FINER_TICKS = ((1, 1.5, 2, 3, 4, 5, 7), (1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9))
_FEWEST_TICKS = 4
_FEWEST_STEPS = 3  # between equal ticks
_MOST_DECADES = 6  # of more, marks without text would touch
_ALONE = 5.0  # decades that a single value has the room of
_POINT = 0.5  # of a letter, by which a decimal point is slimmer than one
_ALIKE = 1e-9  # numbers whose distance is a smaller share of them differ by rounding alone


def log_ticks(values: Iterable[float], *, steps: Sequence[int] = _TICKS, extra: Sequence[float] = ()) -> dict[str, Any]:
    """Range of a logarithmic axis over the finite positive values, and ticks at ``steps`` and ``extra``.

    >>> log_ticks([0.9, 3.2])["ticktext"]
    ['1', '1.5', '2', '3']
    """
    usable = [value for value in values if isfinite(value) and value > 0]
    if not usable:
        return {}
    low, high = min(usable), max(usable)
    pad = 0.03 * (log10(high / low) or _ALONE)
    decades = range(floor(log10(low)), floor(log10(high)) + 1)
    ticks = [step * 10.0**decade for decade in decades for step in (steps if len(decades) <= 4 else (1,))]
    first, last = low * 10**-pad, high * 10**pad
    ticks = [tick for tick in sorted({*ticks, *extra}) if first <= tick <= last]
    if len(ticks) < _FEWEST_TICKS:
        ticks = _fine_ticks(first, last)
    return {
        "range": [log10(low) - pad, log10(high) + pad],
        "tickvals": ticks,
        "ticktext": [number(tick) for tick in ticks],
    }


def minor_ticks(axis: Mapping[str, Any]) -> dict[str, Any]:
    """Marks without text on a logarithmic axis with a range, at the whole multiples of each power of ten.

    >>> minor_ticks({"range": [-0.5, 0.4]})["minor"]["tickvals"]
    [0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0]
    """
    if "range" not in axis:
        return {}
    low, high = axis["range"]
    decades = range(floor(low), floor(high) + 1)
    ticks = [float(f"{step}e{decade}") for decade in decades for step in range(1, 10)]
    inside = [tick for tick in ticks if low <= log10(tick) <= high]
    return {"minor": {"tickvals": inside, "ticks": "outside", "ticklen": 2}} if len(decades) <= _MOST_DECADES else {}


def _fine_ticks(first: float, last: float) -> list[float]:
    """Ticks of less than a decade: round numbers, or equal steps where even these are too few."""
    decade = 10.0 ** floor(log10(first))
    for finer in _FINER_TICKS:
        ticks = [round(tick * scale, 12) for scale in (decade, 10 * decade) for tick in finer]
        inside = [tick for tick in ticks if first <= tick <= last]
        if len(inside) >= _FEWEST_TICKS:
            return inside
    step = 10.0 ** floor(log10((last - first) / _FEWEST_STEPS))
    step *= next(factor for factor in (5, 2, 1) if (last - first) / (factor * step) >= _FEWEST_STEPS)
    return [round(i * step, 12) for i in range(ceil(first / step), floor(last / step) + 1)]


def rounded_ticks(low: float, high: float, *, logarithmic: bool = False, integer: bool = False) -> list[float]:
    """Return round numbers from ``low`` to ``high``, about as many as people like to read.

    >>> rounded_ticks(0.56, 0.91), rounded_ticks(0.05, 1.0, logarithmic=True), rounded_ticks(65, 385, integer=True)
    ([0.6, 0.7, 0.8, 0.9], [0.05, 0.1, 0.2, 0.5, 1.0], [100, 200, 300])
    """
    if logarithmic:
        decades = range(floor(log10(low)), floor(log10(high)) + 1)
        for steps in ((1, 2, 5), (1, 3), (1,)):
            ticks = [float(f"{step}e{decade}") for decade in decades for step in steps]
            ticks = [tick for tick in ticks if low * (1 - _ALIKE) <= tick <= high * (1 + _ALIKE)]
            if len(ticks) <= MOST_TICKS:
                break
        if len(ticks) > 1:
            return ticks[:: ceil(len(ticks) / MOST_TICKS)]
    if not high > low:
        return [low]
    rough = (high - low) / (MOST_TICKS - 1)
    power = 10.0 ** floor(log10(rough))
    factors = (1, 2, 5, 10) if integer else (1, 2, 2.5, 5, 10)
    step = max(next(factor * power for factor in factors if factor * power >= rough * (1 - _ALIKE)), 1.0 * integer)
    ticks = [round(i * step, 12) for i in range(ceil(low / step - _ALIKE), floor(high / step + _ALIKE) + 1)]
    return [int(tick) for tick in ticks] if integer else ticks


def texts_of(ticks: Iterable[float], name: str) -> list[str]:
    """Return the texts of ticks of a value: percentages of shares, with as many digits as they have.

    >>> texts_of([0.85, 0.875], "accuracy"), texts_of([2.0, 2.5], "epsilon")
    (['85%', '87.5%'], ['2', '2.5'])
    """
    return [f"{number(100 * tick)}%" if is_fraction(name) else number(tick) for tick in ticks]


def break_name(text: str, letters: int = 9) -> str:
    """Return a name for the markup of Plotly, one that is longer in lines: broken behind underscores.

    >>> break_name("spectral_ball"), break_name("a_b"), break_name("<b>")
    ('spectral_<br>ball', 'a_b', '&lt;b&gt;')
    """
    return escape(text) if len(text) <= letters else escape(text).replace("_", "_<br>")


def thin(at: Sequence[float], texts: Sequence[str], ends: tuple[float, float], letters: float) -> list[int]:
    """Return which ticks of an axis with room for so many letters stay, so that their texts do not touch.

    The last one within its ends does, for it may be the name of what stands at the end.

    >>> thin([0.0, 1.0, 1.2, 3.0], ["0.005", "0.01", "0.02", "0.05"], (0.0, 3.0), 30)
    [0, 1, 3]
    >>> thin([0.0, 2.8, 3.0], ["1", "20", "test"], (0.0, 3.0), 30)
    [0, 2]
    """
    low, high = sorted(ends)
    share = letters / ((high - low) or 1.0)
    widths = [max(len(line) - _POINT * line.count(".") for line in text.split("<br>")) for text in texts]

    def touch(one: int, other: int) -> bool:
        return share * (at[other] - at[one]) < 1.0 + (widths[one] + widths[other]) / 2

    kept: list[int] = []
    inside = sorted((i for i in range(len(at)) if low <= at[i] <= high), key=lambda i: at[i])
    for i in inside[:-1]:
        if not kept or not touch(kept[-1], i):
            kept.append(i)
    while kept and touch(kept[-1], inside[-1]):
        kept.pop()
    return [*kept, *inside[-1:]]
