"""Requests and specs that nobody thought of: no internal error, one shape of errors, and only errors of ours."""

import contextlib
import copy
import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeper.errors import RefusalError, SpecError
from sweeper.service import app as app_module
from sweeper.service.catalog import Catalog
from sweeper.service.responses import exports
from sweeper.service.security.spec_policy import read_spec
from sweeper.service.settings import Limits, ServiceSettings
from sweeper.specification.spec import Spec

BENCHMARKS = Path(__file__).parents[4] / "benchmarks"


@pytest.fixture
def bench(monkeypatch):
    """The fuzzer, which is run at length by hand."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("service_fuzz")
    sys.modules.pop("service_fuzz")


@pytest.mark.long
@pytest.mark.parametrize("examples", [2, 4])
def test_no_request_makes_an_internal_error(bench, out, make_sweep, monkeypatch, examples):
    monkeypatch.setattr(app_module, "entry_points", lambda **_: ())
    monkeypatch.setattr(exports, "exporter", lambda _: bench.drawn)
    for name in (bench.READ, bench.CHANGED):
        make_sweep(name)
    given_ = ServiceSettings(out=out, limits=Limits(requests_per_second=0))
    answers = bench.fuzz(app_module.create_app(given_, bench.Idle()), examples)
    operations = {label for label, _ in answers}
    assert len(operations) == 31
    read = {label for label, status in answers if status == 200 and label.startswith("GET")}
    assert len(read) >= 10, "most of what can be read was"
    assert answers.total() > 100


@pytest.fixture
def guarded(bench, out, make_sweep, monkeypatch, tmp_path):
    """A service with tokens, and everybody who may ask it."""
    monkeypatch.setattr(app_module, "entry_points", lambda **_: ())
    monkeypatch.setattr(exports, "exporter", lambda _: bench.drawn)
    for name in (bench.READ, bench.CHANGED):
        make_sweep(name)
    known = bench.visitors(tmp_path / "tokens.json")
    given_ = ServiceSettings(out=out, tokens=tmp_path / "tokens.json", limits=Limits(requests_per_second=0))
    return app_module.create_app(given_, bench.Idle()), known, out


FEW = {"nobody", "a forged cookie", "a reader"}


@pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.long)], ids=["few", "all"])
def test_nobody_is_answered_what_they_may_not_ask_nor_leaves_a_trace(bench, guarded, few):
    app, every, out = guarded
    known = {name: visitor for name, visitor in every.items() if not few or name in FEW}
    answers = bench.trespass(app, known, out, examples=1 if few else 2)
    assert {name for name, _ in answers} == set(known)
    for name, visitor in known.items():
        refused = {status for (who, status) in answers if who == name} & {401, 403}
        assert refused == (set() if visitor.writes else {403} if visitor.reads else {401})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("wrong", [{"reads": False}, {"reads": True, "writes": True}], ids=["less", "more"])
def test_the_fuzzer_ends_where_rights_are_others_than_were_thought(bench, guarded, wrong):
    app, known, out = guarded
    with pytest.raises(SystemExit, match="was answered to somebody with"):
        bench.trespass(app, {"somebody": replace(known["a reader"], **wrong)}, out, examples=1)


@pytest.mark.long
def test_the_fuzzer_ends_at_a_trace(bench, guarded, monkeypatch):
    app, known, out = guarded
    monkeypatch.setattr(bench, "check", lambda *_: (out / "trace").write_text("here"))
    with pytest.raises(SystemExit, match=r"left a trace of nobody in .*trace"):
        bench.trespass(app, {"nobody": known["nobody"]}, out, examples=1)


def test_the_fuzzer_ends_at_an_internal_error_and_at_an_error_of_another_shape(bench):
    class RenderedResponse:
        status_code, text = 500, "Internal Server Error"

        def json(self):
            return {"detail": "Not Found"}

    with pytest.raises(SystemExit, match="500 Internal"):
        bench.check("GET /", RenderedResponse)
    answer = RenderedResponse()
    answer.status_code = 404
    with pytest.raises(SystemExit, match="404"):
        bench.check("GET /", answer)
    answer.status_code = 200
    bench.check("GET /", answer)


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.sampled_from([10**400, -(10**400), 1e308, 5e-324, 2**63, 0, -1]),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["../x", "/etc/passwd", "http://x/", "mlflow:x", "certified@1/0", "certified@9e999", "{}", "inf", "nan"]),
    st.lists(st.integers(-3, 3) | st.text(max_size=3) | st.floats(), max_size=3),
    st.dictionaries(st.sampled_from(["log", "int", "uniform", "log_int", "step", "name", "x"]), st.lists(st.floats(), max_size=2)),
    st.dictionaries(st.sampled_from(["log", "int", "uniform", "log_int", "step"]), st.lists(st.integers(-9, 10**400), max_size=2)),
)  # fmt: skip
FULL = json.loads(json.dumps(Spec.from_mapping({
    "name": "x", "data": {"name": "digits"}, "model": {"architecture": ["mlp", "convnet"], "width": [16, 32]},
    "training": {"epochs": {"int": [1, 5]}, "learning_rate": {"log": [0.1, 1.0]}, "loss": [{"name": "hkr", "alpha": 2.0}]},
    "privacy": {"epsilon": 3.0, "delta": 1e-5},
    "search": {"objectives": ["epsilon", "accuracy", "certified@1/4"], "trials": 2, "first": [{"model.width": 16}]},
}).to_plain()))  # fmt: skip


def places(value, path=()):
    """Every place in nested values."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield from places(below, (*path, key))


@pytest.mark.long
@given(changes=st.lists(st.tuples(st.sampled_from(list(places(FULL))[1:]), ODD), min_size=1, max_size=2))
@settings(max_examples=200, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_no_change_of_a_spec_is_an_error_of_ours(changes, tmp_path):
    content = copy.deepcopy(FULL)
    for path, value in changes:
        target = content
        with contextlib.suppress(KeyError, IndexError, TypeError):  # an earlier change took the place away
            for key in path[:-1]:
                target = target[key]
            target[path[-1]] = value
    body = json.dumps(content).encode()
    with contextlib.suppress(SpecError, RefusalError):
        read = read_spec(body, "application/json", ServiceSettings(out=tmp_path), Catalog(tmp_path)).spec
        assert Spec.from_mapping(read.to_plain()).digest() == read.digest()
        assert not read.data.path
