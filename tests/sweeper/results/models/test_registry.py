"""The registry and what else is asked of a store: on a copy of the SQLite store that a real sweep has written."""

import os
import shutil
import sqlite3
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from mlflow.models.utils import _enforce_schema

import clipless
from clipless.datasets import Categorical, InputFormat, Numeric, Ranges
from clipless.datasets.raw_rows import Tensors
from sweeper.driver.options import TRACKING_VARIABLE
from sweeper.errors import SweeperError
from sweeper.privacy.card.content import CardContent
from sweeper.privacy.card.make import Card
from sweeper.results.housekeeping import delete_sweep
from sweeper.results.models.predict import load_predictor
from sweeper.results.models.registry import (
    ARTIFACT,
    SUPERSEDED,
    _signature,
    _store,
    describe,
    input_in_words,
    log_model,
    make_served_model,
    register,
    tags_of,
)
from sweeper.results.notes import add_note, add_tag
from sweeper.results.sweep import load
from sweeper.rounding import round_up
from sweeper.store.input_format import write_input
from sweeper.store.sweep_folder import SweepFolder
from sweeper.tracking.client import delete_runs, destination_of, find_runs, logged_trials, set_tags
from sweeper.tracking.store import STORE_NAME, own_store

# What MLflow imports.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def tracked(ran, tmp_path_factory):
    """A copy of a real sweep with its store, whose artifacts go into the copy."""
    folder = tmp_path_factory.mktemp("out") / ran.folder.name
    shutil.copytree(ran.folder, folder, ignore=shutil.ignore_patterns("ray", "mlflow-artifacts", "*.html"))
    shutil.copy(own_store(ran.folder), folder)
    artifacts = (folder / "mlflow-artifacts").as_uri()
    with sqlite3.connect(folder / STORE_NAME) as store:
        store.execute("UPDATE experiments SET artifact_location = ?", (artifacts,))
        store.execute("UPDATE runs SET artifact_uri = ? || '/' || run_uuid || '/artifacts'", (artifacts,))
    store.close()
    return load(folder)


@pytest.fixture(scope="module")
def where(tracked):
    return destination_of(tracked.directory, tracked.manifest())


@pytest.fixture(scope="module")
def client(where):
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=where.uri)


@pytest.fixture(scope="module")
def registered(tracked, client, where):
    """The picked model, registered; its run had been killed before, at a known time."""
    picked = tracked.pick()
    run = find_runs(client, where)[picked.point.trial]
    client.set_terminated(run, "KILLED", 1234567)
    with pytest.MonkeyPatch.context() as patch:  # it looks for seconds through every package that is installed
        patch.setattr("mlflow.utils.environment.warn_dependency_requirement_mismatches", lambda _: None)
        made = register(picked, "digits-model")
    return SimpleNamespace(made=made, picked=picked, run=run)


@pytest.mark.long
def test_a_registered_model_predicts_what_the_picked_one_does(registered, tracked):
    import mlflow

    with _store(registered.made.store):
        model = mlflow.pyfunc.load_model(registered.made.uri)
    rows = (clipless.datasets.load("digits").test.x[:20, 0] * 16).round().numpy().astype(np.uint8)
    predictor = load_predictor(tracked.directory)
    pd.testing.assert_frame_equal(model.predict(rows), predictor(predictor.form.of_array(rows)))
    assert str(model.metadata.signature.inputs) == "[Tensor('uint8', (-1, 8, 8))]"
    names = [column.name for column in model.metadata.signature.outputs]
    assert names == list(predictor(predictor.form.of_array(rows)).columns)


def test_the_model_of_a_sweep_with_a_point_in_its_name_is_logged_and_an_earlier_one_superseded(
    registered, client, where
):
    where = replace(where, sweep="noise-0.5")
    models = [client.get_logged_model(log_model(registered.picked, where, registered.run)) for _ in range(2)]
    assert {model.name for model in models} == {f"noise-0-5-{registered.picked.point.name}"}
    notes = [client.get_logged_model(model.model_id).tags["mlflow.note.content"] for model in models]
    assert notes == [f"{SUPERSEDED}\n\n{notes[1]}", describe(registered.picked, registered.made.takes)]


