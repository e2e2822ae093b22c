"""The pages of accounts: what is taken, by whom, on what and when, and whether it is as it was written."""

import datetime
import json
import re
import sqlite3

import pytest
from starlette.testclient import TestClient

from clipless.privacy.events import Relation
from dashboards.live.view import View
from dashboards.text import MISSING
from sweeper.account import store as store_module
from sweeper.account.account import Account
from sweeper.account.entries import Share
from sweeper.account.owner import close_account, open_account
from sweeper.account.receipts import make_receipt
from sweeper.service.app import create_app
from sweeper.service.settings import Limits, ServiceSettings
from sweeper.specification.addresses import parse_address
from sweeper.store.sweep_folder import SweepFolder
from tests.sweeper.account.accounts import begin_quickly, wants

from .conftest import ENDED
from .test_dynamic import SPEC, describe

NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture
def address(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "_begin_by_hand", begin_quickly)
    made = parse_address(f"{tmp_path}/accounts.db#clinic")
    shares = (Share(name="ann", part=0.5), Share(name="a local user", part=0.25))
    terms = {"unit": "row", "relation": Relation.ADD_OR_REMOVE_ONE, "epsilon": 6.8, "delta": 1e-5}
    open_account(made, **terms, shares=shares, by="owner", at=NOW)
    return made


@pytest.fixture
def account(address):
    return Account(address, clock=lambda: NOW)


@pytest.fixture
def get(out, address):
    """Ask a service of these sweeps, whose digits have an account."""
    given = ServiceSettings(out=out, limits=Limits(requests_per_second=0), accounts={"digits": address})
    with TestClient(create_app(given), base_url="http://127.0.0.1") as client:
        yield lambda path: client.get(path).text


def test_every_page_leads_to_the_accounts_where_there_are_any(get):
    assert 'href="/?accounts=1"' in get("/")
    state = json.loads(get("/live/state?accounts=1"))
    assert (list(state["resources"]), state["title"]) == (["part-accounts"], "Accounts")
    listed = get(state["resources"]["part-accounts"])
    assert 'href="/?account=clinic"' in listed
    assert "digits" in listed
    assert json.loads(get("/live/state?account=none"))["notice"].startswith(
        "Expected an account of this service (clinic)"
    )


def test_a_page_without_accounts_has_no_link_to_them(out):
    with TestClient(create_app(ServiceSettings(out=out)), base_url="http://127.0.0.1") as client:
        assert "?accounts=1" not in client.get("/").text
        assert "No data set has an account here" in client.get("/live/part/accounts?accounts=1").text


def test_an_account_says_what_is_taken_by_whom_on_what_and_what_is_left_for_the_reader(get, account, tmp_path):
    account.reserve(wants("s1", title=ENDED))
    account.reserve(wants("s2", title=f"elsewhere {EVIL}"))
    shown = get("/live/part/account?account=clinic")
    assert "costs epsilon 6.8 at delta 1e-05 together" in shown
    assert "Left for a local user</dt><dd>25 %" in shown
    assert (
        "Left as epsilon</dt><dd>epsilon 3.03<small>of one Gaussian signal; a sweep of that price takes more" in shown
    )
    assert (
        "one more sweep like elsewhere &lt;img src=x onerror=alert(1)&gt;, the last one, which reserved 24.7 %" in shown
    )
    assert f'<a href="/?sweep={ENDED}" data-local>{ENDED}</a>' in shown
    assert "elsewhere &lt;img" in shown
    assert "?sweep=elsewhere" not in shown, "it has no page here"
    assert "<td>ann</td>" in shown
    assert '<tr><td>training</td><td class="number">49.4 %</td>' in shown
    assert "of the side where each is largest, and need not add up" in shown
    assert str(tmp_path) not in shown
    close_account(account.address, because=f"spent {EVIL}", by="owner", at=NOW)
    assert "Closed, all rows: spent &lt;img" in get("/live/part/account?account=clinic")


