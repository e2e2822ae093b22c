"""``sweeper evaluate --federated``: servers and parties as processes of this machine, from the command line."""

import datetime
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clipless.errors import FederationError
from clipless.privacy.events import Relation
from sweeper.account.account import Account
from sweeper.account.owner import open_account
from sweeper.account.store import AccountStore
from sweeper.cli.commands.models import evaluate as evaluate_command
from sweeper.cli.main import main
from sweeper.errors import RecordError, SweeperError
from sweeper.federated import local
from sweeper.federated.evaluation import FederatedEvaluation
from sweeper.federated.federation import read_federation
from sweeper.federated.keys import ledger_of, make_key, read_key
from sweeper.federated.local import evaluate
from sweeper.specification.addresses import parse_address

PROGRAM = "from sweeper.cli.main import main; main()"
PATIENCE_SECONDS = 120.0


def opened(folder, name, epsilon, unit="row"):
    address = parse_address(f"{folder}/{name}.db#rows")
    terms = {"unit": unit, "relation": Relation.ADD_OR_REMOVE_ONE, "epsilon": epsilon, "delta": 1e-4}
    open_account(address, **terms, by="owner", at=datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC))
    return address


def write(folder, names, protocol, **changes):
    content = {"protocol": protocol, "epsilon": 400, "target": "won", "thresholds": 20, "levels": 6, **changes}
    content["parties"] = [{"name": name, "rows": 60, "data": f"{name}.csv"} for name in names]
    path = folder / "parties.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["function-sharing", "aggregation"])
@pytest.mark.usefixtures("parties")
def test_one_command_evaluates_over_processes_and_leaves_none(tmp_path, model, protocol):
    path = write(tmp_path, ["ann", "bob", "cat"], protocol)
    program = [sys.executable, "-c", PROGRAM, "evaluate", str(model), "--federated", str(path)]
    ended = subprocess.run(
        [*program, "-o", str(tmp_path / "found.json")], capture_output=True, text=True, check=False, timeout=280
    )
    assert ended.returncode == 0, ended.stderr
    assert "3 of 3 parties, 180 rows as declared" in ended.stdout
    assert "All of it together is 400-differentially private for each row of a party" in ended.stdout
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["included"] == ["ann", "bob", "cat"]
    assert 0.5 < found["accuracy"] < 1.0
    assert 0.7 < found["auroc"] < 1.0
    assert str(tmp_path) not in "".join(command_lines())


def command_lines():
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_text().replace("\0", " ")
        except OSError:
            continue


@pytest.mark.usefixtures("parties")
def test_nobody_pays_for_a_result_that_cannot_be_written(tmp_path, model, monkeypatch):
    monkeypatch.setattr(local, "evaluate", lambda *_: pytest.fail("parties were asked"))
    path, rows = write(tmp_path, ["ann", "bob"], "curator"), tmp_path / "ann.csv"
    before, sealed = rows.read_bytes(), tmp_path / "sealed"
    (tmp_path / "was.json").write_text("{}")
    sealed.mkdir(mode=0o500)
    monkeypatch.setattr(local.os, "access", lambda folder, _: Path(folder).is_dir() and Path(folder) != sealed)
    for output, said in (
        (rows, r"ends in \.json, got .*ann\.csv \(--output\)"),
        (tmp_path / "was.json", r"a new file, got .*was\.json, which exists; name another"),
        (tmp_path / "no" / "found.json", r"a folder that can be written to, got .*no; make it"),
        (sealed / "found.json", r"a folder that can be written to, got .*sealed; make it"),
        (tmp_path / f"{'é' * 100}.json", r"a file name of at most 200 bytes, got 205 \(--output\)"),
    ):
        with pytest.raises(RecordError, match=said):
            evaluate_command(model, path, output=output)
    assert rows.read_bytes() == before


@pytest.mark.usefixtures("parties")
def test_nobody_pays_where_the_account_of_one_party_refuses(tmp_path, model, monkeypatch):
    monkeypatch.setattr(local, "_with_servers", lambda *_: pytest.fail("a server was started"))
    path = write(tmp_path, ["ann", "bob"], "curator", epsilon=1)
    content = json.loads(path.read_text())
    for party, budget in zip(content["parties"], (9.0, 0.1), strict=True):
        party["account"] = str(opened(tmp_path, party["name"], budget))
    path.write_text(json.dumps(content))
    with pytest.raises(
        SweeperError, match=r"'bob' cannot take part, and none has paid: .* that account 'rows' has room"
    ):
        local.evaluate_here(read_federation(path), model)
    for name in ("ann", "bob"):
        assert Account(parse_address(f"{tmp_path}/{name}.db#rows")).head.number == 1


