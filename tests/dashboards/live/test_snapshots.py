import json
import threading
from types import SimpleNamespace

import pytest

from clipless.audits.finding import AuditKind, Finding
from dashboards.live import snapshots as module
from dashboards.live.snapshots import LONGEST_PAUSE_SECONDS, PAUSE_SECONDS, Snapshot, Snapshots
from dashboards.text import score_lines
from sweeper.errors import RecordError, UnknownSweepError
from sweeper.pareto.dominance import dominates
from sweeper.privacy.ledger import Ledger
from sweeper.records import Trial, TrialStatus
from sweeper.store.evidence import Evidence, append_evidence
from sweeper.store.sweep_folder import SweepFolder

from .conftest import ENDED, EVENT, PLAN, RUNNING, Growing


def test_an_ended_sweep_is_what_its_front_file_says(snapshots, out):
    from dashboards.data import read

    snapshot = snapshots.get(ENDED)
    assert snapshot.sweep().result == read(out / ENDED).result
    assert snapshot.status == "completed"
    assert not snapshot.running


def test_a_running_sweep_grows_without_a_new_front_file(snapshots, growing, clock):
    assert snapshots.get(RUNNING).sweep().points == ()
    growing.start("t0001")
    growing.add("t0001", 1, 0.5, 0.6)
    growing.add("t0001", 2, 0.8, 0.5)
    clock.now += 100
    data = snapshots.get(RUNNING).sweep()
    assert [point.key for point in data.points] == [("t0001", 1, ""), ("t0001", 2, "")]
    assert data.result.on_front == {("t0001", 1, "")}
    growing.start("t0002")
    growing.add("t0002", 1, 0.4, 0.9, 0.2)
    clock.now += 100
    later = snapshots.get(RUNNING).sweep()
    assert later.result.on_front == {("t0002", 1, "")}
    assert later.result.hypervolume > data.result.hypervolume > 0
    costs = {p.key: (p.values["epsilon"], -p.values["accuracy"], -p.values["certified@0.25"]) for p in later.points}
    for key in later.result.on_front:
        assert not any(dominates(other, costs[key]) for other in costs.values())


def test_what_an_audit_refuses_leaves_the_front_at_the_next_look(snapshots, growing, clock):
    for trial, epsilon, accuracy in (("t0001", 0.5, 0.9), ("t0002", 0.6, 0.4)):
        growing.start(trial)
        growing.add(trial, 1, epsilon, accuracy)
    clock.now += 100
    assert snapshots.get(RUNNING).sweep().result.on_front == {("t0001", 1, "")}
    finding = Finding(
        kind=AuditKind.STEP,
        subject="trial t0001",
        epsilon=1.0,
        delta=1e-4,
        attained=4.0,
        confidence=1.0,
        p_value=0.0,
        contradicted=True,
    )
    append_evidence(growing.folder.path, [Evidence(trial="t0001", finding=finding, found="now", program="1")])
    clock.now += 100
    found = snapshots.get(RUNNING).sweep()
    assert found.result.on_front == {("t0002", 1, "")}
    assert "refused by an audit" in found.trials["t0001"].reason


def test_prices_are_up_to_date(snapshots, growing, clock):
    ledger = Ledger(growing.folder.ledger)
    for trials in (1, 2):
        ledger.open(f"t{trials}", EVENT)
        clock.now += 100
        assert snapshots.get(RUNNING).sweep().result.ledger == ledger.answers(1e-4)


def test_how_trials_ended_is_up_to_date(snapshots, growing, clock):
    growing.start("t0001")
    growing.add("t0001", 1, 0.5, 0.6)
    assert snapshots.get(RUNNING).sweep().trials["t0001"].status == "running"
    growing.end("t0001", TrialStatus.STOPPED, "rung 1: rank 2 of 2")
    clock.now += 100
    trial = snapshots.get(RUNNING).sweep().trials["t0001"]
    assert (trial.status, trial.reason) == ("stopped", "rung 1: rank 2 of 2")


def test_a_point_whose_trial_is_not_known_yet_waits_for_it(snapshots, growing, clock):
    growing.add("t0001", 1, 0.5, 0.6)
    assert snapshots.get(RUNNING).sweep().points == ()
    growing.start("t0001")
    clock.now += 100
    assert len(snapshots.get(RUNNING).sweep().points) == 1


