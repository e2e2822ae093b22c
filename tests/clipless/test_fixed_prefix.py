"""The fixed prefix is applied once: the same features, of each example alone."""

import pytest
import torch

import clipless
from clipless import Network
from clipless.datasets import Split
from clipless.errors import UnsupportedError
from clipless.layers import Dense, Flatten, GroupSort, InputBall, Scattering2d
from clipless.network import precompute, prefix_depth, split_fixed_prefix


def network():
    generator = torch.Generator().manual_seed(0)
    layers = [InputBall(3.0), Scattering2d((8, 8)), Flatten(), InputBall(2.0), Dense(324, 4, generator=generator)]
    return Network([*layers, GroupSort(), Dense(4, 3, generator=generator)], (1, 8, 8))


def rows(count=10):
    generator = torch.Generator().manual_seed(1)
    return Split(torch.randn(count, 1, 8, 8, generator=generator), torch.arange(count) % 3)


def test_the_prefix_ends_before_the_first_parameters():
    model = network()
    assert prefix_depth(model) == 4
    fixed, rest = split_fixed_prefix(model)
    assert list(fixed.layers) == list(model.layers)[:4]
    assert list(rest.layers) == list(model.layers)[4:]
    assert (fixed.input_shape, rest.input_shape) == ((1, 8, 8), (324,))


def test_the_rest_on_the_features_is_the_network():
    model, split = network(), rows()
    fixed, rest = split_fixed_prefix(model)
    features = precompute(fixed, split)
    torch.testing.assert_close(rest(features.x), model(split.x))
    assert features.y is split.y
    assert not features.x.requires_grad


def test_the_two_parts_share_the_layers_of_the_network():
    model = network()
    _, rest = split_fixed_prefix(model)
    rest(torch.ones(2, 324)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.long
def test_features_do_not_depend_on_other_rows(monkeypatch):
    """Nor, up to rounding, on which rows share a chunk."""
    fixed, split = split_fixed_prefix(network())[0], rows()
    before = precompute(fixed, split).x
    for row in range(len(split)):
        x = split.x.clone()
        x[row] = float("nan")
        after = precompute(fixed, Split(x, split.y)).x
        others = torch.arange(len(split)) != row
        assert torch.equal(after[others], before[others])
        assert torch.equal(after[row], torch.zeros(324))
    monkeypatch.setattr("clipless.network._CHUNK", 3)
    torch.testing.assert_close(precompute(fixed, split).x, before)


def test_a_chunk_is_never_larger_than_announced(monkeypatch):
    seen = []
    fixed, _ = split_fixed_prefix(network())
    forward = InputBall.forward
    monkeypatch.setattr("clipless.network._CHUNK", 4)
    monkeypatch.setattr(InputBall, "forward", lambda self, x: (seen.append(len(x)), forward(self, x))[1])
    precompute(fixed, rows(10))
    assert max(seen) == 4


def test_a_network_that_begins_with_parameters_has_an_empty_prefix():
    model, split = Network([Dense(4, 2)], (4,)), Split(torch.ones(3, 4), torch.zeros(3, dtype=torch.int64))
    fixed, rest = split_fixed_prefix(model)
    assert len(fixed.layers) == 0
    assert rest.input_shape == (4,)
    assert precompute(fixed, split) is split


def test_a_network_without_parameters_is_all_prefix():
    model = Network([InputBall(1.0), Flatten()], (2, 2))
    fixed, rest = split_fixed_prefix(model)
    assert len(fixed.layers) == 2
    assert len(rest.layers) == 0
    assert rest.input_shape == (4,)


def test_a_prefix_follows_its_network_to_another_type():
    fixed, _ = split_fixed_prefix(network().double())
    assert fixed(rows().x.double()).dtype == torch.float64


def test_no_rows_have_no_features():
    empty = Split(torch.ones(0, 1, 8, 8), torch.zeros(0, dtype=torch.int64))
    assert len(precompute(split_fixed_prefix(network())[0], empty)) == 0


def test_a_prefix_with_parameters_is_refused():
    with pytest.raises(UnsupportedError, match="Expected a prefix without parameters"):
        precompute(Network([Dense(4, 2)], (4,)), Split(torch.ones(3, 4), torch.zeros(3, dtype=torch.int64)))


def test_frozen_parameters_are_parameters():
    """They could be thawed between two steps."""
    model = network()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    assert prefix_depth(model) == 4


def test_a_saved_network_has_the_same_prefix(tmp_path):
    model = network()
    clipless.save(model, tmp_path / "model.safetensors")
    loaded = clipless.load(tmp_path / "model.safetensors")
    torch.testing.assert_close(loaded(rows().x), model(rows().x), rtol=0, atol=0)
