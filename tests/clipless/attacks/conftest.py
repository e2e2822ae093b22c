import pytest
import torch
from sklearn.datasets import load_digits

from clipless import TauCCE, zoo
from clipless.datasets import Split


def trained_on(split, *, seed=0, steps=60, width=32, architecture="mlp", constrained=True):
    """A small network, trained without privacy, within its constraints or out of them."""
    options = {"mlp": {"width": width}, "convnet": {"width": 4, "hidden": 32, "depth": 1}}[architecture]
    generator = torch.Generator().manual_seed(seed)
    model = zoo.build(architecture, (1, 8, 8), 10, input_norm=8.0, generator=generator, **options)
    optimizer, loss = torch.optim.Adam(model.parameters(), lr=0.01), TauCCE(0.2)
    for step in range(steps):
        batch = torch.arange(step * 256, (step + 1) * 256) % len(split)
        optimizer.zero_grad()
        loss(model(split.x[batch]), split.y[batch]).mean().backward()
        optimizer.step()
        if constrained:
            model.project()
    return model


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
    return trained_on(Split(digits.x[:1500], digits.y[:1500]), architecture=request.param)
