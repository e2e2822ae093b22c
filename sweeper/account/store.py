"""The database of accounts: append-only entries in an SQLite file, or in PostgreSQL for several hosts.

Every change is one transaction that begins by locking the whole store (``BEGIN IMMEDIATE``, or the row of the store
``FOR UPDATE``), so that of two drivers who want the last of an account one waits, sees what the other took, and is
refused. A killed process leaves its transaction undone; PostgreSQL ends that of one which is stopped in it. Nothing is
ever updated but the head of an account, the number and hash of its last entry, without which the last entries could be
cut off unseen.
"""

import contextlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from sweeper.account.entries import Bound, Entry, Link, Reserved, link
from sweeper.errors import RecordError
from sweeper.specification.addresses import AccountAddress
from sweeper.store.jsonl import alone

FORMAT = 1
BUSY_SECONDS = 60.0  # how long a process waits for others, or for a database that is away, before it gives up
_SILENT_SHARE = 0.5  # of it, after which PostgreSQL ends the transaction of a process that is stopped: others go on
_LONGEST_PAUSE = 5.0  # seconds between two tries to reach a database
_LOCKED = "55P03"  # PostgreSQL's code of a lock that was waited for in vain
# what PostgreSQL says of itself: readers of a service may not know where accounts lie
_OF_SERVERS = re.compile(
    r'connection to server (at|on) .*? failed: |FATAL:  | for user "[^"]*"| "[^"]*"(?= to address)'
)
_CREATING = 5_204_712_093  # the lock of who makes the tables, a number that nobody else is likely to lock
_CONNECTING = {  # what an address may set otherwise: seconds until a host or a network that is gone is noticed
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "15",
    "keepalives_count": "3",
}
_WRITES = "sweeper_writes"
_MOUNTS = Path("/proc/self/mountinfo")  # what is mounted, a line each; its fifth word is where

