"""Audits let rows join: a training whose sums look at places is contradicted, one in slots is not."""

import pytest
import torch

from clipless import row_independence
from clipless.audits.audited_training import Effort
from clipless.audits.step import audit_step
from clipless.layers import Dense
from clipless.plans import placement


def nudged(x):
    """The last bit of every fourth row is another."""
    return torch.where((torch.arange(len(x)) % 4 == 1).view(-1, *[1] * (x.dim() - 1)), x * (1.0 + 2.0**-23), x)


@pytest.fixture
def _looks_at_places(monkeypatch):
    whole = Dense.forward
    monkeypatch.setattr(Dense, "forward", lambda layer, x: nudged(whole(layer, x)))
    row_independence.forget()
    yield
    row_independence.forget()


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("_looks_at_places")
@pytest.mark.parametrize("method", ["clipless", "lip-dp-sgd", "dp-sgd"])
def test_a_training_that_takes_its_passes_as_they_are_is_contradicted(training, method, monkeypatch):
    monkeypatch.setattr(placement, "is_alone", lambda *_: True)
    assert audit_step(training(method), Effort.CHEAP, seed=0).contradicted


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("_looks_at_places")
@pytest.mark.parametrize("method", ["clipless", "lip-dp-sgd", "dp-sgd"])
def test_a_training_in_slots_is_not_accused(training, method):
    assert not audit_step(training(method), Effort.CHEAP, seed=0).contradicted