@pytest.mark.long
def test_the_next_sweep_must_reserve_what_the_last_one_did_though_it_was_stopped_early(get, account):
    ledger = account.address.path.with_name("ledger.jsonl")
    ledger.write_text("{}\n")
    account.reserve(wants("s1", title="early"))
    account.settle("s1", ledger)
    shown = get("/live/part/account?account=clinic")
    assert "one more sweep like early, the last one, which reserved 24.7 %" in shown, "25 % are left"
    row = shown.partition('id="spent"')[2].partition("<tbody>")[2].partition("</tr>")[0]
    assert re.findall(r'class="number"[^>]*>([^<]*)<', row) == ["24.7 %", "0 %", MISSING]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("spender", "may"), [("ann", False), ("a local user", True)])
def test_only_the_spender_of_a_sweep_is_offered_to_go_on_with_it(get, account, out, spender, may):
    folder = SweepFolder(out / ENDED)
    describe(folder, "stopped", SPEC.replace("delta: 1e-4}", f"delta: 1e-4, account: '{account.address}'}}"))
    receipt = make_receipt(folder.path, account)
    account.reserve(wants(receipt.sweep, title=ENDED, spender=spender))
    receipt.seen(account).write(folder.path)
    head = get(f"/live/part/head?sweep={ENDED}")
    assert ("do=resume" in head, "do=extend" in head, "do=delete" in head) == (may, may, True)
    assert ("It is charged to ann, who alone can go on with it." in head) is not may


def test_a_page_of_an_account_keeps_the_place_of_its_verification(get):
    place = get("/").partition('id="part-verdict"')[2]
    assert place.startswith(' hidden><section id="verdict"><h2>Verification</h2><p>')


def test_the_address_of_an_account_changes_with_every_entry(get, account):
    def state():
        resources = json.loads(get("/live/state?account=clinic"))["resources"]
        return {place: address for place, address in resources.items() if place != "part-verdict"}  # changes with time

    first = state()
    assert len(first) == 2
    assert state() == first
    account.reserve(wants("s1"))
    assert not {*state().values()} & {*first.values()}


@pytest.mark.long
def test_entries_are_read_page_by_page_newest_first(get, account):
    ledger = account.address.path.with_name("ledger.jsonl")
    ledger.write_text("{}\n")
    for number in range(60):
        account.reserve(wants(f"s{number}", of={}))
        account.settle(f"s{number}", ledger)
    newest, rest = get("/live/part/entries?account=clinic"), get("/live/part/entries?account=clinic&behind=100")
    assert "100 of 122 entries, newest first" in newest
    assert 'href="/?account=clinic&amp;behind=100"' in newest
    assert "Newer entries" not in newest
    assert "22 of 122 entries" in rest
    assert 'href="/?account=clinic"' in rest
    assert "Older entries" not in rest
    assert newest.index('data-value="122"') < newest.index('data-value="121"')
    assert "<td>opened</td>" in rest
    assert View.parse("?account=clinic&behind=-5") == View.parse("?account=clinic&behind=x") == View(account="clinic")


@pytest.mark.long
def test_the_verdict_names_what_is_not_as_it_was_written_and_no_path(get, account, tmp_path):
    account.reserve(wants("s1"))
    assert "Verified: 3 entries" in get("/live/part/verdict?account=clinic")
    assert "Not settled yet: s1" in get("/live/part/verdict?account=clinic")
    with sqlite3.connect(account.address.path) as connection:
        connection.execute("UPDATE account_entries SET text = replace(text, '1.0', '9.0'), digest = digest || '0'")
        connection.execute("UPDATE account_heads SET digest = digest || '0'")
    for path in ("part/verdict", "part/account", "state"):
        said = get(f"/live/{path}?account=clinic")
        assert "restore the store" in said
        assert str(tmp_path) not in said
    assert 'role="alert"' in get("/live/part/verdict?account=clinic")
