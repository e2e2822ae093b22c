"""How numbers, names and settings are written for people, in figures and in the report alike.

Plain text: code that puts it into markup escapes it.
"""

import json
import re
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Decimal
from math import isfinite
from typing import Any

from dashboards.data import CAUGHT, PRICE, SweepData
from sweeper.privacy.claims import Claim
from sweeper.privacy.held_out import interval_on_test, mean_in_words
from sweeper.privacy.pricing import value_name
from sweeper.records import MEMBERSHIP, Interval, Point, RehearsalSource
from sweeper.rounding import round_up
from sweeper.specification.objectives import (
    ATTACKED,
    BALANCED,
    attack_radius_text,
    auroc_radius_text,
    radius_text,
    recall_text,
    smoothed_radius_text,
)

_PLAIN = re.compile(r"[A-Za-z_/.][\w/@.+ -]*")  # what YAML takes as a string without quotes
_WORDS = ("true", "false", "null", "yes", "no", "on", "off")  # and these it does not

MISSING = "\N{EN DASH}"  # stands for a value that is not there


def number(value: float, digits: int = 3, *, up: bool = False) -> str:
    """A number as people write it, with so many significant digits; an upper bound is rounded ``up``.

    >>> number(2.9876), number(0.25), number(1e-5), number(1280.0), number(float("inf"))
    ('2.99', '0.25', '1e-5', '1280', '∞')
    >>> number(2.981, up=True), number(1.1, up=True), number(1.23e-7, digits=2, up=True)
    ('2.99', '1.1', '1.3e-7')
    """
    if not isfinite(value):
        return MISSING if value != value else ("∞" if value > 0 else "-∞")
    rounding = ROUND_CEILING if up else ROUND_HALF_EVEN
    exact = Decimal(repr(float(value)))
    power = exact.adjusted()
    if not value or 1e-3 <= abs(value) < 1e5:
        return _plain(exact.quantize(Decimal(1).scaleb(min(0, power - digits + 1)), rounding))
    mantissa = exact.scaleb(-power).quantize(Decimal(1).scaleb(1 - digits), rounding)
    return f"{_plain(mantissa)}e{power}"


