import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import clipless
from clipless.datasets import InputFormat, input_format
from clipless.datasets.dataset import Blocks
from clipless.datasets.features.encode import OpenFeatures, encode
from clipless.datasets.metadata import in_feature_units
from clipless.datasets.tables.texts import decode_text, encode_texts
from clipless.errors import DataError
from sweeper.account.blocks import digest_dataset

from .conftest import Counted

RANGES = {
    "source": "made up",
    "target": {"column": "label", "classes": ["no", "yes"]},
    "columns": {"text": {"text": 40}, "person": {"drop": True}},
}


@pytest.fixture
def few():
    """A hundred digits."""
    data = clipless.datasets.load("digits")
    parts = {name: getattr(data, name).take(torch.arange(n)) for name, n in (("train", 60), ("validation", 20))}
    return replace(data, **parts, test=data.test.take(torch.arange(20)))


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    with (tmp_path / "t.csv").open("w", encoding="utf-8", newline="") as file:
        write = csv.writer(file)
        write.writerow(["text", "person", "label"])
        for i in range(120):
            letters = rng.choice(list("abcdefghé"), size=20)
            write.writerow(["".join(letters), f"p{i // 3}", ["no", "yes"][int((letters == "a").sum() > 2)]])
        write.writerow(["", "p999", "no"])
    (tmp_path / "ranges.yaml").write_text(json.dumps(RANGES))
    return {"source": tmp_path / "t.csv", "ranges": tmp_path / "ranges.yaml", "evaluation": "public"}


def test_examples_are_features_labels_and_splits_are_those_of_the_rows(declare, few):
    made = encode(few, declare())
    torch.testing.assert_close(made.train.x, _expected(few.train.x))
    assert torch.equal(made.train.y, few.train.y)
    assert made.raw is few
    assert made.metadata.input_shape == (6,)
    assert made.metadata.input_norm == pytest.approx(2.0)
    assert in_feature_units(made.metadata.radius_unit)
    assert not in_feature_units(few.metadata.radius_unit)


def test_features_stay_in_the_blocks_of_their_rows_and_have_their_digests(declare, few):
    codes = (torch.arange(len(part)) % 2 for part in (few.train, few.validation, few.test))
    cut = replace(few, blocks=Blocks("month", ("january", "february"), *codes))
    made = encode(cut, declare())
    assert made.blocks is cut.blocks
    assert digest_dataset(b"key", made) == digest_dataset(b"key", cut) != {}


def _expected(x):
    features = Counted(64)(x)
    return features * (2.0 / features.norm(dim=1, keepdim=True).clamp(min=2.0))


def test_the_card_says_what_was_taken_from_public_data_and_what_radii_are(declare, few):
    made = encode(few, declare())
    fact = made.metadata.public_facts[-1]
    for text in ("tiny (MIT; SHA-256 ", "trained on nothing", "scaled to norm 2"):
        assert text in fact
    assert any("in feature units" in text and "pixels" in text for text in made.metadata.conditions)
    assert any("not protected" in text for text in made.metadata.conditions)


def test_one_row_more_changes_no_other_row(declare, few):
    fewer = replace(few, train=few.train.take(torch.arange(1, 60)))
    assert torch.equal(encode(few, declare()).train.x[1:], encode(fewer, declare()).train.x)


def test_features_are_computed_once_for_all_sweeps_on_the_same_rows(declare, few, cache):
    first, before = encode(few, declare()), Counted.rows
    second = encode(few, declare())
    assert Counted.rows - before < 100
    assert torch.equal(first.train.x, second.train.x)
    assert len(list(cache.iterdir())) == 3  # a file for each split
    torch.testing.assert_close(encode(few, declare("other")).test.x[0], 2.0 * _unit(Counted(64, seed=1), few))
    before = Counted.rows
    encode(few, declare("dense", cache=False))
    assert Counted.rows - before >= 100
    assert len(list(cache.iterdir())) == 6


def test_splits_that_were_encoded_before_an_end_are_kept(declare, few, monkeypatch):
    class Ended(BaseException):
        pass

    encoded = OpenFeatures.encode

    def end(opened, rows):
        if len(rows) == len(few.validation):
            raise Ended
        return encoded(opened, rows)

    with monkeypatch.context() as ended:
        ended.setattr(OpenFeatures, "encode", end)
        with pytest.raises(Ended):
            encode(few, declare())
    before = Counted.rows
    encode(few, declare())
    assert Counted.rows - before < len(few.train)


def _unit(module, few):
    features = module(few.test.x[:1])[0]
    return features / features.norm()


def test_an_account_knows_rows_whatever_encoder_they_go_through(declare, few):
    key = b"k" * 32
    one, other = (encode(few, declare(name)) for name in ("dense", "other"))
    assert digest_dataset(key, few) == digest_dataset(key, one) == digest_dataset(key, other)
    assert digest_dataset(key, replace(one, raw=None)) != digest_dataset(key, few)


def test_units_keep_their_rows(declare, table):
    made = clipless.datasets.load(**table, unit="person", features=declare("letters"))
    plain = clipless.datasets.load(**table, features=declare("letters"))
    assert len(made.train) < len(plain.train)
    assert int(made.train.offsets[-1]) == len(made.train.x)
    assert made.metadata.unit == "person"