_tables = sa.MetaData()
_STORE = sa.Table(
    "account_store",
    _tables,
    sa.Column("row", sa.Integer, primary_key=True),  # there is one
    sa.Column("id", sa.String(32), nullable=False),
    sa.Column("key", sa.String(64), nullable=False),
    sa.Column("format", sa.Integer, nullable=False),
)
_WHICH_TABLE = sa.text("select to_regclass('account_store')::oid")  # of the schemas that a connection looks in
_HEADS = sa.Table(
    "account_heads",
    _tables,
    sa.Column("account", sa.String(64), primary_key=True),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
)
_ENTRIES = sa.Table(
    "account_entries",
    _tables,
    sa.Column("account", sa.String(64), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("text", sa.Text, nullable=False),
)
_ROWS = sa.Table(
    "account_rows",
    _tables,
    sa.Column("rows_digest", sa.String(64), primary_key=True),
    sa.Column("account", sa.String(64), nullable=False),
)


@dataclass(frozen=True, slots=True)
class Head:
    """The number and the hash of the last entry of an account."""

    number: int
    digest: str


class StoreTransaction:
    """What may be asked and done inside one transaction."""

    def __init__(self, connection: sa.Connection, where: str, *, writes: bool) -> None:
        self._connection = connection
        one = sa.select(_STORE.c.id, _STORE.c.key, _STORE.c.format)
        row = connection.execute(one.with_for_update() if writes else one).one_or_none()
        if row is None or row.format != FORMAT:
            found = "none" if row is None else f"format {row.format}"
            raise RecordError(f"Expected a store of accounts of format {FORMAT} in {where}, got {found}")
        self.id: str = row.id
        self.key = bytes.fromhex(row.key)

    def names(self) -> tuple[str, ...]:
        """Return the names of all accounts."""
        return tuple(self._connection.execute(sa.select(_HEADS.c.account).order_by(_HEADS.c.account)).scalars())

    def head(self, account: str) -> Head | None:
        """Return the head of an account, ``None`` if there is no such account."""
        columns = sa.select(_HEADS.c.number, _HEADS.c.digest).where(_HEADS.c.account == account)
        row = self._connection.execute(columns).one_or_none()
        return None if row is None else Head(row.number, row.digest)

    def links(self, account: str, after: int = 0, until: int | None = None) -> tuple[Link, ...]:
        """Return the entries of an account behind the one of that number, in order, to the last one or another."""
        columns = sa.select(_ENTRIES.c.number, _ENTRIES.c.text, _ENTRIES.c.digest)
        chosen = columns.where(_ENTRIES.c.account == account, _ENTRIES.c.number > after).order_by(_ENTRIES.c.number)
        chosen = chosen if until is None else chosen.where(_ENTRIES.c.number <= until)
        return tuple(
            Link(number=row.number, text=row.text, digest=row.digest) for row in self._connection.execute(chosen)
        )

    def owner_of_rows(self, digest: str) -> str | None:
        """Return the account that is bound to the rows of a keyed digest, ``None`` if there is none."""
        columns = sa.select(_ROWS.c.account).where(_ROWS.c.rows_digest == digest)
        return self._connection.execute(columns).scalar_one_or_none()

    def append(self, account: str, head: Head, entries: Sequence[Entry]) -> Head:
        """Write entries behind the head of an account, number 0 for a new one, and return its new head."""
        is_new = head.number == 0
        for entry in entries:
            one = link(entry, head.number + 1, head.digest)
            row = {"account": account, "number": one.number, "digest": one.digest, "text": one.text}
            self._connection.execute(sa.insert(_ENTRIES), row)
            for digest in _digests_of(entry):
                if self.owner_of_rows(digest) is None:
                    self._connection.execute(sa.insert(_ROWS), {"rows_digest": digest, "account": account})
            head = Head(one.number, one.digest)
        values = {"number": head.number, "digest": head.digest}
        if is_new:
            self._connection.execute(sa.insert(_HEADS), {"account": account, **values})
        else:
            self._connection.execute(sa.update(_HEADS).where(_HEADS.c.account == account).values(**values))
        return head


def _digests_of(entry: Entry) -> tuple[str, ...]:
    """Return the digests of rows that an entry binds its account to."""
    if isinstance(entry, Bound):
        return (entry.digest,)
    if isinstance(entry, Reserved):
        return tuple(filter(None, (entry.table, *(entry.whole or ()), *(entry.read or ()))))
    return ()


class AccountStore:
    """The store of accounts at an address.

    Connections live as long as their transaction: a driver forks its workers, which must share none.

    Raises:
        RecordError: no store there, or one that other users of this machine can read: it has the key of digests.
    """

    def __init__(self, address: AccountAddress, *, is_made: bool = False) -> None:
        self.where, self._path = address.store, address.path
        self._was_reached = False
        if self._path is not None:
            _check_file(self._path, is_made=is_made)
        self.engine = _make_engine(address)

    @classmethod
    def create(cls, address: AccountAddress) -> "AccountStore":
        """Return the store at an address, which is made if need be, readable by its owner only.

        Raises:
            RecordError: it cannot be made.
        """
        if address.path is not None and not address.path.exists():
            try:
                os.close(os.open(address.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            except OSError as error:
                raise RecordError(
                    f"Cannot make {address.path}: {error.strerror or error}; choose another file (account)"
                ) from error
        store = cls(address, is_made=True)
        with store._translate_errors(), store.engine.connect() as connection:
            writing = store._options(connection, writes=True)
            with writing.begin():
                if address.path is None:  # where IF NOT EXISTS is no lock
                    writing.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATING)))
                _tables.create_all(writing)
                if writing.execute(sa.select(_STORE.c.row)).one_or_none() is None:
                    row = {"row": 1, "id": secrets.token_hex(16), "key": secrets.token_hex(32), "format": FORMAT}
                    writing.execute(sa.insert(_STORE), row)
        return store

    @contextlib.contextmanager
    def read(self) -> Iterator[StoreTransaction]:
        """Read inside the block, everything as of one moment.

        Raises:
            RecordError: the store cannot be read.
        """
        with self._transaction(writes=False) as transaction:
            yield transaction

    @contextlib.contextmanager
    def write(self) -> Iterator[StoreTransaction]:
        """Keep all others out inside the block; what it did is on the disk behind it, or nothing of it is.

        Raises:
            RecordError: the store cannot be written to; nothing was then.
        """
        with self._transaction(writes=True) as transaction:
            yield transaction

    def is_reached_at(self, address: AccountAddress) -> bool | None:
        """Whether another address leads to this database of PostgreSQL; ``None`` where no database is reached there.

        Guarantees:
            A copy is another one, whatever it holds: no lock that is taken here is met there, or, in another schema of
            the same database, its tables are others.

        Raises:
            RecordError: this store cannot be read.
        """
        number = secrets.randbits(62)
        with self._translate_errors(), self.engine.connect() as here:
            here.execute(sa.select(sa.func.pg_advisory_xact_lock(number)))
            try:
                other = _make_engine(address).connect()
            except OperationalError:
                return None
            with other as there:
                is_locked = not there.scalar(sa.select(sa.func.pg_try_advisory_xact_lock(number)))
                return is_locked and here.scalar(_WHICH_TABLE) == there.scalar(_WHICH_TABLE)

    @contextlib.contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[StoreTransaction]:
        self._check_is_there()
        turn = self._turn() if writes else contextlib.nullcontext()
        with turn, self._translate_errors(), self._connect(waits=writes) as connection:
            own = self._options(connection, writes=writes)
            with own.begin():
                yield StoreTransaction(own, self.where, writes=writes)

    def _check_is_there(self) -> None:
        """Refuse a file that is gone since it was opened, before anything is made at its place."""
        if self._path is not None and is_gone(self._path):
            raise RecordError(
                f"Expected the store of accounts at {self.where}, got none: it is gone; nothing was changed: bring it "
                "back, or leave a link to it there"
            )

    def _options(self, connection: sa.Connection, *, writes: bool) -> sa.Connection:
        """Isolate a transaction: one that reads sees one moment, one that writes what it has waited for."""
        own = connection.execution_options(**{_WRITES: writes})
        if self._path is not None:  # SQLite's are so
            return own
        return own.execution_options(isolation_level="READ COMMITTED" if writes else "REPEATABLE READ")

    def _connect(self, *, waits: bool) -> sa.Connection:
        """Connect; who ``waits`` tries again where a database is away that was reached before: nothing is sent yet."""
        until, pause = time.monotonic() + BUSY_SECONDS, 0.1
        while True:
            try:
                connection = self.engine.connect()
            except OperationalError:
                self._check_is_there()
                if not (waits and self._was_reached and self._path is None) or time.monotonic() + pause > until:
                    raise
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                self._was_reached = True
                return connection

    def _turn(self) -> contextlib.AbstractContextManager[None]:
        """Wait for other writers of this machine in a queue of the system; SQLite alone would poll, for seconds."""
        if self._path is None:
            return contextlib.nullcontext()
        path = self._path.resolve()  # one lock, whatever link leads to the store
        return alone(path.with_name(f"{path.name}-lock"), 0o600)

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            if getattr(cause, "pgcode", None) == _LOCKED:
                raise RecordError(
                    f"Expected the accounts in {self.where} to be free within {BUSY_SECONDS:g} s, got a process that "
                    "holds them; nothing was changed: end a driver that hangs, and try again"
                ) from error
            first = _OF_SERVERS.sub("", str(cause).strip().partition("\n")[0])
            raise RecordError(
                f"Cannot use the accounts in {self.where}: {first}; nothing was changed: free space, check "
                "permissions, or wait for others"
            ) from error


