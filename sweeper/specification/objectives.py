"""Names of objectives: ``epsilon``, shares such as ``accuracy``, ``auroc`` and ``certified@R``, some of plug-ins.

``smoothed@R`` is a certificate of another kind than ``certified@R``: of the smoothed classifier, and probabilistic.
What asks for certificates of the model itself never gets it.

``balanced_accuracy`` is the mean of the recalls of all classes, which are recorded beside it as ``recall@C``, C being
the number of the class from 0.

Every objective but epsilon lies in [0, 1] and is better when larger.

Metrics are recorded beside the objectives: certificates, and what attacks reach, ``attacked@R``,
``autoattacked@R``, ``membership-auroc`` and ``membership-advantage``, and metrics of plug-ins. An attack refutes, it
never proves: as an axis of the front it would reward trials on which it fails, so none is an objective.

R is a radius in units of the raw input, written as a number or a fraction and read exactly:
``certified@36/255`` is not rounded to a float before two names are compared.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from typing import Any

from clipless.spelling import did_you_mean
from sweeper.errors import SpecError, UnexpectedValueError
from sweeper.records import MEMBERSHIP, Direction, Objective
from sweeper.specification.fields.messages import bad_value, locate_each
from sweeper.specification.plugins import find_metric, installed_metrics, is_metric, reading_metrics

MOST = 64  # objectives, metrics or constraints of a spec
AUROC = "auroc"
BALANCED = "balanced_accuracy"
PLAIN = ("epsilon", "accuracy", BALANCED, AUROC)
_RECALL = "recall@"
ATTACKED = "attacked@"
AUTOATTACKED = "autoattacked@"
_CERTIFIED = "certified@"
_CERTIFIED_AUROC = "certified-auroc@"
_SMOOTHED = "smoothed@"
_DECIMAL = r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+"
_RADIUS = re.compile(rf"(?:{_DECIMAL})(?:/(?:{_DECIMAL})|[eE][-+]?[0-9]{{1,3}})?")


def radius_text(name: str) -> str | None:
    """Return R of ``certified@R`` as written, ``None`` for another objective."""
    return name.removeprefix(_CERTIFIED) if name.startswith(_CERTIFIED) else None


def auroc_radius_text(name: str) -> str | None:
    """Return R of ``certified-auroc@R`` as written, ``None`` for another objective."""
    return name.removeprefix(_CERTIFIED_AUROC) if name.startswith(_CERTIFIED_AUROC) else None


def smoothed_radius_text(name: str) -> str | None:
    """Return R of ``smoothed@R`` as written, ``None`` for another name."""
    return name.removeprefix(_SMOOTHED) if name.startswith(_SMOOTHED) else None


def attack_radius_text(name: str) -> str | None:
    """Return R of ``attacked@R`` or ``autoattacked@R`` as written, ``None`` for another name."""
    kind = next((kind for kind in (ATTACKED, AUTOATTACKED) if name.startswith(kind)), None)
    return None if kind is None else name.removeprefix(kind)


def reads_training_rows(names: Iterable[str]) -> bool:
    """Whether one of the names is computed from the rows that a model was trained on."""
    names = tuple(names)
    return any(name in MEMBERSHIP for name in names) or bool(reading_metrics(names))


def is_share_of_rows(name: str) -> bool:
    """Whether the name is one of shares of rows that each row decides alone: accuracy and ``certified@R``."""
    return name == "accuracy" or radius_text(name) is not None


def is_paid_score(name: str) -> bool:
    """Whether scores of that name can be released of private rows, with noise that is paid for."""
    return name in (AUROC, BALANCED) or is_share_of_rows(name)


def recall_name(label: int) -> str:
    """Return the name of the recall of a class, by its number from 0."""
    return f"{_RECALL}{label}"


def recall_text(name: str) -> str | None:
    """Return the number of the class of a recall, ``None`` for another name.

    >>> recall_text(recall_name(3)), recall_text("accuracy")
    ('3', None)
    """
    return name.removeprefix(_RECALL) if name.startswith(_RECALL) else None


def needs_two_classes(name: str) -> bool:
    """Whether the objective is one of binary tasks only."""
    return name == AUROC or auroc_radius_text(name) is not None


def radius(name: str) -> Fraction | None:
    """Return R of ``certified@R`` or ``certified-auroc@R`` exactly, ``None`` for another objective.

    >>> radius("certified@36/255")
    Fraction(12, 85)

    Raises:
        SpecError: R is no positive number or fraction.
    """
    text = _certified_text(name)
    return None if text is None else _exact(name, text)


def attack_radius(name: str) -> Fraction | None:
    """Return R of ``attacked@R`` or ``autoattacked@R`` exactly, ``None`` for another name.

    Raises:
        SpecError: R is no positive number or fraction.
    """
    text = attack_radius_text(name)
    return None if text is None else _exact(name, text)


def smoothed_radius(name: str) -> Fraction | None:
    """Return R of ``smoothed@R`` exactly, ``None`` for another name.

    Raises:
        SpecError: R is no positive number or fraction.
    """
    text = smoothed_radius_text(name)
    return None if text is None else _exact(name, text)


@lru_cache(1024)  # constraints compare every name with every other
def _exact(name: str, text: str) -> Fraction:
    if len(text) <= 40 and _RADIUS.fullmatch(text):
        numerator, _, denominator = text.partition("/")
        below = Fraction(denominator or 1)
        if below > 0 and Fraction(numerator) > 0:
            return Fraction(numerator) / below
    raise UnexpectedValueError("a radius > 0 such as 0.25 or 36/255", repr(name))


def parse(name: str) -> Objective:
    """Return the objective of that name.

    Raises:
        SpecError: no such objective.
    """
    if is_metric(name):
        if not find_metric(name).is_objective:
            expected = "an objective that its plug-in declares by metric('maximize', share=True), of validation rows"
            raise UnexpectedValueError(f"{expected}: list it in search.metrics", repr(name))
    elif name in MEMBERSHIP or attack_radius(name) is not None:
        raise UnexpectedValueError("no attack among the objectives: list it in search.metrics", repr(name))
    elif name not in PLAIN and radius(name) is None and smoothed_radius(name) is None:
        known = (*PLAIN, f"{_CERTIFIED}R", f"{_CERTIFIED_AUROC}R", f"{_SMOOTHED}R", *installed_metrics())
        raise _unknown("an objective", name, known)
    return Objective.named(name)


def own_objectives(objectives: Iterable[Objective]) -> tuple[str, ...]:
    """Return the names of those that are plug-ins."""
    return tuple(objective.name for objective in objectives if is_metric(objective.name))


def is_scored_by_class(objectives: Iterable[Objective]) -> bool:
    """Whether one of them needs the recall of each class."""
    return any(objective.name == BALANCED for objective in objectives)


def parse_metric(name: str) -> Objective:
    """Return the metric of that name, with the direction in which it improves.

    Raises:
        SpecError: no such metric.
    """
    if is_metric(name):
        return Objective(name, find_metric(name).direction)
    if name not in MEMBERSHIP and all(kind(name) is None for kind in (radius, attack_radius, smoothed_radius)):
        kinds = (f"{_CERTIFIED}R", f"{_CERTIFIED_AUROC}R", f"{_SMOOTHED}R", f"{ATTACKED}R", f"{AUTOATTACKED}R")
        raise _unknown("a metric", name, (*kinds, *MEMBERSHIP, *installed_metrics()))
    return Objective.named(name)


def _unknown(kind: str, name: str, known: Sequence[str]) -> UnexpectedValueError:
    return UnexpectedValueError(f"{kind}: {', '.join(known[:-1])} or {known[-1]}", repr(name), near_name(name, known))


def near_name(name: str, known: Iterable[str]) -> str:
    """Return the remedy for a misspelled objective, empty where it is spelled well or none is near; a radius is kept.

    >>> near_name("certifed@0.25", ["accuracy", "certified@R"])
    "did you mean 'certified@0.25'?"
    """
    if name in PLAIN:
        return ""
    _, at, radius_ = name.partition("@")
    return did_you_mean(name, (f"{one[:-2]}{at}{radius_}" if at and one.endswith("@R") else one for one in known))


def same(one: str, other: str) -> bool:
    """Whether two names mean one objective.

    >>> same("certified@0.25", "certified@1/4")
    True
    """
    return one == other or meaning(one) == meaning(other)


def meaning(name: str) -> tuple[str, Fraction | None]:
    """Return what two names have in common that mean one objective.

    >>> meaning("certified@0.25")
    ('certified', Fraction(1, 4))

    Raises:
        SpecError: R is no positive number or fraction.
    """
    exact = radius(name) or attack_radius(name) or smoothed_radius(name)
    return (name, None) if exact is None else (name.partition("@")[0], exact)


def radii(objectives: Iterable[Objective]) -> tuple[str, ...]:
    """Return the radii to certify, as written; those of attacks among them, so that both sides are known."""
    names = [objective.name for objective in objectives]
    texts = dict.fromkeys(text for text in map(_certified_text, names) if text is not None)
    known = {_exact(text, text) for text in texts}
    for name in names:
        exact = attack_radius(name)
        if exact is not None and exact not in known:
            known.add(exact)
            texts[str(attack_radius_text(name))] = None
    return tuple(texts)


def objective_list(value: Any) -> tuple[str, ...]:
    """Validate ``search.objectives``."""
    if not value:
        raise bad_value("a list of objectives such as [epsilon, accuracy, certified@36/255]")
    names = _list(value, parse, "objective")
    if all(name == "epsilon" for name in names):
        raise bad_value("an objective beside epsilon", remedy="add accuracy")
    return names


def metric_list(value: Any) -> tuple[str, ...]:
    """Validate ``search.metrics``."""
    return _list(value, parse_metric, "metric")


def reached_without_privacy(value: Any) -> dict[str, float]:
    """Validate ``search.without_privacy``: shares by the name of an objective or metric."""
    if not isinstance(value, Mapping):
        raise bad_value("scores by name such as {accuracy: 0.98}")
    for name, score in value.items():
        if not isinstance(name, str) or name == "epsilon" or _direction(name) is not Direction.MAXIMIZE:
            raise bad_value("scores that are better when larger, such as {accuracy: 0.98}", got=name)
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            raise bad_value("a share from 0 to 1", path=name, got=score)
    return {name: float(score) for name, score in value.items()}


def _direction(name: str) -> Direction | None:
    for parse_one in (parse, parse_metric):
        with suppress(SpecError):
            return parse_one(name).direction
    return None


def _list(value: Any, parse_one: Callable[[str], Objective], kind: str) -> tuple[str, ...]:
    if not (isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)):
        examples = {"objective": "epsilon, accuracy, certified@36/255", "metric": "attacked@36/255, membership-auroc"}
        raise bad_value(f"a list of {kind}s such as [{examples[kind]}]")
    if len(value) > MOST:
        raise bad_value(f"at most {MOST} {kind}s", got=None)
    seen = set()

    def read(name: str) -> str:
        try:
            parse_one(name)
        except UnexpectedValueError as error:
            raise bad_value(error.expected, remedy=error.remedy) from None
        if meaning(name) in seen:
            raise bad_value(f"each {kind} once")
        seen.add(meaning(name))
        return name

    return locate_each(read, value)


def _certified_text(name: str) -> str | None:
    text = radius_text(name)
    return auroc_radius_text(name) if text is None else text
