import json
import stat
import time

import pytest

from sweeper.errors import RecordError, SweeperError
from sweeper.service.security import tokens as tokens_module
from sweeper.service.security.tokens import Holder, KnownTokens, Role, make_token, revoke_token


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tokens.json"


def test_a_token_is_found_and_the_file_does_not_hold_it(path):
    token = make_token(path, Role.WRITE, 1, "ada")
    other = make_token(path, Role.READ, 1, "ada")
    known = KnownTokens(path)
    assert known.find(token) == Holder(token.split("_")[1], Role.WRITE, "ada")
    assert known.find(other).role is Role.READ
    assert token.split("_", 2)[2] not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(token.split("_", 2)[2]) == 43, "32 random bytes"


@pytest.mark.parametrize("spoil", [str.upper, lambda t: t[:-1], lambda t: t + "x", lambda _: "", lambda t: t * 9999])
def test_nothing_but_the_whole_token_is_found(spoil, path):
    token = make_token(path, Role.WRITE, 1, "ada")
    assert KnownTokens(path).find(spoil(token)) is None
    assert KnownTokens(path).find("sweeper_\udcff\x00ü") is None


def test_a_hash_is_compared_in_constant_time_whoever_asks(path, monkeypatch):
    made = [make_token(path, Role.READ, 1, "ada") for _ in range(3)]
    compared = []
    whole = tokens_module.hmac.compare_digest
    monkeypatch.setattr(tokens_module.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or whole(a, b))
    tokens = KnownTokens(path)
    assert tokens.find(made[1]) is not None
    other_secret = made[1][:-1] + ("a" if made[1][-1] != "a" else "b")
    for wrong in (other_secret, "sweeper_00000000_x", "", "x" * 1000, "\ud800"):
        assert tokens.find(wrong) is None
    assert len(compared) == 6
    assert all(len(a) == len(b) == 64 for a, b in compared)


@pytest.mark.parametrize("hash_", ["", "ab", "é" * 64, "g" * 64])
def test_a_file_with_something_else_for_a_hash_is_refused(hash_, path):
    make_token(path, Role.READ, 1, "ada")
    content = json.loads(path.read_text())
    content["tokens"][0]["hash"] = hash_
    path.write_text(json.dumps(content))
    with pytest.raises(RecordError, match=r"but not in tokens\.0\.hash"):
        KnownTokens(path)


def test_an_expired_token_is_nobodys(path, monkeypatch):
    token = make_token(path, Role.READ, 1, "ada")
    known, now = KnownTokens(path), time.time()
    monkeypatch.setattr(time, "time", lambda: now + 86_399)
    assert known.find(token) is not None
    assert known.holder(token.split("_")[1]) is not None
    monkeypatch.setattr(time, "time", lambda: now + 86_401)
    assert known.find(token) is None
    assert known.holder(token.split("_")[1]) is None


def test_a_token_that_is_taken_back_is_refused_at_once(path):
    kept, gone = make_token(path, Role.READ, 1, "ada"), make_token(path, Role.READ, 1, "ada")
    known = KnownTokens(path)
    assert known.find(gone) is not None
    revoke_token(path, gone.split("_")[1])
    assert known.find(gone) is None
    assert known.holder(gone.split("_")[1]) is None
    assert known.find(kept) is not None
    with pytest.raises(RecordError, match=r"Expected the id of a token of .*, got 'nobody' \(--revoke\)"):
        revoke_token(path, "nobody")


def test_a_file_that_cannot_be_read_any_more_permits_nothing(path):
    token = make_token(path, Role.WRITE, 1, "ada")
    known, content = KnownTokens(path), path.read_text()
    path.write_text("{")
    assert known.find(token) is None
    path.write_text(content)
    assert known.find(token) is not None
    path.unlink()
    assert known.find(token) is None


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda c: c | {"version": 2}, "Expected version 1"),
        (lambda c: c | {"tokens": [{"id": 3}]}, "but not in tokens.0"),
        (lambda c: c | {"more": 1}, "but not in more"),
        (lambda _: [], "Expected a JSON object"),
    ],
)
def test_a_file_of_another_kind_is_refused(spoil, said, path):
    make_token(path, Role.READ, 1, "ada")
    path.write_text(json.dumps(spoil(json.loads(path.read_text()))))
    with pytest.raises(RecordError, match=said):
        KnownTokens(path)


@pytest.mark.parametrize("days", [0, -1, 3661])
def test_a_token_lasts_a_day_to_ten_years(days, path):
    with pytest.raises(SweeperError, match=rf"Expected 1 to 3660 days, got {days} \(--days\)"):
        make_token(path, Role.READ, days, "ada")


@pytest.mark.parametrize("owner", ["", "  ", "a\nb", "a\u202eb", "x" * 61])
def test_an_owner_has_a_name_that_can_be_shown(owner, path):
    with pytest.raises(
        SweeperError, match=r"Expected a name of 1 to 60 characters that can be shown, got .* \(--owner\)"
    ):
        make_token(path, Role.READ, 1, owner)
    assert not path.exists()


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(RecordError, match=r"Cannot write .*none/tokens.json.*\(--tokens\)"):
        make_token(tmp_path / "none" / "tokens.json", Role.READ, 1, "ada")


def test_a_file_that_is_not_there_is_named_with_the_command_that_makes_it(tmp_path):
    with pytest.raises(RecordError, match=r"got none at .*nowhere.json \(--tokens\); make one: sweeper token"):
        KnownTokens(tmp_path / "nowhere.json")
