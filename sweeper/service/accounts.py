"""The accounts of a service: how each stands, what a submission reserves, and who may go on with a sweep.

Routes, pages and tools call this; none of them decides anything about an account.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sweeper.account.account import Account
from sweeper.account.listing import EntryRow, list_entries
from sweeper.account.receipts import make_receipt, read_receipt
from sweeper.account.rules import Reservation
from sweeper.account.summary import AccountSummary, Room, count_like, room_of, summarise
from sweeper.account.verify import Verification, find_folders, verify_account
from sweeper.errors import AccountError, RecordError, RefusalError, UnknownAccountError
from sweeper.service.cache import SharedCache
from sweeper.service.problems import Redactor
from sweeper.service.security.declared_accounts import check_charged, check_declared
from sweeper.service.settings import ServiceSettings
from sweeper.specification.addresses import parse_address

VERIFIED_SECONDS = 30.0  # for which a verdict on entries that did not change is not sought again


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountState:
    """How one account stands.

    Attributes:
        data: the data sets whose sweeps are charged to it, as the operator has named them.
        summary: what is taken, by whom, on what, and of which side of which block.
        entries: how many it has.
        room: what the one who asks may still take.
        like_last: how many more sweeps that reserve what the last of ``summary.sweeps`` reserved that is in; ``None``
            for any number, or without one.
    """

    data: tuple[str, ...]
    summary: AccountSummary
    entries: int
    room: Room
    like_last: int | None


class ServiceAccounts:
    """The accounts that the operator of a service has declared; its methods may be called from any thread.

    Raises:
        SweeperError: a declaration of data that are not there, or of two accounts of one name.
        RecordError: an account that is not open, or whose store cannot be read.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        check_declared(settings)
        self._settings = settings
        known = dict.fromkeys(settings.accounts.values())
        self._accounts = {address.name: Account(address) for address in sorted(known, key=lambda one: one.name)}
        self._locks = {name: threading.Lock() for name in self._accounts}
        self._verdicts: SharedCache[Verification] = SharedCache()
        self.redact = Redactor(settings.out, stores=[address.store for address in known])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all accounts, in alphabetical order."""
        return tuple(self._accounts)

    def digest(self, name: str) -> str:
        """Return the hash of the last entry of an account, which changes with every entry; raises as `state`."""
        with self.use(name) as account:
            account.balance()
            return account.head.digest

    def state(self, name: str, spender: str) -> AccountState:
        """Return how an account stands, and what a spender may still take.

        Raises:
            UnknownAccountError: no account of that name.
            RecordError: it cannot be read.
        """
        with self.use(name) as account:
            balance = account.balance()
            last = next(reversed(balance.sweeps.values()), None)
            return AccountState(
                data=tuple(data for data, address in self._settings.accounts.items() if address.name == name),
                summary=summarise(balance),
                entries=account.head.number,
                room=room_of(balance, spender, balance.places()),
                like_last=None if last is None else count_like(balance, spender, last.blocks, last.reserved),
            )

    def entries(self, name: str, offset: int, limit: int) -> tuple[tuple[EntryRow, ...], int]:
        """Return a page of the entries of an account, newest first, and how many there are; raises as `state`."""
        with self.use(name) as account:
            return list_entries(account, offset, limit)

    def verify(self, name: str) -> Verification:
        """Replay an account from its first entry, and compare it with the ledgers of the sweeps of the service.

        Raises:
            UnknownAccountError: no account of that name.
        """
        with self.use(name) as account:
            address = account.address
            try:
                account.balance()
                version = account.head.digest
            except RecordError as error:  # which the verdict says, too
                version = str(error)

        def make() -> Verification:
            found = verify_account(address, find_folders([self._settings.out]))
            return replace(found, findings=tuple(map(self.redact, found.findings)))

        return self._verdicts.get(name, make, version, VERIFIED_SECONDS)

    def reserve(self, wanted: Reservation, account: str, folder: Path, title: str) -> None:
        """Reserve for a submission what its sweep plans; its driver finds the reservation by the receipt in its folder.

        Raises:
            AccountError: there is no room for it: the message has the price and what would fit. Nothing was reserved.
            RecordError: the store or the folder cannot be written to.
        """
        with self.use(parse_address(account).name) as known:
            receipt = make_receipt(folder, known)
            known.reserve(replace(wanted, sweep=receipt.sweep, title=title))
            receipt.seen(known).write(folder)

    def check_resume(self, folder: Path, submitted_by: str, by: str) -> None:
        """Refuse to go on with a sweep for somebody who would spend the share of another, or spend past the account.

        Args:
            folder: of the sweep.
            submitted_by: who submitted it, empty where nobody did.
            by: who asks.

        Raises:
            RefusalError: another one's share.
            AccountError: its data have an account that it does not charge.
            RecordError: the sweep or its account cannot be read.
        """
        check_charged(folder, self._settings)
        self.check_spender(folder, submitted_by, by)

    def check_spender(self, folder: Path, submitted_by: str, by: str) -> None:
        """Refuse that somebody decides what the share of another is spent on.

        Raises:
            RefusalError: likewise.
            RecordError: the account of the sweep cannot be read.
        """
        spender = self.spender_of(folder, submitted_by)
        if spender is not None and spender != by:
            raise RefusalError(
                f"Expected {spender}, in whose name {folder.name} is charged to its account, got {by}; leave it "
                "to them, or submit a sweep of your own",
                403,
            )

    def spender_of(self, folder: Path, submitted_by: str) -> str | None:
        """Return in whose name a sweep is charged, ``None`` where it is charged to no account.

        Raises:
            RecordError: its account cannot be read.
        """
        receipt = read_receipt(folder)
        if receipt is None:
            return None
        known = Account(parse_address(receipt.account)).balance().sweeps.get(receipt.sweep)
        return submitted_by if known is None else known.spender

    @contextmanager
    def use(self, name: str) -> Iterator[Account]:
        """Give an account to one thread at a time: to look at it changes what it has read before.

        Raises:
            UnknownAccountError: no account of that name.
            AccountError, RecordError: those of the block, without paths of this machine.
        """
        if name not in self._accounts:
            known = ", ".join(self._accounts) or "none"
            raise UnknownAccountError(f"Expected an account of this service ({known}); got another name")
        with self._locks[name]:
            try:
                yield self._accounts[name]
            except (AccountError, RecordError) as error:
                raise type(error)(self.redact(str(error))) from error
