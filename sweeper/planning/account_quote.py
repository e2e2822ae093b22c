"""What a sweep would take of an account, and what would fit: what commands, REST, pages and tools all say."""

from dataclasses import dataclass, replace

from clipless.privacy.gaussian import GaussianCost
from sweeper.account.account import Account
from sweeper.account.cost import epsilon_of, larger
from sweeper.account.rules import MOVED, Reservation, account_sides, count_in_words, is_moved
from sweeper.account.summary import further_sweeps, part_of, room_of, share_in_words
from sweeper.planning.account_fit import Fit
from sweeper.rounding import exactly


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountQuote:
    """What one sweep would take of an account now.

    Attributes:
        account: its name.
        budget_epsilon: what the account promises for everything together, at ``delta``.
        spender: whose share it takes from.
        takes: the largest share of a budget that it takes, from 0 to 1; more for a sweep that can never fit.
        epsilon: of the Gaussian signal by which the account counts that, at its delta, rounded up; at least the price
            of the sweep at that delta.
        left: the share of a budget that the spender may still take, on the side with the least, from 0 to 1.
        fits: the largest ``privacy.sweep_epsilon`` of its spec that there is room for, where there is none for it;
            ``None`` for one that fits, and where nothing does.
        is_moved: whether every side pays, for its rows are not known to be where earlier sweeps had them.
        further: how many more sweeps like it there is room for behind it; ``None`` for any number.
        refused: why it is refused, in one sentence; ``None`` if there is room for it.
    """

    account: str
    budget_epsilon: float
    delta: float
    spender: str
    takes: float
    epsilon: float
    left: float
    fits: float | None
    is_moved: bool
    further: int | None
    refused: str | None

    @property
    def left_behind(self) -> float:
        """The share of a budget that the spender may still take behind the sweep, from 0 to 1."""
        return max(self.left - self.takes, 0.0)

    def in_words(self) -> str:
        """Return it in one sentence or two."""
        if self.refused is not None:
            return f"Refused by its account: {self.refused}"
        moved = f" Every side pays that, for {MOVED}." if self.is_moved else ""
        return (
            f"Account {self.account}: the sweep would take {share_in_words(self.takes)} of its budget (epsilon "
            f"{exactly(self.budget_epsilon)} at delta {self.delta!r}) and leave {self.spender} "
            f"{share_in_words(self.left_behind, up=False)} of it, now {share_in_words(self.left, up=False)}; that is "
            f"room for {count_in_words(self.further)}.{moved}"
        )


def quote_of(account: Account, wanted: Reservation, fit: Fit | None) -> AccountQuote:
    """Return what a sweep would take of an account now; ``fit`` is what `find_fit` finds of it.

    Raises:
        RecordError: the account cannot be read.
    """
    advised = wanted if fit is None else replace(wanted, advice=fit.advice)
    refused, balance = account.refusal(advised), account.balance()
    most, sides = GaussianCost(), account_sides(balance, wanted, wanted.costs)
    for cost in sides.values():
        most = larger(most, cost)
    room = room_of(balance, wanted.spender, [(block, side) for block in wanted.blocks for side in sides])
    return AccountQuote(
        account=account.address.name,
        budget_epsilon=balance.epsilon,
        delta=balance.delta,
        spender=wanted.spender,
        takes=part_of(most, balance.budget),
        epsilon=epsilon_of(most, balance.delta),
        left=room.left,
        fits=None if fit is None or refused is None else fit.epsilon,
        is_moved=is_moved(balance, wanted),
        further=None if refused else further_sweeps(balance, wanted),
        refused=refused,
    )
