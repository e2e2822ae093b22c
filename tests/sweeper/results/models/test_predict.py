"""Predictions of a picked model: the scores of its point, certified radii, and what is refused."""

import json
import re
import shutil
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import clipless
import sweeper
from clipless.datasets import InputFormat, NewRows, Ranges, find_features, input_format
from clipless.datasets.raw_rows import Tensors
from clipless.datasets.tables.declarations import Numeric
from clipless.errors import CliplessError, DataError
from clipless.layers import Dense, InputBall
from clipless.network import Network
from sweeper.cli.commands import models
from sweeper.errors import PickError, RecordError
from sweeper.papers.files import MODEL_NAME
from sweeper.results.models import predict
from sweeper.results.models.predict import Predictor, load_predictor, temperature_of, write_predictions
from sweeper.results.models.registry import ARTIFACT, make_served_model
from sweeper.results.sweep import load
from sweeper.specification.spec import Spec
from sweeper.store.input_format import DATA_NAME, input_of_sweep, read_input, write_input


@pytest.fixture(scope="module")
def picked(ran, tmp_path_factory):
    """What ``sweeper pick`` writes."""
    folder = tmp_path_factory.mktemp("picked")
    assert load(ran.folder).pick().write(folder) is None
    return folder


def table_format(folder, content):
    """The format of a table with one column, which a spec describes."""
    (folder / "mine.csv").write_text("age,left\n1,no\n2,yes\n", encoding="utf-8")
    declared = 'source: s\ntarget: {column: left, classes: ["no", "yes"]}\nothers: {low: 0, high: 9}\n'
    (folder / "r.yaml").write_text(declared, encoding="utf-8")
    content["data"] = {"path": "mine.csv", "ranges": "r.yaml", "evaluation": "exploratory"}
    return input_format(**Spec.from_mapping(content, source=str(folder / "spec.yaml")).data_options())


def levels(split):
    return (split.x[:, 0] * 16).round().to(torch.uint8).numpy()


def test_predictions_have_the_scores_of_the_picked_point(ran, picked, digits):
    predictor = load_predictor(picked)
    frame = predictor(predictor.form.of_array(levels(digits.validation)))
    right = frame["class"].astype(int).to_numpy() == digits.validation.y.numpy()
    values = load(ran.folder).pick().point.values
    assert right.mean() == pytest.approx(values["accuracy"])
    assert (right & (frame["certified_radius"] > 0.25)).mean() == pytest.approx(values["certified@0.25"])
    assert set(frame["radius_unit"]) == {"pixels in [0, 1]"}
    scores = frame[[f"score {name}" for name in digits.metadata.classes]].to_numpy()
    assert scores.dtype == np.float64
    assert (scores.argmax(axis=1).astype(str) == frame["class"]).all()
    assert not predictor.exploratory


def test_a_sweep_predicts_like_the_model_that_is_picked_from_it(ran, picked, digits):
    rows = levels(digits.test)[:20]
    limit = min(point.values["epsilon"] for point in load(ran.folder).front().front_points)
    frames = [
        (p := load_predictor(source))(p.form.of_array(rows)) for source in (ran.folder, picked / "model.safetensors")
    ]
    pd.testing.assert_frame_equal(*frames)
    cheap, is_best = (
        load_predictor(ran.folder, max_epsilon=limit),
        limit == load(ran.folder).pick().point.values["epsilon"],
    )
    assert cheap(cheap.form.of_array(rows)).equals(frames[0]) == is_best


def test_radii_are_in_raw_units_and_one_logit_has_two_scores():
    generator = torch.Generator().manual_seed(0)
    model = clipless.zoo.build("mlp", (30,), 1, input_norm=6.0, width=8, generator=generator)
    form = input_format("breast_cancer")
    x = torch.rand(9, 30, generator=generator)
    narrow, wide = (Predictor(model, form, True)(NewRows(x, gain, "mm")) for gain in (1.0, 0.5))
    np.testing.assert_allclose(wide["certified_radius"], 2 * narrow["certified_radius"])
    assert (narrow["score benign"] == 0).all()
    assert ((narrow["score malignant"] > 0) == (narrow["class"] == "malignant")).all()
    decided = torch.tensor((narrow["class"] == "malignant").to_numpy(dtype=np.int64))
    expected = clipless.certify(model, x, decided)
    reach = (x.amax(dim=1).double() + expected).clamp(min=1.0)
    np.testing.assert_allclose(narrow["certified_radius"], expected - 16 * 2.0**-24 * 30**0.5 * reach)


