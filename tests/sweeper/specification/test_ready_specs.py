"""The ready specs fit their data: whatever a search proposes on them can be planned."""

import json
from functools import lru_cache
from pathlib import Path

import pytest

from clipless.datasets import load
from sweeper.planning.make import make_sweep_plan
from sweeper.search.space import sample
from sweeper.specification.spec import Spec
from sweeper.trials.build import build_loss, build_model, build_plan

pytestmark = pytest.mark.slow

SWEEPS = Path(__file__).parents[3] / "sweeps"
READY = [
    pytest.param(path, marks=[pytest.mark.long] * ("cifar10" in path.read_text(encoding="utf-8")))  # seconds to decode
    for path in sorted(SWEEPS.rglob("*.yaml"))
    if ".ranges." not in path.name
]
CONFIGURATIONS = (1, pytest.param(8, marks=pytest.mark.long))
REST = {
    "name": "x",
    "model": {"architecture": "mlp"},
    "training": {"epochs": 1},
    "privacy": {"epsilon": 1.0, "delta": 0.1},
}


@lru_cache(maxsize=1)
def data_of(settings, score_noise, source, folder):
    """Load it once for the specs that share it."""
    privacy = REST["privacy"] | ({} if score_noise is None else {"score_noise": score_noise})
    spec = Spec.from_mapping({**REST, "privacy": privacy, "data": json.loads(settings)}, source)
    return load(**spec.data_options(folder))


@pytest.mark.shared
@pytest.mark.parametrize("configurations", CONFIGURATIONS)
@pytest.mark.parametrize("path", READY, ids=lambda path: str(path.relative_to(SWEEPS)))
def test_every_proposal_of_a_ready_spec_can_be_planned(path, configurations, shared_data):
    spec = Spec.from_yaml(path)
    folder = shared_data / "tabular" if spec.data.path else shared_data
    settings = json.dumps(spec.to_plain()["data"], sort_keys=True)
    data = data_of(settings, spec.privacy.score_noise, str(path.parent / "spec"), folder)
    spec.validate_against(len(data.train), len(data.metadata.classes))
    slot = make_sweep_plan(spec, data, folder).spending.final_slot
    for proposal in sample(spec.space, configurations):
        config = spec.space.resolve(proposal)
        loss = build_loss(config)
        plan = build_plan(config, build_model(config, data, loss, seed=0), loss, len(data.train), slot)
        assert plan.delta < 1 / len(data.train)
        assert all(std > 0 for std in plan.noise_stds.values())
