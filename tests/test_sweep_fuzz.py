"""The short form of ``benchmarks/sweep_fuzz.py``: a few random sweeps, and that its checks find what is not so."""

import importlib
import json
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
SEEDS = (2, 5, 10, 13, 16, 19, 22)
"""Quick ones: each kind of evaluation, stages, repeats, a private selection; broken off, resumed, extended, deleted."""


@pytest.fixture(scope="module")
def bench():
    """The fuzzer, which is run at length by hand."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("sweep_fuzz")
        for name in [name for name in sys.modules if name == "sweep_fuzz" or name.startswith("_fuzz_")]:
            del sys.modules[name]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", [*SEEDS[:4], *(pytest.param(one, marks=pytest.mark.long) for one in SEEDS[4:])])
def test_a_random_sweep_holds_what_it_promises(bench, tmp_path, seed):
    assert bench.fuzz_one(seed, tmp_path, apart=False).wrong == []


@pytest.mark.usefixtures("bench")
def test_a_seed_gives_the_same_sweep_and_another_one_another():
    make_case = importlib.import_module("_fuzz_specs").make_case
    assert make_case(3) == make_case(3)
    assert make_case(3) != make_case(4)
    kinds = {step["do"] for seed in range(60) for step in make_case(seed).steps}
    assert kinds == {"check", "run", "resume", "extend", "enqueue", "delete"}


@pytest.fixture(scope="module")
def ended(bench, tmp_path_factory):
    """A sweep without a budget that has ended, where it lies, and what was done to it."""
    place = tmp_path_factory.mktemp("fuzzed")
    specs, runs, left = map(importlib.import_module, ("_fuzz_specs", "_fuzz_runs", "_fuzz_left"))
    case = specs.Case(3, SPEC, 2, "public", files=FILES)  # which no audit looks at: one in twenty accuses a sound one
    case.write(place)
    (place / "out").mkdir()
    outcome = runs.perform(case, place, {"do": "run"}).to_json()
    history = left.History(({"do": "run"},), (outcome,), (bench.ledger_of(place),), runs.drawn(place))
    assert list(bench._found(case, place, history)) == []
    return case, place, history


SPEC = {
    "name": "fuzzed",
    "data": {"path": "table.csv", "ranges": "ranges.yaml", "evaluation": "public"},
    "model": {"architecture": "mlp", "width": 6},
    "training": {"epochs": 2, "batch_size": 16, "learning_rate": {"log": [0.01, 0.3]}},
    "privacy": {"epsilon": 3.0, "delta": 1e-3, "audit": "none"},
    "search": {"objectives": ["epsilon", "accuracy", "certified@0.1"], "trials": 2, "free_points": False},
}
RANGES = (
    "{source: made up, target: {column: y, classes: [c0, c1]}, columns: {x: {low: 0, high: 1}, z: {low: 0, high: 1}}}"
)
ROWS = "".join(f"{i % 7 / 7:.2f},{i % 11 / 11:.2f},c{int(i % 7 > 3)}\n" for i in range(160))
FILES = {"ranges.yaml": RANGES.encode(), "table.csv": f"x,z,y\n{ROWS}".encode()}


def rows_changed(name, change):
    """Return what changes the rows of a file."""

    def tamper(folder):
        rows = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in change(rows)))

    return tamper


def text_changed(name, old, new):
    """Return what replaces the first of a text in a file."""

    def tamper(folder):
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return tamper


def dearer(rows):
    rows[-1]["values"]["epsilon"] += 1e-9
    return rows


def failed(rows):
    return [*rows, rows[-1] | {"status": "failed", "reason": "ValueError"}]


def quieter(rows):
    return [row | ({"event": row["event"] | {"noise_multiplier": 9.0}} if "event" in row else {}) for row in rows]


def without_models(folder):
    for file in (folder / "models").iterdir():
        file.unlink()


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("tamper", "found"),
    [
        (rows_changed("points.jsonl", dearer), "points: t000"),
        (rows_changed("points.jsonl", lambda rows: [row for row in rows if row["epoch"] != 1]), "trials: t000"),
        (rows_changed("points.jsonl", lambda rows: [*rows, rows[0] | {"values": {}}]), "has two outcomes"),
        (rows_changed("trials.jsonl", failed), "failed after it was charged: ValueError"),
        (rows_changed("ledger.jsonl", lambda rows: [row for row in rows if row["record"] == "open"]), "not charged"),
        (rows_changed("ledger.jsonl", quieter), "prices: front.json says"),
        (rows_changed("ledger.jsonl", lambda rows: rows[:-1]), "is open in a sweep that has ended"),
        (text_changed("front.json", '"on_front": true', '"on_front": false'), "are wrongly on the front or not"),
        (text_changed("front.json", '"winner": {"epsilon": ', '"winner": {"epsilon": 1'), "prices"),
        (text_changed("front.json", '"epsilon": 3.0', '"epsilon": 2.0'), "in front.json, recorded is"),
        (text_changed("front.csv", ",0.", ",1."), "csv: "),
        (text_changed("sweep.json", '"completed"', '"running"'), "status: the sweep is running"),
        (without_models, "models: no model of"),
        (lambda folder: (folder / ".front.json.1.tmp").touch(), "files: "),
    ],
)
def test_what_is_not_so_is_found(ended, tmp_path, tamper, found):
    case, place, history = ended
    shutil.copytree(place, tmp_path / "place")
    (folder,) = (tmp_path / "place" / "out").glob("fuzzed-*")
    tamper(folder)
    checks, views, left = map(importlib.import_module, ("_fuzz_checks", "_fuzz_views", "_fuzz_left"))
    tampered = left.Left(case, folder, history)
    wrong = [*checks.check_records(tampered), *left.run_checks([views.check_csv], tampered)]
    assert [text for text in wrong if found in text]


def test_a_step_more_than_the_ledger_says_is_found(ended):
    case, place, history = ended
    left, charges = map(importlib.import_module, ("_fuzz_left", "_fuzz_charges"))
    more = {trial: count + Counter(".") for trial, count in history.drawn.items()}
    told = left.History(history.steps, history.outcomes, history.ledgers, more)
    (folder,) = (place / "out").glob("fuzzed-*")
    wrong = list(charges.check_draws(left.Left(case, folder, told)))
    assert [text for text in wrong if text.startswith("t0001 drew")]


@pytest.mark.parametrize("kind", ["before", "after", "torn"])
@pytest.mark.long
def test_a_sweep_that_is_killed_at_a_write_is_resumed(bench, tmp_path, kind, monkeypatch):
    specs = importlib.import_module("_fuzz_specs")
    ends = {"kind": kind, "write": 12}
    case = specs.Case(0, SPEC, 2, "public", ({"do": "run", "ends": ends}, {"do": "resume"}), files=FILES)
    monkeypatch.setattr(specs, "make_case", lambda *_, **__: case)
    report = bench.fuzz_one(0, tmp_path)
    assert (report.wrong, report.counts) == ([], Counter(["run killed", "resume ended"]))