def test_a_radius_is_less_by_what_its_largest_coordinate_rounds():
    model = clipless.zoo.build("mlp", (30,), 1, input_norm=6.0, width=8, generator=torch.Generator().manual_seed(0))
    x = torch.linspace(0.1, 0.9, 30).expand(2, 30).clone()
    x[1, 0] = -1000.0  # of a large centre
    decided = (clipless.certificates.certify.float64_logits(model, x)[:, 0] > 0).long()
    exact = clipless.certify(model, x, decided).numpy()
    found = Predictor(model, input_format("breast_cancer"), True)(NewRows(x, 1.0, "mm"))["certified_radius"]
    reach = np.array([0.9, 1000.0]) + exact  # of a coordinate of a neighbour
    assert exact - found.to_numpy() == pytest.approx(16 * 2.0**-24 * 30**0.5 * np.maximum(reach, 1.0), rel=1e-6)


def test_a_radius_holds_for_neighbours_with_larger_coordinates():
    form = InputFormat(name="own", classes=("a", "b"), raw=Tensors((1,), 1e4, 1.0, "volts"))
    rng = np.random.default_rng(0)
    for weight, bias in ((0.003, 0.9), (0.01, 0.71), (0.03, 0.55)):
        dense = Dense(1, 1, bias=True)
        with torch.no_grad():
            dense.weight.fill_(weight)
            dense.bias.fill_(bias)
        predictor = Predictor(Network([InputBall(1e4), dense], (1,)), form, False)
        rows = rng.uniform(-1.0, 1.0, (40, 1)).astype(np.float32).astype(np.float64)
        found = predictor(form.of_array(rows))
        moved = rows - (found["certified_radius"].to_numpy() * (1.0 - 1e-12))[:, None]
        assert (predictor(form.of_array(moved))["class"] == found["class"]).all()
        assert (found["class"] == "b").all()
        beyond = rows - (found["certified_radius"].to_numpy() * 1.001)[:, None]
        assert (predictor(form.of_array(beyond))["class"] == "a").all(), "and no farther"


def test_a_radius_holds_for_rows_that_are_encoded_again():
    rng = np.random.default_rng(0)
    columns = {"a": Numeric(low=0.0, high=1.0)}
    form = InputFormat(
        name="t", classes=("0", "1"), raw=Ranges(name="r", source="x", target="y", classes=None, columns=columns)
    )
    flips = near = 0
    for border in rng.uniform(-0.9, 0.9, 20):
        dense = Dense(1, 2, bias=True)
        with torch.no_grad():
            dense.weight.copy_(torch.tensor([[-0.5], [0.5]]))
            dense.bias.copy_(torch.tensor([border / 2, -border / 2]))
        predictor = Predictor(Network([InputBall(1.0), dense], (1,)), form, False)
        cells = np.append(rng.uniform(0.0, 1.0, 50), (border + 1) / 2 + rng.uniform(-1e-6, 1e-6, 50))
        found = predictor(form.of_columns({"a": cells}))
        radii = found["certified_radius"].to_numpy()
        near += ((radii > 0.0) & (radii < 1e-5)).sum()
        for sign in (-1, 1):
            moved = np.clip(cells + sign * radii / 2 * (1 - 1e-12), 0.0, 1.0)  # columns are scaled to [-1, 1]
            flips += (predictor(form.of_columns({"a": moved}))["class"] != found["class"])[radii > 0].sum()
    assert (flips, near > 10) == (0, True)


