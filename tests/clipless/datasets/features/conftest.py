import sys
from types import ModuleType

import pytest
import torch
from torch import nn

from clipless.datasets.features.declaration import Features
from clipless.datasets.features.encode import _open
from clipless.datasets.features.encoders import RowKind

PICTURES = RowKind("digits", (1, 8, 8), "pixels in [0, 1]")
NUMBERS = RowKind("numbers", (13,), "units")


class Counted(nn.Module):
    """A dense layer that counts the rows that go through, where no check looks."""

    rows = 0

    def __init__(self, size, features=6, seed=0):
        super().__init__()
        self.dense = nn.Linear(size, features)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))

    def forward(self, x):
        Counted.rows += len(x)
        return self.dense(x.flatten(1))


class Shortest(nn.Module):
    """Counts of a few letters of a text."""

    def forward(self, texts):
        return torch.tensor([[float(text.count(letter)) for letter in "abcdefgh"] for text in texts])


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The cache of each test is its own, and so is what this process keeps open."""
    monkeypatch.setenv("SWEEPER_CACHE", str(tmp_path / "cache"))
    _open.cache_clear()
    return tmp_path / "cache" / "features"


@pytest.fixture(autouse=True)
def encoders(monkeypatch):
    """A module of encoders that specs can name; functions are added to it."""
    made = ModuleType("tiny_encoders")
    made.dense = lambda: Counted(64).eval()
    made.narrow = lambda: Counted(13).eval()
    made.other = lambda: Counted(64, seed=1).eval()
    made.letters = lambda: Shortest().eval()
    monkeypatch.setitem(sys.modules, "tiny_encoders", made)
    return made


@pytest.fixture
def declare():
    """Return the declaration of an encoder of ``tiny_encoders``, or of a file."""

    def declare(function="dense", **given):
        module = None if "file" in given and "module" not in given else f"tiny_encoders:{function}"
        known = {"name": "tiny", "module": module, "licence": "MIT", "pretrained_on": "nothing", "clip": 2.0}
        return Features(**{**known, **given})

    return declare
