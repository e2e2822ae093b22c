"""The database of accounts: killed, raced for, full, and readable by others."""

import itertools
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from sweeper.account import store
from sweeper.account.account import Account
from sweeper.account.blocks import ALL_ROWS
from sweeper.account.cost import rounded_up
from sweeper.account.entries import Side
from sweeper.account.store import AccountStore
from sweeper.account.verify import verify_account
from sweeper.errors import RecordError, SweeperError
from sweeper.specification.addresses import AccountAddress, find_account, parse_address

from .accounts import costs, make, wants, write_rows

ROOT = Path(__file__).parents[3]
KILLED, WON, REFUSED = 9, 0, 3
TRAINING = (ALL_ROWS, Side.TRAINING)


def run_apart(code, *arguments):
    """What code of `crashes` prints in a process of its own, with the packages that this one has."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    command = [sys.executable, "-P", "-c", f"from tests.sweeper.account import crashes; {code}", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def crash(folder, step):
    return run_apart("crashes.main()", folder, step)


def check_crashes(found):
    assert found["races"] == [[WON, REFUSED]] * 2
    assert found["holder"]
    for one in found["kills"]:
        assert one == {"ended": KILLED, "charged before it drew": False, "holds what it drew": True}


def test_killed_between_statements_a_sweep_goes_on_with_its_own_and_of_two_that_race_one_wins(tmp_path):
    found = crash(tmp_path, 3)  # one of them between an entry and the head of its chain
    assert len(found["kills"]) >= 6
    check_crashes(found)


@pytest.mark.long
def test_killed_before_any_statement_a_sweep_goes_on_with_its_own(tmp_path):
    found = crash(tmp_path, 1)
    assert len(found["kills"]) >= 20
    check_crashes(found)


def fill_up(account, names):
    for name in names:
        account.reserve(wants(f"full{name}", costs(1e-9, 1e-12)))


def test_a_full_disk_refuses_and_loses_nothing(account, ledger, address):
    account.reserve(wants("s"))
    before, pages = account.balance().taken, []

    def fill(connection, _record):
        pages.append(connection.execute("PRAGMA page_count").fetchone()[0])
        connection.execute(f"PRAGMA max_page_count = {pages[0]}")

    engine = account._chain._store.engine
    sa.event.listen(engine, "connect", fill)
    names = itertools.count()
    with pytest.raises(RecordError, match="database or disk is full; nothing was changed: free space"):
        fill_up(account, names)
    refused = next(names) - 1
    write_rows(ledger, "draw")
    with pytest.raises(RecordError, match="full"):
        account.charge(wants("s"), "t1/1", account.balance().sweeps["s"].undrawn, ledger)
    sa.event.remove(engine, "connect", fill)
    assert verify_account(address).findings == ()
    held = rounded_up(costs(1e-9, 1e-12)[Side.TRAINING]).square * refused
    assert before(TRAINING).square + held == pytest.approx(Account(address).balance().taken(TRAINING).square)
    account.charge(wants("s"), "t1/1", account.balance().sweeps["s"].undrawn, ledger)


def test_a_store_is_its_owners_alone(account, address):
    assert address.path.stat().st_mode & 0o777 == 0o600
    address.path.chmod(0o604)
    with pytest.raises(RecordError, match="Expected a store that no other user can read, for it has a key; chmod o="):
        Account(address)
    assert account.head.number == 1


def test_a_store_that_is_none_or_of_another_format_is_refused(address, tmp_path):
    with pytest.raises(RecordError, match="make it with sweeper account open"):
        Account(address)
    make(address)
    with sqlite3.connect(address.path) as connection:
        connection.execute("UPDATE account_store SET format = 9")
    with pytest.raises(RecordError, match=r"Expected a store of accounts of format 1 in .*, got format 9"):
        Account(address)
    other = tmp_path / "text"
    other.write_text("no database, but a text that is longer than a header of one would be" * 20)
    other.chmod(0o600)
    with pytest.raises(RecordError, match="file is not a database"):
        Account(AccountAddress(str(other), "clinic"))
    with pytest.raises(RecordError, match=r"Cannot make .*choose another file"):
        AccountStore.create(AccountAddress(str(tmp_path / "no" / "folder.db"), "clinic"))


@pytest.mark.parametrize("name", ["a b.db", "a?mode=memory.db", "a#b.db", "a%20b.db", "a&b=;:'\"\\.db", "aé\udcff.db"])
def test_a_store_may_have_any_name(tmp_path, name):
    account = make(AccountAddress(str(tmp_path / name), "clinic"))
    account.reserve(wants("s"))
    assert {path.name for path in tmp_path.iterdir()} <= {name, f"{name}-journal", f"{name}-lock"}
    assert list(Account(account.address).balance().sweeps) == ["s"]


@pytest.mark.parametrize(
    "moves", [Path.rename, lambda path, new: path.parent.rename(new.parent)], ids=["file", "folder"]
)
def test_a_store_that_is_gone_is_said_to_be_gone_and_not_made_anew(tmp_path, ledger, moves):
    here, there = tmp_path / "here" / "accounts.db", tmp_path / "there" / "accounts.db"
    here.parent.mkdir()
    account = make(AccountAddress(str(here), "clinic"))
    account.reserve(wants("s"))
    write_rows(ledger, "draw")
    if moves is Path.rename:
        there.parent.mkdir()
    moves(here, there)
    left = sorted(tmp_path.rglob("*"))
    sentence = (
        r"Expected the store of accounts at .*, got none: it is gone; nothing was changed: bring it back, or leave a"
    )
    charge = partial(account.charge, wants("s"), "t1/1", costs(), ledger)
    for refused in (charge, account.balance):
        with pytest.raises(RecordError, match=sentence):
            refused()
    assert sorted(tmp_path.rglob("*")) == left
    here.parent.mkdir(exist_ok=True)
    here.symlink_to(there)
    charge()


def test_a_store_that_is_moved_while_a_process_waits_for_it_is_gone(account, address, tmp_path, monkeypatch):
    turn = AccountStore._turn

    def moved(self):
        address.path.rename(tmp_path / "new.db")
        return turn(self)

    monkeypatch.setattr(AccountStore, "_turn", moved)
    with pytest.raises(RecordError, match="got none: it is gone; nothing was changed"):
        account.reserve(wants("s"))
    assert not address.path.exists()


@pytest.mark.usefixtures("account")
def test_an_empty_file_is_no_store_whoever_can_read_it(address):
    address.path.write_bytes(b"")
    address.path.chmod(0o644)
    with pytest.raises(RecordError, match=r"got an empty file; leave a link there if it was moved, or make it with"):
        Account(address)
    address.path.chmod(0o600)
    make(address)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("accounts.db", "Expected FILE#NAME"),
        ("accounts.db#", "Expected FILE#NAME"),
        ("#clinic", "Expected FILE#NAME"),
        ("accounts.db#a b", "Expected FILE#NAME"),
        ("mysql://host/accounts#clinic", "Expected a file or postgresql://HOST/DATABASE"),
        ("postgresql://me:secret@host/accounts#clinic", "Expected no password in 'postgresql://...@host/accounts'"),
        ("postgresql://me:se/secret@host/a#clinic", "Expected no password in 'postgresql://...@host/a'"),
        ("postgresql://me:a@secret@host/a#clinic", "Expected no password in 'postgresql://...@host/a'"),
        ("postgresql://h/a?user=me&password=secret#clinic", "Expected no password in 'postgresql://h/a?...'"),
        ("postgresql://h/a?sslpassword=secret#clinic", "Expected no password in 'postgresql://h/a?...'"),
        ("postgresql://h/a?p%61ssword=secret&user=me#clinic", "Expected no password in 'postgresql://h/a?...'"),
        ("postgresql://h/a?password=secret", "Expected FILE#NAME"),
        (
            "mysql://host/a?password=secret#clinic",
            "Expected a file or postgresql://HOST/DATABASE, got 'mysql://host/a?",
        ),
    ],
)
def test_an_address_that_is_none_is_refused_and_no_password_is_repeated(text, sentence):
    with pytest.raises(SweeperError) as refused:
        parse_address(text)
    assert sentence in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "store",
    ["postgresql://me@[::1]:5432/a", "postgresql://me@h/a?host=/tmp&passfile=x", "postgresql://h:5432/a", "a?b:c@d"],
)
def test_what_is_no_password_is_let_through(store):
    assert parse_address(f"{store}#clinic").store == store


def test_a_relative_file_lies_beside_the_spec_and_a_database_nowhere(tmp_path):
    spec = tmp_path / "spec.yaml"
    assert find_account("a.db#x", str(spec)) == AccountAddress(str(Path("a.db").absolute()), "x")
    (tmp_path / "a.db").touch()
    assert find_account("a.db#x", str(spec)) == AccountAddress(str(tmp_path / "a.db"), "x")
    database_ = find_account("postgresql://host/a#x", str(spec))
    assert (str(database_), database_.path) == ("postgresql://host/a#x", None)


def test_without_the_driver_of_postgresql_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    with pytest.raises(
        RecordError, match="Expected psycopg2 for accounts in postgresql://host/a, got none; pip install"
    ):
        Account(AccountAddress("postgresql://host/a", "clinic"))


@pytest.mark.usefixtures("account")
def test_a_store_with_a_second_name_is_refused_for_a_journal_has_one(address, tmp_path, monkeypatch):
    link = tmp_path / "link.db"
    link.symlink_to(address.path)
    assert Account(AccountAddress(str(link), "clinic")).balance().sweeps == {}
    hard = tmp_path / "hard.db"
    os.link(address.path, hard)
    for path in (address.path, hard, link):
        with pytest.raises(
            RecordError, match=r"Expected a store under one name, got .* a file with a hard link or moun"
        ):
            AccountStore(AccountAddress(str(path), "clinic"))
    hard.unlink()
    mounts = tmp_path / "mountinfo"
    monkeypatch.setattr(store, "_MOUNTS", mounts)
    before = "1 2 0:3 / / rw - overlay overlay rw\n"
    for line, is_refused in (
        (f"4 1 8:1 /a.db {address.path} rw - ext4 /dev/sda rw", True),
        (f"4 1 8:1 /a {address.path.parent} rw - ext4 /dev/sda rw", False),
    ):
        mounts.write_text(f"{before}{line}\n")
        with pytest.raises(RecordError, match="mounted by itself") if is_refused else nullcontext():
            AccountStore(address)


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'connection to server at "db.clinic" (10.0.0.7), port 5499 failed: Connection refused\n\tIs the server',
            "Connection refused",
        ),
        (
            'connection to server on socket "/run/pg/.s.PGSQL.5432" failed: No such file or directory',
            "No such file or directory",
        ),
        (
            'connection to server at "10.0.0.7", port 5432 failed: FATAL:  password authentication failed for user "ann"',
            "password authentication failed",
        ),
        (
            'could not translate host name "db.clinic" to address: Name or service not known',
            "could not translate host name to address: Name or service not known",
        ),
    ],
)
def test_what_postgresql_says_of_itself_is_not_repeated(address, monkeypatch, text, said):
    found = AccountStore(address)

    def away():
        raise sa.exc.OperationalError("", {}, Exception(text))

    monkeypatch.setattr(found.engine, "connect", away)
    with pytest.raises(RecordError, match=rf"Cannot use the accounts in .*: {said}; nothing was changed"), found.read():
        pass