def test_probabilities_are_what_a_cross_entropy_fits_and_other_losses_have_none():
    generator = torch.Generator().manual_seed(0)
    form, x = input_format("breast_cancer"), torch.rand(9, 30, generator=generator)
    model = clipless.zoo.build("mlp", (30,), 1, input_norm=6.0, width=8, generator=generator)
    found = Predictor(model, form, True, 0.25)(NewRows(x, 1.0, "mm"))
    expected = torch.sigmoid(torch.tensor(found["score malignant"].to_numpy()) / 0.25).numpy()
    np.testing.assert_allclose(found["probability malignant"], expected, rtol=1e-12)
    np.testing.assert_allclose(found["probability benign"] + found["probability malignant"], 1.0)
    assert ((found["probability malignant"] > 0.5) == (found["class"] == "malignant")).all()
    assert not any("probability" in name for name in Predictor(model, form, True)(NewRows(x, 1.0, "mm")))
    assert temperature_of({"training": {"loss": {"name": "hinge", "temperature": 0.5}}}) is None
    assert temperature_of({}) is None


def test_columns_that_tell_rows_apart_are_kept(tmp_path, content):
    form = table_format(tmp_path, content)
    (tmp_path / "new.csv").write_text("patient,age\np7,1\np3,2\n", encoding="utf-8")
    with pytest.raises(DataError, match="Expected only columns that the model was trained with, got 'patient'"):
        form.read(tmp_path / "new.csv")
    rows = form.read(tmp_path / "new.csv", ids=["patient", "age"])
    assert {name: list(cells) for name, cells in rows.ids.items()} == {"patient": ["p7", "p3"], "age": ["1", "2"]}
    torch.testing.assert_close(rows.x, form.read(tmp_path / "new.csv", ids=["patient"]).x)
    model = clipless.zoo.build("mlp", tuple(rows.x.shape[1:]), 2, input_norm=6.0, width=8)
    found = Predictor(model, form, True, 1.0)(rows)
    assert list(found.columns)[:3] == ["patient", "age", "class"]
    assert list(found["patient"]) == ["p7", "p3"]
    with pytest.raises(DataError, match="Expected the column 'nobody' in new"):
        form.read(tmp_path / "new.csv", ids=["nobody"])
    (tmp_path / "new.csv").write_text("class,age\np7,1\n", encoding="utf-8")
    with pytest.raises(RecordError, match="none of the predictions', got 'class'"):
        Predictor(model, form, True)(form.read(tmp_path / "new.csv", ids=["class"]))


def test_a_row_without_finite_scores_has_no_class_and_no_radius(picked, digits, monkeypatch):
    logits = torch.full((2, 10), 5.0, dtype=torch.float64)
    logits[1, 3], logits[0, 7] = float("nan"), 9.0
    monkeypatch.setattr(predict, "float64_logits", lambda *_, **__: logits)
    frame = load_predictor(picked)(NewRows(digits.test.x[:2], 1.0, "pixels"))
    assert frame["class"].tolist() == ["7", None]
    assert frame["certified_radius"][0] > frame["certified_radius"][1] == 0


class Finicky(nn.Module):
    """An encoder that raises on pictures with the highest level."""

    def forward(self, x):
        if float(x.max()) == 1.0:
            raise ValueError
        return x.flatten(1)


@pytest.fixture
def behind_finicky(monkeypatch, tmp_path):
    """What ``sweeper pick`` writes of a model behind `Finicky`."""
    made = ModuleType("finicky_encoder")
    made.make = lambda: Finicky().eval()
    monkeypatch.setitem(sys.modules, "finicky_encoder", made)
    declared = {"module": "finicky_encoder:make", "licence": "MIT", "pretrained_on": "nothing", "clip": 4.0}
    generator = torch.Generator().manual_seed(0)
    folder = tmp_path / "finicky"
    folder.mkdir()
    clipless.save(
        clipless.zoo.build("mlp", (64,), 10, input_norm=4.0, width=8, generator=generator), folder / MODEL_NAME
    )
    write_input(folder, input_format("digits", features=find_features("finicky", **declared)))
    (folder / "card.json").write_text('{"exploratory": false}')
    return folder


