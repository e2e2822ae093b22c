"""One account as sweeps spend it: reserved from before anything is drawn, charged at each draw, settled at the end."""

import datetime
from collections.abc import Callable, Sequence
from copy import deepcopy
from itertools import chain
from pathlib import Path

from clipless.privacy.gaussian import GaussianCost
from sweeper.account.balance import Balance, SweepAccount
from sweeper.account.chain import AccountChain
from sweeper.account.draws import SELECTION, Draw
from sweeper.account.entries import Costs, Entry, Position, Settled, Side
from sweeper.account.owner import time_in_text
from sweeper.account.positions import NOTHING_YET, check_position, position_of
from sweeper.account.rules import (
    Reservation,
    charge_entries,
    find_refusal,
    note_entries,
    release_entries,
    reserve_entries,
    room_entries,
    room_refusal,
)
from sweeper.account.store import Head, StoreTransaction
from sweeper.errors import AccountError, RecordError
from sweeper.specification.addresses import AccountAddress


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class Account:
    """An account that has been opened.

    Args:
        address: of its store, and its name.
        clock: tells the time.

    Raises:
        RecordError: there is no such account, or its store cannot be read.

    Guarantees:
        When ``reserve``, ``charge`` or ``settle`` has returned, its entries are on the disk. On every side of every
        block, what sweeps hold together never exceeds the budget, whatever number of processes uses the account and
        whenever they are killed. When ``charge`` raises, no noise may be drawn.
    """

    def __init__(self, address: AccountAddress, *, clock: Callable[[], datetime.datetime] = _now) -> None:
        self.address, self._clock = address, clock
        self._chain = AccountChain(address)
        self.terms = self._chain.terms  # see `Balance.terms`

    @property
    def store_id(self) -> str:
        """The id of the store, which its copies have too."""
        return self._chain.store_id

    @property
    def key(self) -> bytes:
        """The key of the digests of rows."""
        return self._chain.key

    @property
    def head(self) -> Head:
        """The last entry that was read or written."""
        return self._chain.head

    def digest_at(self, number: int) -> str | None:
        """Return the hash of an entry, ``None`` if there are not as many."""
        return self._chain.digest_at(number)

    def balance(self) -> Balance:
        """Return what the account has given away by now."""
        return self._chain.balance()

    def entries(self, after: int, until: int) -> tuple[Entry, ...]:
        """Return the entries behind the one of a number, up to and with another, in order.

        Raises:
            RecordError: one is not what was written, or the store cannot be read.
        """
        return self._chain.entries(after, until)

    def refusal(self, wanted: Reservation, *after: Reservation) -> str | None:
        """Return why ``reserve`` would refuse a sweep now, ``None`` if there is room for it.

        Where it comes ``after`` others, none of which would be refused, these count as if they had reserved.
        """
        with self._chain.reading() as (transaction, balance):
            if after:
                balance = deepcopy(balance)
            for entry in chain.from_iterable(reserve_entries(balance, one, self._at()) for one in after):
                balance.take(entry)
            return self._refusal(transaction, balance, wanted)

    def reserve(self, wanted: Reservation, ledger: Path | None = None) -> None:
        """Reserve everything that a sweep plans; what it has reserved before is found again and not taken twice.

        Args:
            wanted: the sweep, and what it plans.
            ledger: its file, where it goes on with one.

        Raises:
            AccountError: there is no room for it, or its data are not those of the account; nothing was reserved.
            RecordError: a ledger that has lost what the account knows of it, or a store that cannot be written to;
                nothing was reserved.
        """
        with self._chain.change() as (transaction, balance, entries):
            known = balance.sweeps.get(wanted.sweep)
            if known is not None and ledger is not None:
                check_position(known.position, ledger, known.title)
            refused = self._refusal(transaction, balance, wanted)
            enter = reserve_entries if refused is None else note_entries
            entries += enter(balance, wanted, self._at())
        if refused is not None:
            raise AccountError(refused)

    def charge(
        self, wanted: Reservation, what: str, costs: Costs, ledger: Path, position: Position | None = None
    ) -> None:
        """Charge a release that the ledger of its sweep has entered, before its noise is drawn.

        It takes from what its sweep has reserved, and where that is not enough, from what the account has left.

        Args:
            wanted: the sweep, which has reserved.
            what: which release, once for each; a second call changes nothing.
            costs: what it takes on each side of the sweep's own split.
            ledger: the file.
            position: how much of the ledger is noted; all of it by default.

        Raises:
            AccountError: the account has no room for it.
            RecordError: a ledger that has lost what the account knows of it, or a store that cannot be written to. No
                noise may be drawn then either.
        """
        with self._chain.change() as (_, balance, entries):
            known = _find(balance, wanted.sweep)
            check_position(known.position, ledger, known.title)
            if what in known.charged:
                return
            refused = room_refusal(balance, wanted, [costs], self._clock().date())
            if refused is not None:
                raise AccountError(refused)
            entries += charge_entries(balance, wanted, what, costs, position or position_of(ledger), self._at())

    def release(self, wanted: Reservation, what: str, ledger: Path) -> None:
        """Reserve, charge and settle one release outside of a sweep at once, before its noise is drawn.

        Args:
            wanted: what it costs, under an id that no sweep and no other release has.
            what: which release it is.
            ledger: the file in which whoever draws enters what was drawn.

        Raises:
            AccountError: there is no room for it, its rows are not those of the account, or the id is known.
            RecordError: the store cannot be written to. No noise may be drawn then either.
        """
        with self._chain.change() as (transaction, balance, entries):
            if wanted.sweep in balance.sweeps:
                raise AccountError(f"Expected a new id for {wanted.title!r}, got {wanted.sweep!r}; draw another")
            refused = self._refusal(transaction, balance, wanted)
            if refused is not None:
                raise AccountError(refused)
            entries += release_entries(balance, wanted, what, position_of(ledger), self._at())

    def make_room(self, wanted: Reservation, draws: Sequence[Costs]) -> str | None:
        """Reserve what releases need beyond what their sweep has reserved, or return why there is no room for them.

        Args:
            wanted: the sweep, which has reserved.
            draws: what each takes on each side of the sweep's own split: all that it may charge next, in any order.

        Raises:
            RecordError: the store cannot be written to.

        Guarantees:
            Where it returns ``None``, ``charge`` refuses none of them for want of room.
        """
        with self._chain.change() as (_, balance, entries):
            _find(balance, wanted.sweep)
            refused = room_refusal(balance, wanted, draws, self._clock().date())
            if refused is None:
                entries += room_entries(balance, wanted, draws, self._at())
            return refused

    def reservation_of(self, sweep: str) -> Reservation:
        """Return what a sweep that has reserved asks, without a cost, to be charged for where its data are not at hand.

        Raises:
            RecordError: it has not.
        """
        balance = self.balance()
        known = _find(balance, sweep)
        return Reservation(
            sweep=sweep,
            title=known.title,
            spender=known.spender,
            unit=balance.opened.unit,
            relation=balance.opened.relation,
            costs={},
            split=known.split,
            sides=known.sides,
            blocks={block: balance.digests[block] for block in known.blocks},
        )

    def settle(self, sweep: str, ledger: Path, position: Position | None = None) -> dict[Side, GaussianCost]:
        """Give back what a sweep has reserved and not drawn, and return that; a second call gives nothing.

        Every draw of its ledger must be charged before. ``position`` is as for ``charge``.

        Raises:
            RecordError: as for ``charge``.
        """
        with self._chain.change() as (_, balance, entries):
            known = _find(balance, sweep)
            check_position(known.position, ledger, known.title)
            returned = known.undrawn
            if known.is_open:
                noted = position or position_of(ledger)
                entries.append(Settled(sweep=sweep, returned=returned, position=noted, at=self._at()))
            return returned

    def _refusal(self, transaction: StoreTransaction, balance: Balance, wanted: Reservation) -> str | None:
        of_others = _refuse_rows_of_others(transaction, wanted, self.address)
        return of_others or find_refusal(balance, wanted, self._clock().date())

    def _at(self) -> str:
        return time_in_text(self._clock())


