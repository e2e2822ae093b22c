"""The epsilon that may be stated for an event: the smaller of two upper bounds, each checked by the other side.

RDP (`renyi`) and PLD (`pld`) share no code. Neither bound may fall below the other's optimistic estimate, nor below
what ``attack_epsilon`` proves.

**One price**: the grid of losses depends on noise, rate and relation alone, and a price on no other price asked for.
So the plan, which asks for all epochs, the calibration, which asks for the last, and a card get one number for the
same event.

No accountant object leaves this folder: autodp's cannot be pickled, so state elsewhere is frozen events.
"""

import enum
from dataclasses import dataclass
from functools import lru_cache

from clipless.errors import AccountantsDisagreeError
from clipless.privacy.accounting.lower_bound import attack_epsilon, falls_below
from clipless.privacy.accounting.pld import optimistic_epsilon, pld_epsilon
from clipless.privacy.accounting.renyi import rdp_epsilon
from clipless.privacy.events import Event, PoissonGaussian, Relation


class Accountant(enum.StrEnum):
    """The accountant that computed an epsilon."""

    PLD = "pld"
    RDP = "rdp"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonClaim:
    """An epsilon that may be stated, with the bound of each accountant."""

    epsilon: float  # the smaller of both upper bounds
    delta: float
    # bound by RDP, None where it has none (replace-one): the cross-check between accountants is then absent
    rdp: float | None
    pld: float  # bound by pessimistic PLD

    @property
    def accountant(self) -> Accountant:
        """The accountant whose bound was claimed."""
        return Accountant.PLD if self.epsilon == self.pld else Accountant.RDP


def claim(event: Event, delta: float) -> EpsilonClaim:
    """Price an event for publication.

    Guarantees:
        The mechanism is (epsilon, delta)-differentially private under the event's relation; every
        discretisation and rounding is upwards. Infinite where nothing can be promised.

    Raises:
        AccountingError: delta is not in (0, 1).
        AccountantsDisagreeError: RDP fell below the optimistic PLD, or a bound fell below what an attack attains.
    """
    found = _bounds(event, delta)
    _cross_check(event, found)
    return found


@lru_cache(maxsize=64)
def claims(event: PoissonGaussian, steps: tuple[int, ...], delta: float) -> tuple[EpsilonClaim, ...]:
    """Price the event run for each number of steps: each entry equals ``claim`` of that many steps alone.

    The accountants are checked against each other and the attack at the largest number of steps.

    Raises:
        AccountingError: delta is not in (0, 1), or a number of steps is not an integer >= 0.
        AccountantsDisagreeError: as ``claim``.
    """
    found = {count: _bounds(event.with_steps(count), delta) for count in steps}
    if found:
        most = max(found)
        _cross_check(event.with_steps(most), found[most])
    return tuple(found[count] for count in steps)


def _bounds(event: Event, delta: float) -> EpsilonClaim:
    pld = pld_epsilon(event, delta)
    rdp = rdp_epsilon(event, delta) if event.relation is Relation.ADD_OR_REMOVE_ONE else None
    return EpsilonClaim(epsilon=pld if rdp is None else min(pld, rdp), delta=delta, rdp=rdp, pld=pld)


def _cross_check(event: Event, found: EpsilonClaim) -> None:
    attacked = attack_epsilon(event, found.delta)
    for name, bound in ((Accountant.PLD, found.pld), (Accountant.RDP, found.rdp)):
        if bound is not None and falls_below(bound, attacked):
            raise AccountantsDisagreeError(
                f"{name} claims epsilon={bound:.6g} at delta={found.delta:g}, but an attack attains {attacked:.6g}: "
                f"{event}"
            )
    # The optimistic estimate is below the pessimistic one: a bound above the latter needs no look at the former.
    if found.rdp is not None and found.rdp < found.pld:
        optimistic = optimistic_epsilon(event, found.delta)
        if falls_below(found.rdp, optimistic):
            raise AccountantsDisagreeError(
                f"rdp claims epsilon={found.rdp:.6g} at delta={found.delta:g}, below the optimistic pld "
                f"{optimistic:.6g}: {event}"
            )
