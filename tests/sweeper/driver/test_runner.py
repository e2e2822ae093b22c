"""Whole sweeps: what they leave in their folder and their store, and how they end before their time.

Six sweeps are run in all, the fixture ``ran`` among them; three share one Ray, three are processes of their own.
"""

import contextlib
import datetime
import errno
import fcntl
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

import clipless
from clipless.privacy.accounting.claim import claim
from sweeper.backend import endings
from sweeper.backend.endings import INTERRUPTED, RunEnding, RunResult
from sweeper.backend.interruption import Interruption
from sweeper.backend.on_ray.starting import InterruptedStartError
from sweeper.cli.main import main
from sweeper.driver import driver
from sweeper.driver.driver import SweepRun
from sweeper.driver.options import Options
from sweeper.driver.recording.trial_records import TrialRecords
from sweeper.driver.resume import resume_plan
from sweeper.driver.runner import resume, resume_sweep, run, run_sweep
from sweeper.errors import FOR_THE_OWNER, RecordError, SpecError, SweeperError
from sweeper.planning.loaded import LoadedSpec
from sweeper.planning.preview import find_lack_of_gpus
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import EXTENDED
from sweeper.program import program
from sweeper.records import MADE_FROM, SweepStatus
from sweeper.results.front import Front, read_front
from sweeper.results.models.registry import tags_of
from sweeper.results.sweep import Sweep
from sweeper.rounding import round_up
from sweeper.search.optuna_search import Search
from sweeper.specification.spec import Spec
from sweeper.store import jsonl
from sweeper.store.actions import REQUESTS_NAME, SUBMISSION_NAME, login_name, read_actions
from sweeper.store.jsonl import JsonlFile, append_alone
from sweeper.store.lock import driver_lock, is_driven
from sweeper.store.requests import ask_to_stop, steer
from sweeper.store.sweep_folder import SweepFolder
from sweeper.tracking.names import model_metrics
from sweeper.tracking.outbox import stored_rows
from tests.factories import make_spec, plan_sweep, small_content

from ..in_process import fake_backend

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
NOWHERE = "http://127.0.0.1:9"
PATIENCE_SECONDS = 600.0  # ends a test that hangs; no test takes so long

SMALL = small_content(
    training={"learning_rate": {"log": [0.02, 0.1]}, "sensitivity_fraction": 0.1},
    search={"objectives": ["epsilon", "accuracy"], "trials": 2},
)


def small(**changes):
    return make_spec(SMALL, **changes)


def runs(folder):
    """The runs of a sweep: trial, or name of the sweep -> (name, status, tags, metrics by key)."""
    store = folder.parent / "mlflow.db"
    with contextlib.closing(sqlite3.connect(store if store.exists() else folder.parent.parent / "mlflow.db")) as store:
        id_ = SweepFolder(folder).read_manifest().id
        found = {}
        for run_id, name, status in store.execute("select run_uuid, name, status from runs").fetchall():
            tags = dict(store.execute("select key, value from tags where run_uuid = ?", [run_id]))
            if tags.get("sweeper.sweep_id") != id_:
                continue
            metrics = {}
            for key, step, value in store.execute("select key, step, value from metrics where run_uuid = ?", [run_id]):
                metrics.setdefault(key, {})[step] = value
            params = dict(store.execute("select key, value from params where run_uuid = ?", [run_id]))
            whose = next(tags[key] for key in ("sweeper.trial", "sweeper.rehearsal", "sweeper.sweep") if key in tags)
            found[whose] = SimpleNamespace(
                id=run_id, name=name, status=status, tags=tags, metrics=metrics, params=params
            )
    return found


def only_sweep(out):
    (manifest,) = out.glob("*/sweep.json")
    return manifest.parent


def check_ended(folder, status):
    """What holds of every sweep that ended, however it did: readable, consistent, nothing half-written."""
    front, ledger = read_front(folder / "front.json"), Ledger(folder / "ledger.jsonl")
    assert json.loads((folder / "sweep.json").read_text(encoding="utf-8"))["status"] == status
    trained = {point.trial for point in front.points}
    assert trained <= {entry.trial for entry in ledger.entries()}
    assert set(front.trials) == set(SweepFolder(folder).trials())
    assert "running" not in {trial.status for trial in front.trials.values()}
    named = {Path(p.model).name for p in front.front_points}
    assert {p.name for p in (folder / "models").iterdir()} == named
    for point in front.front_points:
        clipless.load(folder / point.model)
    assert {p.model for p in front.points if p.key not in front.on_front} <= {None}
    left_early = not (folder / "front.html").exists()  # before Ray had started
    assert not (left_early and (trained or front.trials))
    page = "<html" if left_early else (folder / "front.html").read_text(encoding="utf-8")
    assert "<html" in page
    assert "Running: test scores are still to come" not in page
    assert not [p for p in folder.rglob("*") if p.suffix in (".tmp", ".partial")]
    if (folder.parent / "mlflow.db").exists():
        assert "RUNNING" not in {run.status for run in runs(folder).values()}
    return front, ledger


def test_a_sweep_leaves_what_it_promises(ran):
    assert {p.name for p in ran.folder.iterdir()} == {
        "audits.jsonl",
        "data.json",
        "driver.json",
        "front.csv",
        "front.html",
        "front.json",
        "ledger.jsonl",
        "models",
        "points.jsonl",
        "proposals.jsonl",
        "spec.yaml",
        "sweep.json",
        "trials.jsonl",
    }
    check_ended(ran.folder, "completed")


def test_the_spec_is_kept_as_given_comments_and_all(ran):
    text = (ran.folder / "spec.yaml").read_text(encoding="utf-8")
    assert text.startswith("# Three small networks")
    manifest = Sweep(ran.folder).manifest()
    assert manifest.spec == Spec.from_yaml(ran.folder / "spec.yaml").to_plain()
    assert manifest.spec_hash == Spec.from_yaml(ran.folder / "spec.yaml").digest()
    assert {"sweeper.version", "version.torch", "version.ray"} <= set(manifest.versions)