def charge_draw(account: Account, wanted: Reservation, draw: Draw, ledger: Path) -> None:
    """Charge a release that the ledger says is drawn; one that is charged costs nothing more.

    Raises:
        AccountError, RecordError: it could not be charged.
    """
    position = NOTHING_YET if draw.what == SELECTION else None
    account.charge(wanted, draw.what, draw.costs(*account.terms), ledger, position)


def _refuse_rows_of_others(transaction: StoreTransaction, wanted: Reservation, address: AccountAddress) -> str | None:
    known = {f"those of block {block!r}": digest for block, digest in wanted.blocks.items()}
    if wanted.table is not None:
        known["the same table, in other blocks or with other ranges"] = wanted.table
    for block, digest in wanted.read.items():
        known[f"those of block {block!r}, with other ranges"] = digest
    for which, digest in (*known.items(), *(("the same rows, in other blocks", digest) for digest in wanted.whole)):
        owner = transaction.owner_of_rows(digest)
        if owner not in (None, address.name):
            return (
                f"Expected rows of no other account, but account {owner!r} of {address.store} has {which}: a budget is "
                f"that of the people; use {owner!r}"
            )
    return None


def _find(balance: Balance, sweep: str) -> SweepAccount:
    known = balance.sweeps.get(sweep)
    if known is None:
        raise RecordError(
            f"Expected a sweep that has reserved from account {balance.opened.name!r}, got {sweep!r}; reserve it first"
        )
    return known
