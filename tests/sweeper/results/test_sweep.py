"""A sweep on disk, as users hold it."""

import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import clipless
from sweeper.adapters import dump
from sweeper.errors import PickError, RecordError
from sweeper.privacy.card.content import CardContent
from sweeper.privacy.card.make import Card
from sweeper.privacy.ledger import Ledger
from sweeper.records import MADE_FROM, SweepStatus
from sweeper.results.front import read_front
from sweeper.results.models.predict import load_predictor
from sweeper.results.sweep import Sweep, load
from sweeper.store.input_format import read_input
from sweeper.store.manifest import Manifest
from sweeper.store.sweep_folder import SweepFolder


@pytest.fixture
def sweep(ran, tmp_path):
    """A copy of a real sweep, to be spoiled freely."""
    folder = tmp_path / ran.folder.name
    shutil.copytree(ran.folder, folder, ignore=shutil.ignore_patterns("ray", "mlflow*"))
    return Sweep(folder)


def test_a_sweep_is_loaded_from_its_folder(ran):
    sweep = load(str(ran.folder))
    assert sweep.directory == ran.folder
    assert sweep.manifest().status is SweepStatus.COMPLETED
    assert sweep.front().to_json() == read_front(ran.folder / "front.json").to_json()
    assert sweep.price is not None
    assert sweep.price == sweep.front().price
    frame = sweep.points
    assert frame.equals(sweep.front().to_dataframe())
    assert (frame["made_from"] == "").sum() == 6
    assert set(frame["made_from"]) == {"", *MADE_FROM}


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_a_folder_that_is_no_sweep_is_refused(tmp_path, name):
    with pytest.raises(RecordError, match="Expected the folder of a sweep, but there is no"):
        load(tmp_path / name)


def test_the_picked_point_is_the_best_within_the_conditions(sweep):
    front = sweep.front()
    best = max(front.front_points, key=lambda point: point.values["accuracy"])
    assert sweep.pick().point == best
    limit = min(point.values["epsilon"] for point in front.front_points)
    cheap = sweep.pick(max_epsilon=limit)
    assert cheap.point.values["epsilon"] == limit
    assert cheap.trial.id == cheap.point.trial
    with pytest.raises(PickError, match="nearest"):
        sweep.pick(minimum={"accuracy": 0.9999})


def test_every_model_that_is_kept_has_the_scores_of_its_point_whatever_it_was_made_from(sweep):
    data = clipless.datasets.load("digits")
    kept = [point for point in sweep.front().points if point.model]
    assert kept
    for point in kept:
        assert sweep.directory / point.model == sweep.directory / "models" / f"{point.name}.safetensors"
        scores = clipless.evaluate(clipless.load(sweep.directory / point.model), data.validation, ["0.25"])
        assert scores == {name: point.values[name] for name in scores}


def test_a_picked_point_is_written_with_what_must_travel_with_it(sweep, tmp_path):
    picked = sweep.pick()
    folder = tmp_path / "deep" / "taken"
    assert picked.write(folder) is None
    assert read_input(folder) == sweep.input_format()
    card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    assert (card["trial"], card["epoch"], card["made_from"]) == picked.point.key
    assert (folder / "card.md").read_text(encoding="utf-8") == Card(CardContent.model_validate(card)).to_markdown()
    assert {**card, "files": None} == {**picked.card.to_json(), "files": None}
    assert (folder / "ledger.jsonl").read_bytes() == sweep.folder.ledger.read_bytes()
    assert json.loads((folder / "config.json").read_text(encoding="utf-8")) == picked.trial.config
    assert (folder / "model.safetensors").read_bytes() == picked.model_path.read_bytes()


