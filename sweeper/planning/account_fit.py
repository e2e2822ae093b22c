"""Which budget of a spec its account has room for: found on plans of that spec, so that what is named is accepted.

An account adds up Gaussian signals. How much signal a sweep of some price takes depends on its plan, so no formula of
what is left gives the answer; a few plans do.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from clipless.errors import CliplessError
from sweeper.account.account import Account
from sweeper.account.rules import Reservation, share_of_room
from sweeper.errors import AccountError, SpecError
from sweeper.planning.account_plan import planned_costs
from sweeper.planning.loaded import LoadedSpec
from sweeper.rounding import round_down, round_up
from sweeper.specification.settings import PrivacySettings

_MOST_PLANS = 12
_CLOSE = 0.99  # of the room, or of the next larger budget that was refused: near enough
_DIGITS = 3  # of the number that is named
_POWER = 2.0  # of a budget, by which what it takes grows about
_STEEPEST = 1e6  # share of the room, that a first guess is made by


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What of a spec would fit into the account that refuses it.

    Attributes:
        advice: in words, in front of who can raise the account.
        epsilon: the largest ``privacy.sweep_epsilon`` that fits, to three digits; ``None`` where none does, or the spec
            has none.
    """

    advice: str
    epsilon: float | None


def find_fit(loaded: LoadedSpec, account: Account, wanted: Reservation) -> Fit | None:
    """Return what would fit of a spec; ``None`` for one that has room, or is refused for another reason than room.

    Args:
        loaded: the spec that is refused, as its user wrote it, with its data.
        account: that it names.
        wanted: what its sweep asks of the account.

    Guarantees:
        Nothing is trained, reserved or released. A number that is named was planned, and the account has room for it.
    """
    balance = account.balance()
    share = share_of_room(balance, wanted)
    if share <= 1.0:
        return None
    privacy = loaded.spec.privacy
    others, budget = "".join(f"{way} or " for way in _other_ways(privacy, loaded.spec.trials)), _budget_of(privacy)
    if budget is None:
        return Fit(advice=others, epsilon=None)
    field, given = budget

    def share_with(epsilon: float) -> float | None:
        try:
            plan = loaded.with_values({field: epsilon}).plan()
        except (SpecError, CliplessError):
            return None
        if plan.account is None:
            return None
        costs = planned_costs(plan.account, plan.privacy.delta, balance)
        return share_of_room(balance, replace(wanted, costs=costs))

    found = _find_most(given, share, share_with)
    if found is None:
        return Fit(advice=f"no {field} of this spec fits; {others}", epsilon=None)
    most = found if field == "privacy.sweep_epsilon" else None
    return Fit(advice=f"lower {field} to {found:g}, the most that fits, or ", epsilon=most)


def check_room(loaded: LoadedSpec, account: Account, wanted: Reservation) -> None:
    """Refuse a sweep for which its account has no room, and say what would fit; arguments as of `find_fit`.

    Raises:
        AccountError: likewise.
        RecordError: the account cannot be read.
    """
    fit = find_fit(loaded, account, wanted)
    refused = None if fit is None else account.refusal(replace(wanted, advice=fit.advice))
    if refused is not None:
        raise AccountError(refused)


def _budget_of(privacy: PrivacySettings) -> tuple[str, float] | None:
    """Return the field that says how much a sweep or each of its trials may spend, and its value."""
    if privacy.sweep_epsilon is not None:
        return "privacy.sweep_epsilon", privacy.sweep_epsilon
    epsilon = privacy.epsilon
    return ("privacy.epsilon", float(epsilon)) if isinstance(epsilon, float | int) else None


def _other_ways(privacy: PrivacySettings, trials: int) -> Iterator[str]:
    """Yield what else makes a sweep take less."""
    if privacy.score_noise is not None:
        yield "raise privacy.score_noise"
    if privacy.sweep_epsilon is None:
        if trials > 1:
            yield "lower search.trials"
        if privacy.noise_multiplier is not None:
            yield "raise privacy.noise_multiplier"
        elif _budget_of(privacy) is None:
            yield "lower privacy.epsilon"


def _find_most(given: float, share: float, share_with: Callable[[float], float | None]) -> float | None:
    """Return the largest budget below one that is refused that fits, to a few digits; ``None`` where none is found.

    Args:
        given: the budget that is refused.
        share: of the room that it takes.
        share_with: that of a smaller budget; ``None`` where nothing can be planned, then for less neither.
    """
    if not math.isfinite(share) and share_with(given / 2.0) in (None, math.inf):
        return None
    high, low, best = (given, min(share, _STEEPEST)), (0.0, 0.0), None
    for _ in range(_MOST_PLANS):
        budget = float(round_down(_guess(low, high), _DIGITS))
        if budget <= low[0]:
            budget = float(round_up(math.nextafter(low[0], math.inf), _DIGITS))
        if not budget < high[0]:
            return best
        taken = share_with(budget)
        if taken is None:
            low = budget, 0.0
        elif taken <= 1.0:
            low, best = (budget, taken), budget
        else:
            high = budget, min(taken, _STEEPEST)
        if low[0] > _CLOSE * high[0] or (best is not None and low[1] > _CLOSE):
            return best
    return best


def _guess(low: tuple[float, float], high: tuple[float, float]) -> float:
    """Return where between two budgets the room is about full, on a line through the logarithms of what they take."""
    wanted = (1.0 + _CLOSE) / 2.0
    if low[0] == 0.0:
        return high[0] * math.pow(wanted / high[1], 1.0 / _POWER)
    if low[1] == 0.0:
        return math.sqrt(low[0] * high[0])
    power = math.log(high[1] / low[1]) / math.log(high[0] / low[0])
    return min(max(low[0] * math.pow(wanted / low[1], 1.0 / power), 1.004 * low[0]), 0.996 * high[0])
