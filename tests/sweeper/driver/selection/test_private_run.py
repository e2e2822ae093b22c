"""Whole sweeps that select privately: what they tell, and where they may run."""

import contextlib
import re
import sqlite3
import stat
from dataclasses import replace
from pathlib import Path

import pytest

import clipless
from sweeper.backend.endings import RunResult
from sweeper.cli.main import main
from sweeper.cli.tables import sweep_view, sweeps_table
from sweeper.driver import row_digests
from sweeper.driver.options import Options
from sweeper.driver.row_digests import ROWS_NAME
from sweeper.driver.runner import resume_sweep, run_sweep
from sweeper.driver.selection import private_run
from sweeper.errors import RecordError, SweeperError
from sweeper.records import SweepStatus
from sweeper.results.sweep import Sweep
from sweeper.specification.spec import Spec
from sweeper.store.actions import REQUESTS_NAME
from sweeper.store.jsonl import append_alone
from sweeper.store.sweep_folder import SweepFolder, hidden_sweeps, list_sweeps

from .played import SPEC, Calls, check_only_the_winner, everything_in, killed, main_quietly, said

pytestmark = pytest.mark.slow


def test_a_whole_sweep_tells_and_writes_of_the_winner_alone(whole, tmp_path):
    shown = []
    ended = run_sweep(Spec.from_mapping(SPEC), Options(out=tmp_path, show=shown.append))
    folder = ended.sweep.directory
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    told = repr(Calls.told).encode()
    check_only_the_winner(everything_in(folder) + told, whole)
    assert [call[1] for call in Calls.told if call[0] == "start_trial"] == ["t0001"]
    logged = [call[3] for call in Calls.told if call[0] == "log" and call[1:3] == ("t0001", 2)]
    assert [sum(f"{split}/accuracy" in metrics for metrics in logged) for split in ("val", "test")] == [1, 1]
    assert len(logged) == 3
    assert logged[2] == {"best/accuracy/test": logged[1]["test/accuracy"]}
    assert ended.sweep.manifest().status is SweepStatus.COMPLETED
    assert ended.outcome == RunResult()
    assert all(point.test is not None for point in ended.front.front_points)
    assert not (folder / "proposals.jsonl").exists()
    assert {progress.note for progress in shown} <= {"selecting privately", "one trial, selected privately"}
    assert shown[0].note == "selecting privately"
    assert len({int(path.stat().st_mtime) for path in folder.rglob("*")}) == 1
    _check_words(ended.sweep, folder)


def _check_words(sweep, folder):
    """Card, view and report state the price of the winner, and none of what was not released."""
    picked = sweep.pick()
    text, price_ = picked.card.to_markdown(), sweep.front().ledger["winner"].epsilon
    assert picked.card.to_json()["guarantee"]["selected"] == price_
    assert "selected privately" in text
    assert "if its configuration and epoch" not in text
    assert "| the front | not released |" in text
    assert " inf " not in text
    page = (folder / "front.html").read_text(encoding="utf-8")
    assert page.count(">not released<") == 2
    assert "∞" not in page[page.index('id="cost"') :]
    assert sweep_view(sweep) is not None
    assert sweeps_table(list_sweeps(folder.parent)).row_count == 1


@pytest.mark.usefixtures("bare")
def test_a_whole_sweep_that_broke_is_tracked_and_says_what_it_costs(whole, tmp_path, capsys):
    whole.does = {"t0002": "crashes"}
    path = tmp_path / "small.yaml"
    path.write_text(Spec.from_mapping(SPEC).to_yaml(), encoding="utf-8")
    main_quietly(["run", str(path), "--out", str(tmp_path / "out")])
    out = capsys.readouterr().out
    assert "the conditions of private selection did not hold" in out
    assert "Candidate t0002 crashed" in out
    assert "sweeper resume" not in out
    assert [call[1] for call in Calls.told if call[0] == "start_trial"] == ["t0001", "t0002"]
    (folder,) = (tmp_path / "out").iterdir()
    assert Sweep(folder).manifest().status is SweepStatus.STOPPED
    for arguments in (["resume", str(folder)], ["extend", str(folder), "--trials", "9"]):
        with pytest.raises(SystemExit):
            main(arguments)
        assert "selected privately, from a number of trials that was drawn once" in capsys.readouterr().err


WATCHED = ({"storage": "memory://somewhere"}, {"into": Path("made"), "storage": "memory://somewhere"})


@pytest.mark.parametrize("given", WATCHED)
def test_who_could_be_watched_has_to_consent(tmp_path, given):
    names = ", ".join(f"--{name}" for name in ("into", "storage") if name in given)
    with pytest.raises(SweeperError, match=f"Expected --duration-is-seen for a private selection with {names}:"):
        run_sweep(Spec.from_mapping(SPEC), Options(out=tmp_path, **given))
    assert list(tmp_path.iterdir()) == []


NO_CLUSTER = "Expected no cluster for a private selection, .* got somewhere \\(--cluster\\); leave it out"


