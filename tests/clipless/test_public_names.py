"""The names that users and other packages may import are pinned."""

import importlib.util

import pytest

import clipless
from clipless import bounds, layers, projections, zoo

EXPORTED = {
    clipless: "SGD Adam Epoch Network Plan TauBCE TauCCE datasets evaluate fit load make_plan save zoo",
    bounds: "LayerBound NetworkBounds Signal WeightNorms bound_layer bound_network bound_rule bounded_types",
    layers: """Abs AvgPool2d ClipGradient Conv1d Conv2d Dense Flatten GlobalL2Pool2d GroupNorm GroupSort Householder InputBall
    L2Pool2d LayerCentering MaxPool2d ReLU Residual Scattering2d Sigmoid Softplus SpaceToDepth SwapAxes Tanh Tokens""",
    projections: """CONSTRAINTS Constraint FixedNorm Free Orthogonal SpectralBall Standardised build_constraint fixed_norm
    initial_gain orthogonal spectral_ball""",
    zoo: """ACTIVATIONS ARCHITECTURES Architecture POOLINGS build convnet lenet mixer mlp patch_net resnet scattering vgg
    wide_resnet""",
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
