"""What leaves beside a model: nothing of a selection that has not ended, and no path of the machine."""

import json
import shutil

import pytest
import yaml

from clipless.privacy.accounting.private_selection import Repetitions
from sweeper.errors import RecordError
from sweeper.papers.files import (
    Sources,
    check_no_record,
    check_replaces,
    clear_for_model,
    file_hash,
    spec_text,
    write_sources,
)
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.selection import Terms
from sweeper.results import sweep as sweeps
from sweeper.results.sweep import load
from sweeper.store.jsonl import JsonlFile
from sweeper.store.manifest import MANIFEST_NAME


def test_the_copies_are_those_of_the_sweep(signed, ran):
    assert (signed.folder / "ledger.jsonl").read_bytes() == (ran.folder / "ledger.jsonl").read_bytes()
    spec = yaml.safe_load((signed.folder / "spec.yaml").read_text(encoding="utf-8"))
    assert spec == load(ran.folder).manifest().spec
    card = json.loads((signed.folder / "card.json").read_text(encoding="utf-8"))
    assert card["files"]["model.safetensors"] == file_hash(signed.folder / "model.safetensors")
    assert {"python", "sweeper", "clipless", "torch", "numpy", "dp-accounting"} <= set(card["versions"])
    words = (signed.folder / "card.md").read_text(encoding="utf-8")
    assert all(found in words for found in card["files"].values())


def test_the_spec_tells_no_folder_of_the_machine():
    told = spec_text({"data": {"path": "/home/ann/patients.csv", "ranges": "/srv/ranges.yaml"}, "name": "x"})
    assert yaml.safe_load(told) == {"data": {"path": "patients.csv", "ranges": "ranges.yaml"}, "name": "x"}


@pytest.mark.parametrize("undecided", [True, False])
def test_a_ledger_of_a_selection_leaves_once_it_has_ended(tmp_path, event, undecided):
    rows = tmp_path / "sweep.jsonl"
    Ledger(rows).select(Terms(event=event, repetitions=Repetitions(mean=4.0), undecided=undecided))
    sources = Sources(ledger=rows.read_bytes(), spec={})
    if not undecided:
        write_sources(tmp_path, sources)
        assert (tmp_path / "ledger.jsonl").read_bytes() == sources.ledger
        return
    with pytest.raises(RecordError, match="Expected a private selection that has ended for"):
        write_sources(tmp_path, sources)
    assert not (tmp_path / "ledger.jsonl").exists()


@pytest.mark.parametrize(("rows", "told"), [(b"", "got no row"), (b'{"record": "odd"}\n', "Expected a ledger row")])
def test_a_ledger_that_is_gone_or_broken_does_not_leave(tmp_path, rows, told):
    with pytest.raises(RecordError, match=told):
        write_sources(tmp_path, Sources(ledger=rows, spec={}))
    assert not (tmp_path / "ledger.jsonl").exists()