def _make_engine(address: AccountAddress) -> sa.Engine:
    if address.path is None:
        url = sa.make_url(address.store).set(drivername="postgresql+psycopg2")
        try:
            engine = sa.create_engine(url.set(query={**_CONNECTING, **url.query}), poolclass=sa.NullPool)
        except ModuleNotFoundError as error:
            raise RecordError(
                f"Expected psycopg2 for accounts in {address.store}, got none; pip install 'sweeper[stack]'"
            ) from error
        sa.event.listen(engine, "begin", _limit)
        return engine
    file = address.path.absolute().as_uri()  # by which SQLite makes no file where a store was moved away
    url = sa.URL.create("sqlite", database=file, query={"mode": "rw", "uri": "true"})
    engine = sa.create_engine(url, poolclass=sa.NullPool, connect_args={"timeout": BUSY_SECONDS})
    sa.event.listen(engine, "connect", _begin_by_hand)
    sa.event.listen(engine, "begin", _begin)
    return engine


def _begin_by_hand(connection: Any, _record: Any) -> None:
    """Leave transactions to `_begin`: sqlite3 would start them late, after both of two have read."""
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode = PERSIST")  # on the disk when a commit returns, which DELETE is not
    connection.execute("PRAGMA synchronous = FULL")


def _begin(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _limit(connection: sa.Connection) -> None:
    """Bound how long a transaction of PostgreSQL that writes waits for others, and how long it lets others wait.

    It is on the disk when its commit returns, whatever the server, the database or the role say by default.
    """
    if connection.get_execution_options().get(_WRITES):
        connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {1000 * BUSY_SECONDS:.0f}")
        silent = 1000 * BUSY_SECONDS * _SILENT_SHARE
        connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = {silent:.0f}")


def is_gone(path: Path) -> bool:
    """Whether nothing is at the place of a store: no file, or the empty one that earlier versions left there."""
    try:
        return path.stat().st_size == 0
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # it is there for others, perhaps
        return False


def _check_file(path: Path, *, is_made: bool) -> None:
    """Refuse a file that others can read, or that has a second name: its journal is beside one of them.

    An empty one is none, unless a store ``is_made`` in it.
    """
    trouble, found = "an empty file", None
    try:
        found = path.stat()
    except OSError as error:
        trouble = error.strerror or str(error)
    if found is None or (found.st_size == 0 and not is_made):
        raise RecordError(
            f"Expected a store of accounts at {path}, got {trouble}; leave a link there if it was moved, or make it "
            "with sweeper account open"
        )
    if found.st_mode & stat.S_IRWXO:
        raise RecordError(f"Expected a store that no other user can read, for it has a key; chmod o= {path}")
    if found.st_nlink > 1 or _is_mounted(path.resolve()):
        raise RecordError(
            f"Expected a store under one name, got {path}, a file with a hard link or mounted by itself: a change that "
            "was cut short would be taken back under one name alone; remove the link, or mount its folder"
        )


def _is_mounted(path: Path) -> bool:
    """Whether a file is mounted at its path, by itself; not known of systems without a list of what is mounted."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return False
    escaped = str(path).replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011").replace("\n", "\\012")
    return any(line.split(" ")[4:5] == [escaped] for line in lines)