def test_nobody_pays_for_parties_that_one_account_refuses_together(tmp_path, model, parties, monkeypatch):
    """Each alone would be taken: the same rows, people who are at both, or room for one."""
    monkeypatch.setattr(local, "_with_servers", lambda *_: pytest.fail("a server was started"))
    ann, bob = (parties[name].read_text().splitlines() for name in ("ann", "bob"))

    def visits(lines, month, first=0):
        return [f"{lines[0]},person,month", *(f"{line},p{first + i},{month}" for i, line in enumerate(lines[1:]))]

    january, person = visits(ann, "jan"), {"unit": "person"}
    cases = (
        ((ann, ann), {}, "Expected rows at one party, got those of 'ann' again; leave one out"),
        ((january, visits(bob, "feb")), person, "Expected every person in one block of account 'rows', got one of"),
        ((january, visits(bob, "jan", 99)), person, "Expected the rows that block 'jan' of account 'rows' is bound to"),
    )
    for number, (files, changes, sentence) in enumerate(cases):
        for name, lines in zip(("ann", "bob"), files, strict=True):
            parties[name].write_text("\n".join([*lines, ""]))
        path = write(tmp_path, ["ann", "bob"], "curator", epsilon=1, **changes)
        address = opened(tmp_path, f"{number}", 9.0, unit=changes.get("unit", "row"))
        content = json.loads(path.read_text())
        for party in content["parties"]:
            party |= {"account": str(address)} | ({"block": "month"} if changes else {})
        path.write_text(json.dumps(content))
        with pytest.raises(SweeperError, match=f"'bob' cannot take part, and none has paid: {sentence}"):
            local.evaluate_here(read_federation(path), model)
        assert Account(address).head.number == 1


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("failing", [["bob"], ["bob", "cat"]], ids=["three are left", "two are left"])
def test_a_party_that_fails_takes_no_result_from_the_others_and_where_too_few_are_left_none_pays(
    tmp_path, model, parties, monkeypatch, failing
):
    path = write(tmp_path, ["ann", "bob", "cat", "dan"], "aggregation", epsilon=1, wait_seconds=30)
    content = json.loads(path.read_text())
    content["parties"][0]["account"] = str(opened(tmp_path, "ann", 9.0))
    path.write_text(json.dumps(content))
    monkeypatch.setattr(local, "_check_accounts", lambda *_: [parties[name].unlink() for name in failing])
    said = "The party 'bob' failed: sweeper: Cannot read"
    if len(failing) == 1:
        found = local.evaluate_here(read_federation(path), model)
        assert found.left_out == ("bob",)
        assert found.refused["bob"].startswith(said)
    else:
        with pytest.raises((SweeperError, FederationError)) as failed:
            local.evaluate_here(read_federation(path), model)
        assert said.lower() in str(failed.value).lower()
        assert "charged" not in str(failed.value)
        assert Account(parse_address(content["parties"][0]["account"])).head.number == 1


def test_what_was_charged_for_no_result_is_told(tmp_path, parties):
    path = write(tmp_path, [*parties][:2], "curator", epsilon=1)
    content = json.loads(path.read_text())
    for party in content["parties"]:
        party["account"] = str(opened(tmp_path, party["name"], 9.0))
    path.write_text(json.dumps(content))
    federation, _ = local._with_keys(read_federation(path), tmp_path)
    assert list(local._why(federation, tmp_path, [])) == []
    ledger_of(local._key_of(federation, tmp_path, "bob")).write_text("")
    assert list(local._why(federation, tmp_path, [])) == ["charged without a result: the accounts of bob"]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.usefixtures("parties")