def _plain(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def when(at: str) -> str:
    """A time as records have it, to the minute.

    >>> when("2026-01-02T10:00:59+00:00")
    '2026-01-02 10:00 UTC'
    """
    return f"{at[:16].replace('T', ' ')} UTC" if at else MISSING


def is_fraction(name: str) -> bool:
    """Whether a value lives in [0, 1] and reads best as a percentage."""
    named = name in ("accuracy", "balanced accuracy", BALANCED, "auroc", *MEMBERSHIP)
    return named or recall_text(name) is not None or radius_of(name) is not None


def radius_of(name: str) -> str | None:
    """The radius of a certificate or an attack as written, None for another value."""
    kinds = (radius_text, auroc_radius_text, smoothed_radius_text, attack_radius_text)
    found = (kind(name) for kind in kinds)
    return next((text for text in found if text is not None), None)


def short_title(name: str) -> str:
    """A value's name where a whole title has no room: as people write it, radii as the spec does.

    >>> short_title("auroc"), short_title("certified@0.25"), short_title("epsilon")
    ('AUROC', 'certified@0.25', 'own epsilon')
    """
    return value_name(name) if name == "epsilon" or radius_of(name) is not None else title_of(name)


def show(name: str, value: float) -> str:
    """A value of a point, as text; an epsilon as `show_epsilon` has it.

    >>> show("accuracy", 0.9123), show("epsilon", 2.5), show("epsilon", 3.0001)
    ('91.2 %', '2.5', '3.001')
    """
    if name == CAUGHT:
        return percent(value)
    if is_fraction(name) and isfinite(value):
        return f"{100 * value:.1f} %"
    return show_epsilon(value) if name in ("epsilon", PRICE) or name.startswith("epsilon ") else number(value)


def show_epsilon(epsilon: float) -> str:
    """An epsilon, a point's own or a price: as the console and the card have it, never less than it is.

    >>> show_epsilon(2.99604), show_epsilon(0.05157), show_epsilon(float("inf"))
    ('2.997', '0.05157', '∞')
    """
    return round_up(epsilon) if isfinite(epsilon) else number(epsilon)


def percent(probability: float) -> str:
    """An upper bound of a probability, never less than it is.

    >>> percent(0.051723), percent(1.0)
    ('5.18 %', '100 %')
    """
    return f"{number(100.0 * probability, up=True)} %"


def whole(text: str) -> str:
    """A value in a sentence or a narrow cell: no line ends before its percent sign."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def show_value(point: Point, name: str) -> str:
    """A value of a point, with its interval where it is an estimate from noisy scores."""
    return show(name, point.values[name]) + in_parentheses(name, point.interval(name))


def show_test(point: Point, name: str) -> str:
    """A test number of a point likewise, a mark where it has none."""
    value = (point.test or {}).get(name)
    return MISSING if value is None else show(name, value) + in_parentheses(name, point.test_interval(name))


def test_with_interval(point: Point, name: str, claim: Claim) -> str:
    """A test number of a point with its interval where one is known, a mark where the point has none."""
    _, tested, ends, _ = _with_test(point, name, claim)
    return (tested + (f" ({ends})" if ends else "")) or MISSING


def lead_with_test(point: Point, name: str, claim: Claim) -> tuple[str, str]:
    """What the best point in a value reaches, and a note: on test rows where they are scored, since others chose it."""
    value, unit, note = split_lead(point, name, claim)
    return f"{value} {unit}", note


def split_lead(point: Point, name: str, claim: Claim) -> tuple[str, str, str]:
    """Likewise in three parts: the number, of what and on which rows it is, and the note."""
    chose = f"on the validation rows that chose it{mean_in_words(point, name)}"
    confidence = "95\N{NO-BREAK SPACE}% interval "
    value, tested, ends, between = _with_test(point, name, claim)
    between = f", {confidence}{between}" if between else ""
    if not tested:
        return value, f"{title_of(name)} {chose}", f"not scored on test rows{between}"
    first = f"{confidence}{ends}; " if ends else ""
    return tested, f"{title_of(name)} on test rows", f"{first}{value} {chose}{between}"


def score_lines(point: Point, name: str, claim: Claim) -> tuple[str, str]:
    """A score in a cell of two lines, with intervals: on test rows, then on validation rows; alone, that comes first.

    The second line is empty where the point is not scored on test rows.
    """
    value, tested, ends, between = _with_test(point, name, claim)
    validation = f"validation {value}" + (f" ({between})" if between else "")
    return (f"test {tested}" + (f" ({ends})" if ends else ""), validation) if tested else (validation, "")


def also_on_test(point: Point, name: str, claim: Claim) -> str:
    """What such a point reaches in another value, likewise but shorter."""
    value, tested, ends, between = _with_test(point, name, claim)
    between = f", {between}" if between else ""
    if not tested:
        return f"{value} {title_of(name)} on validation rows{between}"
    return f"{tested} {title_of(name)} on test rows ({f'{ends}; ' if ends else ''}{value} validation{between})"


def _with_test(point: Point, name: str, claim: Claim) -> tuple[str, str, str, str]:
    """Return a value, its test number, the interval of that and its own, each empty where there is none."""
    tested = (point.test or {}).get(name)
    ends, own = (interval_text(name, one) for one in (interval_on_test(point, name, claim), point.interval(name)))
    value = whole(show(name, point.values[name])) if name in point.values else MISSING
    return value, "" if tested is None else whole(show(name, tested)), ends, own


def in_parentheses(name: str, interval: Interval | None) -> str:
    """What stands behind a value for its interval, empty where it has no noise."""
    ends = interval_text(name, interval)
    return f" ({ends})" if ends else ""


def in_sentence(name: str, value: float, interval: Interval | None = None) -> str:
    """A value behind its name, with its interval where one is known.

    >>> in_sentence("epsilon", 2.5)
    'own epsilon 2.5'
    """
    return whole(f"{title_of(name)} {show(name, value)}{in_parentheses(name, interval)}")


def interval_text(name: str, interval: Interval | None) -> str:
    """An interval of a value of this name, empty where it has no noise."""
    if interval is None:
        return ""
    low, high = (show(name, end) for end in interval)
    return whole(f"{low.removesuffix(' %')} to {high}")


def title_of(name: str) -> str:
    """A value's name in words.

    >>> title_of("certified@0.25"), title_of("auroc"), title_of("epsilon")
    ('certified accuracy at radius 0.25', 'AUROC', 'own epsilon')
    >>> title_of("smoothed@0.25")
    'smoothed accuracy at radius 0.25'
    >>> title_of("attacked@0.25"), title_of("membership-auroc")
    ('accuracy under PGD at radius 0.25', 'membership AUROC')
    """
    if (text := radius_text(name)) is not None:
        return f"certified accuracy at radius {text}"
    if (text := smoothed_radius_text(name)) is not None:
        return f"smoothed accuracy at radius {text}"
    if (text := auroc_radius_text(name)) is not None:
        return f"certified AUROC at radius {text}"
    if (text := attack_radius_text(name)) is not None:
        return f"accuracy under {'PGD' if name.startswith(ATTACKED) else 'AutoAttack'} at radius {text}"
    if (text := recall_text(name)) is not None:
        return f"recall of class {text}"
    return {
        BALANCED: "balanced accuracy",
        "auroc": "AUROC",
        "membership-auroc": "membership AUROC",
        "membership-advantage": "membership advantage",
    }.get(name, value_name(name))


def delta_text(data: SweepData) -> str:
    """The delta that every epsilon of the sweep is stated at, or their range, as ``delta = 1e-5``."""
    return f"delta {'= ' if len(data.deltas) == 1 else ''}{deltas_text(data)}"


def deltas_text(data: SweepData) -> str:
    """The value of `delta_text` alone."""
    if not data.deltas:
        return "not recorded"
    smallest, largest = data.deltas[0], data.deltas[-1]
    return number(smallest) if smallest == largest else f"from {number(smallest)} to {number(largest)}"


def rehearsed_text(source: RehearsalSource) -> str:
    """What a figure or a table of rehearsals says that they are.

    >>> rehearsed_text(RehearsalSource.PUBLIC)
    'Rehearsals on public rows; none is a model of this sweep'
    """
    return f"Rehearsals on {source.in_words}; none is a model of this sweep"


def setting(value: Any) -> str:
    """A configuration value as text.

    >>> setting(0.0031622776), setting([16, 64]), setting("adam"), setting(True)
    ('0.00316', '16, 64', 'adam', 'true')
    """
    match value:
        case bool():
            return str(value).lower()
        case float():
            return number(value)
        case list() | tuple():
            return ", ".join(setting(item) for item in value)
        case _:
            return str(value)


def in_yaml(value: Any) -> str:
    """A value of a spec on one line, as a user writes it there.

    >>> in_yaml({"log": [1e-06, 2.0]}), in_yaml(["mlp", True, None]), in_yaml("1e3"), in_yaml("a: b")
    ('{log: [1e-6, 2]}', '[mlp, true, null]', '"1e3"', '"a: b"')
    """
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case float():
            short = f"{value:g}".replace("e-0", "e-").replace("e+0", "e")
            return short if float(short) == value else repr(value)
        case str():
            return (
                value
                if _PLAIN.fullmatch(value) and value.lower() not in _WORDS
                else json.dumps(value, ensure_ascii=False)
            )
        case list() | tuple():
            return f"[{', '.join(map(in_yaml, value))}]"
        case dict():
            return f"{{{', '.join(f'{key}: {in_yaml(inner)}' for key, inner in value.items())}}}"
        case _:
            return str(value)
