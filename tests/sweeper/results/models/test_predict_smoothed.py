"""Predictions by the vote under noise: the numbers of the card, radii that attacks keep to, and what is refused."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import clipless
import sweeper
from clipless.certificates import smoothed as votes
from clipless.certificates.smoothed import Smoothing, certify_smoothed, lower_bound, quantile_below
from clipless.datasets import InputFormat, NewRows
from clipless.datasets.raw_rows import Tensors
from clipless.layers import Dense, InputBall
from clipless.network import Network
from clipless.projections import Free
from sweeper.driver.options import Options
from sweeper.driver.runner import run_sweep
from sweeper.errors import RecordError
from sweeper.results.models import predict_smoothed
from sweeper.results.models.predict import Predictor, load_predictor
from sweeper.results.models.predict_smoothed import SmoothedPredictor, smoothed_predictor
from sweeper.results.sweep import load
from sweeper.specification.spec import Spec

from ...conftest import Nobody
from ...in_process import trained_in_process

ROWS, SEED = 60, 7
SMOOTHING = {"sigma": 0.25, "alpha": 0.01, "draws": 20, "rows": 10, "test_draws": 100, "test_rows": ROWS}
COLUMNS = ["class", "abstained", "smoothed_radius", "radius_unit", "sigma", "alpha", "draws"]
RANGES = """
source: the form
target: {column: ill, classes: ["no", "yes"]}
columns: {age: {low: 0, high: 8}, lab: {low: -4, high: 4}, ward: {categories: [A, B]}}
"""


def run(folder, name, data):
    """Run a sweep of one trial with smoothed certificates, in this process, without audit, report and tracking."""
    content = {
        "name": name,
        "data": data,
        "model": {"architecture": "mlp", "width": 16},
        "training": {"epochs": 2, "batch_size": 128, "learning_rate": 0.05, "input_noise": 0.2, "copies": 2},
        "privacy": {"epsilon": 20.0, "delta": 1e-4},
        "search": {
            "objectives": ["epsilon", "accuracy", "smoothed@0.25"],
            "metrics": ["smoothed@0.1"],
            "smoothing": SMOOTHING,
            "trials": 1,
            "seed": SEED,
        },
    }
    (folder / f"{name}.yaml").write_text(json.dumps(content))
    with pytest.MonkeyPatch.context() as patch, trained_in_process():
        patch.setattr("sweeper.driver.driver.audit_trials_of_front", lambda *_, **__: [])
        patch.setattr("sweeper.driver.finished.exporter", lambda _name: lambda *_: None)
        patch.setattr("sweeper.driver.driver.Tracker", Nobody)
        return run_sweep(Spec.from_yaml(folder / f"{name}.yaml"), Options(out=folder)).sweep.directory


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """The folder of a sweep on images from which 0.5 is subtracted, its test rows as pixels, and their classes."""
    test = clipless.datasets.load("digits").test
    levels = (test.x[:ROWS, 0] * 16).round().to(torch.uint8).numpy()
    folder = run(tmp_path_factory.mktemp("images"), "images", {"name": "digits", "centre": 0.5})
    return folder, levels, test.y[:ROWS].numpy().astype(str)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Likewise of a table, whose columns are scaled and encoded, and of which the first rows are the test rows."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("table")
    rows = pd.DataFrame(
        {"age": rng.uniform(0, 8, 900), "lab": rng.normal(size=900), "ward": rng.choice(["A", "B"], 900)}
    )
    rows["ill"] = np.where(rows.age + rows.lab + (rows.ward == "A") > 4.5, "yes", "no")
    rows["part"] = ["test"] * ROWS + ["validation"] * 100 + ["train"] * 740
    rows.to_csv(folder / "visits.csv", index=False)
    (folder / "ranges.yaml").write_text(RANGES)
    splits = {"column": "part", "train": ["train"], "validation": ["validation"], "test": ["test"]}
    data = {"path": "visits.csv", "ranges": "ranges.yaml", "evaluation": "public", "splits": splits}
    return run(folder, "table", data), rows[["age", "lab", "ward"]][:ROWS], rows.ill[:ROWS].to_numpy()


@pytest.fixture(params=["images", "table"])
def swept(request):
    """A sweep, its raw test rows, and their classes."""
    return request.getfixturevalue(request.param)


def read(predictor, raw):
    return predictor.form.of_array(raw) if isinstance(raw, np.ndarray) else predictor.form.of_columns(dict(raw))


def shares(frame, classes):
    right = (frame["class"] == classes).to_numpy()
    radii = frame["smoothed_radius"].to_numpy()
    return {name: float((right & (radii > R)).mean()) for name, R in (("smoothed@0.25", 0.25), ("smoothed@0.1", 0.1))}


def test_raw_test_rows_have_the_numbers_of_the_card(swept):
    folder, raw, classes = swept
    point = load(folder).pick().point
    predictor = smoothed_predictor(load_predictor(folder), seed=SEED)
    frame = predictor(read(predictor, raw))
    assert list(frame.columns) == COLUMNS
    assert shares(frame, classes) == {name: point.test[name] for name in ("smoothed@0.25", "smoothed@0.1")}
    counts = point.smoothed
    assert (frame["abstained"].sum(), (frame["class"] == classes).sum()) == (counts.abstained, counts.correct)
    assert 0 < counts.abstained < counts.correct < ROWS, "so that the numbers tell rows apart"
    assert frame["class"].isna().equals(frame["abstained"])
    assert (frame.loc[frame["abstained"], "smoothed_radius"] == 0).all()
    for name in ("sigma", "alpha", "draws"):
        assert set(frame[name]) == {getattr(counts, name)}
    assert set(frame["radius_unit"]) == {load(folder).front().claim.radius_unit}


def test_new_draws_have_the_numbers_of_the_card_up_to_chance(swept, tmp_path):
    folder, raw, classes = swept
    picked = load(folder).pick()
    picked.write(tmp_path / "picked", folder.parent)
    frames = [sweeper.predict(model, raw, smoothed=True) for model in (picked, folder, tmp_path / "picked")]
    for frame in frames:
        for name, share in shares(frame, classes).items():
            assert share == pytest.approx(picked.point.test[name], abs=0.15)
    assert not frames[0]["smoothed_radius"].equals(frames[1]["smoothed_radius"]), "each call draws anew"


def test_rows_that_are_not_prepared_have_other_numbers(images):
    folder, levels, classes = images
    predictor = smoothed_predictor(load_predictor(folder), seed=SEED)
    rows = read(predictor, levels)
    assert float(rows.x.min()) == -0.5
    assert shares(predictor(replace(rows, x=rows.x + 0.5)), classes) != shares(predictor(rows), classes)


def test_more_draws_prove_larger_radii_and_few_prove_none(images, monkeypatch):
    folder, levels, _ = images
    predictor = load_predictor(folder)
    monkeypatch.setattr(votes._Noisy, "_choose_reach", lambda *_: 0.0)  # with a Lipschitz constant few draws suffice
    rows, largest = read(predictor, levels[:20]), []
    for draws in (6, 100, 1000):
        found = smoothed_predictor(predictor, draws, seed=1)(rows)
        possible = 0.25 * quantile_below(lower_bound(draws, draws, 0.01))
        assert (found["draws"] == draws).all()
        assert (found["smoothed_radius"] <= max(possible, 0.0)).all()
        assert found["abstained"].all() == (possible <= 0.0)
        largest.append(found["smoothed_radius"].max())
    assert largest[0] == 0.0 < largest[1] < largest[2]


@pytest.mark.parametrize("gain", [1.0, 0.25, 4.0])
def test_noise_and_radii_are_in_the_units_of_the_rows(gain, monkeypatch):
    model = clipless.zoo.build("mlp", (30,), 1, input_norm=6.0, width=8, generator=torch.Generator().manual_seed(0))
    x, used = torch.rand(9, 30, generator=torch.Generator().manual_seed(1)), []
    monkeypatch.setattr(
        predict_smoothed, "certify_smoothed", lambda *given: used.append(given) or certify_smoothed(*given)
    )
    form = clipless.datasets.input_format("breast_cancer")
    found = SmoothedPredictor(Predictor(model, form, False), 0.1, 0.01, 200, 3)(NewRows(x, gain, "mm"))
    expected = certify_smoothed(model, x, Smoothing(sigma=0.1 * gain, alpha=0.01, draws=200, seed=3))
    assert [(given[0], given[2].sigma) for given in used] == [(model, 0.1 * gain)]
    rounding = 16 * 2.0**-24 * 30**0.5 * (x.amax(dim=1).double() + expected.radii).clamp(min=1.0)
    radii = (expected.radii - rounding).clamp(min=0.0) / gain
    np.testing.assert_allclose(found["smoothed_radius"], radii.numpy(), rtol=1e-12)
    assert (found["smoothed_radius"] > 0).any()
    assert (found["sigma"] == 0.1).all()
    classes = [None if k < 0 else form.classes[k] for k in expected.decided.tolist()]
    assert found["class"].tolist() == classes


def linear(border, gain):
    """A predictor of rows of one number, whose smoothed classifier is known: class b above the border."""
    dense = Dense(1, 2, bias=True, constraint=Free())
    with torch.no_grad():
        dense.weight.copy_(torch.tensor([[-0.5], [0.5]]))
        dense.bias.copy_(gain * torch.tensor([border / 2, -border / 2]))
    form = InputFormat(name="own", classes=("a", "b"), raw=Tensors((1,), 1e6, gain, "volts"))
    return Predictor(Network([InputBall(1e6), dense], (1,)), form, False)


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("gain", [0.5, 2.0])
def test_no_row_nearer_than_the_radius_gets_another_class(gain, bounded, monkeypatch):
    """The smoothed classifier of a linear one is itself: the radius of a row is at most its distance to the border."""
    if not bounded:
        monkeypatch.setattr(votes._Noisy, "_choose_reach", lambda *_: 0.0)
    inner = linear(0.3, gain)
    predictor = SmoothedPredictor(inner, 0.5, 0.001, 1000, 5)
    raw_N = torch.linspace(-1.0, 1.6, 40)
    found = predictor(NewRows((gain * raw_N)[:, None], gain, "volts"))
    truth_N, radii_N = (raw_N - 0.3).abs().double().numpy(), found["smoothed_radius"].to_numpy()
    decided = (~found["abstained"]).to_numpy()
    assert (radii_N <= truth_N).all()
    assert decided.sum() > 30
    assert (found["class"][decided] == np.where(raw_N > 0.3, "b", "a")[decided]).all()
    assert not bounded or (radii_N[truth_N > 0.4] > 0.75 * truth_N[truth_N > 0.4]).all(), "and not by much less"
    moved_N = raw_N.double().numpy() + np.where(raw_N > 0.3, -1, 1) * radii_N * (1 - 1e-6)
    again = inner(NewRows(torch.from_numpy(gain * moved_N)[:, None].float(), gain, "volts"))
    assert (again["class"][decided] == found["class"][decided]).all()


def test_attacked_rows_keep_the_class_of_the_vote(images):
    """Rows are moved by nearly their radius to where the model finds another class, and voted on again."""
    folder, levels, _ = images
    predictor = smoothed_predictor(load_predictor(folder), 400)
    rows = read(predictor, levels[:25])
    found = predictor(rows)
    radii_N, model = torch.tensor(found["smoothed_radius"].to_list()), predictor.predictor.model
    assert (radii_N > 0.1).sum() > 5
    x = rows.x.clone().requires_grad_()
    top = model(x).topk(2, dim=1).values
    (slope,) = torch.autograd.grad((top[:, 0] - top[:, 1]).sum(), x)
    steps = -0.999 * radii_N[:, None, None, None] * slope / slope.flatten(1).norm(dim=1)[:, None, None, None]
    again = predictor(replace(rows, x=rows.x + steps))
    both = ~(found["abstained"] | again["abstained"])
    assert both.sum() > 5
    assert (again["class"][both] == found["class"][both]).all()


def test_nothing_is_certified_of_rows_that_the_encoder_does_not_take():
    said, one = [], SmoothedPredictor(linear(0.3, 1.0), 0.5, 0.001, 200, 0)
    rows = NewRows(torch.tensor([[2.0], [2.0]]), 1.0, "volts", not_taken=torch.tensor([False, True]))
    found = one(rows, tell=said.append)
    assert (found["smoothed_radius"] > 0).tolist() == [True, False]
    assert "does not take 1 of 2 rows (the first is row 2)" in said[0]
    with pytest.warns(UserWarning, match="does not take 1 of 2 rows"):
        one(rows)


def test_a_seed_is_new_at_every_call_unless_it_is_given():
    one = SmoothedPredictor(linear(0.3, 1.0), 0.5, 0.001, 200)
    seeds = {one._smoothing(1.0).seed for _ in range(5)}
    assert len(seeds) == 5
    assert min(seeds) > 2**64
    assert {replace(one, seed=3)._smoothing(1.0).seed for _ in range(5)} == {3}


def test_what_has_no_smoothed_certificates_is_refused(images, tmp_path):
    with pytest.raises(RecordError, match="no draws without smoothed, got 10"):
        sweeper.predict(images[0], images[1], draws=10)
    assert set(sweeper.predict(images[0], images[1][:2], smoothed=True, draws=np.int64(30))["draws"]) == {30}
    for draws in (0, 10**8, 2.5, True):
        with pytest.raises(
            RecordError, match=f"whole number of draws from 1 to 10000000, got {re.escape(repr(draws))}"
        ):
            sweeper.predict(images[0], images[1], smoothed=True, draws=draws)
    with pytest.raises(RecordError, match=r"Expected rows of shape \(1, 8, 8\) for the model"):
        smoothed_predictor(load_predictor(images[0]))(NewRows(torch.zeros(1, 30), 1.0, "mm"))
    load(images[0]).pick().write(tmp_path / "picked")
    card = tmp_path / "picked" / "card.json"
    content = json.loads(card.read_text())
    card.write_text(json.dumps(content | {"smoothed": None}))
    assert len(sweeper.predict(tmp_path / "picked", images[1])) == ROWS
    with pytest.raises(RecordError, match=r"\(smoothed in card\.json\); add smoothed@R to search\.objectives"):
        sweeper.predict(tmp_path / "picked", images[1], smoothed=True)
    for change, words in (({"sigma": -1.0}, "0 < sigma"), ({"alpha": "little"}, r"smoothed\.alpha in .*card\.json")):
        card.write_text(json.dumps(content | {"smoothed": content["smoothed"] | change}))
        with pytest.raises(RecordError, match=f"{words}.*; take the model with sweeper pick again"):
            sweeper.predict(tmp_path / "picked", images[1], smoothed=True)


def test_the_command_says_what_the_predictions_are_of(images, table, tmp_path, call):
    np.savez(tmp_path / "new.npz", images[1][:3])
    code, printed, err = call("predict", images[0], tmp_path / "new.npz", "--smoothed")
    assert (code, printed.splitlines()[0]) == (0, ",".join(COLUMNS))
    assert len(printed.splitlines()) == 4
    assert err == (
        "Classes are those of the smoothed classifier, a vote under noise of sigma 0.25 over 100 draws; each row's "
        "certificate is wrong with probability 0.01 at most.\n"
    )
    table[1].assign(name=[f"p{i}" for i in range(ROWS)])[:4].to_csv(tmp_path / "new.csv", index=False)
    call(
        "predict", table[0], tmp_path / "new.csv", "--smoothed", "--draws", 40, "--id", "name", "-o", tmp_path / "p.csv"
    )
    back = pd.read_csv(tmp_path / "p.csv")
    assert list(back.columns) == ["name", *COLUMNS]
    assert (back["draws"] == 40).all()
    code, _, err = call("predict", images[0], tmp_path / "new.npz", "--draws", 40)
    assert (code, err.count("\n")) == (2, 1)
    assert "no draws without smoothed" in err
    code, printed, _ = call("pick", images[0], "-o", tmp_path / "picked", "--data-dir", tmp_path)
    assert code == 0
    assert "FILE; --smoothed: by the vote that smoothed@R is about" in printed


def test_radii_in_csv_are_rounded_down():
    frame = pd.DataFrame({"class": ["a"], "smoothed_radius": [0.2345678901], "sigma": [0.25]})
    text = sweeper.results.models.predict.predictions_as_csv(frame)
    assert text.splitlines()[1] == "a,0.234567,0.25"
