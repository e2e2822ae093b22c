"""Private keys, and the ledger of what was spent under them."""

import fcntl
import json

import pytest

from clipless.federated.primitives import Identity
from sweeper.errors import RecordError, SweeperError
from sweeper.federated.federation import parse_federation
from sweeper.federated.keys import ledger_of, make_key, read_key, spend
from sweeper.store.jsonl import JsonlFile

FEDERATION = parse_federation(
    {"protocol": "curator", "epsilon": 0.5, "parties": [{"name": "ann", "rows": 1}]}, "the test's"
)


def test_a_key_is_readable_by_its_owner_alone_and_comes_back(tmp_path):
    path = tmp_path / "ann.key"
    made = make_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_key(path).public == made.public


def test_a_key_is_never_replaced(tmp_path):
    path = tmp_path / "ann.key"
    before = make_key(path)
    with pytest.raises(SweeperError, match=r"Cannot write .*a key is never replaced"):
        make_key(path)
    assert read_key(path).public == before.public


@pytest.mark.parametrize("content", ["", "zz", Identity().private.hex()[:-2]], ids=["empty", "no number", "short"])
def test_a_file_without_a_key_is_refused(tmp_path, content):
    (tmp_path / "ann.key").write_text(content)
    with pytest.raises(SweeperError, match="Expected a private key in"):
        read_key(tmp_path / "ann.key")
    with pytest.raises(SweeperError, match="Cannot read"):
        read_key(tmp_path / "bob.key")


def test_what_is_spent_under_a_key_adds_up_and_stops_at_the_budget(tmp_path):
    key = tmp_path / "ann.key"
    assert [spend(key, FEDERATION, 1.0) for _ in range(2)] == [0.5, 1.0]
    with pytest.raises(SweeperError, match=r"Expected at most 1 to be spent of these rows, got 0\.5 beyond 1"):
        spend(key, FEDERATION, 1.0)
    entries = [json.loads(line) for line in ledger_of(key).read_text().splitlines()]
    assert [entry["epsilon"] for entry in entries] == [0.5, 0.5]
    assert {entry["federation"] for entry in entries} == {FEDERATION.digest.hex()}
    assert spend(key, FEDERATION, None) == 1.5


def test_what_was_spent_counts_without_the_end_of_its_line(tmp_path):
    key = tmp_path / "ann.key"
    spend(key, FEDERATION, 0.75)
    ledger_of(key).write_bytes(ledger_of(key).read_bytes().rstrip(b"\n"))
    with pytest.raises(SweeperError, match=r"Expected at most 0\.75 to be spent of these rows, got 0\.5 beyond 0\.5"):
        spend(key, FEDERATION, 0.75)
    assert spend(key, FEDERATION, 1.0) == 1.0


@pytest.mark.parametrize("moment", ["read", "append"])
def test_nobody_else_spends_between_looking_and_entering(tmp_path, monkeypatch, moment):
    key, honest, tried = tmp_path / "ann.key", getattr(JsonlFile, moment), []

    def watched(ledger, *row):
        with ledger.path.open("ab") as other:
            tried.append(other)
            with pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return honest(ledger, *row)

    monkeypatch.setattr(JsonlFile, moment, watched)
    assert [spend(key, FEDERATION, 1.0) for _ in range(2)] == [0.5, 1.0]
    assert len(tried) == 2


@pytest.mark.parametrize("line", ["{}", '{"epsilon": "much"}', "no json\n{}"])
def test_a_ledger_that_cannot_be_read_spends_nothing(tmp_path, line):
    key = tmp_path / "ann.key"
    ledger_of(key).write_text(line + "\n")
    with pytest.raises(RecordError):
        spend(key, FEDERATION, None)
    assert ledger_of(key).read_text() == line + "\n"
