"""What a new file of an extension point declares is found, and listed nowhere else."""

import importlib
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import clipless
from clipless.bounds import bound_rule
from clipless.layers import every_layer
from clipless.losses import MAE, loss_rule
from clipless.projections import CONSTRAINTS, constraint
from clipless.zoo import ARCHITECTURES

FILES = {
    "layers/halve.py": """
        from typing import Any, final
        from torch import Tensor, nn

        @final
        class Halve(nn.Module):
            def config(self) -> dict[str, Any]:
                return {}

            def forward(self, x: Tensor) -> Tensor:
                return x / 2
    """,
    "bounds/halve.py": """
        from clipless.bounds._rules import LayerBound, Signal, bound_rule
        from clipless.layers.halve import Halve

        @bound_rule(Halve)
        def bound_halve(layer, signal, weights):
            return LayerBound(output=Signal(signal.shape, signal.norm / 2), input_gain=0.5)
    """,
    "losses/linear.py": """
        from dataclasses import dataclass
        from clipless.losses._rules import loss_rule
        from clipless.option_types import Positive

        @dataclass(frozen=True, slots=True)
        class Linear:
            slope: Positive = 1.0

            def __call__(self, logits_BK, target_B):
                return self.slope * logits_BK[:, 0]

            def output_size(self, classes):
                return classes

        @loss_rule(Linear, "linear")
        def _linear(loss, logits, logit_norm):
            return loss.slope
    """,
    "projections/unit.py": """
        from dataclasses import dataclass
        from clipless.projections._base import constraint

        @constraint("unit")
        @dataclass(frozen=True, slots=True)
        class Unit:
            radius: float = 1.0

            def project(self, weight_OI):
                return weight_OI / weight_OI.norm().clamp(min=1.0)
    """,
    "zoo/halved.py": """
        from math import prod
        from clipless import layers
        from clipless.option_types import Count
        from clipless.zoo._base import architecture

        @architecture
        def halved(input_shape, outputs, make, *, times: Count = 1):
            every = [layers.every_layer()["Halve"]() for _ in range(times)]
            return [layers.Flatten(), *every, make.dense(prod(input_shape), outputs)]
    """,
}
USE = """
import torch, clipless
from clipless.bounds import bound_network
from clipless.projections import build_constraint
from clipless.zoo import LayerOptions
model = clipless.zoo.build("halved", (4,), 2, input_norm=2.0, times=2, constraint=build_constraint("unit"))
print(bound_network(model).output.norm <= 0.5001)
clipless.save(model, "m.safetensors")
x = torch.ones(3, 4)
print(torch.equal(clipless.load("m.safetensors")(x), model(x)))
loss = clipless.losses.build_loss("linear", slope=2.0)
plan = clipless.make_plan(model, loss, population=8, batch_size=4, delta=0.1, noise_multiplier=1.0, epochs=1)
data = clipless.datasets.Split(torch.ones(8, 4), torch.zeros(8, dtype=torch.int64))
print(len(list(clipless.fit(model, loss, data, plan))))
from sweeper.specification.fields.choices import ARCHITECTURE_OPTIONS, LOSS_OPTIONS, MODEL_OPTIONS
print("times" in ARCHITECTURE_OPTIONS["halved"], "slope" in LOSS_OPTIONS["linear"])
print("times" in MODEL_OPTIONS, "unit" in MODEL_OPTIONS["constraint"].names)
"""


@pytest.mark.long
def test_a_layer_a_loss_a_constraint_and_an_architecture_are_one_new_file_each(tmp_path):
    """In a copy of the packages; the spec knows them too."""
    root = Path(clipless.__file__).parents[2]
    shutil.copytree(root / "models" / "clipless", tmp_path / "clipless")
    (tmp_path / "sweeper").symlink_to(root / "sweeper")
    for name, text in FILES.items():
        (tmp_path / "clipless" / name).write_text(textwrap.dedent(text))
    done = subprocess.run([sys.executable, "-c", USE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True", "True", "1", "True", "True", "True", "True"], done.stderr


def test_what_begins_with_an_underscore_or_is_imported_is_none_of_a_folder_s_own():
    assert all(kind.__module__.startswith("clipless.layers.") for kind in every_layer().values())
    assert "Convolution" not in every_layer()
    assert list(ARCHITECTURES).count("resnet") == 1


def test_a_name_is_entered_once():
    with pytest.raises(ValueError, match="already a constraint free"):
        constraint("free")(type(CONSTRAINTS["free"]()))
    with pytest.raises(ValueError, match="MAE already has"):
        loss_rule(MAE)(lambda *_: 1.0)
    with pytest.raises(ValueError, match="already a loss mae"):
        loss_rule(type("Other", (), {}), "mae")(lambda *_: 1.0)
    with pytest.raises(ValueError, match="Abs already has a bound rule"):
        bound_rule(every_layer()["Abs"])(lambda *_: None)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("package", ["zoo", "losses", "projections", "layers"])
def test_a_folder_of_declarations_is_imported_without_torch(package):
    code = f"import sys, clipless.{package}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]
    assert importlib.import_module(f"clipless.{package}").__all__