def test_every_epoch_of_every_trial_is_a_point_with_the_smaller_of_two_prices(ran):
    front = read_front(ran.folder / "front.json")
    own = {(f"t000{n}", epoch, "") for n in (1, 2, 3) for epoch in (1, 2)}
    assert {p.key for p in front.points if not p.made_from} == own
    assert {p.made_from for p in front.points} == {"", *MADE_FROM}
    for point in front.points:
        assert set(point.values) == {"epsilon", "accuracy", "certified@0.25"}
        assert set(point.accountants) == {"rdp", "pld"}
        assert point.values["epsilon"] == min(point.accountants.values())
    for id_, trial in front.trials.items():
        last = next(p for p in front.points if p.key == (id_, 2, ""))
        assert 2.97 <= last.values["epsilon"] <= 3.0
        assert (trial.status, trial.delta, trial.relation) == ("completed", 1e-4, "add-or-remove-one")
        assert trial.config["model"] == {"architecture": "mlp", "width": 16}
        assert 0.02 <= trial.config["training"]["learning_rate"] <= 0.1


def test_test_scores_stand_beside_front_points_only(ran):
    front = read_front(ran.folder / "front.json")
    data = clipless.datasets.load("digits")
    for point in front.points:
        if point.key not in front.on_front:
            assert point.test is None
            continue
        model = clipless.load(ran.folder / point.model)
        assert point.test == clipless.evaluate(model, data.test, ["0.25"])
        scores = clipless.evaluate(model, data.validation, ["0.25"])
        assert scores == {name: point.values[name] for name in scores}


def test_the_rows_say_the_same_as_the_front(ran):
    front, folder = read_front(ran.folder / "front.json"), SweepFolder(ran.folder)
    assert {p.key: (p.values, p.test, p.model) for p in folder.points().values()} == {
        p.key: (p.values, p.test, p.model) for p in front.points
    }
    assert {t.id: (t.status.value, t.run_id) for t in folder.trials().values()} == {
        id_: (t.status, t.run_id) for id_, t in front.trials.items()
    }


def test_the_store_holds_a_parent_and_a_child_per_trial_all_finished(ran):
    found = runs(ran.folder)
    parent = found.pop(ran.folder.name)
    front = read_front(ran.folder / "front.json")
    assert parent.status == "FINISHED"
    assert parent.tags["sweeper.exploratory"] == "false"
    assert parent.tags["sweeper.spec_hash"] == Sweep(ran.folder).manifest().spec_hash
    assert parent.params["training.batch_size"] == "256"
    assert parent.metrics["hypervolume"][max(parent.metrics["hypervolume"])] == pytest.approx(front.hypervolume)
    assert set(found) == set(front.trials)
    for id_, child in found.items():
        assert (child.status, child.id) == ("FINISHED", front.trials[id_].run_id)
        assert child.tags["mlflow.parentRunId"] == parent.id
        assert child.tags["sweeper.relation"] == "add-or-remove-one"
        assert child.params["model.width"] == "16"
        assert {"sensitivity/layers.2.weight", "sensitivity/layers.4.weight"} <= set(child.metrics)
        for point in (p for p in front.points if p.trial == id_):
            before = f"{point.made_from}/" if point.made_from else ""
            assert child.metrics[f"{before}val/accuracy"][point.epoch] == point.values["accuracy"]
            assert child.metrics["epsilon"][point.epoch] == point.values["epsilon"]
        own = [p for p in front.points if p.trial == id_]
        best = max(own, key=lambda p: (p.values["accuracy"], -p.values["epsilon"]))
        last = max(p.epoch for p in own)
        assert max(child.metrics["best/accuracy"]) == last, "what a store shows"
        assert child.metrics["best/accuracy"][last] == best.values["accuracy"]
        assert child.metrics["best/accuracy/epoch"][last] == best.epoch
        assert re.fullmatch(rf"{id_} accuracy 0\.\d{{3}} on validation rows, mlp-16", child.name)
    price = re.escape(round_up(front.price.epsilon))
    assert re.fullmatch(rf"accuracy 0\.\d{{3}}, eps {price}, test rows \[.*\], {ran.folder.name}", parent.name)


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")
def test_the_store_tells_who_sees_nothing_else_what_was_found_and_what_it_costs(ran):
    from mlflow import MlflowClient

    front, found = read_front(ran.folder / "front.json"), runs(ran.folder)
    parent = found[ran.folder.name]
    note = parent.tags["mlflow.note.content"]
    assert front.ledger["everything"].statement in note
    heads = (f"best {name}: validation, test score, point" for name in ("accuracy", "certified@0.25"))
    assert f"| own epsilon at most | {' | '.join(heads)} |" in note
    assert "the majority-class baseline reaches 0." in note
    assert "`front.html`" in note
    best = {key: steps[max(steps)] for key, steps in parent.metrics.items() if key.startswith("best/")}
    assert best["best/accuracy"] == max(p.values["accuracy"] for p in front.front_points)
    assert best["best/accuracy/eps3"] == best["best/accuracy"]
    assert "system/system_memory_usage_percentage" in parent.metrics
    client = MlflowClient(tracking_uri=f"sqlite:///{ran.folder.parent / 'mlflow.db'}")
    assert [one.name for one in client.search_experiments()] == ["tiny"]
    (data,) = client.get_run(parent.id).inputs.dataset_inputs
    assert json.loads(data.dataset.profile)["training_rows"] == 1276
    (model,) = client.search_logged_models([client.get_experiment_by_name("tiny").experiment_id])
    picked = Sweep(ran.folder).pick()
    assert (model.status.value, model.source_run_id) == ("READY", found[picked.point.trial].id)
    assert tags_of(picked).items() <= model.tags.items()
    assert model.tags["sweeper.sweep"] == ran.folder.name
    assert model.params["training.epochs"] == str(picked.trial.config["training"]["epochs"])
    assert {one.key: one.value for one in model.metrics} == model_metrics(picked.point)
    assert client.get_run(model.source_run_id).inputs.dataset_inputs[0].dataset.digest == data.dataset.digest
    assert [one.model_id for one in client.get_run(model.source_run_id).outputs.model_outputs] == [model.model_id]