def test_nothing_of_a_sweep_leaves_that_may_not_be_seen(sweep_copy, tmp_path):
    picked = load(sweep_copy).pick()
    manifest = sweep_copy / MANIFEST_NAME
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "selecting": "here"}))
    with pytest.raises(RecordError, match="Expected a sweep that may be seen"):
        picked.write(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_card_is_of_the_rows_of_the_ledger_beside_it(sweep_copy, tmp_path, event, monkeypatch):
    ledger, priced = Ledger(sweep_copy / "ledger.jsonl"), []

    def slow(trial, path):
        priced.append(len(JsonlFile(path).read()))
        if len(priced) == 1:  # the sweep goes on meanwhile
            ledger.open("t0009", event)
        return charged_to(trial, path)

    charged_to = sweeps.charged_to
    monkeypatch.setattr(sweeps, "charged_to", slow)
    picked = load(sweep_copy).pick()
    assert len(priced) == 2
    assert picked.sources.ledger == ledger.path.read_bytes()
    shutil.rmtree(sweep_copy / "models", ignore_errors=True)
    with pytest.raises(RecordError, match="Expected the model of the point"):
        picked.write(tmp_path / "out")


@pytest.mark.parametrize(
    ("beside", "name", "refused"),
    [
        ("sweep.json", "ledger.jsonl", "the sweep"),
        ("sweep.json", "front.json", "the sweep"),
        ("sweep.json", "spec.yaml", "the sweep"),
        ("sweep.json", "account.json", "the sweep"),
        ("sweep.json", "front.html", "the sweep"),
        ("sweep.json", "report.html", ""),
        ("sweep.json", "registry.yaml", ""),
        ("card.json", "ledger.jsonl", "the picked model"),
        ("card.json", "card.json", "the picked model"),
        ("card.json", "nist.json", ""),
        ("notes.txt", "ledger.jsonl", ""),
    ],
)
def test_a_file_that_is_written_replaces_nothing_that_is_read(tmp_path, beside, name, refused):
    (tmp_path / beside).touch()
    for _ in range(2):
        if refused:
            with pytest.raises(RecordError, match=rf"another file than .*{name}, which {refused} in its folder keeps"):
                check_no_record(tmp_path / name)
        else:
            check_no_record(tmp_path / name)
        (tmp_path / name).touch()  # whether it exists or will


EXPORTS = {
    "csv": (
        b"id,class,score a,certified_radius\n1,a,2,3\n",
        b"class,score a,score b,certified_radius\n",
        b"id,age,label\n1,2,a\n",
    ),
    "json": (b'{"schema_version": 1, "sweep": "s"}', b'{"schema_version": 2, "sweep": "t", "new": 1}', b'{"rows": []}'),
    "yaml": (b"curator: a\nmodel: b\n", b"curator: c\nmodel: d\n", b"name: s\ndata: {path: t.csv}\nprivacy: {}\n"),
}


@pytest.mark.parametrize("suffix", [*EXPORTS, "html"])
@pytest.mark.parametrize("other", [b"SQLite format 3\0...", b"\xff\xfe", b"[1]", None])
def test_a_table_or_a_mapping_of_something_else_is_not_replaced(tmp_path, suffix, other):
    path, (new, earlier, default) = tmp_path / f"out.{suffix}", EXPORTS.get(suffix, (b"<p>", b"<p>b", b"<p>c"))
    for harmless in (b"", earlier, new):
        path.write_bytes(harmless)
        check_no_record(path)
        check_replaces(path, new)
    path.write_bytes(default if other is None else other)
    if other == b"SQLite format 3\0...":
        with pytest.raises(RecordError, match=r"another file than .*, which is a database \(--output\)"):
            check_no_record(path)
    if suffix == "html":
        check_replaces(path, new)
    else:
        with pytest.raises(
            RecordError, match=r"Expected a new file or an earlier version of what is written, got .*out"
        ):
            check_replaces(path, new)


def test_an_annex_replaces_no_model_of_a_sweep_and_no_store(papers, tmp_path, call):
    (tmp_path / "models").mkdir()
    (tmp_path / "sweep.json").touch()
    code, _, err = call("card", papers, "--as", "registry", "--output", tmp_path / "models" / "t0001-1.yaml")
    assert (code, "which the sweep in its folder keeps" in err) == (2, True)
    code, _, err = call("card", papers, "--as", "registry", "--output", tmp_path / "accounts.db")
    assert (code, "Expected a file name that ends in .yaml" in err) == (2, True)
    assert call("card", papers, "--as", "registry", "--output", tmp_path / "registry.yaml")[0] == 0


def test_a_pick_that_was_killed_is_begun_again(signed, tmp_path):
    """The model is written first and goes last, so that its folder is known whatever is left in it."""
    (tmp_path / "out").mkdir()
    for left in (["model.safetensors"], ["model.safetensors", "ledger.jsonl"]):
        for name in left:
            shutil.copy(signed.folder / name, tmp_path / "out")
        clear_for_model(tmp_path / "out")
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["model.safetensors"]
