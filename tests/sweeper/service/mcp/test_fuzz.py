"""Clients that try everything, at random and on purpose; `benchmarks/mcp_fuzz.py` runs at length by hand."""

import asyncio
import importlib
import random
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sweeper.service import app
from sweeper.service.mcp.tools import TOOLS

BENCHMARKS = Path(__file__).parents[4] / "benchmarks"


@pytest.fixture
def bench(monkeypatch):
    """The fuzzer."""
    monkeypatch.setattr(app, "mount_pages", app.mount_pages)  # which the fuzzer replaces
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("mcp_fuzz")
    sys.modules.pop("mcp_fuzz")
    sys.modules.pop("service_fuzz", None)


def test_no_call_makes_an_internal_error(bench, tmp_path, monkeypatch):
    monkeypatch.setitem(bench.SPEC, "data", {"name": "breast_cancer"})  # without an account, so that nothing is planned
    found, taken = asyncio.run(bench.attack(tmp_path, bench.scatter, 150, random.Random(0)))
    assert taken == 0.0
    assert {tool for tool, _ in found.answers} >= {tool.name for tool in TOOLS}
    assert found.answers.total() > 120
    done = {tool for tool, answer in found.answers if answer == "done"}
    assert {"submit_sweep", "show_front", "watch_sweep"} <= done
    assert len(done) >= 8, done


@pytest.mark.long
def test_a_greedy_client_spends_at_most_its_share(bench, tmp_path):
    found, taken = asyncio.run(bench.attack(tmp_path, bench.greedy, 120, random.Random(0)))
    assert len(found.accepted) > 5
    assert taken <= found.most <= bench.SHARE
    assert found.most > 0.4


def answer(status, text="x"):
    return SimpleNamespace(status_code=status, text=text)


def test_the_fuzzer_ends_at_what_must_not_be(bench, tmp_path):
    with pytest.raises(bench.BreachError, match="500 x"):
        bench.check_http("x", answer(500))
    for text in ("Traceback (most recent call last)", "two\nlines of it", "short", "x" * 1001):
        with pytest.raises(bench.BreachError, match="list_sweeps"):
            bench.check_sentence("list_sweeps", text)

    async def break_it(client, _):
        client.judge("list_sweeps", True, "Traceback", None)

    with pytest.raises(SystemExit, match="list_sweeps: Traceback"):
        asyncio.run(bench.attack(tmp_path, break_it, 1, random.Random(0)))


@pytest.mark.parametrize(
    ("spender", "part", "said"), [("robot", 0.6, "more than its share"), ("ada", 0.1, "somebody else")]
)
def test_the_fuzzer_ends_where_more_is_taken_than_may_be(bench, spender, part, said):
    budget = SimpleNamespace(square=1.0, slack=1.0)
    balance = SimpleNamespace(
        spenders=[spender],
        budget=budget,
        places=lambda: ["all"],
        taken_by=lambda *_: SimpleNamespace(square=part, slack=0.0),
    )
    client = bench.Attack(None, None, SimpleNamespace(balance=lambda: balance), None, random.Random(0))
    with pytest.raises(bench.BreachError, match=said):
        client.taken()
