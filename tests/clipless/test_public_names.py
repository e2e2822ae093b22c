"""The names that users and other packages may import are pinned."""

import importlib.util
import json
import subprocess
import sys
import textwrap
from functools import partial

import pytest
import torch

import clipless
from clipless import bounds, datasets, layers, losses, projections, zoo
from clipless.privacy.accounting.claim import claim
from clipless.testing import SeededSource
from clipless.training import trainer

EXPORTED = {
    clipless: """Adam ClassWeighted CrammerSinger Epoch HKR KCosine KR MAE Method MulticlassHinge MultilabelBCE Network
    NoiseAllocation Plan Relation SGD Schedule Smoothing Squared TauBCE TauCCE WestonWatkins attacked_accuracy attacks certified_auroc
    certified_radii certify certify_smoothed convert datasets evaluate fit float64_logits layers load losses make_plan projections save zoo""",
    bounds: "LayerBound NetworkBounds Signal WeightNorms bound_layer bound_network bound_rule bounded_types",
    layers: """Abs AvgPool2d ClipGradient Conv1d Conv2d ConvexPotential Dense Flatten GlobalL2Pool2d GroupNorm GroupSort Householder InputBall
    L2Pool2d LayerCentering MaxPool2d ReLU Residual ScaleByQuantile
    Scattering2d Shift Sigmoid Softplus SpaceToDepth Standardise SwapAxes Tanh Tokens every_layer""",
    losses: """ClassWeighted CrammerSinger HKR KCosine KR LOSSES Loss MAE MulticlassHinge MultilabelBCE Reduction
    Squared TauBCE TauCCE WestonWatkins build_loss loss_lipschitz loss_rule""",
    projections: """CONSTRAINTS Constraint FixedNorm Free Orthogonal SpectralBall Standardised build_constraint constraint
    fixed_norm initial_gain orthogonal spectral_ball""",
    zoo: """ACTIVATIONS ARCHITECTURES Architecture LayerMaker LayerOptions POOLINGS Pooling architecture build check_maps convnet cpl
    lenet mixer mlp patch_net pool resnet scattering shift_net vgg wide_resnet""",
}


@pytest.mark.long
def test_the_example_of_the_package_reads_nine_digits_of_ten_at_the_epsilon_that_it_asks_for(monkeypatch):
    """The text of the docstring itself; batches and noise are seeded, and the median of three is taken."""
    code = textwrap.dedent((clipless.__doc__ or "").split("::\n\n")[1].split("\n\nNames")[0])
    accuracies = []
    for seed in range(3):
        torch.manual_seed(seed)
        monkeypatch.setattr(trainer, "SecureSource", partial(SeededSource, seed))
        names = {"clipless": clipless, "print": lambda *_: None}
        exec(code, names)
        accuracies.append(clipless.evaluate(names["model"], names["data"].validation)["accuracy"])
        assert 0.99 * 3.0 <= names["epoch"].epsilon <= 3.0
        assert names["epoch"].epsilon == claim(names["plan"].event(), 1e-4).epsilon
    assert sorted(accuracies)[1] >= 0.9


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
    assert set(bounds.bounded_types()) >= set(layers.every_layer().values())


def test_every_loss_is_at_hand_in_the_package_itself():
    kinds = {name for name in losses.__all__ if hasattr(getattr(losses, name), "output_size")} - {"Loss"}
    assert kinds <= set(clipless.__all__)
    assert all(getattr(clipless, name) is getattr(losses, name) for name in kinds)


LOOKS = """
import json, sys
import clipless.datasets
seen = {"datasets": list(sys.modules)}
clipless.fit
seen["fit"] = list(sys.modules)
from clipless import *
seen["everything"] = list(sys.modules)
import torch
from clipless.datasets import Split
data = Split(torch.rand(8, 4), torch.arange(8) % 2)
model = zoo.mlp((4,), 2, input_norm=2.0, width=8)
options = dict(population=8, batch_size=4, epochs=1, delta=1e-2, noise_multiplier=1.0)
plan = make_plan(model, loss := TauCCE(1.0), **options)
assert [epoch.epoch for epoch in fit(model, loss, data, plan)] == [1]
seen["training"] = list(sys.modules)
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def imported():
    """What a process has imported after a part of the package, a name of it, all of it, and a training."""
    done = subprocess.run([sys.executable, "-c", LOOKS], capture_output=True, text=True, check=True)
    return {moment: set(names) for moment, names in json.loads(done.stdout).items()}


@pytest.mark.long
def test_importing_the_package_leaves_slow_libraries_alone_that_training_does_not_need(imported):
    """Those of attacks, of AUROC and of orchestration."""
    assert {"art", "ray", "sklearn", "mlflow", "optuna", "plotly", "sweeper", "dashboards"}.isdisjoint(
        imported["everything"]
    )


@pytest.mark.long
def test_training_leaves_the_compiler_of_torch_alone(imported):
    """Whose import takes two seconds in every process that trains, and which the classes of torch.optim begin with."""
    assert "torch._dynamo" not in imported["training"]


@pytest.mark.long
def test_names_are_imported_when_they_are_used_and_are_those_that_are_listed(imported):
    assert ("torch" in imported["datasets"], "torch" in imported["fit"]) == (False, True)
    for package in (clipless, datasets):
        assert all(getattr(package, name).__name__.rpartition(".")[2] == name for name in package.__all__)
        with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nothing'"):
            _ = package.nothing