def test_on_a_cluster_nothing_is_read_charged_or_written(tmp_path, monkeypatch):
    monkeypatch.setattr(clipless.datasets, "load", lambda **_: pytest.fail("no data are needed"))
    options = Options(out=tmp_path, cluster="somewhere", duration_is_seen=True)
    with pytest.raises(SweeperError, match=NO_CLUSTER):
        run_sweep(Spec.from_mapping(SPEC), options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["head:6379", "http://head:8265"])
def test_the_command_refuses_a_cluster_before_a_job_is_submitted(tmp_path, capsys, address):
    path = tmp_path / "small.yaml"
    path.write_text(Spec.from_mapping(SPEC).to_yaml(), encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["run", str(path), "--out", str(tmp_path / "out"), "--cluster", address, "--duration-is-seen"])
    assert f"got {address} (--cluster); leave it out" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("recorded", [None, "somewhere"])
def test_a_selection_goes_on_on_no_cluster_and_not_from_one_that_an_earlier_version_used(whole, tmp_path, recorded):
    """It is left as it is, and can be given up."""
    kill, copy = killed(tmp_path)
    whole.does = {"t0003": kill}
    run_sweep(Spec.from_mapping(SPEC), Options(out=tmp_path / "out"))
    copy.write_manifest(replace(copy.read_manifest(secret=True), cluster=recorded))
    before, asked = everything_in(copy.path), len(whole.asked)
    said_ = f"got one that began on the cluster {recorded} in " if recorded else NO_CLUSTER
    with pytest.raises(SweeperError, match=said_):
        resume_sweep(copy.path, Options(cluster=None if recorded else "somewhere"))
    assert everything_in(copy.path) == before
    ended = resume_sweep(copy.path, give_up=True)
    assert len(whole.asked) == asked
    assert len(ended.front.points) == 4
    assert ended.sweep.manifest().cluster is None


@pytest.mark.usefixtures("bare")
def test_a_selection_that_waits_knows_its_rows_and_so_does_its_winner(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(row_digests, "_are_read", lambda _: True)
    kill, copy = killed(tmp_path)
    whole.does = {"t0003": kill}
    ended = run_sweep(Spec.from_mapping(SPEC), Options(out=tmp_path / "out"))
    noted = [folder.path / ROWS_NAME for folder in (copy, ended.sweep.folder)]
    assert noted[0].read_bytes() == noted[1].read_bytes()
    assert {stat.S_IMODE(path.stat().st_mode) for path in noted} == {0o600}
    monkeypatch.setattr(row_digests, "digest_sides", lambda *_: {"all": "others"})
    asked = len(whole.asked)
    with pytest.raises(RecordError, match="each on its side of the split, got others"):
        resume_sweep(copy.path)
    assert len(whole.asked) == asked


@pytest.mark.usefixtures("bare")
def test_ctrl_c_leaves_it_waiting_and_says_how_to_go_on(whole, tmp_path, capsys):
    def stop(engine, *_):
        append_alone(engine.folder.path / REQUESTS_NAME, {"stop": True})

    whole.does = {"t0002": stop}
    path = tmp_path / "small.yaml"
    path.write_text(Spec.from_mapping(SPEC).to_yaml(), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["run", str(path), "--out", str(tmp_path / "out")])
    (hidden,) = hidden_sweeps(tmp_path / "out")
    assert ended.value.code == 130
    text = "".join(capsys.readouterr())
    assert private_run.waiting(hidden) in " ".join(text.split())
    assert "t000" not in text
    main_quietly(["resume", str(hidden.path)])
    assert "its conditions held" in " ".join("".join(capsys.readouterr()).split())


@pytest.mark.long
def test_a_real_sweep_selects_privately(tmp_path):
    """Trials on processes of its own, models and the tracking store, with whatever number is drawn."""
    content = SPEC | {"search": SPEC["search"] | {"selection_mean": 2}}
    ended = run_sweep(Spec.from_mapping(content), Options(out=tmp_path))
    path = ended.sweep.directory
    assert {one.name for one in tmp_path.iterdir()} == {path.name, ".mlflow.db.lock", "mlflow.db", "mlflow-artifacts"}
    folder = SweepFolder(path)
    assert "its conditions held" in said(folder)
    assert list(folder.trials()) == ["t0001"]
    for point in ended.front.front_points:
        clipless.load(path / point.model)
    with contextlib.closing(sqlite3.connect(path.parent / "mlflow.db")) as store:
        runs = store.execute("select name, status from runs").fetchall()
        steps = store.execute("select step from metrics where key = 'val/accuracy'").fetchall()
        keys = [key for (key,) in store.execute("select distinct key from metrics").fetchall()]
    assert [status for _, status in runs] == ["FINISHED"] * 2
    whole, winner = sorted(name for name, _ in runs)
    assert whole == path.name
    assert re.fullmatch(r"t0001 accuracy [\d.]+ on validation rows, mlp-8", winner)
    assert not any(key.startswith(("system/", "best/")) and "eps" in key for key in keys)
    assert {*steps} == {(1,), (2,)}, "that of the logged model comes twice"
    assert len(folder.ledger.read_text().splitlines()) == 1
    assert not list(path.rglob("t0002*"))
    assert not (path / "ray").exists()
