"""What a party spends before anything of its rows is sent, and what it is refused for."""

import datetime
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import special

import clipless
from clipless.datasets import NewRows
from clipless.errors import DataError, FederationError
from clipless.privacy.events import Relation
from sweeper.account.account import Account
from sweeper.account.blocks import (
    ALL_ROWS,
    digest_dataset,
    digest_labelled,
    digest_read_blocks,
    digest_table,
    digest_units,
)
from sweeper.account.cost import pure_cost, total
from sweeper.account.entries import Reserved, Side
from sweeper.account.owner import open_account
from sweeper.account.verify import verify_account
from sweeper.errors import AccountError, RecordError, SweeperError
from sweeper.federated.evaluation import FederatedEvaluation
from sweeper.federated.federation import parse_federation, read_federation
from sweeper.federated.keys import ledger_of
from sweeper.federated.party import ask_account, take_part
from sweeper.federated.payment import Payment, parts_of
from sweeper.federated.services import COUNTS, READY
from sweeper.results.models.predict import load_predictor
from sweeper.specification.addresses import parse_address
from tests.sweeper.account.accounts import wants

NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
QUIET = {"curves": ["certified"], "epsilon": 1.0}


def opened(folder, epsilon=6.0, **changes):
    folder.mkdir(exist_ok=True)
    address = parse_address(f"{folder}/accounts.db#ann")
    terms = {"unit": "row", "relation": Relation.ADD_OR_REMOVE_ONE, "epsilon": epsilon, "delta": 1e-4}
    open_account(address, **(terms | changes), by="owner", at=NOW)
    return address


@pytest.fixture
def join(start, model, parties, tmp_path):
    """A function by which ann takes part; servers hear of her only if she may."""

    def run(address, protocol="curator", most=None, block=None, **changes):
        everybody = start(protocol, parties=[{"name": "ann", "rows": 60}], **{**QUIET, **changes})
        payment = Payment(key=tmp_path / "ann.key", most=most, account=address, block=block)
        return take_part(everybody.federation, "ann", everybody.identities["ann"], model, parties["ann"], payment)

    return run


def test_an_evaluation_is_charged_on_every_side_and_adds_to_others(join, tmp_path):
    address = opened(tmp_path)
    assert [join(address).spent for _ in range(2)] == [1.0, 2.0]
    balance = Account(address).balance()
    one = pure_cost([0.5, 0.5])  # 20 thresholds have two levels of blocks
    assert [balance.taken((ALL_ROWS, side)) for side in Side] == [total([one, one])] * 3
    assert {sweep.title for sweep in balance.sweeps.values()} == {"evaluation of ann"}
    assert not any(sweep.is_open or sweep.undrawn for sweep in balance.sweeps.values())
    assert verify_account(address).findings == ()


@pytest.mark.parametrize(
    ("given", "changes", "sentence"),
    [
        ({"epsilon": 0.1}, {}, "Expected a sweep that account 'ann' has room for"),
        ({"unit": "person"}, {}, "Expected data whose privacy unit is 'person'"),
        ({"relation": Relation.REPLACE_ONE}, {}, "Expected the relation replace-one of account 'ann'"),
    ],
)
def test_who_has_no_room_for_it_sends_nothing(join, tmp_path, monkeypatch, given, changes, sentence):
    from sweeper.federated import party

    monkeypatch.setattr(party.Conversation, "to", lambda *_: pytest.fail("a server was asked"))
    address = opened(tmp_path, **given)
    before = Account(address).head
    with pytest.raises(AccountError, match=sentence):
        join(address, **changes)
    assert Account(address).head == before
    assert not ledger_of(tmp_path / "ann.key").exists()


def test_what_an_account_refuses_at_the_last_moment_is_not_in_the_ledger(join, tmp_path, monkeypatch):
    """Two evaluations have asked, and there is room for one: who pays later has spent nothing."""
    address = opened(tmp_path, epsilon=6.0)
    assert join(address, epsilon=1.5).spent == 1.5
    with monkeypatch.context() as patched:
        patched.setattr(Account, "refusal", lambda *_: None)
        with pytest.raises(AccountError, match="Expected a sweep that account 'ann' has room for"):
            join(address, epsilon=1.5)
    assert len(ledger_of(tmp_path / "ann.key").read_text().splitlines()) == 1
    assert join(address, epsilon=0.2, most=2.0).spent == pytest.approx(1.7)


