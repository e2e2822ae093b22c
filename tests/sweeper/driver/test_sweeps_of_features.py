"""Whole sweeps on features of a frozen public encoder: trained, scored, resumed, picked, and asked for new rows."""

import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import save_file
from torch import nn

import clipless
from clipless.datasets.features.encode import _open
from clipless.errors import DataError
from sweeper.backend.workers.trial_group import TrialGroup
from sweeper.driver.options import Options
from sweeper.driver.runner import resume_sweep, run_sweep
from sweeper.errors import RecordError, SpecError
from sweeper.results.models.predict import load_predictor
from sweeper.specification.spec import Spec
from sweeper.store.input_format import DATA_NAME
from tests.factories import plan_sweep

pytestmark = pytest.mark.usefixtures("in_process", "bare", "untracked")

LETTERS = "abcdefgh"
RANGES = {
    "source": "made up",
    "target": {"column": "label", "classes": ["no", "yes"], "unknown": "no"},
    "columns": {"text": {"text": 40}},
}
ENCODER = {"name": "tiny", "module": "tiny_encoders:letters", "licence": "MIT", "pretrained_on": "nothing", "clip": 4.0}


class Counts(nn.Module):
    """How often letters stand in a text, times a weight."""

    def __init__(self, weight):
        super().__init__()
        self.register_buffer("weight", torch.tensor(weight))
        self.sign = 1.0  # no weight, as code is none

    def forward(self, texts):
        return (
            self.sign
            * self.weight
            * torch.tensor([[float(text.count(letter)) for letter in LETTERS] for text in texts])
        )


@pytest.fixture(autouse=True)
def encoders(monkeypatch, tmp_path):
    made = ModuleType("tiny_encoders")
    made.letters = lambda: Counts(1.0).eval()
    made.flat = lambda: nn.Flatten().eval()
    monkeypatch.setitem(sys.modules, "tiny_encoders", made)
    monkeypatch.setenv("SWEEPER_CACHE", str(tmp_path / "cache"))
    _open.cache_clear()
    return made


