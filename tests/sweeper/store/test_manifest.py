"""``sweep.json`` is read whole, in its own format, or refused in one sentence that says what to do."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from sweeper.errors import RecordError, SpecError
from sweeper.records import SweepStatus
from sweeper.specification.spec import Spec
from sweeper.store.manifest import (
    FORMAT,
    MANIFEST_NAME,
    SELECTING,
    Manifest,
    draw_id,
    is_marked,
    read_manifest,
    told_spec,
    write_manifest,
)

MANIFEST = Manifest(
    name="x",
    status=SweepStatus.STOPPED,
    reason="it was asked to stop",
    spec={"name": "x", "search": {"selection": "private"}},
    spec_hash="abc",
    source="x.yaml",
    versions={"sweeper.version": "1"},
    started="20250301-090807",
    population=100,
    claim={"exploratory": False},
    tracking="http://store",
)


def test_what_is_written_is_read_back(tmp_path):
    write_manifest(tmp_path, MANIFEST)
    assert read_manifest(tmp_path) == MANIFEST
    assert json.loads((tmp_path / MANIFEST_NAME).read_text())["format"] == FORMAT
    assert MANIFEST.selects_privately
    assert not replace(MANIFEST, spec={"name": "x"}).selects_privately


def test_the_law_of_an_older_private_selection_is_geometric_or_refused(private):
    """Of earlier versions, in which it could be chosen."""
    manifest, spec = private
    assert manifest.read_spec().digest() == spec.digest()
    assert not manifest.read_spec().overrides
    search = {**manifest.spec["search"], "selection_distribution": "poisson"}
    said = (
        r"Expected a private selection with a geometric number of trials, got selection_distribution='poisson' .*; read"
    )
    with pytest.raises(SpecError, match=said):
        replace(manifest, spec={**manifest.spec, "search": search}).read_spec()


@pytest.fixture
def private(content):
    """What an earlier version wrote of a spec that named the law, and the spec of this version."""
    spec = Spec.from_mapping(content | {"search": {"selection": "private", "selection_mean": 4.0}})
    law = {"selection_distribution": "geometric"}
    plain = spec.to_plain()
    given = {f"search.{name}": value for name, value in law.items()}
    return replace(MANIFEST, spec={**plain, "search": plain["search"] | law}, overrides=given), spec


def test_the_mark_of_a_private_selection_is_written_only_where_there_is_one(tmp_path):
    write_manifest(tmp_path, MANIFEST)
    assert not is_marked(tmp_path)
    write_manifest(tmp_path, replace(MANIFEST, selecting="here"))
    assert is_marked(tmp_path)
    assert read_manifest(tmp_path).selecting == "here"


def test_an_id_is_random_and_a_sweep_of_an_earlier_version_has_none(tmp_path):
    assert len({draw_id() for _ in range(100)}) == 100
    assert "id" not in MANIFEST.to_json(), "what is written of a sweep of an earlier version is as it was"
    assert read_manifest_of(tmp_path, MANIFEST.to_json()).id is None
    drawn = replace(MANIFEST, id=draw_id())
    assert read_manifest_of(tmp_path, drawn.to_json()) == drawn


def read_manifest_of(folder, content):
    (folder / MANIFEST_NAME).write_text(json.dumps(content))
    return read_manifest(folder)


def test_a_list_of_sweeps_waits_for_no_torch():
    program = "import sys, sweeper.cli.tables, sweeper.store.manifest; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


def test_a_mark_hides_a_folder_of_any_format(tmp_path):
    (tmp_path / MANIFEST_NAME).write_text(json.dumps({SELECTING: "here"}))
    assert is_marked(tmp_path)


@pytest.mark.parametrize("found", [0, 2, "1", True, 1.0, [1], {"a": "b" * 1000}])
def test_a_folder_of_another_format_is_refused_with_file_value_and_remedy(found, tmp_path):
    (tmp_path / MANIFEST_NAME).write_text(json.dumps(MANIFEST.to_json() | {"format": found}))
    with pytest.raises(RecordError, match=r"format 1 in .*sweep\.json, got .*; read it with") as said:
        read_manifest(tmp_path)
    assert repr(found)[:60] in str(said.value)
    assert len(str(said.value)) < 400


@pytest.mark.parametrize("value", [..., 1.5])
@pytest.mark.parametrize("field", ["name", "status", "spec", "source"])
def test_a_field_that_is_missing_or_cannot_be_used_is_named(field, value, tmp_path):
    content = {**MANIFEST.to_json(), field: value}
    if value is ...:
        del content[field]
    (tmp_path / MANIFEST_NAME).write_text(json.dumps(content))
    said = rf"Expected {field} of a sweep in .*sweep\.json, got (none|1\.5); restore the file"
    with pytest.raises(RecordError, match=said):
        read_manifest(tmp_path)


@pytest.fixture
def older(ran, tmp_path):
    """A sweep's folder as it was written before there was a format."""
    folder = tmp_path / "out" / ran.folder.name
    shutil.copytree(ran.folder, folder, ignore=shutil.ignore_patterns("ray", "mlflow*", "*.html", "checkpoints"))
    content = json.loads((folder / MANIFEST_NAME).read_text())
    del content["format"]
    (folder / MANIFEST_NAME).write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    "command",
    ["show", "resume", "front", "pick", f"predict {__file__}", "stop", "delete --yes", "log t0001", "note t0001 text"],
)
def test_every_command_refuses_an_older_folder_in_one_sentence(command, older, call):
    name, *more = command.split()
    before = {path: path.read_bytes() for path in older.rglob("*") if path.is_file()}
    code, _, err = call(name, older, *more)
    (said,) = err.splitlines()
    assert code == 2
    assert said.startswith("sweeper: Expected format 1 in")
    assert {path: path.read_bytes() for path in before} == before


def test_a_list_marks_an_older_folder_and_goes_on(older, ran, call):
    shutil.copytree(ran.folder, older.parent / "sound-1", ignore=shutil.ignore_patterns("ray", "mlflow*"))
    code, shown, _ = call("list", "--out", older.parent)
    assert code == 0
    assert "unreadable: Expected format 1 in" in shown
    assert "completed" in shown


@pytest.mark.parametrize("store", ["/home/ann/accounts.db", "postgresql://host/accounts"])
def test_a_spec_is_told_without_the_places_of_its_files_and_its_account(store):
    told = told_spec({"data": {"path": "/home/ann/a.csv"}, "privacy": {"account": f"{store}#clinic", "delta": 1e-5}})
    assert told["data"] == {"path": "a.csv"}
    assert told["privacy"]["delta"] == 1e-5
    assert told["privacy"]["account"] == "clinic"
