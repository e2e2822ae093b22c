"""The short form of ``benchmarks/account_kills.py``: drivers that spend one account, killed in the middle."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.long]

CAMPAIGN = Path(__file__).resolve().parents[1] / "benchmarks" / "account_kills.py"


def test_kills_copies_and_backups_lose_no_charge_and_overspend_nothing(tmp_path):
    command = [sys.executable, str(CAMPAIGN), "--kills", "3", "--sweeps", "3", "--out", str(tmp_path / "campaign")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("| holds |") >= 10  # and one more where a sweep met the full store
