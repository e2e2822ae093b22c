"""Sweeps without their last minutes, for tests of what comes before."""

from types import SimpleNamespace

import pytest

from sweeper.driver import driver, finished
from sweeper.tracking.outbox import Undelivered


@pytest.fixture
def bare(monkeypatch):
    """A sweep ends without audits and without a report, three quarters of the time of one whose trials are played."""
    monkeypatch.setattr(driver, "audited", lambda *_, **__: [])
    monkeypatch.setattr(finished, "exporter", lambda _name: lambda *_: None)


class Nobody:
    """Stands for a tracker whose store takes everything; making one takes a second."""

    def __init__(self, *_args, **_options):
        self.destination, self.refused = SimpleNamespace(uri="nowhere"), ()

    def __getattr__(self, name):
        return lambda *_args, **_options: None

    def close(self, *_args, **_options):
        return Undelivered()


@pytest.fixture
def untracked(monkeypatch):
    """A sweep tells no store of itself."""
    monkeypatch.setattr(driver, "Tracker", Nobody)