def test_rows_that_the_encoder_does_not_take_are_counted(behind_finicky, tmp_path, call):
    levels = np.full((5, 8, 8), 8, dtype=np.uint8)
    levels[[1, 4], 0, 0] = 16
    said = (
        "The encoder 'finicky' does not take 2 of 5 rows (the first is row 2): they are predicted from zeros, as in "
        "training, and their certified radius is 0."
    )
    with pytest.warns(UserWarning, match=re.escape(said)):
        frame = sweeper.predict(behind_finicky, levels)
    assert (frame["certified_radius"] > 0).tolist() == [True, False, True, True, False]
    assert frame["class"].notna().all()
    served = make_served_model()
    served.load_context(SimpleNamespace(artifacts={ARTIFACT: str(behind_finicky)}))
    with pytest.warns(UserWarning, match=re.escape(said)):
        pd.testing.assert_frame_equal(served.predict(None, levels), frame)
    np.savez(tmp_path / "new.npz", levels)
    code, printed, err = call("predict", behind_finicky, tmp_path / "new.npz")
    assert (code, err) == (0, said + "\n")
    assert len(printed.splitlines()) == 6
    sweeper.predict(behind_finicky, levels[:1])  # which says nothing


def test_no_radius_is_certified_of_a_row_that_the_encoder_does_not_take_whatever_the_model_says(behind_finicky):
    predictor, said = load_predictor(behind_finicky), []
    rows = predictor.form.of_array(np.full((2, 8, 8), 8, dtype=np.uint8))
    assert (predictor(rows)["certified_radius"] > 0).all()
    found = predictor(replace(rows, not_taken=torch.tensor([False, True])), tell=said.append)
    assert (found["certified_radius"] > 0).tolist() == [True, False]
    assert "1 of 2 rows (the first is row 2)" in said[0]


def test_the_wrong_model_for_the_rows_is_refused(picked):
    predictor = load_predictor(picked)
    with pytest.raises(RecordError, match=r"Expected rows of shape \(1, 8, 8\) for the model, got \(30,\)"):
        predictor(NewRows(torch.zeros(1, 30), 1.0, "mm"))


def test_what_cannot_be_loaded_is_refused(ran, picked, tmp_path):
    with pytest.raises(RecordError, match="picked already"):
        load_predictor(picked, max_epsilon=3.0)
    with pytest.raises(RecordError, match="Expected the folder of a sweep, or one that sweeper pick wrote"):
        load_predictor(tmp_path / "nowhere")
    shutil.copy(picked / "model.safetensors", tmp_path)
    with pytest.raises(RecordError, match=r"data\.json, which .*; take the model with sweeper pick"):
        load_predictor(tmp_path)
    with pytest.raises(PickError):
        load_predictor(ran.folder, max_epsilon=1e-6)


def test_predictions_are_written_as_the_suffix_says(tmp_path):
    kept, radii = {"weight": [0.1234567890123, 2.0]}, {"certified_radius": [0.2345678901, 0.0]}
    frame = pd.DataFrame({**kept, "class": ["a", None], "score a": [0.1 + 0.2, -1 / 3], **radii})
    few = ([0.3, -0.333333], [0.234567, 0.0])  # a radius is never rounded up
    for suffix, read, shown in ((".csv", pd.read_csv, few), (".parquet", pd.read_parquet, None)):
        write_predictions(frame, tmp_path / f"p{suffix}")
        back = read(tmp_path / f"p{suffix}")
        scores, ends = shown or (frame["score a"].tolist(), frame["certified_radius"].tolist())
        assert (back["score a"].tolist(), back["certified_radius"].tolist()) == (scores, ends)
        assert back["weight"].tolist() == kept["weight"]
        assert back["class"].isna().tolist() == [False, True]
    with pytest.raises(RecordError, match=r"ends in \.csv or \.parquet, got .*p\.txt \(--output\)"):
        write_predictions(frame, tmp_path / "p.txt")
    with pytest.raises(RecordError, match="Cannot write"):
        write_predictions(frame, tmp_path / "no" / "p.csv")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_predictions_replace_no_table_but_earlier_ones(tmp_path, suffix):
    path = tmp_path / f"rows{suffix}"
    rows = pd.DataFrame({"id": [1, 2], "age": [3, 4], "label": ["a", "b"]})
    rows.to_csv(path, index=False) if suffix == ".csv" else rows.to_parquet(path, index=False)
    frame = pd.DataFrame({"class": ["a"], "score a": [0.5], "certified_radius": [0.1], "radius_unit": ["pixels"]})
    with pytest.raises(RecordError, match=r"got .*rows.* with age, id, label \(--output\); name another, or remove it"):
        write_predictions(frame, path)
    path.unlink()
    write_predictions(frame, path)
    write_predictions(frame.assign(id=[7]), path)
    (tmp_path / "sweep.json").touch()
    with pytest.raises(RecordError, match=r"which the sweep in its folder keeps \(--output\)"):
        write_predictions(frame, tmp_path / "front.csv")


