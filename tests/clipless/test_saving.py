"""Models on disk: what was saved comes back bit for bit; what is not such a file is refused."""

import json
import pickle
import struct
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import clipless
from clipless import Network, saving, zoo
from clipless.errors import ModelFileError, UnsupportedError
from clipless.layers import Conv2d, Dense, Flatten, GroupSort, InputBall, L2Pool2d
from clipless.projections import Orthogonal, SpectralBall
from clipless.saving import FORMAT, architecture
from clipless.zoo import LayerOptions
from tests.clipless.factories import Loud

NETWORKS = {
    "mlp": lambda: zoo.mlp((1, 8, 8), 3, input_norm=2.0, width=8, options=LayerOptions(constraint=SpectralBall(0.7))),
    "convnet": lambda: zoo.convnet((1, 8, 8), 3, input_norm=2.0, width=4, hidden=8),
    "patch-net": lambda: zoo.patch_net(
        (1, 8, 8), 1, input_norm=2.0, width=4, hidden=8, options=LayerOptions(constraint=Orthogonal(3))
    ),
    "scattering": lambda: zoo.scattering(
        (1, 8, 8), 3, input_norm=2.0, order=2, feature_groups=27, feature_clip=1.5, hidden=8
    ),
    "odd": lambda: Network(
        [
            InputBall(1.5),
            Conv2d(1, 6, (3, 2), stride=(2, 1), padding=(0, 1), constraint=SpectralBall(1.25)),
            GroupSort(3),
            L2Pool2d(3),
            Flatten(),
            Dense(18, 2, Orthogonal(2)),
        ],
        (1, 8, 8),
    ),
}


@pytest.fixture
def model():
    return NETWORKS["mlp"]()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("name", NETWORKS)
