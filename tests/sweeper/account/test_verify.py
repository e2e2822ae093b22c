"""An account that is not as it was written is found out: changed, cut, restored from a backup, or spent by a copy."""

import contextlib
import hashlib
import json
import shutil
import sqlite3
from dataclasses import replace

import pytest

from clipless.privacy.events import PoissonGaussian
from clipless.privacy.noisy_counts import scores_event
from sweeper.account.account import Account
from sweeper.account.cost import NOTHING, event_cost
from sweeper.account.entries import Link, Side, first_digest, link
from sweeper.account.receipts import RECEIPT_NAME, make_receipt, read_receipt
from sweeper.account.verify import settle_folder, verify_account
from sweeper.errors import AccountError, RecordError
from sweeper.privacy.evaluation.paid_scores import PaidScores
from sweeper.privacy.ledger import Ledger
from sweeper.records import SweepStatus
from sweeper.results.housekeeping import delete_sweep
from sweeper.specification.addresses import parse_address
from sweeper.store.lock import driver_lock
from sweeper.store.manifest import Manifest
from sweeper.store.sweep_folder import SweepFolder

from .accounts import RELATION, costs, make, wants

EVENT = PoissonGaussian(noise_multiplier=2.7, sampling_rate=0.152, steps=140, relation=RELATION)
DRAW = {Side.TRAINING: event_cost(EVENT, 6.8, 1e-5)}


def change(address, statement, *values):
    with contextlib.closing(sqlite3.connect(address.path)) as connection, connection:
        connection.execute(statement, values)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sweep").mkdir()
    return tmp_path / "sweep"


def begin(account, folder):
    receipt = make_receipt(folder, account)
    account.reserve(wants(receipt.sweep))
    receipt.seen(account).write(folder)
    return receipt.sweep


def train(account, folder, sweep, trial, draw=DRAW):
    ledger = Ledger(folder / "ledger.jsonl")
    ledger.open(trial, EVENT, marked=True)
    ledger.draw(trial)
    account.charge(wants(sweep), f"{trial}/1", draw, ledger.path)


def test_a_byte_that_is_changed_in_any_entry_is_found(account, address, folder):
    sweep = begin(account, folder)
    train(account, folder, sweep, "t1")
    account.settle(sweep, folder / "ledger.jsonl")
    assert verify_account(address, [folder]).findings == ()
    with account._chain._store.read() as transaction:
        links = transaction.links("clinic")
    assert len(links) == 6
    for one in links:
        for place in range(0, len(one.text), 190):
            text = one.text[:place] + chr(ord(one.text[place]) ^ 1) + one.text[place + 1 :]
            change(address, "UPDATE account_entries SET text = ? WHERE number = ?", text, one.number)
            (finding,) = verify_account(address).findings
            assert f"Expected entry {one.number} as it was written, got another text" in finding
        change(address, "UPDATE account_entries SET text = ? WHERE number = ?", one.text, one.number)
    assert verify_account(address).findings == ()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM account_entries WHERE number = 3",  # the last
        "DELETE FROM account_entries WHERE number = 2",
        "UPDATE account_entries SET number = number + 1 WHERE number > 2",
        "UPDATE account_heads SET number = 2, digest = (SELECT digest FROM account_entries WHERE number = 2)",
        "UPDATE account_entries SET digest = 'x' WHERE number = 2",
    ],
)
def test_entries_that_are_missing_or_moved_are_found(account, address, statement):
    account.reserve(wants("s"))
    change(address, statement)
    assert len(verify_account(address).findings) == 1
    with pytest.raises(RecordError, match="restore the store"):
        Account(address)


def test_an_entry_that_breaks_the_rules_is_found_although_its_hashes_are_right(account, address):
    """Who can write the store can write hashes too, but not more than the budget."""
    account.reserve(wants("s"))
    with account._chain._store.write() as transaction:
        *_, third = transaction.links("clinic")
        content = json.loads(third.text)
        content["costs"]["training"]["square"] = 2.5
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        forged = Link(number=3, text=text, digest=hashlib.sha256(text.encode()).hexdigest())
        transaction._connection.exec_driver_sql(
            "UPDATE account_entries SET text = ?, digest = ? WHERE number = 3", (forged.text, forged.digest)
        )
        transaction._connection.exec_driver_sql("UPDATE account_heads SET digest = ?", (forged.digest,))
    (finding,) = verify_account(address).findings
    assert "Expected reservations within the budget of block 'all' (training rows), got more" in finding


def test_a_chain_fits_one_account_of_one_store(account):
    entry = account.balance().opened
    store = account.store_id
    assert link(entry, 1, first_digest(store, "clinic")).digest != link(entry, 1, first_digest(store, "other")).digest
    assert (
        link(entry, 1, first_digest(store, "clinic")).digest != link(entry, 1, first_digest("b" * 32, "clinic")).digest
    )


