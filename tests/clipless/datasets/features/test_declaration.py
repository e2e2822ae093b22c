import json
from dataclasses import replace

import pytest

from clipless.datasets.features.declaration import KNOWN, Features, find_features, find_file, known_encoders
from clipless.errors import DataError

OWN = {"name": "tiny", "module": "a.b:c", "licence": "MIT", "pretrained_on": "ImageNet", "clip": 1.0}


def test_a_known_encoder_needs_its_name_and_takes_other_settings():
    assert known_encoders() == ("efficientnet-lite0", "wordllama")
    assert find_features("wordllama") == KNOWN["wordllama"]
    assert find_features("wordllama", clip=0.5, resize=None) == replace(KNOWN["wordllama"], clip=0.5)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"module": None},
            "the module or the file of the encoder 'tiny', got none: add it, or name efficientnet-lite0",
        ),
        ({"licence": None}, "licence of the encoder 'tiny', which the card states"),
        ({"pretrained_on": " "}, "pretrained_on of the encoder 'tiny', which the card states, got ' '"),
        ({"clip": None}, "the radius onto which longer features are scaled"),
        ({"clip": float("nan")}, "above 0 to 1e"),
        ({"clip": float("inf")}, "above 0 to 1e"),
        ({"resize": 5000}, "a side of 1 to 4096 pixels"),
        ({"mean": (float("nan"),)}, "finite numbers, got"),
        ({"std": (0.0,)}, "finite numbers > 0"),
        ({"sha256": "abc"}, "64 digits from 0 to f"),
        ({"module": "a.b"}, "package.module:function, got 'a.b'"),
        ({"module": "a b:c"}, "package.module:function"),
        ({"file": "a.onnx"}, "no module beside a.onnx"),
        ({"module": None, "file": "a.safetensors"}, "the module that the weights in a.safetensors are loaded into"),
        ({"module": None, "file": "a.pickle"}, "a file of .onnx, .safetensors, .pt"),
    ],
)
def test_what_a_declaration_lacks_is_said_in_one_sentence(change, sentence):
    with pytest.raises(DataError) as caught:
        find_features(**{**OWN, **change})
    assert sentence in str(caught.value)
    assert "data.features" in str(caught.value)


def test_it_is_written_as_json_and_read_back():
    one = find_features(**OWN, mean=(0.5,), std=(0.25,), resize=32, sha256="0" * 64)
    assert Features.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_its_file_is_found_beside_what_names_it(tmp_path):
    one = Features(**{**OWN, "module": None, "file": "/elsewhere/net.onnx"})
    assert find_file(one, tmp_path) == one
    (tmp_path / "net.onnx").touch()
    assert find_file(one, tmp_path).file == str(tmp_path / "net.onnx")
