"""Constraints on outcomes, ``certified@36/255 >= 0.3``: what the search is steered towards.

A point that misses one is a point like any other: it stays on the front if nothing dominates it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isnan

from sweeper.errors import UnexpectedValueError
from sweeper.specification.objectives import is_paid_score, near_name, same

FARTHEST = 1e6
_FORM = re.compile(r"\s*(\S+?)\s*(<=|>=)\s*(\S+)\s*")


@dataclass(frozen=True, slots=True)
class OutcomeConstraint:
    """A bound that an outcome is to keep: a floor if ``at_least``, otherwise a ceiling."""

    name: str
    at_least: bool
    bound: float

    def __str__(self) -> str:
        return f"{self.name} {'>=' if self.at_least else '<='} {self.bound:g}"

    def violation(self, values: Mapping[str, float]) -> float:
        """Return by how much the outcome misses the bound, at most 0 where it meets it.

        Finite for every outcome, because samplers compute with it: `FARTHEST` for a value that is not there.
        """
        value = values.get(self.name)
        if value is None or isnan(value):
            return FARTHEST
        missed = self.bound - value if self.at_least else value - self.bound
        return min(max(missed, -FARTHEST), FARTHEST)


def parse_constraint(text: str, recorded: Sequence[str]) -> OutcomeConstraint:
    """Read a constraint.

    >>> parse_constraint("certified@1/4 >= 0.3", ["accuracy", "certified@0.25"])
    OutcomeConstraint(name='certified@0.25', at_least=True, bound=0.3)

    It takes over the spelling of the name in ``recorded``.

    Raises:
        SpecError: another form, a value that is not recorded, or a bound that is no finite number, or no share where
            the value is one.
    """
    matched = _FORM.fullmatch(text)
    if matched is None:
        raise UnexpectedValueError("a constraint such as certified@36/255 >= 0.3 or epsilon <= 8", repr(text))
    name, sign, bound = matched.groups()
    spelled = next((other for other in recorded if same(other, name)), None)
    if spelled is None:
        expected = f"a value among {', '.join(recorded)}, or one listed in search.metrics"
        raise UnexpectedValueError(expected, repr(name), near_name(name, recorded))
    try:
        number = float(bound)
    except ValueError:
        number = inf
    if not isfinite(number):
        raise UnexpectedValueError(f"a finite number behind {sign}", f"{bound!r} in {text!r}")
    if number > 1.0 and is_paid_score(spelled):
        meant = f"did you mean {number / 100:g}?" if number <= 100.0 else ""
        raise UnexpectedValueError(f"a share from 0 to 1 as the bound of {spelled}", f"{number:g}", meant)
    return OutcomeConstraint(spelled, sign == ">=", number)