def test_front_ledger_and_spec_are_artifacts_of_the_parent(ran):
    home = ran.folder.parent / "mlflow-artifacts"
    artifacts = {p.name: p for p in home.glob(f"{runs(ran.folder)[ran.folder.name].id}/**/*") if p.is_file()}
    assert set(artifacts) == {"front.json", "front.html", "front.csv", "ledger.jsonl", "spec.yaml"}
    assert runs(ran.folder)[ran.folder.name].id in str(artifacts["front.json"])
    assert read_front(artifacts["front.json"]).points == read_front(ran.folder / "front.json").points


def test_the_ledger_charges_every_trial_and_prices_the_sweep(ran):
    front, ledger = read_front(ran.folder / "front.json"), Ledger(ran.folder / "ledger.jsonl")
    entries = {entry.trial: entry for entry in ledger.entries()}
    assert set(entries) == set(front.trials)
    for id_, entry in entries.items():
        assert entry.steps == entry.event.steps == 10
        assert entry.event.noise_multiplier == front.trials[id_].noise_multiplier
        assert claim(entry.event, 1e-4).epsilon == pytest.approx(
            next(p.values["epsilon"] for p in front.points if p.key == (id_, 2, ""))
        )
    assert set(front.ledger) == {"winner", "front", "everything"}
    assert front.ledger["everything"].events == 3
    assert front.ledger["everything"].epsilon == ledger.answers(1e-4, tight=True)["everything"].epsilon > 3.0


def test_the_claim_is_not_exploratory_and_names_its_conditions(ran):
    told = read_front(ran.folder / "front.json").claim
    assert not told.exploratory
    assert told.secure_generator
    assert (told.data, told.population, told.unit, told.evaluation) == ("digits", 1276, "row", "public")
    assert told.conditions
    assert told.public


