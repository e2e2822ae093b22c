"""Another encoder is known by what it computes, where its weights say nothing."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import clipless
from clipless.datasets import InputFormat, input_format
from clipless.datasets.features.encode import NO_WEIGHTS, _open, encode, open_features
from clipless.datasets.features.encoders import RowKind
from clipless.datasets.features.fingerprint import check_fingerprint, fingerprint_of, make_fixed_rows
from clipless.errors import DataError

from .conftest import NUMBERS, PICTURES, Counted

TEXTS = RowKind("letters", (40,), "bytes of text")
OTHER = "Expected the encoder 'tiny' that was recorded, got one with other features of the same made-up rows"


class Bare(nn.Module):
    """A module without weights."""

    def __init__(self, sign):
        super().__init__()
        self.sign = sign

    def forward(self, x):
        return torch.tanh(self.sign * x.flatten(1))


class Turned(Counted):
    """The weights of `Counted` and other code."""

    def forward(self, x):
        return super().forward(-x)


LEVELS = np.zeros((1, 8, 8), dtype=np.uint8)


def recorded_format(declared):
    """The format of digits behind an encoder, as ``data.json`` has it; nothing stays open."""
    form = input_format("digits", features=declared)
    _open.cache_clear()
    return InputFormat.from_json(json.loads(json.dumps(form.to_json())), "data.json")


@pytest.mark.parametrize(
    ("before", "after"),
    [(lambda: Bare(1.0), lambda: Bare(-1.0)), (lambda: Counted(64), lambda: Turned(64))],
    ids=["no weights", "the same weights"],
)
def test_an_encoder_whose_code_has_changed_is_refused(encoders, declare, before, after):
    encoders.coded = lambda: before().eval()
    form = recorded_format(declare("coded"))
    assert form.of_array(LEVELS).x.shape[0] == 1  # the same one is taken
    encoders.coded = lambda: after().eval()
    _open.cache_clear()
    assert open_features(declare("coded"), PICTURES).encoder.features.sha256 == form.features.sha256
    with pytest.raises(DataError, match=OTHER):
        form.of_array(LEVELS)


def test_so_is_one_whose_weights_are_a_file(encoders, declare, tmp_path):
    save_file(Counted(64).state_dict(), tmp_path / "w.safetensors")
    form = recorded_format(declare(file=str(tmp_path / "w.safetensors"), module="tiny_encoders:dense"))
    encoders.dense = lambda: Turned(64).eval()
    with pytest.raises(DataError, match=OTHER):
        form.of_array(LEVELS)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_file_of_torchscript_has_its_digest_alone(declare, tmp_path):
    path = tmp_path / "net.pt"
    torch.jit.trace(nn.Sequential(nn.Flatten(), Counted(64).dense).eval(), torch.zeros(1, 1, 8, 8)).save(path)
    assert input_format("digits", features=declare(file=str(path))).features.fingerprint == ()


def test_where_nothing_was_recorded_nothing_is_compared(encoders, declare):
    form = recorded_format(declare())
    assert len(form.features.fingerprint) == 20
    content = form.to_json()
    del content["features"]["fingerprint"]
    older = InputFormat.from_json(content, "data.json")
    assert older.features == replace(form.features, fingerprint=())
    encoders.dense = lambda: Turned(64).eval()
    older.of_array(LEVELS)


def test_one_encoder_is_the_same_however_it_rounds(declare):
    generator = torch.Generator().manual_seed(3)
    features = torch.randn(5, 300, generator=generator).relu()

    def with_features(values):
        return replace(declare(), fingerprint=fingerprint_of(values))

    own = with_features(features)
    for _ in range(20):
        check_fingerprint(own, with_features(features * (1 + 1e-5 * torch.randn(5, 300, generator=generator))))
    for other in (1.02 * features, -features, features.flip(1), features.flip(0), features[:, :-20], 0 * features):
        with pytest.raises(DataError, match=OTHER):
            check_fingerprint(own, with_features(other))
    check_fingerprint(with_features(0 * features), with_features(0 * features))


def test_fixed_rows_and_sums_stay_as_they_are():
    """Sweeps have recorded what came of them."""
    assert make_fixed_rows(NUMBERS)[1, :3].tolist() == pytest.approx(np.cos([2.0, 4.0, 6.0]).tolist())
    pictures = make_fixed_rows(PICTURES)
    assert pictures.shape == (5, 1, 8, 8)
    assert pictures[2, 0, 1, :2].tolist() == pytest.approx(((1 + np.cos([27.0, 30.0])) / 2).tolist(), abs=1e-6)
    assert 0 <= pictures.min() < pictures.max() <= 1
    assert make_fixed_rows(TEXTS).sum(dim=1).tolist() == [0, 97, 1611, 4762, 4748]
    expected = [row * (np.cos(k) - np.cos(2 * k)) for row in (1.0, 10.0) for k in (1, 2, 3, 4)]
    assert fingerprint_of(torch.tensor([[1.0, -1.0], [10.0, -10.0]])) == pytest.approx(expected, rel=1e-6)


def test_the_card_says_that_the_digest_is_that_of_nothing(encoders, declare):
    data = clipless.datasets.load("digits")
    encoders.bare = lambda: Bare(1.0).eval()
    assert NO_WEIGHTS.format(name="tiny") in encode(data, declare("bare", cache=False)).metadata.conditions
    assert NO_WEIGHTS.format(name="tiny") not in encode(data, declare(cache=False)).metadata.conditions
