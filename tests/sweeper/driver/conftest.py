"""Sweeps without their last minutes, for tests of what comes before."""

import pytest

from sweeper.driver import driver, finished


@pytest.fixture
def bare(monkeypatch):
    """A sweep ends without audits and without a report, three quarters of the time of one whose trials are played."""
    monkeypatch.setattr(driver, "audited", lambda *_, **__: [])
    monkeypatch.setattr(finished, "exporter", lambda _name: lambda *_: None)