def test_rows_of_another_account_are_refused(join, tmp_path, parties):
    address = opened(tmp_path)
    join(address)
    parties["ann"].write_text(parties["bob"].read_text())
    with pytest.raises(AccountError, match="Expected the rows that block 'all' of account 'ann' is bound to"):
        join(address)


def test_the_rows_of_a_sweep_are_known_again_in_an_evaluation(join, tmp_path, model, parties):
    address = opened(tmp_path)
    join(address)
    data = clipless.datasets.load(parties["ann"], ranges=model / "ranges.yaml")
    account = Account(address)
    assert account.balance().digests == digest_dataset(account.key, data)


def test_a_table_of_another_account_is_known_in_an_evaluation_whatever_the_ranges_of_its_model(
    join, tmp_path, model, parties
):
    address = opened(tmp_path)
    first = parse_address(f"{tmp_path}/accounts.db#first")
    terms = {"unit": "row", "relation": Relation.ADD_OR_REMOVE_ONE, "epsilon": 6.0, "delta": 1e-4}
    open_account(first, **terms, by="owner", at=NOW)
    (tmp_path / "wider.yaml").write_text((model / "ranges.yaml").read_text().replace("high: 9", "high: 99"))
    data = clipless.datasets.load(parties["ann"], ranges=tmp_path / "wider.yaml")
    account = Account(first)
    table = digest_table(account.key, data)
    account.reserve(wants("s", blocks=digest_dataset(account.key, data), table=table))
    with pytest.raises(AccountError, match=r"account 'first' of .* has the same table, in other blocks or with other"):
        join(address)
    assert Account(address).head.number == 1


def test_one_row_is_at_one_party_of_a_federation_that_an_account_pays_for(start, tmp_path):
    """At K parties it moves the same sums K times, which takes more of an account than K charges."""
    address = opened(tmp_path)
    rows, labels = NewRows(torch.rand(9, 2), 1.0, "columns"), np.zeros(9, dtype=np.int64)
    names = [{"name": name, "rows": 60} for name in ("ann", "bob")]
    federation = start("curator", parties=names, **QUIET).federation
    payment = Payment(key=tmp_path / "ann.key", account=address)
    for _ in range(2):  # two evaluations: each has noise of its own
        payment.ask(federation, "ann", rows, labels).pay()
    with pytest.raises(AccountError, match=r"at one party of a federation, got those of 'evaluation of ann' again"):
        payment.ask(federation, "bob", rows, labels)
    other = start("curator", parties=names, **{**QUIET, "epsilon": 0.5}).federation
    payment.ask(other, "bob", rows, labels).pay()


def test_the_rows_behind_an_encoder_are_those_that_an_account_knows(start, tmp_path):
    address, source = opened(tmp_path), torch.rand(9, 2)
    labels = np.zeros(9, dtype=np.int64)
    payment = Payment(key=tmp_path / "ann.key", account=address)
    federation = start("curator", parties=[{"name": "ann", "rows": 60}], **QUIET).federation
    known = []
    for rows in (NewRows(source, 1.0, "columns"), NewRows(source.tanh(), 1.0, "features", raw=source)):
        paid = payment.ask(federation, "ann", rows, labels)
        paid.pay()
        known.append(dict(Account(address).balance().digests))
    assert known[0] == known[1] == {ALL_ROWS: digest_labelled(Account(address).key, source, labels)}


def add_column(path, name, value):
    head, *lines = path.read_text().splitlines()
    path.write_text("\n".join([f"{head},{name}", *(f"{line},{value(row)}" for row, line in enumerate(lines))]) + "\n")


