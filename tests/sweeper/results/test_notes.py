"""Notes and tags: kept in the folder whoever writes, and sent to MLflow when it can be reached."""

import json
import multiprocessing
import re
import shutil
from dataclasses import replace

import pytest

from sweeper.errors import RecordError, SweeperError
from sweeper.records import Point, SweepStatus, Trial
from sweeper.results import notes
from sweeper.results.notes import add_note, add_tag
from sweeper.store.actions import NOTES_NAME, ActionKind, read_actions
from sweeper.store.manifest import Manifest
from sweeper.store.notes import read_notes
from sweeper.store.sweep_folder import SweepFolder


@pytest.fixture
def folder(tmp_path):
    sweep = SweepFolder(tmp_path / "digits-1")
    sweep.path.mkdir()
    running = Manifest(name="digits", status=SweepStatus.RUNNING, spec={}, source="x.yaml", tracking="http://store")
    sweep.write_manifest(running)
    for trial in ("t0001", "t0002"):
        sweep.save_trial(Trial(id=trial, config={}))
    return sweep.path


@pytest.fixture
def sent(monkeypatch):
    """What MLflow was told."""
    told = []
    monkeypatch.setattr(notes, "set_tags", lambda where, trial, tags: told.append((where, trial, dict(tags))))
    return told


def test_notes_add_up_and_the_last_tag_counts(folder, sent):
    assert read_notes(folder) == {}
    assert add_note(folder, "t0001", " looks \n good ", by="ada") is None
    assert add_note(folder, "t0001", "it is good", by="") is None
    for value in ("a=b", ""):
        assert add_tag(folder, "t0002", "owner/team", value, by="bob") is None
    found = read_notes(folder)
    day = found["t0001"].texts[0].at[:10]
    assert {trial: str(notes) for trial, notes in found.items()} == {
        "t0001": f"looks good (ada, {day}); it is good",
        "t0002": f"owner/team= (bob, {day})",
    }
    assert [(one.by, one.kind, one.trial, one.detail) for one in read_actions(folder)] == [
        ("ada", ActionKind.NOTE, "t0001", "looks good"),
        ("bob", ActionKind.TAG, "t0002", "owner/team = a=b"),
        ("bob", ActionKind.TAG, "t0002", "owner/team = "),
    ]
    assert [tags for _, _, tags in sent] == [
        {"mlflow.note.content": f"looks good (ada, {day})"},
        {"mlflow.note.content": f"looks good (ada, {day})\n\nit is good"},
        {"owner/team": "a=b"},
        {"owner/team": ""},
    ]
    assert {(where.uri, where.sweep, where.experiment) for where, *_ in sent} == {
        ("http://store", "digits-1", "digits")
    }


def test_a_note_of_a_sweep_that_has_ended_keeps_the_description_of_its_trial(folder, sent, make_front):
    sweep = SweepFolder(folder)
    sweep.write_manifest(replace(sweep.read_manifest(), status=SweepStatus.COMPLETED))
    add_note(folder, "t0001", "no front yet", by="")
    make_front([Point(trial="t0001", epoch=1, values={"epsilon": 1.0, "accuracy": 0.5})], sweep="x").write(sweep.front)
    add_note(folder, "t0001", "done", by="ada")
    add_note(folder, "t0002", "in no front", by="")
    first, second, third = (tags["mlflow.note.content"] for _, _, tags in sent)
    assert (first, third) == ("no front yet", "in no front")
    assert second.startswith("**accuracy 0.500 on validation rows**: t0001, epoch 1.\n\n**t0001** of x: completed")
    assert re.search(r"## Notes\n\nno front yet\n\ndone \(ada, [\d-]+\)\n$", second)


def test_a_store_out_of_reach_loses_no_note(folder, monkeypatch):
    def refuse(*_):
        raise SweeperError("Cannot use the store")

    monkeypatch.setattr(notes, "set_tags", refuse)
    assert add_note(folder, "t0001", "kept") == "Cannot use the store"
    assert add_tag(folder, "t0001", "k", "v") == "Cannot use the store"
    kept = read_notes(folder)["t0001"]
    assert ([one.text for one in kept.texts], [(key, one.text) for key, one in kept.tags]) == (["kept"], [("k", "v")])


@pytest.mark.usefixtures("sent")
def test_nothing_of_the_driver_is_touched(folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    add_note(folder, "t0001", "x")
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert json.loads(after.pop(NOTES_NAME))["note"] == "x"
    assert after == before


def write_many(folder, who):
    notes.set_tags = lambda *_: None
    for i in range(20):
        add_note(folder, "t0001", f"{who} {i}")


def test_several_people_may_write_at_once(folder):
    context = multiprocessing.get_context("fork")
    people = [context.Process(target=write_many, args=(folder, who)) for who in "ab"]
    for person in people:
        person.start()
    for person in people:
        person.join()
    texts = [one.text for one in read_notes(folder)["t0001"].texts]
    assert [text for text in texts if text[0] == "a"] == [f"a {i}" for i in range(20)]
    assert len(texts) == 40


@pytest.mark.parametrize(
    "key",
    [
        "",
        "mlflow.runName",
        "sweeper.trial",
        "a\nb",
        "a:b",
        "k" * 101,
        "./sweeper.exploratory",
        "../mlflow.parentRunId",
        ".//./sweeper.sweep",
    ],
)
def test_keys_of_others_are_refused(folder, sent, key):
    with pytest.raises(RecordError, match="Expected a key of letters"):
        add_tag(folder, "t0001", key, "v")
    assert not sent
    assert not (folder / NOTES_NAME).exists()


@pytest.mark.parametrize(("key", "kept"), [("owner//team", "owner/team"), ("./owner", "owner"), ("owner/", "owner")])
def test_a_key_that_mlflow_would_keep_otherwise_is_refused(folder, sent, key, kept):
    with pytest.raises(RecordError, match=f"as MLflow keeps it, got '{key}'; use '{kept}'"):
        add_tag(folder, "t0001", key, "v")
    assert not sent
    assert add_tag(folder, "t0001", kept, "v") is None


def test_what_cannot_be_kept_is_refused(folder, sent):
    with pytest.raises(RecordError, match=r"Expected a trial of .*, got 't9'; it has t0001 to t0002"):
        add_note(folder, "t9", "x")
    for text in (" ", "x" * 5001):
        with pytest.raises(RecordError, match="Expected a note of 1 to 5000 characters"):
            add_note(folder, "t0001", text)
    with pytest.raises(RecordError, match="at most 5000 characters"):
        add_tag(folder, "t0001", "k", "v" * 5001)
    (folder / NOTES_NAME).mkdir()
    with pytest.raises(RecordError, match=r"Cannot write .*notes\.jsonl"):
        add_note(folder, "t0001", "x")
    shutil.rmtree(folder)
    with pytest.raises(RecordError, match="Expected the folder of a sweep, but there is no"):
        add_note(folder, "t0001", "x")
    assert not sent