def test_a_saved_network_comes_back_bit_for_bit(name, path):
    model = NETWORKS[name]()
    clipless.save(model, path)
    loaded = clipless.load(path)
    x = torch.randn(9, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(loaded(x), model(x))
    assert architecture(loaded) == architecture(model)
    assert [type(layer) for layer in loaded.layers] == [type(layer) for layer in model.layers]
    assert [layer.config() for layer in loaded.layers] == [layer.config() for layer in model.layers]
    assert loaded.input_shape == model.input_shape


def test_a_loaded_network_can_be_trained_and_certified_like_the_saved_one(model, path):
    clipless.save(model, path)
    plans = [
        clipless.make_plan(
            m, clipless.TauCCE(), population=100, batch_size=10, delta=1e-3, noise_multiplier=1.0, epochs=1
        )
        for m in (model, clipless.load(path))
    ]
    assert plans[0] == plans[1]


def test_the_header_describes_the_architecture_as_json(model, path):
    clipless.save(model, path, {"trial": "t0001"})
    with safe_open(path, framework="pt") as file:
        header = file.metadata()
        assert set(file.keys()) == set(model.state_dict())
    assert header["trial"] == "t0001"
    assert json.loads(header["architecture"]) == {
        "format": FORMAT,
        "input_shape": [1, 8, 8],
        "layers": [
            {"type": "InputBall", "radius": 2.0},
            {"type": "Flatten"},
            {
                "type": "Dense",
                "in_features": 64,
                "out_features": 8,
                "constraint": {"constraint": "spectral_ball", "radius": 0.7},
            },
            {"type": "GroupSort", "group_size": 2},
            {
                "type": "Dense",
                "in_features": 8,
                "out_features": 3,
                "constraint": {"constraint": "spectral_ball", "radius": 0.7},
            },
        ],
    }


def test_gradients_and_training_state_are_not_saved(model, path):
    model(torch.ones(1, 1, 8, 8)).sum().backward()
    clipless.save(model, path)
    assert all(p.grad is None for p in clipless.load(path).parameters())


def test_an_existing_file_is_replaced(model, path):
    clipless.save(NETWORKS["convnet"](), path)
    clipless.save(model, path)
    assert architecture(clipless.load(path)) == architecture(model)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_write_that_fails_leaves_the_earlier_file(at_once, model, path, monkeypatch):
    clipless.save(model, path)
    before = path.read_bytes()

    def full_disk(*given, **_):
        partial = next(one for one in given if isinstance(one, Path))
        partial.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saving, "_AT_ONCE_BYTES", 2**30 if at_once else 0)
    monkeypatch.setattr(*((Path, "write_bytes") if at_once else (saving, "save_file")), full_disk)
    with pytest.raises(OSError, match="No space left"):
        clipless.save(NETWORKS["convnet"](), path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_of_two_who_write_a_file_at_once_neither_takes_what_the_other_has_begun(model, path, monkeypatch):
    """As a worker does that was given up, and the one that has taken its place."""
    real, other = Path.replace, NETWORKS["convnet"]()

    def overtaken(partial, target):
        monkeypatch.setattr(Path, "replace", real)
        clipless.save(other, path)
        assert architecture(clipless.load(path)) == architecture(other)
        return real(partial, target)

    monkeypatch.setattr(Path, "replace", overtaken)
    clipless.save(model, path)
    assert architecture(clipless.load(path)) == architecture(model)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_large_files_are_written_as_small_ones_are(model, path, monkeypatch):
    clipless.save(model, path)
    small = path.read_bytes()
    monkeypatch.setattr(saving, "_AT_ONCE_BYTES", 0)
    clipless.save(model, path)
    assert path.read_bytes() == small


def test_numbers_of_which_numpy_knows_nothing_come_back_too(path):
    tensors = {"half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16), "whole": torch.tensor(3)}
    saving.write_tensors(path, tensors, {"format": "x"})
    header, found = saving.read_tensors(path)
    assert header["format"] == "x"
    assert found["half"].dtype is torch.bfloat16
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def test_a_path_may_be_a_string(model, path):
    clipless.save(model, str(path))
    assert architecture(clipless.load(str(path))) == architecture(model)


@pytest.mark.parametrize("layer", [Loud(4, 2), torch.nn.Linear(4, 2), torch.nn.ReLU()])
def test_a_layer_that_is_not_ours_is_not_saved(layer, path):
    with pytest.raises(UnsupportedError, match=f"got {type(layer).__name__}"):
        clipless.save(Network([InputBall(1.0), layer], (4,)), path)
    assert list(path.parent.iterdir()) == []


def write(path, described, tensors=None):
    content = described if isinstance(described, str) else json.dumps(described)
    save_file(tensors or {"layers.1.weight": torch.zeros(2, 4)}, path, metadata={"architecture": content})


def described(**changes):
    dense = {
        "type": "Dense",
        "in_features": 4,
        "out_features": 2,
        "constraint": {"constraint": "orthogonal", "iterations": 1},
    }
    layers = [{"type": "InputBall", "radius": 1.0}, dense | changes]
    return {"format": FORMAT, "input_shape": [4], "layers": layers}


def test_a_file_as_described_is_read(path):
    write(path, described())
    assert torch.equal(clipless.load(path).layers[1].weight, torch.zeros(2, 4))


class Evil:
    def __reduce__(self):
        return pytest.fail, ("a pickle was executed",)


def pickled(path):
    path.write_bytes(pickle.dumps(Evil()))


def torch_pickled(path):
    torch.save({"weight": torch.ones(2)}, path)


def cut_short(path):
    clipless.save(NETWORKS["mlp"](), path)
    path.write_bytes(path.read_bytes()[:-10])


def cut_in_the_header(path):
    clipless.save(NETWORKS["mlp"](), path)
    path.write_bytes(path.read_bytes()[:40])


def with_a_huge_header(path):
    path.write_bytes(struct.pack("<Q", 2**60) + b"{}")


def empty(path):
    path.write_bytes(b"")


def a_folder(path):
    path.mkdir()


def without_architecture(path):
    save_file({"w": torch.ones(2)}, path)


@pytest.mark.parametrize(
    "damage",
    [
        pickled,
        torch_pickled,
        cut_short,
        cut_in_the_header,
        with_a_huge_header,
        empty,
        a_folder,
        without_architecture,
    ],
)
def test_what_is_not_a_saved_model_is_refused(damage, path):
    damage(path)
    with pytest.raises(ModelFileError, match=r"Expected a model written by clipless\.save at .*model\.safetensors"):
        clipless.load(path)


@pytest.mark.parametrize(
    "content",
    [
        "not json",
        "[]",
        "{}",
        {"format": FORMAT},
        described() | {"layers": [5]},
        described() | {"layers": ["Dense"]},
        described() | {"layers": [{"radius": 1.0}]},
        described() | {"input_shape": 5},
        described(in_features=5),
        described(in_features="4"),
        described(in_features=-4),
        described(bias=True),
        described(constraint={"constraint": "none"}),
        described(constraint={"iterations": 1}),
        described(constraint={"constraint": "orthogonal", "radius": 1.0}),
        described(constraint={"constraint": "orthogonal", "iterations": 0}),
        described() | {"layers": [{"type": "InputBall", "radius": -1.0}]},
    ],
)
def test_an_architecture_that_cannot_be_built_is_refused(content, path):
    write(path, content)
    with pytest.raises(ModelFileError, match=r"Expected a model written by clipless\.save"):
        clipless.load(path)


CONVOLUTION = {"type": "Conv2d", "in_channels": 1, "out_channels": 2, "kernel_size": [3, 3], "stride": 1}


@pytest.mark.parametrize(
    "layer",
    [
        described(constraint="orthogonal")["layers"][1],
        CONVOLUTION | {"kernel_size": "3"},
        CONVOLUTION | {"kernel_size": [3]},
        CONVOLUTION | {"stride": 0},
    ],
)
def test_arguments_of_the_wrong_kind_are_refused(layer, path):
    write(path, described() | {"layers": [layer]})
    with pytest.raises(ModelFileError, match="Expected"):
        clipless.load(path)


@pytest.mark.parametrize("name", ["Linear", "Network", "os.system", "__import__", ""])
def test_unknown_layers_are_refused(name, path):
    write(path, described(type=name))
    with pytest.raises(ModelFileError, match=r"Expected a layer among .*Dense"):
        clipless.load(path)


@pytest.mark.parametrize("form", ["clipless-network-2", "", None])
def test_another_format_is_refused(form, path):
    write(path, described() | {"format": form})
    with pytest.raises(ModelFileError, match="Expected format clipless-network-1 in"):
        clipless.load(path)


@pytest.mark.parametrize(
    "tensors",
    [
        {"layers.1.weight": torch.zeros(3, 4)},
        {"layers.2.weight": torch.zeros(2, 4)},
        {"layers.1.weight": torch.zeros(2, 4), "layers.1.bias": torch.zeros(2)},
    ],
)
def test_weights_that_do_not_fit_are_refused(tensors, path):
    write(path, described(), tensors)
    with pytest.raises(ModelFileError, match="Expected a model"):
        clipless.load(path)


def test_a_model_that_is_gone_says_that_its_point_may_have_left_the_front(tmp_path):
    with pytest.raises(ModelFileError, match=r"found no file; .* its model was removed: read the front again"):
        clipless.load(tmp_path / "gone.safetensors")