def test_a_store_that_was_restored_from_a_backup_is_refused_by_sweeps_that_saw_more(account, address, folder, tmp_path):
    shutil.copy(address.path, tmp_path / "backup")
    begin(account, folder)
    shutil.copy(tmp_path / "backup", address.path)
    with pytest.raises(RecordError, match="up to number 1, got others; restore the store"):
        account.balance()  # of a process that runs
    with pytest.raises(AccountError, match=r"Expected entry 3 of account .* as this sweep saw it, got none or another"):
        make_receipt(folder, Account(address))
    (finding,) = verify_account(address, [folder]).findings
    assert "restored from a backup" in finding


def test_another_store_at_the_same_address_is_refused(account, address, folder):
    begin(account, folder)
    address.path.unlink()
    with pytest.raises(
        AccountError, match=r"the store of accounts at .*, from which the sweep has reserved, got another one at "
    ):
        make_receipt(folder, make(address))


def test_a_store_that_was_moved_is_followed_and_a_copy_beside_it_is_not(account, address, folder, tmp_path):
    sweep = begin(account, folder)
    train(account, folder, sweep, "t1")
    new = parse_address(f"{tmp_path / 'elsewhere.db'}#clinic")
    shutil.copy(address.path, new.path)
    for refused in (lambda: make_receipt(folder, Account(new)), lambda: settle_folder(folder, new)):
        with pytest.raises(AccountError, match=r"Expected account .* as before, got .*elsewhere\.db#clinic"):
            refused()
    address.path.unlink()
    with pytest.raises(AccountError, match=r"Expected the store of accounts at .*, got none; say where it is \(--acc"):
        settle_folder(folder)
    other = parse_address(f"{tmp_path / 'elsewhere.db'}#other")
    with pytest.raises(AccountError, match=r"Expected account .* as before, got .*#other"):
        make_receipt(folder, make(other))
    assert settle_folder(folder, new) == new
    assert read_receipt(folder).account == str(new)
    assert not any(one.is_open for one in Account(new).balance().sweeps.values())
    assert verify_account(new, [folder]).findings == ()


def test_an_empty_file_at_the_old_place_of_a_store_is_nothing(account, address, folder, tmp_path):
    train(account, folder, begin(account, folder), "t1")
    new = parse_address(f"{tmp_path / 'elsewhere.db'}#clinic")
    address.path.rename(new.path)
    address.path.touch(0o644)
    with pytest.raises(AccountError, match=r"Expected the store of accounts at .*, got none; say where it is \(--acc"):
        settle_folder(folder)
    assert settle_folder(folder, new) == new
    assert read_receipt(folder).account == str(new)


def test_a_store_named_from_where_one_is_stays_where_it_is_from_elsewhere(
    account, address, folder, tmp_path, monkeypatch
):
    train(account, folder, begin(account, folder), "t1")
    (tmp_path / "elsewhere").mkdir()
    copy = parse_address(f"{tmp_path / 'elsewhere' / 'copy.db'}#clinic")
    shutil.copy(address.path, copy.path)
    monkeypatch.chdir(address.path.parent)
    near = parse_address(f"{address.path.name}#clinic")
    assert settle_folder(folder, near) == near
    assert read_receipt(folder).account == str(address)
    monkeypatch.chdir(copy.path.parent)
    with pytest.raises(AccountError, match=r"Expected account .* as before, got .*copy\.db#clinic"):
        settle_folder(folder, copy)
    receipt = read_receipt(folder)
    replace(receipt, account=str(near)).write(folder)  # as an earlier version has written it
    with pytest.raises(AccountError, match=r"Expected account .* as before"):
        settle_folder(folder, copy)
    receipt.write(folder)
    monkeypatch.chdir(address.path.parent)
    address.path.unlink()
    make(near)
    (finding,) = verify_account(near, [folder]).findings
    assert "from which the sweep has reserved, got another one" in finding


def test_a_folder_that_spends_an_account_of_that_name_in_another_store_is_left_out(account, address, folder, tmp_path):
    begin(account, folder)
    other = parse_address(f"{tmp_path / 'other.db'}#clinic")
    make(other)
    found = verify_account(other, [folder])
    assert (found.findings, found.folders) == ((), 0)
    assert verify_account(address, [folder]).folders == 1


def test_of_a_folder_and_its_copy_one_goes_on(account, address, folder, tmp_path):
    sweep = begin(account, folder)
    train(account, folder, sweep, "t1")
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    train(account, folder, sweep, "t2")
    with pytest.raises(RecordError, match="the folder is a copy, or was restored from a backup"):
        train(account, copy, sweep, "t3")
    with pytest.raises(RecordError, match="the folder is a copy, or was restored from a backup"):
        account.settle(sweep, copy / "ledger.jsonl")
    assert verify_account(address, [folder]).findings == ()
    findings = verify_account(address, [copy]).findings
    assert any("it is a copy, or was restored from a backup" in one for one in findings)
    assert any("charged and not in its ledger: t2/1; restore the ledger" in one for one in findings)
    assert any("drawn and not charged: t3/1; resume the sweep, or settle it" in one for one in findings)