def test_no_pickle_and_no_row_is_in_it(registered, tracked):
    files = {path.name for path in (tracked.directory / "mlflow-artifacts").rglob("*") if path.is_file()}
    assert {"model.safetensors", "card.json", "card.md", "config.json", "data.json", "served_model.py"} <= files
    assert not any(name.endswith((".pkl", ".pickle", ".pt", ".joblib")) or "example" in name for name in files)
    assert registered.made.uri == "models:/digits-model/1"
    assert repr(registered.made).startswith("digits-model, version 1, in sqlite:///")
    assert registered.made._repr_html_().count("models:/digits-model/1") == 1


def test_a_version_says_what_is_guaranteed(registered, client):
    tags = client.get_model_version("digits-model", registered.made.version).tags
    card, point = registered.picked.card.to_json(), registered.picked.point
    assert tags == tags_of(registered.picked)
    assert (tags["sweeper.trial"], tags["sweeper.epoch"]) == (point.trial, str(point.epoch))
    assert float(tags["sweeper.own_epsilon"]) == pytest.approx(
        card["guarantee"]["fixed_in_advance"]["epsilon"], rel=1e-5
    )
    assert float(tags["sweeper.own_epsilon_of_any_epoch"]) >= float(tags["sweeper.own_epsilon"])
    assert (tags["sweeper.delta"], tags["sweeper.relation"]) == ("0.0001", "add-or-remove-one")
    assert tags["sweeper.exploratory"] == "false"
    winner = card["ledger"]["winner"]["epsilon"]
    assert winner <= float(tags["sweeper.price"]) <= winner * (1 + 1e-5)
    assert float(tags["sweeper.price"]) > float(tags["sweeper.own_epsilon_of_any_epoch"])


def test_a_version_is_described_by_the_price_of_the_sweep_and_says_what_predict_takes(registered, client):
    said = client.get_model_version("digits-model", registered.made.version).description
    card, point = registered.picked.card.to_json(), registered.picked.point
    price = round_up(card["ledger"]["winner"]["epsilon"])
    assert said.startswith(
        f"Epsilon {price} at delta 0.0001 (price of the sweep); own epsilon {round_up(point.values['epsilon'])}, if "
        f"configuration and epoch had been fixed in advance; accuracy {point.test['accuracy']:.3f} "
    )
    chose = f"{point.values['accuracy']:.3f} on validation rows"
    assert f"on test rows, {chose}; card.md in the artifacts, folder {ARTIFACT}." in said
    takes = "predict takes an array of uint8, shape (rows, 8, 8), levels from 0 to 16"
    assert said.endswith(f"\n\n{takes}")
    assert repr(registered.made).endswith(takes)
    form = InputFormat(name="t", classes=("a", "b"), raw=Tensors((3,), 2.0, 1.0, "units"))
    assert input_in_words(form) == "predict takes an array of float32, shape (rows, 3), rows of norm at most 2"


def test_the_tags_of_a_winner_state_the_price_of_its_selection_and_of_no_single_training(tracked):
    picked = tracked.pick()
    content = picked.card.to_json()
    content["guarantee"] = content["guarantee"] | {"selected": 6.6500001}
    content["ledger"] = {"winner": content["ledger"]["winner"] | {"epsilon": 6.6500001}}
    tags = tags_of(replace(picked, card=Card(CardContent.model_validate(content))))
    assert {key: value for key, value in tags.items() if "epsilon" in key or "price" in key} == {
        "sweeper.price": "6.65001",
        "sweeper.price_proven": "true",
    }


def test_the_run_ended_as_it_had_and_the_users_store_is_theirs_again(registered, client):
    import mlflow

    info = client.get_run(registered.run).info
    assert (info.status, info.end_time) == ("KILLED", 1234567)
    assert mlflow.get_tracking_uri() != registered.made.store
    assert mlflow.active_run() is None


