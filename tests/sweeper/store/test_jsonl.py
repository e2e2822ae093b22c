import contextlib
import errno
import json
import math
import os
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.errors import RecordError
from sweeper.store import jsonl as module
from sweeper.store.jsonl import JsonlFile, append_alone, plain, read_object, replace_file, to_lines, to_text


@pytest.fixture
def full_disk(monkeypatch):
    """A disk with room for ``room["bytes"]`` more bytes."""
    room = {"bytes": 10**9}
    real = os.pwrite

    def pwrite(handle, data, offset):
        fits = data[: room["bytes"]]
        if not fits:
            raise OSError(errno.ENOSPC, "No space left on device")
        room["bytes"] -= len(fits)
        return real(handle, fits, offset)

    monkeypatch.setattr(module.os, "pwrite", pwrite)
    return room


def test_rows_come_back_in_order(tmp_path):
    file = JsonlFile(tmp_path / "a.jsonl")
    assert file.read() == []
    for n in range(3):
        file.append({"n": n, "text": "ä\n"})
    assert file.read() == [{"n": n, "text": "ä\n"} for n in range(3)]
    assert len(file.path.read_text(encoding="utf-8").splitlines()) == 3


@pytest.fixture
def synced(monkeypatch):
    """What is synced, in order: the file or folder, and the bytes of the file then."""
    seen, real = [], os.fsync

    def fsync(handle):
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        seen.append((path, path.stat().st_size if path.is_file() else None))
        real(handle)

    monkeypatch.setattr(module.os, "fsync", fsync)
    return seen


def test_a_new_durable_file_is_on_the_disk_with_its_entries_before_its_first_row_is_taken_as_written(tmp_path, synced):
    folder = tmp_path / "sweep"
    folder.mkdir()
    file = JsonlFile(folder / "ledger.jsonl", durable=True)
    file.append({"row": 1})
    assert synced == [(file.path, 11), (folder, None), (tmp_path, None)]
    file.append({"row": 2})
    assert synced[3:] == [(file.path, 22)]


@pytest.mark.parametrize("content", ["", '{"row": 1}\n'])
def test_a_durable_file_that_a_crashed_process_made_is_synced_in_its_folder_too(tmp_path, synced, content):
    (tmp_path / "ledger.jsonl").write_text(content)
    append_alone(tmp_path / "ledger.jsonl", {"row": 2}, durable=True)
    assert (tmp_path, None) in synced


def test_a_file_that_need_not_be_durable_is_not_synced(tmp_path, synced):
    JsonlFile(tmp_path / "trials.jsonl", patient=True).append({"row": 1})
    assert synced == []


def test_a_row_whose_file_has_no_entry_on_the_disk_is_not_written(tmp_path, monkeypatch):
    def refused(handle):
        if os.readlink(f"/proc/self/fd/{handle}") == str(tmp_path):
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(module.os, "fsync", refused)
    file = JsonlFile(tmp_path / "ledger.jsonl", durable=True)
    with pytest.raises(RecordError, match=r"Cannot write .*ledger.jsonl: Input/output error"):
        file.append({"row": 1})
    assert file.path.read_bytes() == b""


def test_json_stays_standard():
    text = to_text({"a": math.inf, "b": (-math.inf, math.nan), 3: [1.5]})
    assert json.loads(text) == {"a": "Infinity", "b": ["-Infinity", "NaN"], "3": [1.5]}
    assert float("Infinity") == math.inf
    assert plain({"x": 1}) == {"x": 1}


