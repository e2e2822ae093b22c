"""The JSON answers about accounts; shares are from 0 to 1, of the budget of one side of one block."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field

from sweeper.account.listing import EntryRow
from sweeper.account.summary import PlaceSummary, SpenderSummary, SweepSummary
from sweeper.account.verify import Verification
from sweeper.privacy.card.content import Answer, Number
from sweeper.service.accounts import AccountState

if TYPE_CHECKING:
    from sweeper.planning.account_quote import AccountQuote


class AccountTerms(Answer):
    """What an account promises, and how much of it is given away."""

    name: str
    data: Sequence[str] = Field(description="The data sets whose sweeps are charged to it.")
    unit: str
    relation: str
    epsilon: Number = Field(description="Of everything that is ever released, at delta.")
    delta: Number
    claim: str = Field(description="In one sentence.")
    until: str | None = Field(description="The last day on which a sweep may begin, YYYY-MM-DD.")
    closed: Mapping[str, str] = Field(description="Blocks that are closed, and why; all for the whole account.")
    taken: Number = Field(description="The largest share that is reserved or drawn.")
    drawn: Number = Field(description="The largest share that is drawn.")
    entries: int
    sweep_count: int

    @classmethod
    def of(cls, state: AccountState, **more: Any) -> Self:
        """Return those of an account."""
        summary = state.summary
        return cls(
            name=summary.name,
            data=state.data,
            unit=summary.unit,
            relation=summary.relation,
            epsilon=summary.epsilon,
            delta=summary.delta,
            claim=summary.claim,
            until=summary.until,
            closed=summary.closed,
            taken=summary.taken,
            drawn=summary.drawn,
            entries=state.entries,
            sweep_count=len(summary.sweeps),
            **more,
        )


class AccountList(Answer):
    """The accounts of a service."""

    accounts: Sequence[AccountTerms]


class AccountRoom(Answer):
    """What the one who asks may still take."""

    spender: str
    left: Number = Field(description="The share of a budget, on the side with the least.")
    epsilon: Number = Field(
        description="Of a Gaussian signal that takes all that is left, at the delta of the account. A sweep of that "
        "price takes more: a check of its spec says what fits."
    )


class AccountDetail(AccountTerms):
    """How an account stands."""

    places: Sequence[PlaceSummary] = Field(description="Every side of every block.")
    spenders: Sequence[SpenderSummary]
    sweeps: Sequence[SweepSummary] = Field(description="In the order in which they reserved.")
    room: AccountRoom

    @classmethod
    def of_spender(cls, state: AccountState, spender: str) -> Self:
        """Return how an account stands, and what a spender may still take."""
        summary = state.summary
        room = AccountRoom(spender=spender, left=state.room.left, epsilon=state.room.epsilon)
        shown = {"places": summary.places, "spenders": summary.spenders, "sweeps": summary.sweeps}
        return cls.of(state, **shown, room=room)


class EntryPage(Answer):
    """A page of the entries of an account, newest first."""

    entries: Sequence[EntryRow]
    total: int
    offset: int
    limit: int


class AccountVerdict(Answer):
    """Whether an account is what was written, and agrees with the ledgers of the sweeps of the service."""

    verified: bool
    entries: int
    ledgers: int = Field(description="Sweeps whose ledgers were compared.")
    findings: Sequence[str] = Field(description="One sentence for each thing that is not as it was written.")
    unsettled: Sequence[str] = Field(description="Sweeps that hold what they have not drawn.")

    @classmethod
    def of(cls, found: Verification) -> Self:
        """Return what a look at an account found."""
        return cls(
            verified=not found.findings,
            entries=found.entries,
            ledgers=found.folders,
            findings=found.findings,
            unsettled=found.unsettled,
        )


class AccountQuoted(Answer):
    """What the sweep of a spec would take of the account of its data now."""

    account: str
    spender: str = Field(description="In whose name it is charged: the owner of the token that asks.")
    takes: Number = Field(description="The largest share that it takes; more than 1 can never fit.")
    epsilon: Number = Field(
        description="Of the Gaussian signal by which the account counts that, at its delta; at least the sweep's "
        "price there."
    )
    delta: Number = Field(description="Of the account.")
    left: Number = Field(description="The share that the spender may still take.")
    left_behind: Number = Field(description="The share that the spender may still take behind the sweep.")
    fits: Number | None = Field(
        description="The largest privacy.sweep_epsilon of the spec that there is room for, where there is none for the "
        "spec; None for one that fits, and where nothing does."
    )
    further: int | None = Field(description="Sweeps like it that there is room for behind it; None for any number.")
    refused: str | None = Field(description="Why it is refused; None if there is room for it.")
    statement: str = Field(description="All of this in words.")

    @classmethod
    def of(cls, quote: "AccountQuote", redact: Callable[[str], str]) -> Self:
        """Return what is told of it."""
        return cls(
            account=quote.account,
            spender=quote.spender,
            takes=quote.takes,
            epsilon=quote.epsilon,
            delta=quote.delta,
            left=quote.left,
            left_behind=quote.left_behind,
            fits=quote.fits,
            further=quote.further,
            refused=None if quote.refused is None else redact(quote.refused),
            statement=redact(quote.in_words()),
        )
