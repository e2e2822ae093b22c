"""The tasks of `price.py`: ready specs with an open price; narrower where a training would take long, see each."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from _price_training import Task

from sweeper.specification.spec import Spec

SWEEPS = Path(__file__).resolve().parents[1] / "sweeps"
Change = Callable[[dict[str, Any]], None]


def _mnist(content: dict[str, Any]) -> None:
    """Features of order 1 under four maps, 10 epochs: features are computed once for each map."""
    content["model"] = {
        "architecture": "scattering",
        "orientations": 8,
        "order": 1,
        "order0_gain": [0.3, 1.0],
        "feature_clip": [6, 10],
        "constraint": "spectral_ball",
    }
    content["training"]["epochs"] = 10


def _cifar(content: dict[str, Any]) -> None:
    """The map that the spec tries first, and 5 epochs: features are computed once."""
    content["model"] |= {"order0_gain": 0.3, "feature_clip": 5}
    content["training"]["epochs"] = 5


def _adult(content: dict[str, Any]) -> None:
    """Two depths and large batches."""
    content["model"]["depth"] = [1, 2]
    content["training"]["batch_size"] = {"log_int": [2048, 4096]}


def _yeast(content: dict[str, Any]) -> None:
    """A test split of the size of the validation split; the ready spec has none."""
    content["data"]["splits"]["test"] = 0.2
    content["training"].pop("clip_norm")


def _magic(content: dict[str, Any]) -> None:
    """The same, with few epochs and large batches."""
    _yeast(content)
    content["training"] |= {"epochs": [10, 20], "batch_size": {"log_int": [1024, 4096]}}


def _as_it_is(content: dict[str, Any]) -> None:
    """The quick start's space."""


_TASKS: Mapping[str, tuple[str, str, str, Change]] = {  # by name: spec, radius, folder of the data, change
    "digits": ("digits.yaml", "0.25", ".", _as_it_is),
    "yeast": ("yeast.yaml", "0.1", "adbench", _yeast),
    "magic": ("magic.yaml", "0.1", "adbench", _magic),
    "adult": ("adult.yaml", "0.1", "tabular", _adult),
    "mnist-scattering": ("mnist-scattering.yaml", "0.5", ".", _mnist),
    "cifar10-scattering": ("cifar10-scattering.yaml", "16/255", ".", _cifar),
}
TASKS = tuple(_TASKS)


def task_of(name: str, data_dir: Path | None) -> Task:
    """The task of that name, with its data in ``data_dir`` or a folder of it."""
    file, radius, folder, change = _TASKS[name]
    content = Spec.from_yaml(SWEEPS / file).to_plain()
    change(content)
    return Task(name, content, radius, SWEEPS / file, None if data_dir is None else data_dir / folder)
