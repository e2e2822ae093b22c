"""What a price means to a person, as records: how often an attacker finds a row, and what several rows cost.

`clipless.privacy.accounting.tradeoff` computes them; these are frozen values, which travel as JSON.
"""

import enum
import math
from dataclasses import dataclass

FALSE_ALARMS = (0.001, 0.01, 0.1)
"""Shares of innocent people that an attacker accuses, at which `Risk.caught` is stated."""

GROUPS = (2, 4, 8)
"""Numbers of rows for which `GroupCost` is stated."""

_PEOPLE = 1000  # of whom words speak


class Basis(enum.StrEnum):
    """What a risk is computed from."""

    PROFILE = "profile"  # the privacy profile of what was done: bounds of delta at every epsilon
    RENYI = "renyi"  # its Renyi divergences, which give a bound of delta at every epsilon too
    PAIR = "pair"  # the claimed epsilon and delta alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """What an attacker gains who knows all other rows and everything that was released.

    Guarantees:
        Every number is an upper bound, in both directions in which neighbours differ.

    Attributes:
        caught: the probability that a row which was used is found, where the attacker accuses 0.1 %, 1 % and 10 % of
            those that were not.
        advantage: the largest difference of the two probabilities, at any number of false alarms. It is also how far
            one planted row can move the probability of any outcome.
        basis: what it was computed from.
    """

    caught: tuple[float, float, float]
    advantage: float
    basis: Basis

    def at_most(self, other: "Risk") -> "Risk":
        """Return the smaller of two bounds of the same release; the basis is this one's unless it never is smaller."""
        pairs = [*zip(self.caught, other.caught, strict=True), (self.advantage, other.advantage)]
        low, middle, high, advantage = map(min, pairs)
        basis = self.basis if any(own <= its for own, its in pairs) else other.basis
        return Risk(caught=(low, middle, high), advantage=advantage, basis=basis)

    def to_values(self) -> dict[str, float]:
        """Return the numbers by name.

        >>> Risk(caught=(0.009, 0.052, 0.277), advantage=0.266, basis=Basis.PROFILE).to_values()
        {'caught@0.001': 0.009, 'caught@0.01': 0.052, 'caught@0.1': 0.277, 'advantage': 0.266}
        """
        caught = {f"caught@{rate:g}": value for rate, value in zip(FALSE_ALARMS, self.caught, strict=True)}
        return caught | {"advantage": self.advantage}

    def in_words(self) -> str:
        """Return what it means in one sentence.

        >>> Risk(caught=(0.0085, 0.0517, 0.277), advantage=0.266, basis=Basis.PROFILE).in_words()[51:]
        'an attacker who accuses 1 in 100 innocents finds at most 52 on average.'
        """
        found = math.ceil(_PEOPLE * self.caught[1] * (1.0 - 1e-12))
        return (
            f"Of {_PEOPLE:,} people whose data were used for training, an attacker who accuses 1 in 100 innocents "
            f"finds at most {found} on average."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCost:
    """What several rows of one person, or several planted rows, cost together.

    Attributes:
        rows: how many privacy units differ, all added or all removed, or all replaced.
        epsilon: upper bound at the delta of the claim; infinite where nothing follows from what is known.
        shift: upper bound of how far they can move the probability of any outcome.
        basis: what it was computed from; of a profile or Renyi divergences of one row alone, by group privacy.
        own: whether it is the profile of so many rows, and not derived from that of one.
    """

    rows: int
    epsilon: float
    shift: float
    basis: Basis
    own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """What a price means to a person: of one row, and of 2, 4 and 8."""

    risk: Risk
    groups: tuple[GroupCost, ...] = ()

    def to_values(self) -> dict[str, float]:
        """Return all numbers by name.

        >>> risk = Risk(caught=(0.009, 0.052, 0.277), advantage=0.266, basis=Basis.PROFILE)
        >>> group = GroupCost(rows=2, epsilon=6.7, shift=0.5, basis=Basis.PROFILE, own=True)
        >>> list(Exposure(risk=risk, groups=(group,)).to_values())[-2:]
        ['epsilon@2-rows', 'shift@2-rows']
        """
        found = self.risk.to_values()
        for one in self.groups:
            found |= {f"epsilon@{one.rows}-rows": one.epsilon, f"shift@{one.rows}-rows": one.shift}
        return found
