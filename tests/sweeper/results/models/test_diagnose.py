"""Diagnosing a point of a sweep that the program ran."""

import json
from dataclasses import replace
from math import nan, sqrt

import pytest
import torch

import clipless
import sweeper.results.exporters
import sweeper.results.models.diagnose
from clipless.datasets import Dataset, Evaluation, Split, prepare
from clipless.errors import DataError
from sweeper.driver.options import Options
from sweeper.driver.runner import run_sweep
from sweeper.errors import PickError, RecordError, SweeperError
from sweeper.results.models.diagnose import diagnose_sweep, find_point, write_diagnosis
from sweeper.results.models.diagnosis import read_diagnosis
from sweeper.results.sweep import load
from sweeper.specification.spec import Spec
from sweeper.specification.trial_config import TrialConfig
from sweeper.trials.build import build_loss, build_model, initial_seed
from tests.factories import make_metadata, make_spec, small_content


@pytest.fixture(scope="module")
def found(ran):
    return diagnose_sweep(ran.folder, rows=40)


def change(path, edit):
    content = json.loads(path.read_text(encoding="utf-8"))
    edit(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def test_by_default_the_point_that_pick_takes_is_looked_at(ran, found):
    picked = load(ran.folder).pick()
    assert (found.trial, found.epoch, found.made_from) == picked.point.key
    assert found.values == dict(picked.point.values)
    assert (found.data, found.sweep, found.exploratory) == ("digits", "tiny", False)
    assert [snapshot.epoch for snapshot in found.snapshots] == [0, found.epoch]
    assert [snapshot.diagnostics.rows for snapshot in found.snapshots] == [40, 40]


def test_the_numbers_are_those_of_the_recorded_plan(ran, found):
    plan = load(ran.folder).folder.trials()[found.trial].plan
    for snapshot in found.snapshots:
        for parameter in snapshot.diagnostics.parameters:
            assert parameter.sensitivity == pytest.approx(plan.sensitivities[parameter.name])
            assert parameter.worst_case == pytest.approx(parameter.sensitivity / plan.sensitivity_fraction)
            assert parameter.noise_std == pytest.approx(plan.noise_stds[parameter.name])
            assert 0 < parameter.tightness <= 1


@pytest.mark.long
@pytest.mark.usefixtures("in_process")
def test_a_trial_whose_noise_its_slot_gave_is_looked_at(tmp_path):
    content = small_content(privacy={"sweep_epsilon": 3.0, "delta": 1e-4}, search={"trials": 1})
    ended = run_sweep(Spec.from_mapping(content), Options(out=tmp_path / "out"))
    plan = ended.sweep.folder.trials()["t0001"].plan
    assert diagnose_sweep(ended.sweep.directory, rows=20).noise_multiplier == pytest.approx(plan.noise_multiplier)


def largest_logits(model):
    """Over the rows that ``found`` looked at."""
    data = clipless.datasets.load("digits")
    chosen = torch.linspace(0, len(data.validation) - 1, 40).round().long()
    return model.double()(data.validation.x[chosen].double()).norm(dim=1).max().item()


def test_the_looks_are_at_the_initial_weights_of_the_trial_and_at_the_saved_model(ran, found):
    first, last = (snapshot.diagnostics.layers[-1].activation_largest for snapshot in found.snapshots)
    trial = load(ran.folder).folder.trials()[found.trial]
    config, data = TrialConfig.from_json(trial.config), clipless.datasets.load("digits")
    starts = [
        largest_logits(build_model(config, data, build_loss(config), initial_seed(0, id_)))
        for id_ in (found.trial, "t0099")
    ]
    assert first == pytest.approx(starts[0], rel=1e-9)
    assert first != pytest.approx(starts[1], rel=1e-6)
    assert last == pytest.approx(largest_logits(load(ran.folder).pick().model()), rel=1e-9)
    assert last != pytest.approx(first, rel=1e-6)
    assert found.input_radius == build_model(config, data, build_loss(config), 0).layers[0].radius


def _kept(folder):
    return sorted({point.trial for point in load(folder).folder.points().values() if point.model})


def test_what_is_written_can_be_read_back(found, tmp_path):
    page = tmp_path / "deep" / "page.html"
    record = write_diagnosis(found, page)
    assert record == tmp_path / "deep" / "page.json"
    assert read_diagnosis(record) == found
    assert "tiny" in page.read_text(encoding="utf-8")


@pytest.mark.long
def test_the_command_writes_page_and_record_beside_each_other(sweep_copy, call):
    code, out, err = call("diagnose", sweep_copy, "--rows", 5)
    assert (code, err) == (0, "")
    page, record = out.splitlines()
    assert page.startswith(str(sweep_copy / "diagnostics"))
    assert page.endswith("diagnostics.html")
    assert record.endswith("diagnostics.json")
    assert read_diagnosis(sweep_copy / record).snapshots[0].diagnostics.rows == 5


@pytest.mark.long
def test_the_command_takes_a_trial_an_epoch_and_a_file(ran, call, tmp_path):
    trial = _kept(ran.folder)[0]
    epoch = max(p.epoch for p in load(ran.folder).folder.points().values() if p.trial == trial and p.model)
    arguments = ("--trial", trial, "--epoch", epoch, "--rows", 5, "-o", tmp_path / "x.html")
    code, out, _ = call("diagnose", ran.folder, *arguments)
    assert (code, out) == (0, f"{tmp_path / 'x.html'}\n{tmp_path / 'x.json'}\n")
    found = read_diagnosis(tmp_path / "x.json")
    assert (found.trial, found.epoch) == (trial, epoch)


def test_rows_that_are_not_public_are_refused_in_one_sentence(sweep_copy, call):
    change(sweep_copy / "sweep.json", lambda content: content["spec"]["data"].update(evaluation="exploratory"))
    code, out, err = call("diagnose", sweep_copy)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "Expected evaluation: public for diagnostics, got evaluation: exploratory for digits" in err
    assert not (sweep_copy / "diagnostics").exists()


@pytest.mark.parametrize("evaluation", [Evaluation.PRIVATE, Evaluation.EXPLORATORY])
def test_nothing_is_computed_before_rows_are_known_to_be_public(ran, monkeypatch, evaluation):
    data = clipless.datasets.load("digits")
    declared = Dataset(replace(data.metadata, evaluation=evaluation), data.train, data.validation, data.test)
    monkeypatch.setattr(clipless.datasets, "load", lambda **_: declared)
    for name in ("build_model", "diagnose", "input_norms", "colour_norms"):
        monkeypatch.setattr(
            sweeper.results.models.diagnose, name, lambda *_, **__: pytest.fail("looked at rows that are not public")
        )
    with pytest.raises(DataError, match=f"got evaluation: {evaluation.value} for digits .* unpaid releases"):
        diagnose_sweep(ran.folder)


@pytest.mark.parametrize(
    ("trial", "epoch", "message"),
    [
        (None, 2, r"a trial with an epoch, got epoch 2 alone; name one with --trial"),
        ("t0099", None, r"got 't0099' \(--trial\); choose among t0"),
        ("known", 77, r"got 77 \(--epoch\); kept are \d"),
    ],
)
def test_a_point_that_is_not_there_is_refused_by_name(ran, trial, epoch, message):
    with pytest.raises(PickError, match=message):
        find_point(load(ran.folder), _kept(ran.folder)[0] if trial == "known" else trial, epoch)


def test_a_point_whose_model_is_gone_is_refused(sweep_copy):
    for file in (sweep_copy / "models").iterdir():
        file.unlink()
    with pytest.raises(PickError, match="choose among none"):
        find_point(load(sweep_copy), "t0001", None)
    with pytest.raises(PickError, match=r"a saved model of trial t\d+, epoch \d.*, found none; name another"):
        find_point(load(sweep_copy), None, None)


def test_a_training_that_the_program_would_plan_otherwise_is_refused(sweep_copy):
    rows = (sweep_copy / "trials.jsonl").read_text(encoding="utf-8").splitlines()
    trials = [json.loads(row) for row in rows]
    for trial in trials:
        if trial["plan"]:
            trial["plan"]["sensitivities"] = {name: 1.01 * v for name, v in trial["plan"]["sensitivities"].items()}
    (sweep_copy / "trials.jsonl").write_text("".join(json.dumps(trial) + "\n" for trial in trials), encoding="utf-8")
    with pytest.raises(RecordError, match=r"the plan that trial t\d+ was trained with, got another"):
        diagnose_sweep(sweep_copy)


def test_a_trial_without_a_plan_is_refused(sweep_copy):
    (sweep_copy / "trials.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(RecordError, match=r"with its plan in .*trials\.jsonl, got none"):
        diagnose_sweep(sweep_copy)


def test_only_html_is_written(found, tmp_path):
    with pytest.raises(RecordError, match=r"ends in \.html, got .*x\.png \(--output\)"):
        write_diagnosis(found, tmp_path / "x.png")
    assert list(tmp_path.iterdir()) == []


def test_without_an_exporter_nothing_is_written(found, tmp_path, monkeypatch):
    monkeypatch.setattr(sweeper.results.exporters, "entry_points", lambda **_: [])
    with pytest.raises(SweeperError, match="an exporter of diagnostics, found none"):
        write_diagnosis(found, tmp_path / "x.html")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(found, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match=r"Cannot make the folder .*file.*; choose another with --output"):
        found.write(tmp_path / "file" / "x.json")


def test_another_version_of_the_record_is_refused(found, tmp_path):
    path = found.write(tmp_path / "x.json")
    change(path, lambda content: content.update(schema_version=2))
    with pytest.raises(RecordError, match=r"schema_version 1, got 2 .*diagnose the sweep again"):
        read_diagnosis(path)


def test_a_broken_record_is_named(found, tmp_path):
    path = found.write(tmp_path / "x.json")
    change(path, lambda content: content["snapshots"][0].update(epoch="soon"))
    with pytest.raises(RecordError, match=r"snapshots\.0\.epoch in .*x\.json"):
        read_diagnosis(path)


def test_numbers_that_json_lacks_survive(found, tmp_path):
    values = {"epsilon": float("inf"), "accuracy": nan}
    path = replace(found, values=values).write(tmp_path / "x.json")
    back = read_diagnosis(path).values
    assert back["epsilon"] == float("inf")
    assert back["accuracy"] != back["accuracy"]


def test_colour_spaces_are_looked_at_as_the_data_were_before_they_were_prepared(content, monkeypatch):
    """A set that is trained on after a preparation is loaded once more without it."""
    loaded = []
    split = Split(torch.rand(5, 3, 4, 4, generator=torch.Generator().manual_seed(0)), torch.zeros(5, dtype=torch.int64))
    pictures = Dataset(make_metadata(input_shape=(3, 4, 4), input_norm=sqrt(48)), split, split, split)
    monkeypatch.setattr(clipless.datasets, "load", lambda **options: loaded.append(options) or pictures)
    spec = make_spec(content, data={"name": "cifar10", "colour": "yiq", "centre": [0.5, 0.0, 0.0]})
    prepared = prepare(pictures, spec.data.preparation())
    found = sweeper.results.models.diagnose._measure_inputs(prepared, spec.data_options())
    assert [one.space for one in found] == ["as trained", "rgb", "gray", "yiq", "yuv", "hsv"]
    assert loaded == [{"source": "cifar10"}]
    assert found[0].norms != found[3].norms  # centred, and not
    assert found[1].norms.largest == pytest.approx(pictures.validation.x.flatten(1).norm(dim=1).max().item())
    plain = make_spec(content, data={"name": "cifar10"})
    assert len(sweeper.results.models.diagnose._measure_inputs(prepared, plain.data_options())) == 1
    assert len(loaded) == 1