def test_each_block_of_a_party_is_charged_and_known_again(join, tmp_path, model, parties):
    address, whole = opened(tmp_path), parties["ann"].read_text()
    add_column(parties["ann"], "month", lambda row: f"2026-0{1 + row % 3}")
    join(address, block="month")
    balance, one, months = Account(address).balance(), pure_cost([0.5, 0.5]), ["2026-01", "2026-02", "2026-03"]
    assert {place: balance.taken(place) for place in balance.places()} == {(m, s): one for m in months for s in Side}
    data = clipless.datasets.load(parties["ann"], ranges=model / "ranges.yaml", block="month", blocks=months)
    key = Account(address).key
    assert balance.digests == digest_dataset(key, data)
    assert balance.cut == "month"
    (reserved,) = (entry for entry in Account(address).entries(0, 9) if isinstance(entry, Reserved))
    assert (reserved.table, set(reserved.read)) == (digest_table(key, data), {*digest_read_blocks(key, data).values()})
    parties["ann"].write_text(whole)
    with pytest.raises(AccountError, match="blocks"):
        join(address)


def test_units_of_a_party_are_known_again_and_rows_that_are_other_units_are_not(join, tmp_path, model, parties):
    address, whole = opened(tmp_path, unit="who"), parties["ann"].read_text()
    add_column(parties["ann"], "who", lambda row: f"p{row // 2}")
    join(address, unit="who")
    data = clipless.datasets.load(parties["ann"], ranges=model / "ranges.yaml", unit="who")
    assert Account(address).balance().digests == digest_dataset(Account(address).key, data)
    parties["ann"].write_text(whole)
    add_column(parties["ann"], "who", lambda row: f"p{row % 30}")
    with pytest.raises(AccountError, match="is bound to, got others"):
        join(address, unit="who")


