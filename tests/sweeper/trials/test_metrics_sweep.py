"""A whole sweep with metrics: they reach every record, and the test split sees no attack."""

import contextlib
import sqlite3

import pytest

from sweeper.driver.options import Options
from sweeper.driver.runner import run_sweep
from sweeper.privacy.claims import MEMBERSHIP as CONDITION
from sweeper.results.front import read_front
from sweeper.specification.spec import Spec
from tests.factories import small_content

from ..in_process import trained_in_process

pytestmark = pytest.mark.slow

NAMES = ("attacked@0.25", "membership-auroc", "membership-advantage")


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    training = {"epochs": 1, "loss": {"name": "tau-cce", "temperature": 0.1}}
    content = small_content("metrics", training=training, search={"trials": 1, "metrics": list(NAMES)})
    with trained_in_process():
        return run_sweep(Spec.from_mapping(content), Options(out=tmp_path_factory.mktemp("out"))).sweep.directory


@pytest.mark.long
def test_metrics_reach_the_front_its_table_and_the_store(swept):
    front = read_front(swept / "front.json")
    assert [objective.name for objective in front.objectives] == ["epsilon", "accuracy"]
    assert all(set(NAMES) <= set(point.values) for point in front.front_points)
    assert set(NAMES) <= set(front.to_csv().splitlines()[0].split(","))
    with contextlib.closing(sqlite3.connect(swept.parent / "mlflow.db")) as store:
        keys = {key for (key,) in store.execute("select distinct key from metrics")}
    assert {"val/attacked/0.25", "val/certified/0.25", "val/membership-auroc", "val/membership-advantage"} <= keys
    assert "membership-auroc" in (swept / "front.html").read_text(encoding="utf-8")


@pytest.mark.long
def test_test_scores_hold_certificates_and_no_attack(swept):
    for point in read_front(swept / "front.json").front_points:
        assert set(point.test) == {"accuracy", "certified@0.25"}


def test_a_sweep_with_membership_says_what_was_released(swept):
    claim = read_front(swept / "front.json").claim
    assert CONDITION in claim.conditions
    assert not claim.exploratory