def test_predictions_never_replace_the_rows_that_they_are_of(tmp_path):
    rows, link = tmp_path / "rows.csv", tmp_path / "link.csv"
    rows.write_text("a\n1\n")
    link.symlink_to(rows)
    for output in (rows, link):
        with pytest.raises(RecordError, match=r"another file than that of the rows, got .*: it would replace them"):
            models.predict(tmp_path, rows, output=output)
    with pytest.raises(RecordError, match=r"ends in \.csv or \.parquet"):
        models.predict(tmp_path, rows, output=tmp_path / "p.txt")
    assert rows.read_text() == "a\n1\n"


# data.json


def test_the_sweeps_own_data_json_comes_first(ran, tmp_path):
    manifest = load(ran.folder).manifest()
    assert input_of_sweep(tmp_path, manifest) == input_format("digits")
    write_input(tmp_path, input_format("mnist"))
    assert input_of_sweep(tmp_path, manifest) == input_format("mnist") == read_input(tmp_path)


def test_data_that_are_gone_are_an_error_that_picking_survives(ran, tmp_path, content):
    folder = tmp_path / "sweep"
    shutil.copytree(ran.folder, folder, ignore=shutil.ignore_patterns("ray", "mlflow*", "*.html", DATA_NAME))
    content["data"] = {"path": "gone.csv", "ranges": "gone.yaml", "evaluation": "exploratory"}
    info = json.loads((folder / "sweep.json").read_text()) | {"spec": content}
    (folder / "sweep.json").write_text(json.dumps(info))
    with pytest.raises(DataError, match=r"Cannot find how the rows of .* name the data with --data-dir"):
        load(folder).input_format()
    assert "gone.csv" in load(folder).pick().write(tmp_path / "taken")
    assert (tmp_path / "taken" / "model.safetensors").is_file()
    assert not (tmp_path / "taken" / DATA_NAME).exists()


def test_a_spec_of_a_table_is_described_from_its_schema(content, tmp_path):
    assert list(table_format(tmp_path, content).raw.columns) == ["age"]
    content["data"]["centre"] = 0.5
    assert input_format(
        **Spec.from_mapping(content, source=str(tmp_path / "spec.yaml")).data_options()
    ).preparation.centre == (0.5,)
    with pytest.raises(CliplessError, match="No such file"):
        input_format(**Spec.from_mapping(content, source="elsewhere/spec.yaml").data_options())


def test_a_table_is_found_again_in_the_folder_that_is_named(ran, content, tmp_path):
    table_format(tmp_path, content)
    manifest = replace(load(ran.folder).manifest(), spec=content, source="gone/spec.yaml")
    with pytest.raises(DataError, match="--data-dir"):
        input_of_sweep(tmp_path, manifest)
    assert input_of_sweep(tmp_path, manifest, tmp_path).classes == ("no", "yes")


# The command


def test_the_command_prints_or_writes(picked, digits, tmp_path, call):
    np.savez(tmp_path / "new.npz", levels(digits.test)[:3])
    code, printed, _ = call("predict", picked, tmp_path / "new.npz")
    assert code == 0
    assert printed.splitlines()[0].startswith("class,score 0,")
    assert len(printed.splitlines()) == 4
    call("predict", picked, tmp_path / "new.npz", "--output", tmp_path / "p.csv")
    assert (tmp_path / "p.csv").read_text() == printed
    code, _, err = call("predict", picked, tmp_path / "gone.npz")
    assert (code, err.count("\n")) == (2, 1)
