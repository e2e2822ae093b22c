"""The view of results that MLflow's page offers."""

import base64
import json
import zlib

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from sweeper.tracking.store import Destination, Store
from sweeper.tracking.view import VIEW_TAG, results_columns, results_view


def state_of(value):
    view = json.loads(value)
    assert view["name"] == "Results"
    packed = view["state"].removeprefix("deflate;")
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def test_scores_and_price_are_its_columns_under_the_names_of_metrics():
    state = state_of(results_view(results_columns(["epsilon", "auroc", "certified@36/255"], noisy=False)))
    names = [f"best/{name}{of}" for name in ("auroc", "certified/36_255") for of in ("", "/test", "/epsilon")]
    wanted = [f"metrics.`{name}`" for name in ("price", *names)]
    assert state["selectedColumns"][:7] == wanted, "of one point in each row"
    assert state["columnOrder"][2:] == wanted
    assert {*state["columnWidths"]} == {*state["columnOrder"]}


def test_noisy_scores_are_shown_with_the_ends_of_their_intervals():
    shown = results_columns(["epsilon", "accuracy"], noisy=True)
    for score in ("best/accuracy", "best/accuracy/test"):
        assert {score, f"{score}/low", f"{score}/high"} <= {*shown}


@pytest.mark.parametrize("refuses", [False, True])
def test_an_experiment_has_it_once_and_a_store_that_refuses_it_takes_runs(tmp_path, monkeypatch, refuses):
    set_tag = MlflowClient.set_experiment_tag

    def set_or_refuse(client, *tag):
        if refuses:
            raise MlflowException("no")
        set_tag(client, *tag)

    monkeypatch.setattr(MlflowClient, "set_experiment_tag", set_or_refuse)
    for columns in (["best/accuracy"], ["best/auroc"]):
        folder = tmp_path / columns[0].replace("/", "-")
        folder.mkdir()
        Store(Destination.of(folder, "digits", f"sqlite:///{tmp_path / 'mlflow.db'}", columns=columns)).deliver([])
    experiment = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}").get_experiment_by_name("digits")
    assert (VIEW_TAG in experiment.tags) is not refuses
    if not refuses:
        assert state_of(experiment.tags[VIEW_TAG])["selectedColumns"][0] == "metrics.`best/accuracy`", (
            "what somebody has changed stays"
        )
