"""Accounts on the disk of a test, without waiting for that disk."""

import pytest

from sweeper.account import store as store_module
from sweeper.specification.addresses import parse_address

from .accounts import begin_quickly, make


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(store_module, "_begin_by_hand", begin_quickly)


@pytest.fixture
def address(tmp_path):
    return parse_address(f"{tmp_path}/accounts.db#clinic")


@pytest.fixture
def account(address):
    return make(address)


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "ledger.jsonl"
