"""The names that users and other packages may import are pinned."""

import importlib.util

import pytest

import clipless
from clipless import bounds, layers, projections, zoo

EXPORTED = {
    clipless: "SGD Adam Epoch Network Plan TauBCE TauCCE datasets evaluate fit load make_plan save zoo",
    bounds: "LayerBound NetworkBounds Signal WeightNorms bound_layer bound_network bound_rule bounded_types",
    layers: "Conv2d Dense Flatten GroupSort InputBall L2Pool2d",
    projections: "CONSTRAINTS Constraint Orthogonal SpectralBall orthogonal spectral_ball",
    zoo: "ARCHITECTURES Architecture build convnet mlp patch_net",
}


@pytest.mark.parametrize("package", EXPORTED, ids=lambda package: package.__name__)
def test_a_package_exports_exactly_these_names(package):
    assert sorted(package.__all__) == sorted(EXPORTED[package].split())
    assert all(hasattr(package, name) for name in package.__all__)


def test_the_package_is_not_importable_under_another_name():
    """A second copy of every class would make rules found by exact type fail."""
    spec = importlib.util.spec_from_file_location("models.clipless", clipless.__file__)
    with pytest.raises(ImportError, match=r"import this package as 'clipless', not 'models\.clipless'"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_every_layer_has_a_bound_rule():
    assert set(bounds.bounded_types()) >= {getattr(layers, name) for name in layers.__all__}
