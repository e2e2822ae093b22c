"""The short form of ``benchmarks/account_kills.py``: one account, whose sweeps and all that they need are killed."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mcp")
pytestmark = [pytest.mark.slow, pytest.mark.long]

CAMPAIGN = Path(__file__).resolve().parents[1] / "benchmarks" / "account_kills.py"


def run_campaign(folder, store):
    """Kill a driver, the service, the store and an MCP server, and return the table."""
    arguments = ["--store", store, "--kills", "4", "--sweeps", "4", "--out", str(folder)]
    done = subprocess.run([sys.executable, str(CAMPAIGN), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kills_copies_and_backups_lose_no_charge_and_overspend_nothing(tmp_path):
    table = run_campaign(tmp_path / "campaign", "sqlite")
    assert table.count("| holds |") >= 11  # and one more where a sweep met the full store


@pytest.mark.postgresql
def test_neither_do_kills_of_a_database_and_of_who_uses_it(tmp_path):
    assert run_campaign(tmp_path / "campaign", "postgresql").count("| holds |") == 7