def test_where_an_evaluation_is_killed_nobody_pays_any_more_and_no_process_or_key_is_left(tmp_path, model, number):
    path, folders = write(tmp_path, ["ann", "bob"], "function-sharing", epsilon=1), tmp_path / "folders"
    content, addresses = json.loads(path.read_text()), [opened(tmp_path, name, 9.0) for name in ("ann", "bob")]
    for party, address in zip(content["parties"], addresses, strict=True):
        party["account"] = str(address)
    path.write_text(json.dumps(content))
    folders.mkdir()
    program = [sys.executable, "-c", PROGRAM, "evaluate", str(model), "--federated", str(path)]
    running = subprocess.Popen(program, env={**os.environ, "TMPDIR": str(folders)}, cwd=tmp_path)
    wait_for(lambda: list(folders.glob("*/servers.yaml")))
    with AccountStore(addresses[1]).write():  # bob cannot pay yet
        wait_for(lambda: Account(addresses[0]).head.number > 1 and list(folders.glob("*/*.lock"))[1:])
        running.send_signal(number)
        assert running.wait(PATIENCE_SECONDS) == (-number if number == signal.SIGKILL else 128 + number)
        wait_for(lambda: str(folders) not in "".join(command_lines()))
        wait_for(lambda: not list(folders.iterdir()))
    assert [Account(address).head.number > 1 for address in addresses] == [True, False]


def wait_for(condition):
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_signal_that_somebody_has_decided_upon_is_theirs():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with local._signals_raise():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            with pytest.raises(SystemExit) as ended:
                signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)  # while it unwinds
        assert ended.value.code == 128 + signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_parties_without_data_and_servers_without_addresses_are_refused(tmp_path, model):
    path = write(tmp_path, ["ann"], "curator")
    federation = read_federation(path)
    without = federation.model_copy(update={"parties": [federation.parties[0].model_copy(update={"data": None})]})
    with pytest.raises(SweeperError, match="got none of ann"):
        local.evaluate_here(without, model)


def test_an_evaluation_on_one_machine_says_that_no_ledger_adds_up(tmp_path, model, monkeypatch):
    """Keys, and the ledgers beside them, go with the folder of the run."""

    def asked(federation, _):
        return FederatedEvaluation(federation, {}, ("ann",))

    monkeypatch.setattr(local, "ask", asked)
    monkeypatch.setattr(local, "_with_servers", lambda whole, *_: whole)
    monkeypatch.setattr(local, "_party", nobody)
    found = local.evaluate_here(read_federation(write(tmp_path, ["ann"], "curator")), model)
    sentence = (
        "No ledger keeps this: epsilons of several evaluations of the same rows on one machine add up, uncounted. Name "
        "the account of each party's rows (parties.account)."
    )
    assert found.statement.endswith(sentence)
    assert sentence in found.to_json()["statement"]
    assert sentence not in asked(found.federation, None).statement


def nobody(_whole, _folder, name, *_more):
    return name, FakeProcess(0, said="")


def test_a_party_process_that_fails_says_why():
    fake = FakeProcess(1, said="sweeper: Cannot read ann.csv")
    with pytest.raises(SweeperError, match="The party 'ann' failed: sweeper: Cannot read ann"):
        local._wait_for("ann", fake)


class FakeProcess:
    def __init__(self, code, said):
        self.returncode, self._said = code, said

    def communicate(self):
        return "", self._said


def test_servers_elsewhere_want_the_key_of_the_analyst(tmp_path, model):
    key = make_key(tmp_path / "analyst.key")
    content = {
        "protocol": "curator",
        "epsilon": 1,
        "servers": [{"name": "s", "url": "http://127.0.0.1:9", "key": key.public.hex()}],
        "parties": [{"name": "ann", "rows": 1, "key": key.public.hex()}],
        "analyst": key.public.hex(),
    }
    path = tmp_path / "parties.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(SweeperError, match=r"Expected the private key of who is told the result"):
        evaluate(model, path)
    make_key(tmp_path / "other.key")
    with pytest.raises(SweeperError, match="Expected the private key of the analyst in the file, got another one"):
        evaluate(model, path, tmp_path / "other.key")
    with pytest.raises(SweeperError, match="Cannot reach the server 's'"):
        evaluate(model, path, tmp_path / "analyst.key")


def test_a_key_is_made_and_its_public_part_printed(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["federated", "key", str(tmp_path / "ann.key")])
    assert f"for a federation's file: {read_key(tmp_path / 'ann.key').public.hex()}" in capsys.readouterr().out
    assert (tmp_path / "ann.key").is_file()
