"""Whole sweeps on a table whose privacy unit has several rows: what is counted, priced and said."""

import json

import numpy as np
import pytest

from sweeper.driver.options import Options
from sweeper.driver.runner import run_sweep
from sweeper.specification.spec import Spec

pytestmark = pytest.mark.usefixtures("in_process", "bare", "untracked")

PEOPLE = 300
RANGES = """
source: the form
target: {column: ill, classes: ["no", "yes"]}
columns: {age: {low: -4, high: 4, missing: 0}, lab: {low: -4, high: 4, missing: 0}}
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("visits")
    rows = []
    for person in range(PEOPLE):
        base = rng.normal(size=2)
        for _ in range(int(rng.choice([1, 2, 30]))):
            age, lab = base + 0.3 * rng.normal(size=2)
            rows.append(f"p{person},{age:.3f},{lab:.3f},{'yes' if age > lab else 'no'}")
    rng.shuffle(rows)
    (folder / "visits.csv").write_text("\n".join(["person,age,lab,ill", *rows]) + "\n")
    (folder / "ranges.yaml").write_text(RANGES)
    return folder


def sweep_of(table, out, evaluation, privacy, **search):
    content = {
        "name": "visits",
        "data": {"path": "visits.csv", "ranges": "ranges.yaml", "unit": "person", "evaluation": evaluation},
        "model": {"architecture": "mlp", "width": 8},
        "training": {"epochs": 3, "batch_size": 50, "learning_rate": {"log": [0.02, 0.1]}},
        "privacy": {"delta": 1e-4, **privacy},
        "search": {"objectives": ["epsilon", "accuracy"], "trials": 2, **search},
    }
    (table / "spec.yaml").write_text(json.dumps(content))
    return run_sweep(Spec.from_yaml(table / "spec.yaml"), Options(out=out)).sweep


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("evaluation", "privacy", "search"),
    [
        ("public", {"sweep_epsilon": 3.0}, {"rehearse": True, "metrics": ["attacked@0.1"]}),
        ("private", {"epsilon": 3.0, "score_noise": 5.0, "curve_noise": 4.0}, {}),
    ],
    ids=["rehearsed", "private"],
)
def test_a_sweep_counts_and_prices_people(table, tmp_path, evaluation, privacy, search):
    sweep = sweep_of(table, tmp_path, evaluation, privacy, **search)
    claim, plans = sweep.front().claim, [trial.plan for trial in sweep.folder.trials().values()]
    assert claim.unit == "person"
    assert 0.5 * PEOPLE < claim.population < PEOPLE
    assert {plan.population for plan in plans} == {claim.population}
    assert {plan.event.sampling_rate for plan in plans} == {50 / claim.population}
    assert f"The number of training units, N = {claim.population}." in claim.public
    assert any("in scores its rows share the weight of one" in fact for fact in claim.public)
    card = sweep.pick().card.to_markdown()
    assert "one group of rows that share `person`" in card
    assert f"N = {claim.population} training units" in card
