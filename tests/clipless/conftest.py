"""Models trained on digits, for the tests of certificates and of attacks."""

import pytest
import torch
from sklearn.datasets import load_digits

from clipless import TauCCE, zoo
from clipless.datasets import Split

from .factories import seeded


@pytest.fixture(scope="session")
def digits():
    bunch = load_digits()
    x = torch.tensor(bunch.images / 16, dtype=torch.float32)[:, None]
    return Split(x, torch.tensor(bunch.target))


@pytest.fixture(scope="session")
def held_back(digits):
    return Split(digits.x[1500:], digits.y[1500:])


@pytest.fixture(scope="session", params=["mlp", "convnet"])
def trained(request, digits):
    """A small network, trained without privacy within its constraints."""
    options = {"mlp": {"width": 32}, "convnet": {"width": 4, "hidden": 32, "depth": 1}}[request.param]
    model = zoo.build(request.param, (1, 8, 8), 10, input_norm=8.0, generator=seeded(), **options)
    optimizer, loss = torch.optim.Adam(model.parameters(), lr=0.01), TauCCE(0.2)
    for step in range(60):
        batch = torch.arange(step * 256, (step + 1) * 256) % 1500
        optimizer.zero_grad()
        loss(model(digits.x[batch]), digits.y[batch]).mean().backward()
        optimizer.step()
        model.project()
    return model