def test_texts_become_bytes_and_texts_again():
    texts = ["", None, "abc", "żółw " * 3, "x" * 50, "a\0b"]
    rows = torch.from_numpy(encode_texts(texts, 12))
    assert [decode_text(row) for row in rows] == ["", "", "abc", "żółw żó", "x" * 12, "ab"]


def test_a_table_of_texts_needs_an_encoder_and_no_other_column(table, declare, tmp_path):
    with pytest.raises(DataError, match="Expected an encoder for the texts of t, got none"):
        clipless.datasets.load(**table)
    columns = {"text": {"text": 40}, "person": {"categories": ["p1"]}}
    (tmp_path / "ranges.yaml").write_text(json.dumps(RANGES | {"columns": columns}))
    with pytest.raises(DataError, match=r"Expected no other column beside the text 'text'.*got 'person'"):
        clipless.datasets.load(**table, features=declare("letters"))


def test_no_row_decides_whether_the_others_are_encoded(declare, table, encoders, tmp_path):
    """A row that an encoder does not take, or answers with another shape, has zeros as its features."""

    class Fastidious(nn.Module):
        def forward(self, texts):
            (text,) = texts
            if "!" in text:
                raise IndexError(text)
            if "?" in text:
                return torch.ones(1, 3)
            return "no tensor" if "#" in text else torch.tensor([[float(ord(text[:1] or "a")), 1.0]])

    plain = clipless.datasets.load(**table, features=declare("letters"))
    encoders.fastidious = lambda: Fastidious().eval()
    with (tmp_path / "t.csv").open("a", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([[f"odd {mark}", "p", "no"] for mark in "!?#" for _ in range(20)])
    data = clipless.datasets.load(**table, features=declare("fastidious"))
    assert len(data.train) > len(plain.train)
    for made, raw in ((data.train, data.raw.train), (data.test, data.raw.test)):
        odd = torch.tensor([decode_text(row).startswith("odd") for row in raw.x])
        assert odd.any()
        assert (made.x[odd] == 0).all()
        assert (made.x[~odd] != 0).all()


def test_new_rows_that_the_encoder_does_not_take_are_named(encoders, declare):
    class Finicky(nn.Module):
        def forward(self, x):
            x = x.flatten(1)
            if float(x.max()) == 1.0:
                raise ValueError
            return x if float(x.sum()) else torch.log(x)

    encoders.finicky = lambda: Finicky().eval()
    form = input_format("digits", features=declare("finicky"))
    levels = np.full((4, 8, 8), 8, dtype=np.uint8)
    levels[1, 0, 0], levels[3] = 16, 0
    rows = form.of_array(levels)
    assert rows.not_taken.tolist() == [False, True, False, True]  # one raises, the other is -inf
    assert (rows.x.norm(dim=1) > 0).tolist() == [True, False, True, False]
    assert form.of_array(levels[[0, 2]]).not_taken is None


@pytest.mark.parametrize("length", [0, 100_001, "many", True])
def test_the_length_of_texts_is_declared(table, length, tmp_path):
    columns = {**RANGES["columns"], "text": {"text": length}}
    (tmp_path / "ranges.yaml").write_text(json.dumps(RANGES | {"columns": columns}))
    with pytest.raises(DataError, match=r"columns.text(.text)? in ranges.yaml"):
        clipless.datasets.load(**table)


def test_features_go_beside_no_other_preparation(declare):
    prepared = clipless.datasets.Preparation(normalise=1.0)
    with pytest.raises(DataError, match="Expected no colour, centre or normalise beside features"):
        clipless.datasets.load("digits", features=declare(), preparation=prepared)


def test_new_rows_have_the_features_of_training(declare, table):
    data = clipless.datasets.load(**table, features=declare("letters"))
    form = input_format(**table, features=declare("letters"))
    form = InputFormat.from_json(json.loads(json.dumps(form.to_json())), "data.json")
    assert len(form.features.sha256) == 64
    raw = data.raw.test.x
    rows = form.of_columns({"text": [decode_text(row) for row in raw]})
    assert torch.equal(rows.x, data.test.x)
    assert torch.equal(rows.raw, raw), "by which an account knows them"
    assert (rows.input_gain, rows.radius_unit) == (1.0, data.metadata.radius_unit)


def test_new_rows_of_pictures_go_through_the_encoder_too(declare, few):
    form = input_format("digits", features=declare())
    levels = (few.test.x[:, 0] * 16).round().numpy().astype(np.uint8)
    assert torch.equal(form.of_array(levels).x, encode(few, declare()).test.x)


def test_new_rows_are_refused_where_the_encoder_is_another_one(encoders, declare, few):
    form = input_format("digits", features=declare())
    encoders.dense = encoders.other
    changed = replace(form, features=replace(form.features, clip=3.0))  # not the one that is open
    with pytest.raises(DataError, match="Expected the encoder 'tiny' with SHA-256"):
        changed.of_array((few.test.x[:, 0] * 16).numpy().astype(np.uint8))