@settings(deadline=None)
@given(cut=st.integers(0, 60))
def test_a_crash_at_any_byte_loses_at_most_the_row_being_written(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("rows") / "a.jsonl"
    writer = JsonlFile(path)
    for n in range(4):
        writer.append({"row": n})
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    survivors = JsonlFile(path).read()
    assert survivors == [{"row": n} for n in range(len(survivors))]
    assert len(survivors) >= whole[:cut].count(b"\n")
    JsonlFile(path).append({"row": "next"})
    assert JsonlFile(path).read() == [*survivors, {"row": "next"}]


def test_a_row_that_lacks_only_its_line_end_is_kept(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": 2}')
    assert JsonlFile(path).read() == [{"a": 1}, {"a": 2}]
    JsonlFile(path).append({"a": 3})
    assert path.read_bytes() == b'{"a": 1}\n{"a": 2}\n{"a": 3}\n'


@pytest.mark.parametrize("patient", [False, True])
def test_nothing_is_written_to_a_file_that_was_put_back_or_whose_folder_was_moved(tmp_path, patient):
    """Its rows would stand behind a gap, or where nobody reads them."""
    path = tmp_path / "sweep" / "ledger.jsonl"
    path.parent.mkdir()
    file = JsonlFile(path, patient=patient)
    file.append({"row": 1})
    before = path.read_bytes()
    file.append({"row": 2})
    path.write_bytes(before)
    with contextlib.nullcontext() if patient else pytest.raises(RecordError, match="put back, or its folder was moved"):
        file.append({"row": 3})
    assert "got a shorter file" in file.trouble
    assert path.read_bytes() == before
    path.parent.rename(tmp_path / "moved")
    path.parent.mkdir()
    with contextlib.nullcontext() if patient else pytest.raises(RecordError, match="Cannot write"):
        file.append({"row": 4})
    assert not path.exists()


def test_a_torn_tail_leaves_nothing_behind_a_shorter_row(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": "' + b"x" * 500)
    JsonlFile(path).append({"a": 2})
    assert path.read_bytes() == b'{"a": 1}\n{"a": 2}\n'


@pytest.mark.parametrize("broken", [b"oops", b"[1]", b"", b"\x00\x00", b"\xff", b"[" * 100_000, b"3"])
def test_a_broken_line_in_the_middle_is_named(tmp_path, broken):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n' + broken + b'\n{"a": 2}\n')
    with pytest.raises(RecordError, match=r"JSON object on line 2 of .*a\.jsonl"):
        JsonlFile(path).read()
    with pytest.raises(RecordError, match="line 2"):
        JsonlFile(path).append({"a": 3})


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(RecordError, match="Cannot read"):
        JsonlFile(tmp_path).read()


def test_a_full_disk_leaves_no_part_of_a_row(tmp_path, full_disk):
    file = JsonlFile(tmp_path / "a.jsonl", durable=True)
    file.append({"a": 1})
    full_disk["bytes"] = 5
    with pytest.raises(RecordError, match=r"Cannot write .*a\.jsonl: No space left on device; free space"):
        file.append({"a": 2})
    assert file.path.read_bytes() == b'{"a": 1}\n'
    assert file.pending == 0
    full_disk["bytes"] = 100
    file.append({"a": 3})
    assert file.read() == [{"a": 1}, {"a": 3}]


def test_a_patient_file_writes_later_what_the_disk_refused(tmp_path, full_disk):
    file = JsonlFile(tmp_path / "a.jsonl", patient=True)
    full_disk["bytes"] = 12
    for n in range(3):
        file.append({"a": n})
    assert file.read() == [{"a": 0}]
    assert file.pending == 2
    assert "No space left" in file.trouble
    full_disk["bytes"] = 100
    file.flush()
    assert file.read() == [{"a": n} for n in range(3)]
    assert (file.pending, file.trouble) == (0, None)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "front.json"
    replace_file(path, '{"a": 1}')
    assert read_object(path) == {"a": 1}
    with monkeypatch.context() as patch:
        patch.setattr(
            module.os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device"))
        )
        with pytest.raises(RecordError, match=r"Cannot write .*front\.json: No space left on device"):
            replace_file(path, '{"a": 2}')
    assert read_object(path) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["front.json"]


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff"])
def test_a_broken_file_is_named(tmp_path, content):
    path = tmp_path / "front.json"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=r"JSON object in .*front\.json"):
        read_object(path)


def test_a_value_that_json_has_no_form_for_is_a_fault_of_ours():
    with pytest.raises(TypeError):
        to_text({"a": datetime(2024, 1, 1)})


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(content=st.dictionaries(st.text(), _JSON, max_size=5))
def test_lines_are_the_same_json_and_one_for_each_item(content):
    text = to_lines(content)
    assert json.loads(text) == json.loads(to_text(plain(content)))
    items = [len(value) + 1 if isinstance(value, dict | list) and value else 0 for value in content.values()]
    assert len(text.split("\n")) == 3 + max(1, len(content)) + sum(items)