@pytest.mark.parametrize("kept", ["sweep", "its ledger alone", "a spec of its own", "a model of others"])
def test_a_model_replaces_no_records_of_something_else(sweep, tmp_path, kept):
    folder = tmp_path / "taken"
    files = {
        "sweep": ("sweep.json", "ledger.jsonl", "spec.yaml"),
        "its ledger alone": ("ledger.jsonl",),
        "a spec of its own": ("spec.yaml",),
        "a model of others": ("model.safetensors", "config.json"),
    }[kept]
    folder.mkdir()
    for name in files:
        (folder / name).write_text(name)
    with pytest.raises(RecordError, match=rf"got .*taken with {files[0]}, which it would replace; choose another"):
        sweep.pick().write(folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {name: name for name in files}
    with pytest.raises(RecordError, match=r"with sweep\.json"):
        sweep.pick().write(sweep.directory)
    sweep.pick().write(tmp_path / "mixed")
    (tmp_path / "mixed" / "sweep.json").touch()
    with pytest.raises(RecordError, match=r"with sweep\.json"):
        sweep.pick().write(tmp_path / "mixed")


def test_a_card_states_what_the_ledger_holds(sweep, event):
    ledger = Ledger(sweep.folder.ledger)
    ledger.open("t0009", event)
    card = sweep.pick().card.to_json()
    assert card["ledger"] == {question: dump(answer) for question, answer in ledger.answers(1e-4).items()}
    assert card["ledger"]["winner"]["events"] == 4


@pytest.mark.parametrize(
    "refused", ["model.safetensors", "config.json", "data.json", "ledger.jsonl", "spec.yaml", "card.md", "card.json"]
)
def test_whatever_fails_no_card_lies_beside_another_model(sweep, tmp_path, monkeypatch, refused):
    first, *_, last = sweep.front().front_points
    folder = tmp_path / "taken"
    earlier = sweep.pick(max_epsilon=first.values["epsilon"])
    earlier.write(folder)
    later = replace(earlier, point=last, model_path=sweep.directory / last.model)
    refuse(monkeypatch, refused)
    with pytest.raises(RecordError, match="No space left"):
        later.write(folder)
    assert not (folder / "card.json").exists()
    assert not (folder / "card.md").exists() or (folder / "card.md").read_text().startswith(title_of(later.card))
    with pytest.raises(RecordError, match=r"Expected .*data\.json|Cannot read .*card\.json"):
        load_predictor(folder)
    monkeypatch.undo()
    assert later.write(folder) is None
    assert (folder / "model.safetensors").read_bytes() == later.model_path.read_bytes()


def title_of(card):
    return card.to_markdown().partition("\n")[0]


def refuse(monkeypatch, name):
    """Let a full disk refuse a file of this name."""
    opened, copied = Path.open, shutil.copyfile

    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(
        Path, "open", lambda path, *a, **k: full() if f".{name}." in path.name else opened(path, *a, **k)
    )
    monkeypatch.setattr(shutil, "copyfile", lambda a, b: full() if name in b.name else copied(a, b))


def test_a_place_that_takes_nothing_is_an_error(sweep, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match="choose another with --output"):
        sweep.pick().write(tmp_path / "file")


def test_a_model_that_is_gone_is_an_error(sweep, tmp_path):
    picked = sweep.pick()
    picked.model_path.unlink()
    with pytest.raises(
        RecordError, match=r"found none; if the point has left the front since, pick again, else restore"
    ):
        picked.write(tmp_path / "taken")
    assert not (tmp_path / "taken").exists()


def test_a_damaged_model_gets_no_card(sweep, tmp_path):
    picked = sweep.pick()
    whole = picked.model_path.read_bytes()
    for content in (whole[:300], whole[:-1], b""):
        picked.model_path.write_bytes(content)
        with pytest.raises(
            RecordError, match=r"Expected a model in .*safetensors, got a damaged file \(.*\); pick anoth"
        ):
            picked.write(tmp_path / "taken")
        assert not (tmp_path / "taken").exists()
    picked.model_path.write_bytes(whole)
    assert picked.write(tmp_path / "taken") is None
    before = {path.name: path.read_bytes() for path in (tmp_path / "taken").iterdir()}
    picked.model_path.write_bytes(whole[:-1])
    with pytest.raises(RecordError, match="got a damaged file"):
        picked.write(tmp_path / "taken")
    assert {path.name: path.read_bytes() for path in (tmp_path / "taken").iterdir()} == before, "an earlier one stays"


def test_a_point_without_a_model_cannot_be_picked(sweep):
    content = json.loads(sweep.folder.front.read_text(encoding="utf-8"))
    for point in content["points"]:
        point["model"] = None
    sweep.folder.front.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(RecordError, match="none was kept"):
        sweep.pick()


def test_a_point_without_its_trial_cannot_be_picked(sweep):
    (sweep.directory / "trials.jsonl").unlink()
    with pytest.raises(RecordError, match=r"Expected trial t000. in .*trials.jsonl; restore the file"):
        sweep.pick()


def test_a_sweep_that_has_not_begun_has_no_front(tmp_path):
    started = Manifest(name="digits", status=SweepStatus.RUNNING, spec={}, source="spec.yaml")
    SweepFolder(tmp_path).write_manifest(started)
    with pytest.raises(RecordError, match=r"front\.json"):
        load(tmp_path).front()
