import hashlib
import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from clipless.datasets.features.encoders import clip_features, open_encoder
from clipless.errors import DataError

from .conftest import NUMBERS, PICTURES, Counted

TEXTS = PICTURES.__class__("letters", (40,), "bytes of text")


@pytest.fixture
def picture():
    return torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(0))


def test_features_are_those_of_the_module_and_no_longer_than_the_radius(declare, picture):
    encoder = open_encoder(declare(clip=1e6), PICTURES)
    expected = Counted(64)(picture[None])[0]
    torch.testing.assert_close(encoder(picture), expected)
    short = open_encoder(declare(clip=0.5), PICTURES)(picture)
    torch.testing.assert_close(short, 0.5 * expected / expected.norm())


@pytest.mark.parametrize("scale", [1e-30, 1.0, 3.0, 1e30, 3e38])
def test_no_features_exceed_the_radius(scale):
    rows = torch.randn(200, 50, generator=torch.Generator().manual_seed(0)).clamp(-1, 1) * scale
    norms = torch.stack([clip_features(row, 2.0) for row in rows]).double().norm(dim=1)
    assert norms.max() <= 2.0 * (1 + 1e-6)
    assert norms.min() > 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_features_that_are_not_finite_are_zeros(bad):
    assert clip_features(torch.tensor([1.0, bad, 3.0]), 2.0).tolist() == [0.0, 0.0, 0.0]


def test_equal_rows_have_equal_features_wherever_they_stand(declare):
    """A dense layer rounds a row of 13 numbers by its address, in four ways."""
    encoder = open_encoder(declare("narrow"), NUMBERS)
    for seed in range(20):
        row = torch.randn(13, generator=torch.Generator().manual_seed(seed))
        found = {encoder(rows).numpy().tobytes() for rows in row.repeat(16, 1)}
        assert len(found) == 1


def test_a_row_goes_through_alone_in_memory_of_its_own(encoders, declare):
    """Its batch is one row that begins at a boundary of a vector, whatever row it is of how many."""
    seen = []

    class Watching(nn.Module):
        def forward(self, x):
            seen.append((len(x), x.data_ptr() % 64, x.is_contiguous()))
            return x.flatten(1)

    encoders.watching = lambda: Watching().eval()
    encoder = open_encoder(declare("watching"), NUMBERS)
    for row in torch.randn(9, 13):
        encoder(row)
    assert set(seen) == {(1, 0, True)}


def test_pictures_are_resized_and_normalised(encoders, declare, picture):
    class Seen(nn.Module):
        def forward(self, x):
            return torch.tensor([[*x.shape[1:], float(x.mean()), float(x.std())]])

    encoders.seen = lambda: Seen().eval()
    plain = open_encoder(declare("seen", clip=1e3), PICTURES)(picture)
    changed = open_encoder(declare("seen", clip=1e3, resize=16, mean=(0.5,), std=(0.25,)), PICTURES)(picture)
    assert plain[:3].tolist() == [1, 8, 8]
    assert changed[:3].tolist() == [1, 16, 16]
    assert changed[3].item() == pytest.approx((plain[3].item() - 0.5) / 0.25, abs=0.1)


def test_the_digest_covers_every_weight(encoders, declare):
    one, other = (open_encoder(declare(name), PICTURES).features.sha256 for name in ("dense", "other"))
    encoders.changed = lambda: Counted(64).eval()
    again = open_encoder(declare("changed"), PICTURES)
    assert again.features.sha256 == one != other
    with torch.no_grad():
        again.module.dense.bias[3] += 1e-6
    assert again.digest() != one


def test_another_digest_than_the_declared_one_is_refused(declare):
    own = open_encoder(declare(), PICTURES).features.sha256
    assert open_encoder(declare(sha256=own), PICTURES).features.sha256 == own
    with pytest.raises(DataError, match=f"with SHA-256 {'0' * 64}, got {own}"):
        open_encoder(declare(sha256="0" * 64), PICTURES)


def test_weights_of_safetensors_are_loaded_into_the_module(declare, picture, tmp_path):
    path = tmp_path / "w.safetensors"
    save_file(Counted(64, seed=7).state_dict(), path)
    encoder = open_encoder(declare(file=str(path), module="tiny_encoders:dense", clip=1e6), PICTURES)
    torch.testing.assert_close(encoder(picture), Counted(64, seed=7)(picture[None])[0])
    assert encoder.features.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    save_file(Counted(63).state_dict(), path)
    with pytest.raises(DataError, match=r"Cannot load .*w.safetensors into tiny_encoders:dense: .*size mismatch"):
        open_encoder(declare(file=str(path), module="tiny_encoders:dense"), PICTURES)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_file_of_torchscript_is_opened(declare, picture, tmp_path):
    path = tmp_path / "net.pt"
    torch.jit.trace(nn.Sequential(nn.Flatten(), Counted(64).dense).eval(), picture[None]).save(path)
    encoder = open_encoder(declare(file=str(path), clip=1e6), PICTURES)
    torch.testing.assert_close(encoder(picture), Counted(64)(picture[None])[0])
    assert encoder.features.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"Cannot read .*net.pt as TorchScript"):
        open_encoder(declare(file=str(path)), PICTURES)


