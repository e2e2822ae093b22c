"""A store in PostgreSQL: raced for, held by a driver that is stopped, away, moved and copied."""

import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from sweeper.account import store
from sweeper.account.account import Account
from sweeper.account.blocks import ALL_ROWS
from sweeper.account.cost import rounded_up
from sweeper.account.entries import Side
from sweeper.account.positions import NOTHING_YET
from sweeper.account.receipts import make_receipt, read_receipt
from sweeper.account.rules import reserve_entries
from sweeper.account.store import AccountStore
from sweeper.account.verify import settle_folder, verify_account
from sweeper.errors import AccountError, RecordError
from sweeper.specification.addresses import parse_address
from tools.stack import database

from .accounts import DAY, ONE, costs, make, wants, write_rows
from .test_store import REFUSED, WON, run_apart
from .test_verify import begin, train

pytestmark = pytest.mark.postgresql

HALF = {side: rounded_up(cost) for side, cost in costs(ONE / 2, 1e-9).items()}


class Server:
    """A PostgreSQL of this machine that speaks in a folder alone."""

    def __init__(self, folder):
        self.folder, self.data = folder, folder / "data"
        self.bin, owner = database.programs(), database.owner()
        self.identity = {} if owner is None else {"user": owner, "group": owner, "extra_groups": []}
        folder.chmod(0o777)
        self.data.mkdir()
        if owner is not None:
            shutil.chown(self.data, owner, owner)
        init = [self.bin / "initdb", "--pgdata", self.data, "--username=me", "--auth=trust", "--no-sync"]
        subprocess.run(init, check=True, cwd="/", stdout=subprocess.DEVNULL, **self.identity)
        self.start()

    def start(self):
        options = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={self.folder}", "-c", "fsync=off"]
        self.process = subprocess.Popen(
            [self.bin / "postgres", "-D", self.data, *options],
            cwd="/", stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **self.identity,
        )  # fmt: skip
        waits = [self.bin / "pg_isready", "--quiet", "--host", self.folder]
        while subprocess.run(waits, check=False).returncode != 0:
            assert self.process.poll() is None

    def stop(self):
        self.process.send_signal(signal.SIGQUIT)  # an immediate stop
        self.process.wait()

    def address(self, name, more="", account="clinic"):
        return parse_address(f"postgresql://me@/{name}?host={self.folder}{more}#{account}")

    def ask(self, statement, database="postgres"):
        """Run a statement beside all transactions, and return the first value, if there is one."""
        engine = sa.create_engine(f"postgresql+psycopg2://me@/{database}?host={self.folder}", poolclass=sa.NullPool)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            found = connection.execute(sa.text(statement))
            return found.scalar() if found.returns_rows else None


@pytest.fixture(scope="module")
def server():
    with tempfile.TemporaryDirectory() as name:
        made = Server(Path(name))
        try:
            yield made
        finally:
            made.stop()


@pytest.fixture
def name(server):
    """The name of an empty database."""
    own = f"d{secrets.token_hex(4)}"
    server.ask(f"CREATE DATABASE {own}")
    return own


@pytest.fixture
def address(server, name):
    return server.address(name)


@pytest.mark.long
def test_the_same_account_lives_in_postgresql_where_one_of_two_wins_too(address, account, ledger):
    account.reserve(wants("s"))
    write_rows(ledger, "draw")
    account.charge(wants("s"), "t1/1", HALF, ledger)
    account.settle("s", ledger)
    account.release(wants("evaluation", costs(ONE / 9), split=None), "evaluation", ledger)
    account.charge(wants("s", blocks={ALL_ROWS: "ab"}), "t1/1", {}, ledger)  # known: it costs nothing more
    account.reserve(wants("selection", costs(ONE / 4)))
    known = account.reservation_of("selection")
    eighth = {side: rounded_up(cost) for side, cost in costs(ONE / 8, 1e-9).items()}
    account.charge(known, "selection", eighth, ledger, NOTHING_YET)
    assert account.balance().sweeps["selection"].position == NOTHING_YET
    account.settle("selection", ledger)
    code = "import sys; address = crashes.parse_address(sys.argv[1]); "
    assert run_apart(code + "print(crashes.json.dumps(crashes.kill_holder(address)))", address)
    assert run_apart(code + "print(crashes.race(address, 2))", address) == [[WON, REFUSED]] * 2
    assert verify_account(address).findings == ()
    assert Account(address, clock=lambda: DAY).balance().sweeps["s"].is_open is False