@pytest.mark.usefixtures("growing")
def test_nothing_is_read_while_nothing_changes(snapshots, clock, monkeypatch):
    first = snapshots.get(RUNNING)
    monkeypatch.setattr(module, "_read", lambda *_: pytest.fail("read again"))
    clock.now += 1000
    assert snapshots.get(RUNNING) is first


def test_all_who_look_within_a_pause_see_the_same(snapshots, growing, clock):
    first = snapshots.get(RUNNING)
    growing.start("t0001")
    clock.now += PAUSE_SECONDS / 2
    assert snapshots.get(RUNNING) is first
    clock.now += 100
    assert snapshots.get(RUNNING).token != first.token


@pytest.mark.parametrize(
    ("before", "seconds", "pause"),
    [
        (0.0, 0.0, PAUSE_SECONDS),
        (2.0, 2.0, 20.0),
        (60.0, 60.0, LONGEST_PAUSE_SECONDS),
        (5.0, 2.0, 20.0),  # less than the first one, which had to import
        (2.0, 5.0, 20.0),
    ],
)
def test_the_pause_grows_with_what_making_takes_again_and_again_to_a_limit(
    snapshots, growing, clock, before, seconds, pause
):
    snapshots.get(RUNNING).seconds = before
    growing.start("t0001")
    clock.now += 1.01 * PAUSE_SECONDS
    second = snapshots.get(RUNNING)
    second.seconds = seconds
    growing.start("t0002")
    clock.now += 0.99 * pause
    assert snapshots.get(RUNNING) is second
    clock.now += 0.02 * pause
    assert snapshots.get(RUNNING) is not second


def test_a_sweep_without_a_front_says_so(snapshots, growing, clock):
    (growing.folder.path / "front.json").unlink()
    snapshot = snapshots.get(RUNNING)
    with pytest.raises(RecordError, match="has started and has no front yet"):
        snapshot.sweep()
    growing.write_front()
    clock.now += 100
    assert snapshots.get(RUNNING).sweep().name == "grows"


def test_a_broken_row_is_named_without_the_folders_of_this_machine_and_mended_when_it_is_mended(
    snapshots, growing, clock, out
):
    growing.start("t0001")
    growing.add("t0001", 1, 0.5, 0.6)
    path = growing.folder.path / "points.jsonl"
    good = path.read_text()
    path.write_text(f"{good}nonsense\n")
    said = snapshots.get(RUNNING).trouble
    assert f"line 2 of {RUNNING}/points.jsonl" in said
    assert str(out) not in said
    path.write_text(good + good.replace('"epoch": 1', '"epoch": 2'))
    clock.now += 100
    assert len(snapshots.get(RUNNING).sweep().points) == 2


def test_a_card_that_cannot_be_made_says_so_without_the_folders_of_this_machine(show, out):
    trials = json.loads((out / ENDED / "front.json").read_text())["trials"]
    for id_ in trials:
        SweepFolder(out / ENDED).save_trial(Trial(id=id_, config={}, plan=PLAN))
    (out / ENDED / "ledger.jsonl").mkdir()
    page = show("part", "picked")
    assert f"Cannot read {ENDED}/ledger.jsonl: " in page
    assert str(out) not in page


def test_an_ending_sweep_is_read_whole_again(snapshots, growing, clock, make_front):
    snapshots.get(RUNNING)
    front = make_front(name="grows")
    (growing.folder.path / "front.json").write_text(json.dumps(front))
    growing.describe("completed")
    clock.now += 100
    data = snapshots.get(RUNNING).sweep()
    assert len(data.points) == len(front["points"])
    assert any(point.test for point in data.front_points)


def test_an_unknown_sweep_is_refused(snapshots):
    with pytest.raises(UnknownSweepError):
        snapshots.get("../digits")


def test_hidden_sweeps_are_nobodys_to_see(snapshots, out, write_sweep):
    write_sweep(out / ".selecting-digits-20260103-120000")
    assert [row.name for row in snapshots.summaries()] == [ENDED]
    with pytest.raises(UnknownSweepError):
        snapshots.get(".selecting-digits-20260103-120000")