def test_a_copy_that_was_made_before_any_draw_is_refused_when_it_goes_on(account, folder, tmp_path):
    sweep = begin(account, folder)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    train(account, folder, sweep, "t1")
    account.reserve(wants(sweep), folder / "ledger.jsonl")
    with pytest.raises(RecordError, match="the folder is a copy, or was restored from a backup"):
        account.reserve(wants(sweep), copy / "ledger.jsonl")


def test_ledgers_are_compared_release_by_release(account, address, folder):
    sweep = begin(account, folder)
    train(account, folder, sweep, "t1")
    Ledger(folder / "ledger.jsonl").enter_test("t1", 3, PaidScores(event=scores_event(5.0, 1, RELATION), apart=True))
    (finding,) = verify_account(address, [folder]).findings
    assert finding.endswith("drawn and not charged: test/1; resume the sweep, or settle it")
    assert verify_account(address, [folder]).unsettled == (sweep,)
    assert verify_account(address, [folder]).folders == 1
    assert verify_account(address, [folder.parent]).folders == 0


def test_a_release_that_was_charged_less_than_it_costs_is_found(account, address, folder):
    sweep = begin(account, folder)
    train(account, folder, sweep, "t1")
    train(account, folder, sweep, "t2", costs(0.9 * DRAW[Side.TRAINING].square))
    (finding,) = verify_account(address, [folder]).findings
    assert finding.endswith("charged less than its ledger says: t2/1; restore the store")


def test_a_folder_whose_account_has_no_reservation_of_it_is_told_once_it_drew(account, address, folder):
    make_receipt(folder, account)
    assert verify_account(address, [folder]).findings == ()
    ledger = Ledger(folder / "ledger.jsonl")
    ledger.open("t1", EVENT)
    (finding,) = verify_account(address, [folder]).findings
    assert finding.endswith("the account has no reservation of it, but its ledger has drawn t1/1")


def test_a_sweep_that_nobody_resumes_is_settled_by_its_folder(account, address, folder):
    sweep = begin(account, folder)
    train(account, folder, sweep, "t1")
    with driver_lock(folder), pytest.raises(RecordError, match="a process drives"):
        settle_folder(folder)
    assert settle_folder(folder) == address
    assert not account.balance().sweeps[sweep].is_open
    assert account.balance().sweeps[sweep].held == DRAW
    assert verify_account(address, [folder]).unsettled == ()
    Ledger(folder / "ledger.jsonl").open("t2", EVENT)  # as where a driver was killed before the charge
    settle_folder(folder)
    own = account.balance().sweeps[sweep]
    assert (set(own.charged), own.is_open, own.undrawn) == ({"t1/1", "t2/1"}, False, {})
    assert verify_account(address, [folder]).findings == ()


def test_draws_of_a_sweep_that_has_reserved_nothing_are_not_settled(account, folder):
    make_receipt(folder, account)
    Ledger(folder / "ledger.jsonl").open("t1", EVENT)
    with pytest.raises(AccountError, match=r"a sweep that has reserved from account 'clinic', got t1/1 .* resume"):
        settle_folder(folder)
    with pytest.raises(AccountError, match="Expected the folder of a sweep that spends an account"):
        settle_folder(folder.parent)


def test_what_a_deleted_sweep_has_reserved_and_never_drawn_is_given_back(account, folder):
    sweep = begin(account, folder)
    SweepFolder(folder).write_manifest(Manifest(name="s", status=SweepStatus.INTERRUPTED, spec={}, source="s.yaml"))
    with pytest.raises(RecordError, match="leave --forget-ledger out"):
        delete_sweep(folder, forget=True)
    assert folder.exists()
    kept = delete_sweep(folder).kept
    assert not folder.exists()
    assert account.balance().sweeps[sweep].is_open
    settle_folder(kept)
    assert not account.balance().sweeps[sweep].is_open
    assert set(account.balance().sweeps[sweep].held.values()) == {NOTHING}


def test_the_receipt_keeps_the_id_of_a_sweep_and_names_one_account(account, address, folder):
    first = make_receipt(folder, account)
    assert make_receipt(folder, account) == first == read_receipt(folder)
    other = make(type(address)(address.store, "other"))
    with pytest.raises(AccountError, match=r"Expected account .*#clinic as before, got .*#other \(privacy.account\)"):
        make_receipt(folder, other)
    (folder / RECEIPT_NAME).write_text("{}")
    with pytest.raises(RecordError, match="restore the file"):
        read_receipt(folder)
    assert parse_address(first.account) == address