@pytest.mark.sampled(3)
@pytest.mark.parametrize("level", ["serializable", "read committed", "repeatable read"])
def test_who_has_waited_sees_what_it_has_waited_for_whatever_the_isolation_of_the_database_is(server, name, level):
    server.ask(f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")
    left = make(server.address(name)).balance().left((ALL_ROWS, Side.TRAINING)).square
    one, other = (Account(server.address(name), clock=lambda: DAY) for _ in range(2))
    with ThreadPoolExecutor() as pool:
        with one._chain.change() as (_, balance, entries):
            waiting = pool.submit(other.reserve, wants("b", costs(0.3 * left, 1e-9)))
            while not server.ask("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                assert not waiting.done()
            entries += reserve_entries(balance, wants("a", costs(0.3 * left, 1e-9)), "now")
        waiting.result()
    assert set(one.balance().sweeps) == {"a", "b"}
    with pytest.raises(AccountError, match="has room for"):
        other.reserve(wants("c", costs(0.6 * left, 1e-9)))


def test_a_charge_is_on_the_disk_when_it_returns_whatever_the_database_says_of_commits(server, name):
    server.ask(f"ALTER DATABASE {name} SET synchronous_commit = off")
    address = server.address(name)
    make(address)
    engine = store._make_engine(address)
    for writes, setting in ((True, "on"), (False, "off")):
        own = engine.connect().execution_options(**{store._WRITES: writes})
        with own as connection, connection.begin():
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == setting


def test_a_driver_that_is_stopped_in_a_transaction_loses_it_and_others_go_on(account, address, monkeypatch):
    monkeypatch.setattr(store, "BUSY_SECONDS", 4.0)
    with (
        pytest.raises(RecordError, match=r"Cannot use the accounts in .*; nothing was changed"),
        AccountStore(address).write(),
    ):
        account.reserve(wants("s"))  # while the other one says nothing
    assert set(account.balance().sweeps) == {"s"}


def test_who_waits_in_vain_is_told_so(account, address, monkeypatch):
    monkeypatch.setattr(store, "BUSY_SECONDS", 1.0)
    holder = sa.create_engine(AccountStore(address).engine.url, poolclass=sa.NullPool)
    with holder.connect() as connection:
        connection.execute(sa.text("SELECT * FROM account_store FOR UPDATE"))
        with pytest.raises(
            RecordError,
            match=r"Expected the accounts in postgresql://.* to be free within 1 s, got a process that holds them; "
            "nothing was changed: end a driver that hangs, and try again",
        ):
            account.reserve(wants("s"))
    account.reserve(wants("s"))


def test_accounts_are_opened_at_the_same_moment_in_an_empty_database(server, name):
    addresses = [server.address(name, account=f"a{number}") for number in range(6)]
    start = threading.Barrier(len(addresses))

    def open_(address):
        start.wait()
        make(address)

    with ThreadPoolExecutor(len(addresses)) as pool:
        list(pool.map(open_, addresses))
    with AccountStore(addresses[0]).read() as transaction:
        assert transaction.names() == tuple(one.name for one in addresses)


def test_a_charge_waits_for_a_database_that_is_away_and_a_look_does_not(server, account, address, ledger, monkeypatch):
    account.reserve(wants("s"))
    write_rows(ledger, "draw")
    server.stop()
    pauses = []

    def come_back(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            server.start()

    try:
        monkeypatch.setattr(store.time, "sleep", come_back)
        for look in (account.balance, lambda: Account(address)):
            with pytest.raises(RecordError, match="Cannot use the accounts in"):
                look()
        assert not pauses
        account.charge(wants("s"), "t1/1", HALF, ledger)
        assert pauses == [0.1, 0.2, 0.4]
    finally:
        if server.process.poll() is not None:
            server.start()
    account.charge(wants("s"), "t1/1", HALF, ledger)
    sweep = Account(address, clock=lambda: DAY).balance().sweeps["s"]
    assert (list(sweep.charged), sweep.drawn) == (["t1/1"], HALF)
    assert verify_account(address).findings == ()


def test_a_charge_does_not_wait_for_ever(server, account, ledger, monkeypatch):
    account.reserve(wants("s"))
    write_rows(ledger, "draw")
    monkeypatch.setattr(store, "BUSY_SECONDS", 1.0)
    server.stop()
    try:
        with pytest.raises(RecordError, match="Cannot use the accounts in"):
            account.charge(wants("s"), "t1/1", HALF, ledger)
    finally:
        server.start()
    assert account.balance().sweeps["s"].charged == {}


def test_a_store_that_was_moved_or_is_spelled_otherwise_is_followed_and_a_copy_is_not(server, name, tmp_path):
    account = make(server.address(name))
    (folder := tmp_path / "sweep").mkdir()
    sweep = begin(account, folder)
    train(account, folder, sweep, "t1")
    spelled = server.address(name, "&application_name=x")
    assert make_receipt(folder, Account(spelled)).account == str(spelled)
    server.ask(f"CREATE DATABASE {name}_copy TEMPLATE {name}")
    copy = server.address(f"{name}_copy")
    for refused in (lambda: make_receipt(folder, Account(copy)), lambda: settle_folder(folder, copy)):
        with pytest.raises(AccountError, match=r"Expected account .* as before, got .*_copy"):
            refused()
    assert read_receipt(folder).account == str(spelled)
    server.ask("CREATE SCHEMA other", name)
    for table in ("account_store", "account_heads", "account_entries", "account_rows"):
        server.ask(f"CREATE TABLE other.{table} AS TABLE {table}", name)
    with pytest.raises(AccountError, match=r"Expected account .* as before, got .*options"):
        make_receipt(folder, Account(server.address(name, "&options=-csearch_path%3Dother")))
    server.ask("DROP SCHEMA other CASCADE", name)
    server.ask(f"CREATE DATABASE {name}_old TEMPLATE {name}")
    account.reserve(wants("other", costs(1e-3)))
    read_receipt(folder).seen(account).write(folder)
    server.ask(f"ALTER DATABASE {name} RENAME TO {name}_new")
    with pytest.raises(AccountError, match="the store was restored from a backup"):
        settle_folder(folder, server.address(f"{name}_old"))
    other = server.address(f"{name}_old", account="other")
    make(other)
    with pytest.raises(AccountError, match=r"Expected account .* as before, got .*#other"):
        settle_folder(folder, other)
    new = server.address(f"{name}_new")
    assert settle_folder(folder, new) == new
    assert read_receipt(folder).account == str(new)
    assert not Account(new).balance().sweeps[sweep].is_open
    assert verify_account(new, [folder]).findings == ()
