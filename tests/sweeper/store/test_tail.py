import json

import pytest

from sweeper.errors import RecordError
from sweeper.records import Point, Trial
from sweeper.store.sweep_folder import SweepFolder
from sweeper.store.tail import JsonlTail, SweepTail


@pytest.fixture
def folder(tmp_path):
    return SweepFolder(tmp_path)


def point(epoch, accuracy=0.5):
    return Point(trial="t0001", epoch=epoch, values={"epsilon": float(epoch), "accuracy": accuracy})


def test_what_a_follower_has_seen_is_what_the_folder_holds(folder):
    follower = SweepTail(folder)
    follower.look()
    assert (follower.trials, follower.points, follower.decisions) == ({}, {}, [])
    for epoch in range(1, 4):
        folder.save_trial(Trial(id=f"t000{epoch}", config={}))
        folder.save_points([point(epoch)])
        folder.save_decision({"trial": "t0001", "epoch": epoch, "goes_on": True})
        follower.look()
        assert follower.trials == folder.trials()
        assert follower.points == folder.points()
        assert follower.decisions == folder.decisions()
    folder.save_points([point(2, accuracy=0.9)])
    follower.look()
    assert list(follower.points.values()) == list(folder.points().values())


def test_a_row_is_read_once(folder, monkeypatch):
    parsed = []
    original = json.loads
    monkeypatch.setattr("sweeper.store.jsonl.json.loads", lambda text: parsed.append(text) or original(text))
    follower = SweepTail(folder)
    for epoch in range(1, 6):
        folder.save_points([point(epoch)])
        follower.look()
    follower.look()
    assert len([text for text in parsed if text]) == 5


def test_half_a_row_waits_for_its_end(tmp_path):
    path = tmp_path / "points.jsonl"
    tail = JsonlTail(path)
    path.write_text('{"a": 1}\n{"a"')
    assert tail.read() == ([{"a": 1}], False)
    with path.open("a") as file:
        file.write(": 2}\n")
    assert tail.read() == ([{"a": 2}], False)
    assert tail.read() == ([], False)


def test_a_file_that_was_cut_or_replaced_or_removed_is_read_again(tmp_path):
    path = tmp_path / "points.jsonl"
    tail = JsonlTail(path)
    path.write_text('{"a": 1}\n{"a": 2}\n')
    tail.read()
    path.write_text('{"a": 3}\n')
    assert tail.read() == ([{"a": 3}], True)
    other = tmp_path / "other"
    other.write_text('{"a": 4}\n{"a": 5}\n{"a": 6}\n')
    other.replace(path)
    assert tail.read() == ([{"a": 4}, {"a": 5}, {"a": 6}], True)
    path.unlink()
    assert tail.read() == ([], True)
    assert tail.read() == ([], False)


def test_what_is_gone_from_a_replaced_file_is_gone(folder):
    follower = SweepTail(folder)
    folder.save_trial(Trial(id="t0001", config={}))
    folder.save_points([point(1)])
    folder.save_decision({"trial": "t0001", "epoch": 1})
    follower.look()
    for file in folder.path.glob("*.jsonl"):
        file.unlink()
    follower.look()
    assert (follower.trials, follower.points, follower.decisions) == ({}, {}, [])


@pytest.mark.parametrize(
    ("text", "said"), [("[]\n", "Expected a JSON object on line 2"), ('{"trial": 7}\n', "on line 2")]
)
def test_a_broken_row_is_named_by_its_line(folder, text, said):
    follower = SweepTail(folder)
    folder.save_points([point(1)])
    follower.look()
    with (folder.path / "points.jsonl").open("a") as file:
        file.write(text)
    with pytest.raises(RecordError, match=said):
        follower.look()


@pytest.mark.parametrize("file", ["points", "trials", "decisions"])
def test_a_broken_row_is_read_again_until_it_is_mended_and_those_around_it_are_not_lost(folder, file):
    follower = SweepTail(folder)
    folder.save_trial(Trial(id="t0001", config={}))
    folder.save_points([point(1)])
    follower.look()
    folder.save_trial(Trial(id="t0002", config={}))
    folder.save_points([point(2)])
    path = folder.path / f"{file}.jsonl"
    whole = path.read_bytes() if path.exists() else b""
    for _ in range(2):
        path.write_bytes(whole + (b"[]\n" if file == "decisions" else b'{"odd": 1}\n'))
        with pytest.raises(RecordError, match="on line"):
            follower.look()
    path.write_bytes(whole)
    follower.look()
    assert (follower.trials, follower.points) == (folder.trials(), folder.points())


def test_rows_before_a_broken_file_took_their_place_no_longer_count_once_it_is_mended(folder):
    follower = SweepTail(folder)
    for epoch in (1, 2):
        folder.save_points([point(epoch)])
    follower.look()
    other, path = folder.path / "other", folder.path / "points.jsonl"
    row = path.read_text().splitlines()[1]
    other.write_text("[]\n")
    other.replace(path)
    with pytest.raises(RecordError, match="line 1 of"):
        follower.look()
    path.write_text(row + "\n")
    follower.look()
    assert list(follower.points) == [("t0001", 2, "")]


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "points.jsonl").mkdir()
    with pytest.raises(RecordError, match="Cannot read"):
        JsonlTail(tmp_path / "points.jsonl").read()