@pytest.mark.parametrize("chosen", [None, "http://m:5000"])
def test_later_sweeps_of_the_process_go_where_they_would_have_gone(monkeypatch, chosen):
    """MLflow keeps the store that it is set to in the environment, where `run` looks for the user's."""
    import mlflow

    if chosen is None:
        monkeypatch.delenv(TRACKING_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(TRACKING_VARIABLE, chosen)
    before = mlflow.get_tracking_uri()
    with _store("sqlite:///elsewhere.db"):
        assert mlflow.get_tracking_uri() == os.environ[TRACKING_VARIABLE] == "sqlite:///elsewhere.db"
    assert os.environ.get(TRACKING_VARIABLE) == chosen
    assert mlflow.get_tracking_uri() == before
    mlflow.set_tracking_uri(None)


def test_what_cannot_be_registered_is_an_error(tracked):
    with pytest.raises(SweeperError, match=r"Cannot register x in ftp://nowhere"):
        register(tracked.pick(), "x", tracking="ftp://nowhere")


def test_a_table_is_served_by_columns(tmp_path):
    columns = {"age": Numeric(low=0, high=10), "ward": Categorical(categories=("A", "2"), other=True)}
    raw = Ranges(name="r", source="s", target="left", columns=columns)
    form = InputFormat(name="t", classes=("no", "yes"), raw=raw)
    model = clipless.zoo.build("mlp", (4,), 2, input_norm=2.0, width=8)
    clipless.save(model, tmp_path / "model.safetensors")
    (tmp_path / "card.json").write_text('{"exploratory": true}')
    write_input(tmp_path, form)
    served = make_served_model()
    served.load_context(SimpleNamespace(artifacts={ARTIFACT: str(tmp_path)}))
    frame = pd.DataFrame({"ward": ["A", "B"], "age": [3, 4]})
    direct = load_predictor(tmp_path)
    assert direct.exploratory
    pd.testing.assert_frame_equal(served.predict(None, frame), direct(form.of_columns(frame)))
    inputs = _signature(form).inputs
    assert [column.name for column in inputs] == ["age", "ward"]
    for cells in ([3, 4], [3.0, 4.5], ["3", "4"]):
        taken = _enforce_schema(frame.assign(age=cells, more=1), inputs)
        assert served.predict(None, taken)["class"].notna().all()
    with pytest.raises(MlflowException, match="age"):
        _enforce_schema(frame.drop(columns="age"), inputs)


# What else is asked of the store


def test_notes_and_tags_reach_the_runs(registered, tracked, client):
    trial = registered.picked.point.trial
    assert add_note(tracked.directory, trial, "looks good", by="") is None
    assert add_tag(tracked.directory, trial, "owner", "Ada") is None
    tags = client.get_run(registered.run).data.tags
    assert tags["mlflow.note.content"].endswith("## Notes\n\nlooks good\n")
    assert tags["owner"] == "Ada"


def test_the_trials_of_an_experiment_are_those_of_the_sweep(tracked, where):
    trials = SweepFolder(tracked.directory).trials()
    found = logged_trials(where.uri, "tiny")
    rates = [float(trial.params["training.learning_rate"]) for trial in found]
    assert sorted(rates) == sorted(trial.config["training"]["learning_rate"] for trial in trials.values())
    assert all({"epsilon", "val/accuracy", "val/certified/0.25"} <= set(trial.metrics) for trial in found)
    assert {(trial.sweep, trial.exploratory) for trial in found} == {(tracked.directory.name, False)}
    with pytest.raises(SweeperError, match=r"Expected the experiment 'tinny' in .*, found none"):
        logged_trials(where.uri, "tinny")


def test_a_trial_without_a_run_and_a_store_that_is_not_there_are_errors(where, tmp_path):
    with pytest.raises(SweeperError, match=r"Expected a run of trial t0099 .* found none yet"):
        set_tags(where, "t0099", {"a": "b"})
    gone = replace(where, uri=f"sqlite:///{tmp_path / STORE_NAME}")
    for ask in (lambda: set_tags(gone, "t0001", {}), lambda: delete_runs(gone)):
        with pytest.raises(SweeperError, match=r"Expected the store .*mlflow\.db, found none"):
            ask()
    assert not (tmp_path / STORE_NAME).exists()


def test_runs_are_deleted_with_their_sweep_where_they_live_elsewhere(registered, tracked, where, client, tmp_path):
    folder = tmp_path / tracked.directory.name
    shutil.copytree(tracked.directory, folder, ignore=shutil.ignore_patterns("mlflow*"))
    sweep = SweepFolder(folder)
    sweep.write_manifest(replace(sweep.read_manifest(), tracking=where.uri))
    assert len(find_runs(client, where)) == 4
    assert delete_sweep(folder, runs=True).runs == 4
    assert find_runs(client, where) == {}
    assert client.get_run(registered.run).info.lifecycle_stage == "deleted"
