"""The ready specs fit their data: whatever a search proposes on them can be planned."""

import json
import re
from functools import lru_cache
from pathlib import Path

import pytest
import yaml

from clipless.datasets import load
from clipless.privacy.exposure import Basis, Exposure, Risk
from sweeper.adapters import parse
from sweeper.papers.annexes import edpb_annex, nist_annex
from sweeper.papers.recomputation import contradictions
from sweeper.papers.registry_record import registry_record
from sweeper.privacy.card import prices
from sweeper.privacy.card.content import EventPrice
from sweeper.privacy.card.make import make_card
from sweeper.privacy.ledger import Ledger
from sweeper.records import Point, Trial, TrialPlan
from sweeper.search.space import sample
from sweeper.specification.spec import Spec
from sweeper.trials.build import build_loss, build_model, build_plan
from tests.factories import card_validator, plan_sweep, registry_validator

pytestmark = pytest.mark.slow

SWEEPS = Path(__file__).parents[3] / "sweeps"
UNREADY = ("text-sentiment.yaml", "cifar10-features.yaml")  # a table of its page, and half an hour of encoding
READY = [
    pytest.param(path, marks=[pytest.mark.long] * ("cifar10" in path.read_text(encoding="utf-8")))  # seconds to decode
    for path in sorted(SWEEPS.rglob("*.yaml"))
    if ".ranges." not in path.name and path.name not in UNREADY
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


@pytest.mark.sampled(14)
@pytest.mark.shared
@pytest.mark.parametrize("configurations", CONFIGURATIONS)
@pytest.mark.parametrize("path", READY, ids=lambda path: str(path.relative_to(SWEEPS)))
def test_every_proposal_of_a_ready_spec_can_be_planned(path, configurations, shared_data, unpriced, tmp_path):
    spec = Spec.from_yaml(path)
    folder = shared_data / "tabular" if spec.data.path else shared_data
    settings = json.dumps(spec.to_plain()["data"], sort_keys=True)
    data = data_of(settings, spec.privacy.score_noise, str(path.parent / "spec"), folder)
    spec.validate_against(len(data.train), len(data.metadata.classes))
    whole = plan_sweep(spec, data, folder)
    slot = whole.spending.final_slot
    for proposal in sample(spec.space, configurations):
        config = spec.space.resolve(proposal)
        loss = build_loss(config)
        plan = build_plan(config, build_model(config, data, loss, seed=0), loss, len(data.train), slot)
        assert plan.delta < 1 / len(data.train)
        assert all(std > 0 for std in plan.noise_stds.values())
    made = unpriced(plan, config, whole)
    card_validator().validate(made.to_json())
    card = made.content
    registry_validator().validate(yaml.safe_load(registry_record(card)))
    assert [len(re.findall(r"^## ", annex(card), re.MULTILINE)) for annex in (nist_annex, edpb_annex)] == [10, 8]
    ledger = Ledger(tmp_path / "ledger.jsonl")
    noise, row = whole.shared.noise, card.score_noise
    scores = None if noise is None or row is None else noise.paid(card.guarantee.repeats * len(row.epochs))
    ledger.open("t0001", plan.event(), scores=scores)
    assert [one for one in contradictions(card, plan.event(), ledger) if one is not None] == []


@pytest.fixture
def unpriced(monkeypatch):
    """Makes cards of plans whose prices, which take seconds, are not computed."""
    price = EventPrice(epsilon=1.0, rdp=None, pld=1.0, steps=1)
    person = Exposure(risk=Risk(caught=(0.1, 0.2, 0.3), advantage=0.2, basis=Basis.PROFILE))
    monkeypatch.setattr(prices, "price_event", lambda *_: price)
    monkeypatch.setattr(prices, "expose_event", lambda *_: person)

    def make(plan, config, whole):
        noise = whole.shared.noise
        more = {"secure_generator": True, "epsilon_curve": (1.0,), "accountants": {}, "repeats": 1}
        scores = None if noise is None else noise.plan((1, plan.epochs))
        planned = parse(TrialPlan, plan.to_json() | more | {"scores": scores})
        trial = Trial(id="t0001", config=config.to_json(), plan=planned)
        point = Point(trial="t0001", epoch=plan.epochs, values={"epsilon": 1.0, "accuracy": 0.9})
        return make_card(sweep="x", trial=trial, point=point, claim=whole.claim, ledger={}, attempts=())

    return make