@pytest.fixture
def texts(tmp_path):
    """A spec about texts, of which three belong to each person."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(600):
        letters = rng.choice(list(LETTERS), size=12)
        label = "yes" if (letters < "c").sum() > (letters > "f").sum() else "no"
        rows.append(f"{''.join(letters)},p{number // 3},{label}")
    (tmp_path / "t.csv").write_text("\n".join(["text,person,label", *rows]) + "\n")
    (tmp_path / "ranges.yaml").write_text(json.dumps(RANGES))

    def make(*, evaluation="private", privacy=None, search=None, **data):
        content = {
            "name": "texts",
            "data": {"path": "t.csv", "ranges": "ranges.yaml", "evaluation": evaluation, "unit": "person"}
            | {"features": ENCODER}
            | data,
            "model": {"architecture": "mlp", "depth": 1},
            "training": {"epochs": 3, "batch_size": 40, "learning_rate": {"log": [0.05, 0.2]}, "loss": "squared"},
            "privacy": {"delta": 1e-3, "epsilon": 4.0} | (privacy or {}),
            "search": {"objectives": ["epsilon", "accuracy", "certified@0.5"], "trials": 2} | (search or {}),
        }
        (tmp_path / "t.yaml").write_text(yaml.safe_dump(content))
        return Spec.from_yaml(tmp_path / "t.yaml")

    return make


def test_private_texts_of_people_are_trained_scored_picked_and_new_texts_predicted(texts, tmp_path, monkeypatch):
    sizes, size_for = [], TrialGroup._size_for
    monkeypatch.setattr(TrialGroup, "_size_for", lambda group, one: sizes.append(size_for(group, one)) or sizes[-1])
    spec = texts(privacy={"score_noise": 3.0}, search={"trials": 3})
    sweep = run_sweep(spec, Options(out=tmp_path / "out")).sweep
    picked = sweep.pick()
    card = picked.card.to_json()
    assert card["data"]["radius_unit"] == "units of the features of tiny"
    for text in ("the encoder tiny (MIT; SHA-256 ", "in feature units", "Radii are in units of the features of tiny"):
        assert text in picked.card.to_markdown()
    assert "accuracy" in card["scores"]["test"]  # paid, with noise
    picked.write(tmp_path / "picked")
    predictor = load_predictor(tmp_path / "picked")
    rows = predictor.form.of_columns({"text": ["aaaabbbb", "gggghhhh", ""]})
    found = predictor(rows)
    assert rows.x[0].tolist() == pytest.approx([8**0.5, 8**0.5, *[0.0] * 6])  # scaled onto the ball of radius 4
    assert found[["score no", "score yes"]].to_numpy() == pytest.approx(
        picked.model()(rows.x).detach().numpy(), abs=1e-5
    )
    assert set(found["radius_unit"]) == {"units of the features of tiny"}
    assert max(sizes) > 1  # trials were trained as a stack


@pytest.mark.long
def test_a_sweep_goes_on_with_its_encoder_and_with_no_other(texts, tmp_path, encoders):
    spec = texts(evaluation="public")
    sweep = run_sweep(spec, Options(out=tmp_path / "out")).sweep
    more = resume_sweep(sweep.directory, trials=3).sweep
    assert len(more.front().trials) == 3
    form = json.loads((sweep.directory / DATA_NAME).read_text())
    rounded = [1.00001 * number for number in form["features"].pop("fingerprint")]  # on another machine
    for features in (form["features"], form["features"] | {"fingerprint": rounded}):  # the first of an older sweep
        (sweep.directory / DATA_NAME).write_text(json.dumps(form | {"features": features}))
        resume_sweep(sweep.directory, trials=3)

    def coded():
        module = Counts(1.0).eval()
        module.sign = -1.0
        return module

    encoders.letters = coded
    _open.cache_clear()
    for given in (3, 4):
        with pytest.raises(DataError, match="Expected the encoder 'tiny' that was recorded"):
            resume_sweep(sweep.directory, trials=given)
    encoders.letters = lambda: Counts(2.0).eval()
    _open.cache_clear()
    with pytest.raises(RecordError, match=r"Expected the data that .* was begun with, got others"):
        resume_sweep(sweep.directory, trials=4)
    with pytest.raises(DataError, match="Expected the encoder 'tiny' with SHA-256"):
        load_predictor(sweep.directory).form.of_columns({"text": ["a"]})


@pytest.mark.long
def test_a_sweep_goes_on_wherever_the_file_of_its_encoder_is_named_from(texts, tmp_path, monkeypatch):
    save_file(Counts(1.0).state_dict(), tmp_path / "w.safetensors")
    texts(evaluation="public", features=ENCODER | {"file": "w.safetensors"})
    monkeypatch.chdir(tmp_path)
    sweep = run_sweep(Spec.from_yaml("t.yaml"), Options(out=Path("out"))).sweep
    assert len(resume_sweep(sweep.directory, trials=3).sweep.front().trials) == 3
    form = json.loads((sweep.directory / DATA_NAME).read_text())
    assert form["features"]["file"] == str(tmp_path / "w.safetensors")
    form["features"]["file"] = "w.safetensors"  # of an earlier version
    (sweep.directory / DATA_NAME).write_text(json.dumps(form))
    resume_sweep(sweep.directory, trials=4)
    save_file(Counts(2.0).state_dict(), tmp_path / "w.safetensors")
    with pytest.raises((RecordError, DataError), match=r"begun with, got others|that was recorded"):
        resume_sweep(sweep.directory, trials=5)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"search": {"objectives": ["epsilon", "accuracy", "certified@36/255"]}}, "a radius in units of the features"),
        ({"evaluation": "public", "search": {"metrics": ["attacked@8/255"]}}, "write a number, such as attacked@0.5"),
        ({"centre": 0.5}, "Expected no centre beside features"),
        ({"features": {**ENCODER, "clip": 0.0}}, "clip"),
        ({"features": {"name": "unknown"}}, "the module or the file of the encoder 'unknown'"),
    ],
)
def test_what_features_do_not_go_with_is_refused_when_the_spec_is_read(texts, change, sentence):
    with pytest.raises(SpecError) as caught:
        texts(**change)
    assert sentence in str(caught.value)


@pytest.mark.long
def test_features_are_rehearsed_on_a_sketch_only_where_that_is_asked_for(texts):
    budget = {"epsilon": None, "sweep_epsilon": 4.0}
    assert texts(privacy=budget, search={"trials": None}).sketch_share == 0
    asked = texts(privacy=budget, search={"rehearse": "sketch", "trials": 4})
    plan = plan_sweep(asked, clipless.datasets.load(**asked.data_options()))
    assert plan.spending.sketch is not None