def onnx_file(size, weights=""):
    """Return a file of ONNX, written by hand: tags, lengths, contents.

    It flattens a batch of one (1, 1, 8, 8), and adds ``size`` weights in another file where one is named.
    """

    def field(number, content):
        if isinstance(content, int):
            return bytes([number << 3, content])
        content = content.encode() if isinstance(content, str) else content
        low, high = len(content) & 127, len(content) >> 7
        return bytes([number << 3 | 2, *((low | 128, high) if high else (low,))]) + content

    def tensor(name, shape):
        dims = b"".join(field(1, field(1, size)) for size in shape)
        return field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))

    flat = "h" if weights else "y"
    graph = field(1, field(1, "x") + field(2, flat) + field(4, "Flatten")) + field(2, "g")
    if weights:
        where = field(13, field(1, "location") + field(2, weights)) + field(14, 1)
        graph += field(1, field(1, "h") + field(1, "w") + field(2, "y") + field(4, "Add"))
        graph += field(5, field(1, 1) + field(1, size) + field(2, 1) + field(8, "w") + where)
    graph += field(11, tensor("x", (1, 1, 8, 8))) + field(12, tensor("y", (1, size)))
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 13))


def test_a_file_of_onnx_is_opened(declare, picture, tmp_path):
    pytest.importorskip("onnxruntime")
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx_file(64))
    encoder = open_encoder(declare(file=str(path), clip=1e6), PICTURES)
    torch.testing.assert_close(encoder(picture), picture.flatten())
    assert encoder.versions[0].split()[0] == "onnxruntime"
    path.write_bytes(b"no graph")
    with pytest.raises(DataError, match=r"Cannot read .*net.onnx as ONNX"):
        open_encoder(declare(file=str(path)), PICTURES)


def test_an_encoder_whose_weights_lie_beside_its_file_is_refused(declare, tmp_path, monkeypatch):
    onnxruntime = pytest.importorskip("onnxruntime")
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx_file(64, weights="w.bin"))
    (tmp_path / "w.bin").write_bytes(bytes(4 * 64))
    onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])  # opens them
    for folder in (tmp_path, tmp_path.parent):  # it looks for them in the current folder too
        monkeypatch.chdir(folder)
        with pytest.raises(DataError, match=r"Cannot read .*net.onnx as ONNX: .*; save it with its weights inside"):
            open_encoder(declare(file=str(path)), PICTURES)


def test_what_is_not_installed_is_refused_with_the_line_that_installs_it(declare, monkeypatch, tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx_file(64))
    for name in ("onnxruntime", "efficientnet_lite_pytorch"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    known = {name: f"clipless.datasets.features.known:{name}" for name in ("efficientnet_lite0", "wordllama")}
    for given in ({"file": str(path)}, *({"module": module} for module in known.values())):
        with pytest.raises(DataError, match=r"pip install 'sweeper\[encoders\]'"):
            open_encoder(declare(**given), PICTURES)


@pytest.mark.parametrize(
    ("given", "kind", "sentence"),
    [
        ({"resize": 16}, NUMBERS, "Expected pictures with levels in"),
        ({"mean": (0.5, 0.5)}, PICTURES, "Expected one number or 1, one for each channel of digits, got 2"),
        ({"function": "missing"}, PICTURES, "Cannot import tiny_encoders:missing"),
        ({"module": "no_such_package:f"}, PICTURES, "Cannot import no_such_package:f"),
        ({"function": "number"}, PICTURES, "Expected tiny_encoders:number to return a torch.nn.Module, got int"),
        ({"file": "net.pt"}, TEXTS, "Expected a module for the texts of letters"),
    ],
)
def test_what_cannot_be_used_is_refused(encoders, declare, given, kind, sentence):
    encoders.number = lambda: 3
    with pytest.raises(DataError, match=r"data.features") as caught:
        open_encoder(declare(**given), kind)
    assert sentence in str(caught.value)


@pytest.mark.parametrize("made", [lambda x: x.sum(), lambda x: x.flatten(1).long(), lambda _: 3])
def test_what_is_no_row_of_features_is_refused(encoders, declare, picture, made):
    encoders.odd = lambda: type("Odd", (nn.Module,), {"forward": lambda _, x: made(x)})().eval()
    with pytest.raises(DataError, match=r"Expected the encoder 'tiny' to return \(1, features\)"):
        open_encoder(declare("odd"), PICTURES)(picture)
