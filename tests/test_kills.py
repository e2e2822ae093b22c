"""The short form of ``benchmarks/kills.py``: a driver killed in the middle of a sweep."""

import importlib
import json
import random
from pathlib import Path

import pytest

from sweeper.privacy.ledger import Ledger

pytestmark = [pytest.mark.slow, pytest.mark.long]

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def campaign(folder, trials, victims, **more):
    """Return a campaign that has ended."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        kills = importlib.import_module("kills")
        made = kills.Campaign(folder, trials, 12, random.Random(0), served=False, **more)
        try:
            made.run(victims, latest=1.0)
        finally:
            if made.driver is not None:
                made.driver.kill()
        return made


@pytest.fixture(scope="module")
def survived(tmp_path_factory):
    """A campaign that has ended."""
    return campaign(tmp_path_factory.mktemp("kills"), 2, ["driver"])


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")
def test_nothing_is_lost_when_the_driver_is_killed(survived):
    assert survived.killed == {"driver": 1}
    assert dict.fromkeys(survived.checks(), "") == survived.checks()


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")
def test_no_kill_overspends_the_budget_of_a_sweep(tmp_path):
    survived = campaign(tmp_path, 4, ["driver", "worker"], budget=3.0)
    assert dict.fromkeys(survived.checks(), "") == survived.checks()
    noise = tmp_path / "noise" / "t0004"
    pool = Ledger(survived.sweep / "ledger.jsonl").budget.stages[-1].pool
    noise.write_bytes(b"." * pool.steps)
    assert survived.checks()["no stage of the budget is overspent"] == ""
    noise.write_bytes(b"." * (pool.steps + 1))
    assert survived.checks()["no stage of the budget is overspent"]


def rewritten(path, change):
    """Change the rows of a file for the time of a ``with`` block."""

    class Rewritten:
        def __enter__(self):
            self.before = path.read_text()
            rows = [json.loads(row) for row in self.before.splitlines()]
            path.write_text("".join(json.dumps(row) + "\n" for row in change(rows)))

        def __exit__(self, *_):
            path.write_text(self.before)

    return Rewritten()


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")
def test_a_step_more_than_the_ledger_says_is_found(survived):
    entries = Ledger(survived.sweep / "ledger.jsonl").entries()
    noise = survived.folder / "noise" / "t0001"
    before = noise.read_bytes()
    said = sum(entry.steps for entry in entries if entry.trial == "t0001")
    noise.write_bytes(b"." * said)
    assert survived.checks()["the ledger is what was drawn"] == ""
    noise.write_bytes(b"." * (said + 1))
    assert survived.checks()["the ledger is what was drawn"]
    noise.write_bytes(before)


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")
def test_a_point_that_was_lost_or_came_twice_is_found(survived):
    def twice(rows):
        return [*rows, rows[-1] | {"values": rows[-1]["values"] | {"accuracy": 0.123}}]

    for change, check in (
        (lambda rows: [r for r in rows if r["epoch"] != 1], "trials have ended and points are complete"),
        (twice, "trials have ended and points are complete"),
        (lambda rows: [r for r in rows if r["trial"] != "t0002"], "the front is that of all points, its models load"),
    ):
        with rewritten(survived.sweep / "points.jsonl", change):
            assert survived.checks()[check]
