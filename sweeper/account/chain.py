"""The entries of one account, read and added to: each change sees what others have added, and nobody adds meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager

from clipless.spelling import did_you_mean
from sweeper.account.balance import Balance, replay
from sweeper.account.entries import Entry, first_digest, follow_links
from sweeper.account.store import AccountStore, Head, StoreTransaction
from sweeper.errors import RecordError
from sweeper.specification.addresses import AccountAddress


class AccountChain:
    """The chain of an account that has been opened.

    It keeps the entries that it has read. Each look reads those that were added since, and checks that they follow.

    Raises:
        RecordError: there is no such account, its store cannot be read, or an entry is not what was written.
    """

    def __init__(self, address: AccountAddress) -> None:
        self.address = address
        self._store = AccountStore(address)
        self._balance: Balance | None = None
        self.head = Head(0, "")  # the last entry that was read or written
        with self._store.read() as transaction:
            self.terms = self._look(transaction).terms  # those of the opening, which stay
            self.store_id, self.key = transaction.id, transaction.key

    def balance(self) -> Balance:
        """Return what the account has given away by now."""
        with self.reading() as (_, balance):
            return balance

    def digest_at(self, number: int) -> str | None:
        """Return the hash of an entry, ``None`` if there are not as many."""
        with self._store.read() as transaction:
            return next((one.digest for one in transaction.links(self.address.name, number - 1)), None)

    def entries(self, after: int, until: int) -> tuple[Entry, ...]:
        """Return the entries behind the one of a number, up to and with another, as they were written.

        Raises:
            RecordError: one is not what was written, or missing.
        """
        name = self.address.name
        with self._store.read() as transaction:
            before = transaction.links(name, after - 1, after) if after else ()
            previous = before[0].digest if before else first_digest(transaction.id, name)
            return follow_links(transaction.links(name, after, until), after, previous)

    @contextmanager
    def reading(self) -> Iterator[tuple[StoreTransaction, Balance]]:
        """Read inside the block, as of one moment."""
        with self._store.read() as transaction:
            yield transaction, self._look(transaction)

    @contextmanager
    def change(self) -> Iterator[tuple[StoreTransaction, Balance, list[Entry]]]:
        """Add the entries that the block lists; others wait until it has ended.

        Raises:
            RecordError: an entry breaks the rules, or the store cannot be written to.

        Guarantees:
            All of its entries are on the disk behind the block, or where it raises, none.
        """
        entries: list[Entry] = []
        try:
            with self._store.write() as transaction:
                balance, head = self._look(transaction), self.head
                yield transaction, balance, entries
                for entry in entries:
                    balance.take(entry)
                if entries:
                    head = transaction.append(self.address.name, head, entries)
        except BaseException:
            self._balance = None  # it may hold what the store does not
            raise
        self.head = head

    def _look(self, transaction: StoreTransaction) -> Balance:
        name, known = self.address.name, self._balance
        head = transaction.head(name)
        if head is None:
            names = transaction.names()
            listed, remedy = ", ".join(names) or "none", did_you_mean(name, names) or "open it first"
            raise RecordError(f"Expected an account of {self.address.store} ({listed}), got {name!r}; {remedy}")
        last = self.head if known is not None else Head(0, first_digest(transaction.id, name))
        links = transaction.links(name, last.number)
        if (Head(links[-1].number, links[-1].digest) if links else last) != head:
            raise RecordError(
                f"Expected entries of account {name!r} in {self.address.store} up to number {head.number}, got others; "
                "restore the store"
            )
        entries = follow_links(links, last.number, last.digest)
        if known is None:
            known = replay(entries)
        else:
            for entry in entries:
                known.take(entry)
        self._balance, self.head = known, head
        return known