@pytest.mark.parametrize("written", ["{}", "0{}", "{}.0", "p{}", "90071992547409{:03}"])
def test_a_person_has_one_hash_at_a_sweep_and_at_a_party_however_their_id_is_written(
    tmp_path, start, model, parties, written
):
    address = opened(tmp_path, unit="who")
    add_column(parties["ann"], "who", lambda row: written.format(row // 2))
    add_column(parties["ann"], "month", lambda _: "jan")
    data = clipless.datasets.load(
        parties["ann"], ranges=model / "ranges.yaml", unit="who", block="month", blocks=["jan"]
    )
    federation = start("curator", parties=[{"name": "ann", "rows": 60}], unit="who", **QUIET).federation
    payment = Payment(key=tmp_path / "ann.key", account=address, block="month")
    paid = ask_account(federation, "ann", model, parties["ann"], payment)
    units = digest_units(Account(address).key, data)
    assert paid.wanted.units == units
    assert len(units["jan"]) == len("2:") + 30 * 16


def test_rows_whose_blocks_are_not_clear_are_refused(join, tmp_path, parties):
    whole, address = parties["ann"].read_text(), opened(tmp_path, unit="who")
    add_column(parties["ann"], "who", lambda row: f"p{row // 2}")
    add_column(parties["ann"], "month", lambda row: f"2026-0{1 + row % 2}")
    with pytest.raises(DataError, match=r"a unit has rows in two; .* \(month of .*; --block\)"):
        join(address, block="month", unit="who")
    for wrong, sentence in (("", "a row has none"), ("all", "Expected blocks of other names than 'all'")):
        parties["ann"].write_text(whole)
        add_column(parties["ann"], "month", lambda row, wrong=wrong: wrong if row == 7 else "2026-01")
        with pytest.raises((SweeperError, DataError), match=sentence):
            join(opened(tmp_path / (wrong or "none")), block="month")
    assert Account(address).balance().sweeps == {}


@pytest.mark.parametrize(
    "protocol",
    ["curator", *(pytest.param(name, marks=pytest.mark.long) for name in ("aggregation", "function-sharing"))],
)
def test_what_it_costs_is_on_the_disk_before_anything_of_a_row_is_sent(
    start, model, parties, tmp_path, monkeypatch, protocol
):
    from sweeper.federated import party

    address, key = opened(tmp_path), tmp_path / "ann.key"
    names = ["ann", "bob"] if protocol == "aggregation" else ["ann"]
    everybody = start(protocol, parties=[{"name": name, "rows": 60} for name in names], wait_seconds=2.0, **QUIET)
    seen, really_ask = [], party.Conversation.ask

    def ask(end, kind, message=b""):
        if threading.current_thread() is not threading.main_thread():
            return really_ask(end, kind, message)
        charged = [list(sweep.charged) for sweep in Account(address).balance().sweeps.values()]
        seen.append((kind, charged, ledger_of(key).exists()))
        if kind not in (READY, "keys", "shares"):
            raise SweeperError("enough")
        return really_ask(end, kind, message)

    def join(name, payment):
        return take_part(everybody.federation, name, everybody.identities[name], model, parties[name], payment)

    monkeypatch.setattr(party.Conversation, "ask", ask)
    with ThreadPoolExecutor() as pool:
        others = [pool.submit(join, name, Payment(key=tmp_path / f"{name}.key")) for name in names[1:]]
        with pytest.raises(SweeperError, match="enough"):
            join("ann", Payment(key=key, account=address))
        assert all(isinstance(one.exception(), FederationError) for one in others), "who is left is too few"
    *asked, sent = seen
    assert [one for one, *_ in asked if one != READY] == (["keys", "shares"] if protocol == "aggregation" else [])
    assert not any(charged or ledger for _, charged, ledger in asked), "none of it is of a row"
    assert sent[1:] == ([["evaluation"]], True)
    assert sent[0] == COUNTS or protocol != "curator"


@pytest.mark.parametrize("protocol", ["curator", "function-sharing"])
def test_a_party_that_joins_again_or_too_late_pays_nothing(start, model, parties, tmp_path, protocol):
    everybody = start(
        protocol,
        parties=[{"name": name, "rows": 60} for name in ("ann", "bob")],
        wait_seconds=0.1,
        **{**QUIET, "epsilon": 0.3},
    )
    address = opened(tmp_path)

    def join(name):
        payment = Payment(key=tmp_path / f"{name}.key", account=address if name == "ann" else None)
        return take_part(everybody.federation, name, everybody.identities[name], model, parties[name], payment)

    join("ann")
    paid = Account(address).balance()
    with pytest.raises(FederationError, match="Party 'ann': Expected its counts once"):
        join("ann")
    assert Account(address).balance().sweeps == paid.sweeps
    assert everybody.result().included == ("ann",)
    with pytest.raises(FederationError, match="Party 'bob': Expected its counts once and before the result"):
        join("bob")
    assert not ledger_of(tmp_path / "bob.key").exists()


def test_a_party_that_joins_while_the_first_query_is_answered_pays_nothing(
    start, model, parties, tmp_path, monkeypatch
):
    from clipless.federated import function_sharing

    names = [{"name": name, "rows": 60} for name in ("ann", "bob")]
    everybody = start("function-sharing", parties=names, **{**QUIET, "epsilon": 0.3})
    begun, refused, evaluate = threading.Event(), threading.Event(), function_sharing.evaluate

    def join(name):
        payment = Payment(key=tmp_path / f"{name}.key")
        return take_part(everybody.federation, name, everybody.identities[name], model, parties[name], payment)

    def evaluate_slowly(*arguments):
        begun.set()
        assert refused.wait(60)
        return evaluate(*arguments)

    join("ann")
    monkeypatch.setattr(function_sharing, "evaluate", evaluate_slowly)
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(everybody.result)
        assert begun.wait(60)
        with pytest.raises(FederationError, match="Party 'bob': Expected its counts once and before the result"):
            join("bob")
        refused.set()
        assert result.result().included == ("ann",)
    assert not ledger_of(tmp_path / "bob.key").exists()


@pytest.mark.parametrize("protocol", ["curator", "function-sharing"])
def test_of_two_processes_that_join_at_the_same_moment_one_pays(start, model, parties, tmp_path, monkeypatch, protocol):
    from sweeper.federated import party

    everybody = start(protocol, parties=[{"name": "ann", "rows": 60}], **QUIET)
    address, ask = opened(tmp_path), party.Conversation.ask

    def ask_slowly(end, kind, message=b""):
        answer = ask(end, kind, message) if kind == READY else b""
        time.sleep(0.2)  # in which the other one asks
        return answer if kind == READY else ask(end, kind, message)

    def join(_number):
        payment = Payment(key=tmp_path / "ann.key", account=address)
        return take_part(everybody.federation, "ann", everybody.identities["ann"], model, parties["ann"], payment)

    monkeypatch.setattr(party.Conversation, "ask", ask_slowly)
    with ThreadPoolExecutor(2) as pool:
        errors = [joined.exception() for joined in [pool.submit(join, number) for number in range(2)]]
    assert [type(error) for error in errors if error is not None] == [FederationError]
    assert "Party 'ann': Expected its counts once" in str(errors)
    assert len(Account(address).balance().sweeps) == 1
    assert len(ledger_of(tmp_path / "ann.key").read_text().splitlines()) == 1


def test_what_the_ledger_refuses_the_account_is_not_charged_for(join, tmp_path):
    address = opened(tmp_path)
    with pytest.raises(SweeperError, match=r"at most 0\.5 to be spent"):
        join(address, most=0.5)
    assert Account(address).balance().sweeps == {}


def test_without_its_store_nothing_is_sent(join, tmp_path):
    with pytest.raises(RecordError, match="make it with sweeper account open"):
        join(parse_address(f"{tmp_path}/none.db#ann"))


def federation(protocol, **changes):
    content = {"protocol": protocol, "epsilon": 2.0, "parties": [{"name": "ann", "rows": 9}], **changes}
    return parse_federation(content, "parties.yaml")


def test_a_row_meets_a_few_sums_of_each_curve_and_with_key_servers_perhaps_one():
    """The analyst may ask key servers for one threshold, whose noise is that of the whole epsilon of its curve."""
    assert parts_of(federation("curator")) == (0.5,) * 4
    assert parts_of(federation("aggregation", relation="replace-one")) == (0.25,) * 8
    assert parts_of(federation("function-sharing")) == (1.0, 1.0)


@pytest.mark.parametrize("epsilon", [0.001, 0.1, 1.0, 5.0, 30.0])
def test_a_pure_mechanism_is_dominated_by_what_it_is_charged_and_by_nothing_less(epsilon):
    """Randomised response, the worst of all, beside a Gaussian of the signal: at every epsilon below."""
    square = pure_cost([epsilon]).square

    def excess(mu2, at):
        mu = math.sqrt(mu2)
        gaussian = special.ndtr(mu / 2 - at / mu) - math.exp(at) * special.ndtr(-mu / 2 - at / mu)
        return (math.exp(epsilon) - math.exp(at)) / (1.0 + math.exp(epsilon)) - gaussian

    grid = [epsilon * number / 400 for number in range(401)]
    assert max(excess(square, at) for at in grid) < 1e-9
    if epsilon < 10.0:
        assert max(excess(0.99 * square, at) for at in grid) > 0.0


def test_the_account_of_a_party_stands_beside_its_file_and_binds_nobody_else(tmp_path):
    path = tmp_path / "parties.yaml"
    path.write_text(
        "protocol: curator\nepsilon: 1\nparties:\n  - {name: ann, rows: 9, data: a.csv, account: a.db#ann}\n"
    )
    (tmp_path / "a.db").touch()
    whole = read_federation(path)
    assert whole.parties[0].account == f"{tmp_path / 'a.db'}#ann"
    own = "{name: ann, rows: 9, block: month}"
    path.write_text(f"protocol: curator\nepsilon: 1\nparties:\n  - {own}\n")
    assert read_federation(path).digest == whole.digest


def test_parties_without_an_account_are_named():
    two = federation("curator", parties=[{"name": "ann", "rows": 9, "account": "a.db#ann"}, {"name": "bob", "rows": 9}])
    assert "No ledger keeps this for bob: epsilons" in FederatedEvaluation(two, {}, ("ann",), unkept=("bob",)).statement
    assert "No ledger" not in FederatedEvaluation(two, {}, ("ann",)).statement


def test_rows_that_an_encoder_does_not_take_are_those_of_the_unit_that_sends_them(start, model, parties, monkeypatch):
    from sweeper.federated import party

    add_column(parties["ann"], "who", lambda row: f"p{row // 2}")
    federation = start("curator", parties=[{"name": "ann", "rows": 60}], unit="who", **QUIET).federation
    read = party._read

    def refusing(*args):
        rows, labels = read(*args)
        return replace(rows, not_taken=torch.ones(len(rows.x), dtype=torch.bool)), labels

    monkeypatch.setattr(party, "_read", refusing)
    with pytest.warns(UserWarning, match=r"does not take 30 of 30 rows"):
        (counted,) = party.rows_of(federation, load_predictor(model), parties["ann"])
    assert len(counted) == 30