def test_the_list_has_the_best_and_the_price_without_a_sweep_being_read_whole(snapshots, growing, monkeypatch, sweep):
    monkeypatch.setattr(module, "read", lambda *_: pytest.fail("parsed"))
    growing.start("t0001")
    growing.add("t0001", 1, 0.5, 0.6)
    rows = {row.name: row for row in snapshots.summaries()}
    ended = rows[ENDED]
    best = max(sweep.front_points, key=lambda point: point.values["accuracy"])
    assert (ended.status, ended.trials, ended.price) == ("completed", 24, 13.61)
    assert (ended.utility, ended.best) == ("accuracy", best.test["accuracy"])
    assert ended.hypervolume == sweep.result.hypervolume
    assert ended.scores == score_lines(best, "accuracy", sweep.result.claim)
    assert ended.started == "20260101-120000"
    assert (rows[RUNNING].status, rows[RUNNING].trials, rows[RUNNING].best) == ("running", 1, 0.6)
    assert list(rows) == [RUNNING, ENDED]


def test_running_sweeps_are_not_read_again_for_the_list_however_many_there_are(
    catalog, growing, clock, out, make_front, monkeypatch
):
    snapshots = Snapshots(catalog, clock, limit=2)
    all_ = [growing, *(Growing(out / f"grows-2026010{day}-120000", make_front()) for day in (3, 4))]
    assert [row.trials for row in snapshots.summaries()] == [0, 0, 0, 24]
    read, original = [], module._read
    monkeypatch.setattr(module, "_read", lambda folder, *rest: read.append(folder.path) or original(folder, *rest))
    clock.now += 100
    snapshots.summaries()
    assert read == []
    all_[1].start("t0001")
    all_[1].add("t0001", 1, 0.5, 0.6)
    assert [row.trials for row in snapshots.summaries()][1] == 1
    assert read == [all_[1].folder.path]


@pytest.mark.parametrize(("seconds", "pause"), [(0.0, PAUSE_SECONDS), (2.0, 20.0), (60.0, LONGEST_PAUSE_SECONDS)])
def test_a_row_of_a_running_sweep_is_made_again_after_a_pause_and_its_end_is_told_at_once(
    snapshots, growing, clock, monkeypatch, seconds, pause
):
    passed = [0.0]
    original = snapshots.get

    def slow(name):
        passed[0] += seconds
        return original(name)

    monkeypatch.setattr(snapshots, "get", slow)
    monkeypatch.setattr(module.time, "thread_time", lambda: passed[0])

    def row():
        return snapshots.summaries()[0]

    row()
    growing.start("t0001")
    clock.now += 1.01 * PAUSE_SECONDS
    assert row().trials == 1, "what only the first look pays for is no reason for a pause"
    growing.start("t0002")
    clock.now += 0.99 * pause
    assert row().trials == 1
    clock.now += 0.02 * pause
    assert row().trials == 2
    growing.describe("completed")
    assert row().status == "completed"


def test_a_row_made_of_an_older_snapshot_is_made_again(snapshots, growing, clock):
    snapshots.get(RUNNING)
    growing.start("t0001")
    assert snapshots.summaries()[0].trials == 0
    clock.now += 1.01 * PAUSE_SECONDS
    assert snapshots.summaries()[0].trials == 1


def test_the_list_shows_what_cannot_be_read_and_leaves_out_what_vanishes(snapshots, out, growing):
    (out / ENDED / "front.json").write_text("{}")
    (growing.folder.path / "sweep.json").write_text("nonsense")
    rows = {row.name: row for row in snapshots.summaries()}
    assert rows[ENDED].trials is None
    assert rows[RUNNING].status == "unreadable"
    snapshots._catalog.names = lambda: ("gone", ENDED)
    assert [row.name for row in snapshots.summaries()] == [ENDED]


def test_the_token_of_the_list_changes_with_it(snapshots, growing, clock):
    first = snapshots.token()
    assert snapshots.token() == first
    growing.start("t0001")
    clock.now += 100
    assert snapshots.token() != first


def test_many_sweeps_are_not_all_kept(catalog, out, write_sweep):
    snapshots = Snapshots(catalog, limit=2)
    for number in range(4):
        name = f"s-2026020{number + 1}-120000"
        write_sweep(out / name)
        snapshots.get(name)
    assert len(snapshots._sweeps) == 2


def test_a_thing_is_made_once_for_all_threads_and_again_if_making_failed():
    snapshot, calls, gate = Snapshot("a", "b"), [], threading.Barrier(4)

    def make():
        calls.append(1)
        return SimpleNamespace()

    results = []
    threads = [
        threading.Thread(target=lambda: (gate.wait(), results.append(snapshot.once("x", make)))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert all(result is results[0] for result in results)

    def fail():
        raise RecordError("not now")

    with pytest.raises(RecordError):
        snapshot.once("y", fail)
    assert snapshot.once("y", lambda: 3) == 3