def started(spec, out):
    """Start the program in a process group of its own, as a shell would."""
    return subprocess.Popen(
        [sys.executable, "-c", "from sweeper.cli.main import main; main()", "run", str(spec), "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(process, there):
    began = time.monotonic()
    while not there():
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() - began < PATIENCE_SECONDS
        time.sleep(0.02)


def lines(folder, name):
    return sum(len(path.read_bytes().splitlines()) for path in folder.glob(f"*/{name}"))


@pytest.mark.long
@pytest.mark.parametrize(("moment", "everybody"), [("while Ray starts", False), ("in the first epochs", True)])
def test_ctrl_c_leaves_a_readable_partial_front(moment, everybody, tmp_path):
    """``everybody``: a terminal sends Ctrl-C to the whole process group, a supervisor to the driver alone."""
    spec, out = tmp_path / "long.yaml", tmp_path / "out"
    spec.write_text(small(training={"epochs": 300}, search={"trials": 4}).to_yaml(), encoding="utf-8")
    process = started(spec, out)
    wait_for(process, lambda: lines(out, "front.json"))
    if moment == "in the first epochs":
        wait_for(process, lambda: lines(out, "points.jsonl"))
    (os.killpg if everybody else os.kill)(process.pid, signal.SIGINT)
    said = process.communicate(timeout=PATIENCE_SECONDS)[0]
    assert process.returncode == 130, said
    assert "(ended early: interrupted)" in said
    assert "Traceback" not in said
    folder = only_sweep(out)
    front, ledger = check_ended(folder, "interrupted")
    if (folder.parent / "mlflow.db").exists():
        assert runs(folder)[folder.name].status == "KILLED"
    else:  # the store was not asked: it would have taken longer than who presses Ctrl-C waits
        assert moment == "while Ray starts"
        assert {row["op"] for row in stored_rows(folder / "tracking-spool.jsonl")} >= {"run", "end"}
    assert {trial.status for trial in front.trials.values()} <= {"interrupted"}
    for entry in ledger.entries():
        assert entry.steps is not None
        reported = max((p.epoch for p in front.points if p.trial == entry.trial), default=0)
        assert reported * 5 <= entry.steps <= (reported + 1) * 5, "the epoch that was under way is counted"
        assert entry.charged.steps == 1500
    if moment == "in the first epochs":
        assert front.on_front
        assert front.ledger["everything"].events == len(ledger.entries()) >= 1
        assert f"A model: {program()} pick {folder}" in said


@pytest.mark.long
@pytest.mark.usefixtures("ray_running")
def test_a_failed_trial_a_dead_store_and_the_end_of_time_do_not_stop_a_sweep(tmp_path, capsys, monkeypatch):
    """A network that does not fit, then one that time ends; nobody listens where the runs should go."""
    spec = tmp_path / "mixed.yaml"
    content = {
        "name": "mixed",
        "data": {"name": "breast_cancer"},
        "model": {"architecture": ["convnet", "mlp"], "width": 16},
        "training": {"epochs": [2, 1000], "batch_size": 64},
        "privacy": {"noise_multiplier": 2.0, "delta": 1e-4},
        "search": {
            "trials": 4,
            "hours": 1.0,
            "first": [
                {"model": {"architecture": "convnet"}},
                {"model": {"architecture": "mlp"}, "training": {"epochs": 2}},
                {"model": {"architecture": "mlp"}, "training": {"epochs": 1000}},
                {"model": {"architecture": "mlp"}, "training": {"epochs": 1000}},
            ],
        },
        "resources": {"concurrent": 1},
    }
    spec.write_text(yaml.safe_dump(content), encoding="utf-8")
    out = tmp_path / "out"

    def clock():
        """An hour passes as soon as the third trial has a point."""
        late = any(b'"t0003"' in path.read_bytes() for path in out.glob("*/points.jsonl"))
        return time.monotonic() + 3600 * late

    monkeypatch.setattr(endings, "time", SimpleNamespace(monotonic=clock))
    with pytest.raises(SystemExit) as ended:
        main(["run", str(spec), "--out", str(out), "--tracking", NOWHERE, "--cluster", "auto"])
    said = capsys.readouterr()
    assert ended.value.code in (0, None)
    # Ray's own library tells of locks that two of its threads wanted at once, whoever runs it.
    assert [line for line in said.err.splitlines() if "mutex.cc" not in line] == []
    folder = only_sweep(out)
    front, _ = check_ended(folder, "stopped")
    reason = "the 1 hours are used up"
    assert Sweep(folder).manifest().reason == reason
    assert {id_: trial.status for id_, trial in front.trials.items()} == {
        "t0001": "failed",
        "t0002": "completed",
        "t0003": "interrupted",
    }
    assert front.trials["t0003"].reason == reason
    assert front.trials["t0001"].reason.startswith("SpecError: Expected (C, H, W) maps")
    assert "t0001 failed: SpecError: Expected (C, H, W) maps" in said.out
    assert f"(ended early: {reason})" in said.out
    assert f"Go on with it: {program()} resume {folder}" in said.out
    assert "mixed: 1 of 4 trials done, 1 failed" in said.out
    spool = folder / "tracking-spool.jsonl"
    assert "rows were not taken" in said.out
    assert f"they wait in {spool}" in said.out
    assert {row["op"] for row in stored_rows(spool)} == {"run", "metrics", "tags", "end", "artifact", "dataset"}
    assert not (folder.parent / "mlflow.db").exists()
    jsonl = len(stored_rows(spool))
    with pytest.raises(SystemExit):
        main(["replay", str(folder), "--tracking", f"sqlite:///{folder.parent / 'mlflow.db'}"])
    assert capsys.readouterr().out == f"{jsonl} rows delivered\n"
    assert not spool.exists()
    with sqlite3.connect(folder.parent / "mlflow.db") as store:
        statuses = store.execute("select status, count(*) from runs group by status").fetchall()
    assert sorted(statuses) == [("FAILED", 1), ("FINISHED", 2), ("KILLED", 1)]


@pytest.mark.long
@pytest.mark.usefixtures("ray_running")
def test_a_full_disk_and_a_late_ctrl_c_lose_nothing(tmp_path, monkeypatch):
    """The disk is full once both trials train; Ctrl-C comes when both trials are done."""
    full, asked = [False], []
    real_write, real_replace = jsonl._write_at, Path.replace

    def write(handle, data, offset):
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real_write(handle, data, offset)

    def replace(self, target):
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real_replace(self, target)

    def show(progress):
        begun = progress.done + sum(one.epoch > 0 for one in progress.running)
        full[0] = begun == 2 and progress.done < 2 and any(one.epoch for one in progress.running)
        if progress.done == 2 and not asked:
            os.kill(os.getpid(), signal.SIGINT)
            asked.append(True)

    monkeypatch.setattr(jsonl, "_write_at", write)
    monkeypatch.setattr(Path, "replace", replace)
    monkeypatch.setattr(driver, "SHOW_SECONDS", 0.0)
    ended = run_sweep(small(training={"epochs": 20}), Options(out=tmp_path, show=show, cluster="auto"))
    front, _ = check_ended(ended.sweep.directory, "interrupted")
    assert asked
    assert ended.outcome.is_interrupted
    assert sum(not point.made_from for point in front.points) == 40
    assert SweepFolder(ended.sweep.directory).points().keys() == {p.key for p in front.points}
    assert {trial.status for trial in front.trials.values()} == {"completed"}
    assert all(point.test is None for point in front.points)
    assert all(point.values["epsilon"] == min(point.accountants.values()) for point in front.points)
    assert ended.troubles == ()
    assert ended.front.to_json() == front.to_json()


@pytest.mark.long
@pytest.mark.shared
@pytest.mark.usefixtures("ray_running")
def test_a_table_of_ones_own_is_swept_from_end_to_end(tmp_path, shared_data, capsys):
    """``sweeps/adult.yaml`` with fewer epochs, beside its ranges file; the table lies in a folder of data."""
    content = yaml.safe_load((ROOT / "sweeps" / "adult.yaml").read_text(encoding="utf-8"))
    content["training"]["epochs"] = 2
    for name in ("adult.yaml", "adult.ranges.yaml"):
        (tmp_path / name).write_bytes((ROOT / "sweeps" / name).read_bytes())
    (tmp_path / "adult.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    command = ["run", str(tmp_path / "adult.yaml"), "--trials", "1"]
    with pytest.raises(SystemExit) as ended:
        main(
            [*command, "--data-dir", str(shared_data / "tabular"), "--out", str(tmp_path / "out"), "--cluster", "auto"]
        )
    assert ended.value.code in (0, None), capsys.readouterr().err
    folder = only_sweep(tmp_path / "out")
    front, _ = check_ended(folder, "completed")
    best = front.front_points[-1]
    assert best.values["auroc"] > 0.8
    assert best.test["auroc"] > 0.8
    assert best.values["epsilon"] <= 1.0
    assert not front.claim.exploratory
    assert Spec.from_yaml(folder / "spec.yaml").trials == 1, "the spec is kept as it was run"


def test_the_same_seed_proposes_the_same_configurations():
    def proposals(seed):
        spec = small(search={"seed": seed})
        search = Search(spec.space.suggest, spec.objectives, seed=seed)
        return [search.open[search.ask()] for _ in range(5)]

    assert proposals(1) == proposals(1) != proposals(2)


class Signalled(Exception):  # noqa: N818 - stands for anything that goes wrong
    """Raised in the middle of a sweep."""


@pytest.mark.long
@pytest.mark.usefixtures("bare")
def test_an_error_in_the_middle_is_raised_once_everything_is_written(tmp_path, monkeypatch):
    def broken(*_args, **_options):
        raise Signalled("gone")

    monkeypatch.setattr(driver, "open_backend", fake_backend(broken))
    with pytest.raises(Signalled, match="gone"):
        run(small(), Options(out=tmp_path))
    folder = only_sweep(tmp_path)
    check_ended(folder, "failed")
    assert Sweep(folder).manifest().reason == f"Signalled: {FOR_THE_OWNER}"
    assert SweepFolder(folder).failures() == [{"trial": None, "error": "Signalled: gone"}]
    assert [run.status for run in runs(folder).values()] == ["FAILED"]
    assert read_front(folder / "front.json").points == ()


def test_ctrl_c_before_there_is_a_folder_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(**_options):
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("it goes on")

    monkeypatch.setattr(clipless.datasets, "load", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore the signal
    try:
        with pytest.raises(KeyboardInterrupt):
            run_sweep(small(), Options(out=tmp_path / "out"))
    finally:
        signal.signal(signal.SIGINT, before)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_before_there_is_a_folder_ends_the_program_as_interrupted(tmp_path, monkeypatch):
    def interrupted(**_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(clipless.datasets, "load", interrupted)
    (tmp_path / "small.yaml").write_text(small().to_yaml(), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["run", str(tmp_path / "small.yaml"), "--out", str(tmp_path / "out")])
    assert ended.value.code == 130
    assert not (tmp_path / "out").exists()


def test_a_spec_that_fits_no_data_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(SpecError, match="maps of at least 64"):
        run_sweep(small(model={"architecture": "convnet", "depth": 6}), Options(out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match="--out"):
        run_sweep(small(), Options(out=tmp_path / "file"))


def test_a_sweep_is_begun_in_a_folder_that_was_made_for_it_once(tmp_path, monkeypatch):
    began = []
    monkeypatch.setattr("sweeper.driver.runner.SweepRun.run", lambda run: began.append(run._folder.path))
    into = tmp_path / "reserved"
    options = Options(out=tmp_path, into=into)
    with pytest.raises(RecordError, match=r"Expected a folder that was made for the sweep, got .*reserved.*\(--into\)"):
        run_sweep(small(), options)
    into.mkdir()
    run_sweep(small(), options)
    assert began == [into]
    assert (into / "models").is_dir()
    with driver_lock(into), pytest.raises(RecordError, match="drives"):
        run_sweep(small(), options)
    (into / "sweep.json").write_text("{}")
    with pytest.raises(RecordError, match=r"Expected a folder in which no sweep has begun, .*; resume it"):
        run_sweep(small(), options)
    assert began == [into]
    assert (into / "sweep.json").read_text() == "{}", "what somebody else made is not removed"


def test_a_private_selection_runs_in_no_folder_that_others_know(tmp_path):
    private = {"selection": "private", "sampler": "random", "trials": None}
    content = {**SMALL, "search": {k: v for k, v in (SMALL["search"] | private).items() if v is not None}}
    content["privacy"] = {"noise_multiplier": 1.0, "delta": 1e-4}
    with pytest.raises(SweeperError, match=r"Expected --duration-is-seen for a private selection with --into"):
        run_sweep(Spec.from_mapping(content), Options(out=tmp_path, into=tmp_path / "x"))
    assert list(tmp_path.iterdir()) == []


def test_a_look_at_the_lock_does_not_keep_a_driver_out(tmp_path, monkeypatch):
    """Somebody who looks holds it for a moment; a driver that comes then waits for that."""
    (tmp_path / "driver.json").write_text("{}")
    handle = os.open(tmp_path / "driver.json", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    looking = [handle]
    monkeypatch.setattr("sweeper.store.lock.time", SimpleNamespace(sleep=lambda _: os.close(looking.pop())))
    with driver_lock(tmp_path):
        assert is_driven(tmp_path)
    assert not looking


@pytest.fixture
def ended(ran, tmp_path):
    """A copy of a sweep that ran, to be changed, and to be taken for the original."""
    folder = Path(shutil.copytree(ran.folder, tmp_path / ran.folder.name))
    with driver_lock(folder) as lock:
        assert lock.copied
    return folder


def changed(folder, **content):
    SweepFolder(folder).write_manifest(replace(SweepFolder(folder).read_manifest(), **content))


@pytest.mark.parametrize(
    ("spoil", "trials", "said"),
    [
        (lambda _: None, 2, r"at least the 3 trials of .*, got trials=2"),
        (lambda folder: changed(folder, population=99), 4, r"the 99 training rows that .* was begun with, got 1276"),
        (
            lambda folder: (folder / "sweep.json").unlink(),
            None,
            r"Expected the folder of a sweep, but there is no .*sweep.json; sweeper list",
        ),
    ],
)
def test_what_cannot_be_resumed_is_said_and_left_alone(spoil, trials, said, ended):
    spoil(ended)
    before = {p: p.read_bytes() for p in ended.rglob("*.json*")}
    with pytest.raises(RecordError, match=said):
        resume_sweep(ended, trials=trials)
    assert {p: p.read_bytes() for p in ended.rglob("*.json*")} == before


def test_the_number_of_processes_of_a_private_selection_is_fixed(ended):
    spec = SweepFolder(ended).read_manifest().spec
    search = {"objectives": spec["search"]["objectives"], "selection": "private", "sampler": "random"}
    changed(ended, spec=spec | {"search": search})
    with pytest.raises(RecordError, match=r"Expected no other number of processes for .*, whose private selection"):
        resume_sweep(ended, Options(concurrent=1))


def test_a_sweep_has_one_driver_at_a_time(ended):
    with driver_lock(ended) as lock:
        assert not lock.rebooted  # it ran on this machine, which was not started again since
        assert is_driven(ended)
        with pytest.raises(RecordError, match=r"not running, but process \d+ on .* drives .*; wait or stop it"):
            resume_sweep(ended)
    assert not is_driven(ended)
    assert not is_driven(ended / "nowhere")


def test_what_another_driver_noted_while_data_were_loaded_is_not_lost(ended, monkeypatch):
    """Its extension made the price unproven: a claim that was read before would not say so."""
    loading = LoadedSpec.of

    def load_while_another_drives(*given):
        folder = SweepFolder(ended)
        manifest = folder.read_manifest()
        folder.write_manifest(replace(manifest, claim={**manifest.claim, "chosen": [EXTENDED]}))
        return loading(*given)

    changed(ended, status="interrupted")
    monkeypatch.setattr(LoadedSpec, "of", load_while_another_drives)
    with pytest.raises(RecordError, match=r"another process has driven it meanwhile; resume it again$"):
        resume_sweep(ended)
    assert SweepFolder(ended).read_manifest().claim["chosen"] == [EXTENDED]


@pytest.mark.parametrize("before", [{"boot": "another"}, None, "{torn"])
def test_a_reboot_is_not_forgotten_by_a_driver_that_is_killed_too(before, tmp_path):
    """It may have died before it charged for the rows that were lost."""
    with driver_lock(tmp_path) as lock:
        assert lock.rebooted is False
        record = json.loads((tmp_path / "driver.json").read_text())
    text = json.dumps(record | before) if isinstance(before, dict) else before or ""
    (tmp_path / "driver.json").write_text(text)
    with contextlib.suppress(Signalled), driver_lock(tmp_path) as lock:
        assert lock.rebooted is True
        raise Signalled  # as little is written as after kill -9
    with driver_lock(tmp_path) as lock:
        assert lock.rebooted is True
    with driver_lock(tmp_path) as lock:
        assert lock.rebooted is False


@pytest.mark.long
@pytest.mark.usefixtures("bare")
def test_a_sweep_that_ended_is_ended_when_it_is_resumed(ended, monkeypatch):
    """Nothing is left to run: no Ray is started to find that out, and no trial is asked for."""
    agendas = []
    before = read_front(ended / "front.json")
    (ended / "front.json").unlink()
    with pytest.raises(RecordError, match=r"front.json, which is missing: .* resume .* writes it from the records"):
        read_front(ended / "front.json")
    with monkeypatch.context() as patch:
        patch.setattr(driver, "open_backend", lambda *_, **__: pytest.fail("started"))
        done = resume_sweep(ended, Options(concurrent=1))
    assert not list(ended.parent.glob("mlflow*")) + list(ended.glob("tracking-spool*")), "its runs are left as they are"
    sweep = done.sweep
    assert sweep.manifest().read_spec().resources.concurrent == 1
    assert sweep.manifest().overrides["resources.concurrent"] == 1
    assert (agendas, done.troubles, done.unwritten) == ([], ("Every trial has ended: nothing to train",), ())
    monkeypatch.setattr(
        driver, "open_backend", fake_backend(lambda _kind, queue, *_: agendas.append(queue) or RunResult())
    )
    after = sweep.front()
    assert (after.points, after.on_front, after.hypervolume) == (before.points, before.on_front, before.hypervolume)
    assert sweep.manifest().status is SweepStatus.COMPLETED
    with monkeypatch.context() as patch:
        patch.setattr(Front, "write", lambda *_: (_ for _ in ()).throw(RecordError("No space left on device")))
        assert resume_sweep(ended).unwritten == ("No space left on device",)
    resume(ended, trials=5)
    assert not agendas[-1].finished
    assert agendas[-1].start()[0] == "t0004"
    assert sweep.manifest().read_spec().trials == 5


@pytest.mark.usefixtures("bare", "in_process")
def test_sweeps_that_begin_at_one_moment_have_runs_of_their_own_and_find_them_again(tmp_path, monkeypatch):
    """Two of one name, in two folders and one store: the second is exploratory, and the first is extended after it."""
    now = SimpleNamespace(now=lambda: datetime.datetime(2026, 10, 25, 2, 30))
    monkeypatch.setattr("sweeper.driver.runner.datetime", SimpleNamespace(datetime=now))
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    search = {"trials": 1, "sampler": "random"}
    paid, other = (
        run(small(data={"evaluation": kind}, search=search), Options(out=tmp_path / kind, tracking=uri)).directory
        for kind in ("public", "exploratory")
    )
    assert paid.name == other.name
    resume(paid, trials=2)
    found = {sweep: runs(sweep) for sweep in (paid, other)}
    assert [set(found[sweep]) for sweep in (paid, other)] == [{paid.name, "t0001", "t0002"}, {other.name, "t0001"}]
    for sweep, marked in ((paid, "false"), (other, "true")):
        parent, *trials = found[sweep].values()
        assert {one.tags["sweeper.exploratory"] for one in found[sweep].values()} == {marked}
        assert parent.tags["sweeper.price"].startswith(f"epsilon {round_up(Sweep(sweep).front().price.epsilon)} ")
        assert {trial.tags["mlflow.parentRunId"] for trial in trials} == {parent.id}
    assert found[paid][paid.name].params["data.evaluation"] == "public"


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("outcome", "goes_on"),
    [(INTERRUPTED, True), (RunResult(RunEnding.OUT_OF_TIME, hours=1.0), True), (RunResult(), False)],
)
def test_models_are_removed_as_of_a_sweep_that_has_ended_or_one_that_goes_on_later(
    ended, monkeypatch, outcome, goes_on
):
    closed = []
    monkeypatch.setattr(driver, "open_backend", fake_backend(lambda *_: outcome))
    monkeypatch.setattr(TrialRecords, "close", lambda _self, **given: closed.append(given))
    resume(ended, trials=5)
    assert closed == [{"goes_on": goes_on}]


@pytest.mark.usefixtures("bare")
def test_a_copy_has_an_id_of_its_own_though_its_first_driver_failed_early(ended, tmp_path, monkeypatch):
    """And keeps it: under that of the original both would write to the same runs and checkpoints."""
    monkeypatch.setattr(driver, "open_backend", fake_backend(lambda *_: RunResult()))
    copy = Path(shutil.copytree(ended, tmp_path / "kept" / ended.name))
    before = SweepFolder(copy).read_manifest().id
    with monkeypatch.context() as patch:
        patch.setattr(driver, "introduce", lambda *_: (_ for _ in ()).throw(RecordError("no space left")))
        for _ in range(2):
            with pytest.raises(RecordError, match="no space left"):
                resume(copy)
    own = resume(copy).manifest().id
    assert own != before
    assert resume(copy).manifest().id == own


@pytest.mark.usefixtures("bare")
def test_a_copy_of_files_alone_gets_its_folder_for_models_back_before_anything_is_drawn(ended, monkeypatch):
    """It trained, and failed at its end, however often it was resumed."""
    shutil.rmtree(ended / "models")
    there = []
    train = fake_backend(lambda *_: there.append((ended / "models").is_dir()) or RunResult())
    monkeypatch.setattr(driver, "open_backend", train)
    assert resume(ended, trials=5).manifest().status is SweepStatus.COMPLETED
    assert there == [True]


@pytest.mark.usefixtures("bare")
def test_a_copy_that_goes_on_has_runs_of_its_own_of_all_trials_that_have_ended_as_these_have(ended, monkeypatch):
    monkeypatch.setattr(driver, "open_backend", fake_backend(lambda *_: RunResult()))
    before = {trial.id: trial for trial in SweepFolder(ended).trials().values()}
    resume(ended, trials=5)
    found = runs(ended)
    statuses = {name: run.status for name, run in found.items()}
    assert statuses == dict.fromkeys([ended.name, *before], "FINISHED")
    assert all("val/accuracy" in found[trial].metrics for trial in before)
    noted = {id_: trial.run_id for id_, trial in read_front(ended / "front.json").trials.items()}
    assert all(noted[id_] not in (None, trial.run_id) for id_, trial in before.items())


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("submitted", [False, True])
def test_who_resumes_or_extends_a_sweep_on_its_machine_is_written_down(ended, monkeypatch, submitted):
    """A service writes down who asked it, and resumes by itself what was killed."""
    monkeypatch.setattr(driver, "open_backend", fake_backend(lambda *_: RunResult()))
    if submitted:
        (ended / SUBMISSION_NAME).write_text('{"by": "ada"}')
    resume(ended)
    resume(ended, trials=5)
    done = [("resume", login_name(), ""), ("extend", login_name(), "5")]
    found = [(one.kind.value, one.by, one.detail) for one in read_actions(ended)]
    assert found == ([] if submitted else done)


def test_a_sweep_that_ended_is_as_it_was_when_it_cannot_be_opened_again(ended, monkeypatch):
    before = (ended / "sweep.json").read_bytes()
    for name in ("introduce", "Recorder"):
        with monkeypatch.context() as patch:
            patch.setattr(driver, name, lambda *_, **__: (_ for _ in ()).throw(RecordError("restore the file")))
            with pytest.raises(RecordError, match="restore the file"):
                resume_sweep(ended, trials=5)
        assert (ended / "sweep.json").read_bytes() == before


@pytest.mark.long
@pytest.mark.usefixtures("bare")
def test_who_asks_a_sweep_to_stop_while_it_opens_is_heard(ended, monkeypatch):
    monkeypatch.setattr(driver, "introduce", lambda *_: ask_to_stop(ended))
    monkeypatch.setattr(driver, "SHOW_SECONDS", -1.0)

    def until_asked(_kind, _queue, _states, settings):
        return settings.should_stop() or RunResult()

    monkeypatch.setattr(driver, "open_backend", fake_backend(until_asked))
    manifest = resume(ended, trials=5).manifest()
    assert (manifest.status, manifest.reason) == (SweepStatus.STOPPED, f"{login_name()} asked it to stop")
    price = read_front(ended / "front.json").price
    assert "it was extended and ended early, perhaps because of them" in price.in_words


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("trials", [None, 5])
def test_a_sweep_that_goes_on_says_what_is_spent_in_its_first_line(ended, trials, monkeypatch):
    """Attempts that were killed count, which no plan knows of."""
    monkeypatch.setattr(driver, "open_backend", fake_backend(lambda *_: RunResult()))
    ledger, said = Ledger(ended / "ledger.jsonl"), []
    for _ in range(5):
        ledger.open("t0001", ledger.entries()[0].event)
    spent = ledger.answers(1e-4, tight=True)["everything"].epsilon
    manifest = resume(ended, Options(tell=said.append), trials=trials).manifest()
    stated = float(re.search(r"Price: (?:about )?epsilon (\S+) at", said[0])[1])
    assert round_up(spent) in said[0]
    assert stated >= spent if trials is None else stated > spent
    assert "8 attempts at 3 trials" in said[0]
    assert manifest.course.announcement == said[0]


@pytest.mark.long
@pytest.mark.usefixtures("bare")
def test_the_price_of_a_sweep_says_so_once_the_sweep_was_extended(ended, monkeypatch):
    monkeypatch.setattr(driver, "open_backend", fake_backend(lambda *_: RunResult()))
    front = ended / "front.json"
    before = resume(ended, trials=3).front().price
    assert (before.unproven or "").count("extended") == 0
    resume(ended, trials=5)
    resume(ended, trials=5)
    assert "it was extended, perhaps because of them" in read_front(front).price.course


@pytest.mark.long
@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("late", [None, RunResult(RunEnding.OUT_OF_TIME, hours=1.0)])
def test_who_asks_a_sweep_to_stop_while_its_front_is_scored_is_heard(late, ended, monkeypatch):
    answers = []

    def score(*_, is_over, show):
        show(0, 2, 0.0)
        answers.append(is_over())
        ask_to_stop(ended)
        answers.append(is_over())
        ask_to_stop(ended, by="")  # as a service does again, for nobody
        answers.append(is_over())
        return ()

    monkeypatch.setattr(driver, "SHOW_SECONDS", -1.0)
    monkeypatch.setattr(driver, "score_front", score)
    monkeypatch.setattr(driver, "open_backend", fake_backend(lambda *_: RunResult()))
    monkeypatch.setattr(driver.SweepRun, "_late", lambda *_: late)
    manifest = resume(ended, trials=5).manifest()
    assert answers == [False, True, True]
    assert (manifest.status, manifest.reason) == (SweepStatus.STOPPED, f"{login_name()} asked it to stop")


@pytest.mark.long
@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(("deaths", "status"), [(1, "completed"), (driver.MOST_CLUSTERS, "stopped")])
def test_a_sweep_goes_on_with_another_ray_when_one_dies(deaths, status, ended, monkeypatch):
    outcomes = [RunResult(RunEnding.RAY_DIED)] * deaths + [RunResult()]
    monkeypatch.setattr(driver, "open_backend", fake_backend(lambda *_: outcomes.pop(0)))
    assert resume(ended, trials=5).manifest().status.value == status
    assert len(outcomes) == (0 if status == "completed" else 1)


def test_a_sweep_that_is_interrupted_while_ray_starts_ends_as_any_other(tmp_path, monkeypatch):
    def never(*_args, **_options):
        raise InterruptedStartError("left behind")

    monkeypatch.setattr(driver, "open_backend", never)
    ended = run_sweep(small(), Options(out=tmp_path))
    assert ended.outcome == INTERRUPTED
    assert ended.sweep.manifest().status is SweepStatus.INTERRUPTED
    assert not (ended.sweep.directory / "front.html").exists()


def test_a_gpu_that_is_not_there_is_missed_before_anything_is_written(tmp_path, monkeypatch):
    spec = Spec.from_mapping(small().to_plain() | {"resources": {"gpus": 1}})
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(SweeperError, match=r"Expected a GPU for resources.gpus: 1 in .*, but this machine has none"):
        run(spec, Options(out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert find_lack_of_gpus(plan_sweep(spec, clipless.datasets.load("digits"))) == ""


def test_a_region_reaches_the_search_at_once_and_when_the_sweep_resumes(ended):
    steer(ended, ["epsilon <= 1"])
    folder = SweepFolder(ended)
    spec = folder.read_manifest().read_spec()
    data = clipless.datasets.load(**spec.data_options(None))
    plan = resume_plan(folder, LoadedSpec(spec=spec, data=data))
    run = SweepRun(plan, Options(), data, folder, Interruption(), resumed=True)
    run._open()
    try:
        assert [str(bound) for bound in run._search.region] == ["epsilon <= 1"]
        steer(ended, ["accuracy >= 0.5"])
        run._shown_at = -1e9
        run._between()
        assert [str(bound) for bound in run._search.region] == ["accuracy >= 0.5"]
    finally:
        run._tracker.close(SweepStatus.INTERRUPTED, "", timeout_seconds=30.0)
    rows = [row for row in JsonlFile(folder.proposals).read() if row["event"] == "steer"]
    assert [row["region"] for row in rows] == [["epsilon <= 1"], ["accuracy >= 0.5"]]


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("bare", "in_process", "untracked")
@pytest.mark.parametrize(
    ("budget", "asked", "chosen"),
    [
        ({"epsilon": 2.0}, {"training.epochs": 3}, ("epochs",)),
        ({"epsilon": 2.0}, {"training.learning_rate": 0.05}, ()),
        ({"sweep_epsilon": 2.0, "epsilon": None}, {"training.epochs": 3}, ()),
    ],
    ids=["a cost", "no cost", "a budget"],
)
def test_a_cost_that_somebody_enqueues_is_chosen_after_results(content, tmp_path, budget, asked, chosen):
    training = content["training"] | {"epochs": {"int": [1, 3]}, "learning_rate": {"log": [0.01, 0.1]}}
    privacy = {key: value for key, value in (content["privacy"] | budget).items() if value is not None}
    search = {"sampler": "random", "trials": 2, "rehearse": False, "scheduler": "none"}
    spec = Spec.from_mapping(content | {"training": training, "privacy": privacy, "search": search})
    folder = run(spec, Options(out=tmp_path)).folder
    loaded = LoadedSpec.of(folder.read_manifest().read_spec())
    run_ = SweepRun(resume_plan(folder, loaded), Options(), loaded.data, folder, Interruption(), resumed=True)
    assert run_._plan.claim.chosen == ()
    run_._open()
    append_alone(folder.path / REQUESTS_NAME, {"try": asked})
    run_._shown_at = -1e9
    run_._between()
    assert run_._plan.claim.chosen == run_._recorder.claim.chosen == chosen
    again = SweepRun(resume_plan(folder, loaded), Options(), loaded.data, folder, Interruption(), resumed=True)
    again._open()
    assert again._plan.claim.chosen == chosen
