"""Sweeps as text."""

import html
import io
from dataclasses import replace

import pytest
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from sweeper.cli.tables import (
    SHOWN_POINTS,
    SHOWN_REASONS,
    audit_view,
    comparison_view,
    print_view,
    sweep_view,
    sweeps_table,
)
from sweeper.privacy.claims import COPIED
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import Price
from sweeper.program import program
from sweeper.records import NoisyScores, RehearsalSource, SweepStatus, Trial, TrialStatus
from sweeper.results.comparison import compare
from sweeper.results.display import picked_in_words
from sweeper.results.front import read_front
from sweeper.results.sweep import Sweep
from sweeper.store.lock import driver_lock
from sweeper.store.manifest import Course, Manifest
from sweeper.store.sweep_folder import SweepFolder
from sweeper.store.trial_standings import LOST_REASON
from tests.factories import make_evidence, make_rehearsals, write_rehearsals

from .conftest import TRAINS


@pytest.fixture
def make(tmp_path, make_front, claim, trial, make_point):
    """Write a sweep folder of ``count`` points; every second one is on no front."""

    def write(name="digits-1", *, count=4, status="completed", reason="", front=None, **claimed):
        folder = SweepFolder(tmp_path / name)
        folder.path.mkdir()
        manifest = Manifest(name="digits", status=SweepStatus(status), reason=reason, spec={}, source="spec.yaml")
        folder.write_manifest(manifest)
        failed = replace(trial, id="t0002", status=TrialStatus.FAILED, reason="ValueError: it broke")
        rows = [(n + 1, 1.0 + n / 10, 0.5 + (n % 2 == 0) * n / 1000) for n in range(count)]
        points = [make_point("t0001", *row, test=None if row[0] > 1 else {"accuracy": 0.25}) for row in rows]
        answers = {"winner": Price(epsilon=3.0, delta=1e-4, events=2, statement="Price: epsilon 3.")}
        usual = {"points": points, "trials": [trial, failed], "ledger": answers, "claim": replace(claim, **claimed)}
        make_front(**usual | (front or {})).write(folder.front)
        return folder

    return write


def text(what, width=120):
    screen = io.StringIO()
    Console(file=screen, width=width, soft_wrap=True).print(what)
    return screen.getvalue()


def test_every_sweep_is_a_row(make):
    folders = [make(), make("digits-2", status="running"), make("digits-3", status="running")]
    folders[2].front.unlink()
    with driver_lock(folders[1].path):
        shown = text(sweeps_table(folders), width=300)
    heads, first, second, third = (line.split() for line in shown.splitlines())
    front = Sweep(folders[0].path).front()
    best = max(point.values["accuracy"] for point in front.front_points)
    assert heads == ["sweep", "status", "trials", "best", "price"]
    shown = ["accuracy", f"{best:.3f}", "on", "validation", "rows"]
    assert first[1:] == ["completed", "2", *shown, "3"]
    assert second[1] == "running"
    assert third[1:] == ["lost"]  # nothing drives it, and it has no front yet


def test_a_list_and_a_front_say_that_a_price_is_not_proven(make):
    folders = [make(), make("digits-2", chosen=("batch_size",))]
    _, first, second = text(sweeps_table(folders), width=300).splitlines()
    assert ("not proven" in first, " 3 (not proven) " in second) == (False, True)
    for folder, is_proven in zip(folders, (True, False), strict=True):
        assert {row["price.proven"] for row in Sweep(folder.path).front().rows()} == {is_proven}


def test_what_stands_against_a_price_is_beside_it_wherever_it_is_told(make, claim):
    """An exploratory sweep, and a copy of one."""
    marked = {"exploratory": replace(claim, exploratory=True), "not proven": claim.of_copy()}
    for word, told in marked.items():
        folder = make(f"a-{word[:3]}")
        front = read_front(folder.front)
        replace(front, claim=told, ledger=told.qualify(front.ledger)).write(folder.front)
        sweep = Sweep(folder.path)
        assert word in text(sweeps_table([folder]), width=300)
        assert {row["price.proven"] for row in sweep.front().rows()} == {False}
        assert {row["price_proven"] for row in compare([("a", sweep.front()), ("b", sweep.front())]).rows()} == {False}
        front = sweep.front()
        said = "Exploratory: no guarantee." if front.claim.exploratory else COPIED
        assert picked_in_words(front.front_points[0], {}, front)[0] == said


def test_a_killed_sweep_is_shown_with_what_its_ledger_holds(make, event):
    folder = make(status="running")
    ledger = Ledger(folder.ledger)
    for trial in ("t0001", "t0002", "t0003"):
        ledger.open(trial, event)
    shown = text(sweep_view(Sweep(folder.path)))
    assert "epsilon 3." not in shown
    assert all(answer.statement in shown for answer in ledger.answers(1e-4).values())


def test_a_sweep_whose_driver_is_gone_is_lost_wherever_it_is_shown_and_stays_as_it_is(make):
    folder = make(status="running")
    before = {file: file.read_bytes() for file in folder.path.iterdir() if file.is_file()}
    sweep = Sweep(folder.path)
    goes_on = f"If it was killed, go on with it: {program()} resume {folder.path}"
    for shown in (text(sweep_view(sweep), width=400), repr(sweep), html.unescape(sweep._repr_html_())):
        assert "lost" in shown
        assert LOST_REASON in shown
        assert goes_on in shown
        assert "running" not in shown
    assert before == {file: file.read_bytes() for file in folder.path.iterdir() if file.is_file()}
    with driver_lock(folder.path):
        for shown in (text(sweep_view(sweep), width=400), repr(sweep), html.unescape(sweep._repr_html_())):
            assert "running" in shown
            assert "lost" not in shown
            assert goes_on not in shown


def test_a_lost_sweep_says_which_points_its_front_was_written_without(make, make_point):
    folder = make(status="running")
    for known in Sweep(folder.path).front().trials:
        folder.save_trial(Trial(id=known, config={}))
    lacks = "Not in the front yet: 2 points of its trials, up to epoch 38. If it was killed, go on with it:"
    shown = repr(Sweep(folder.path)), text(sweep_view(Sweep(folder.path)), width=400)
    assert not any("Not in the front yet" in one for one in shown)
    folder.save_points([*Sweep(folder.path).front().points, make_point("t0001", 37, 1.5, 0.6)])
    folder.save_points([make_point("t0001", 38, 1.6, 0.7)])
    sweep = Sweep(folder.path)
    for one in (repr(sweep), html.unescape(sweep._repr_html_()), text(sweep_view(sweep), width=400)):
        assert lacks in one
    with driver_lock(folder.path):
        assert "Not in the front yet" not in repr(sweep)


def test_trials_of_a_running_sweep_are_said_to_run_from_their_first_noise_on(make, event):
    folder = make(status="running")
    folder.write_manifest(replace(folder.read_manifest(), spec={"privacy": {"epsilon": 3}}))
    ledger = Ledger(folder.ledger)
    for trial in ("t0007", "t0008", "t0009"):
        folder.save_trial(Trial(id=trial, config={}))
        ledger.open(trial, event, marked=True)
    ledger.draw("t0007")
    ends = "trials: 1 completed, 1 failed"
    with driver_lock(folder.path):
        assert f"{ends}, 1 running, 2 waiting\n" in text(sweep_view(Sweep(folder.path)))
    assert f"{ends}, 1 lost, 2 never begun\n" in text(sweep_view(Sweep(folder.path)))


def test_a_sweep_that_cannot_be_read_says_so_and_does_not_hide_the_others(make):
    sound, broken, bare = make(), make("digits-2"), make("digits-3")
    broken.front.write_text("{", encoding="utf-8")
    (bare.path / "sweep.json").write_text("{}")
    shown = text(sweeps_table([broken, bare, sound]), width=400)
    assert "unreadable: Expected a JSON object in" in shown
    assert f"unreadable: Expected format 1 in {bare.path}/sweep.json, got none" in shown
    assert "completed" in shown


def test_where_a_column_has_no_room_a_number_and_its_interval_stay_whole_on_a_line_each(make, make_point):
    ends = {"accuracy": (0.7, 0.9), "certified@1/4": (0.2, 0.4)}
    scores = NoisyScores(is_final=True, released={}, intervals=ends, test_intervals=ends)
    point = make_point("t0001", 7, 1.5, 0.8, 0.3, noisy=scores, test={"accuracy": 0.8, "certified@1/4": 0.3})
    sweep = Sweep(make("adult-20261129-194043", front={"points": [point]}).path)
    for view, width in ((sweep_view(sweep), 100), (sweeps_table([sweep.folder]), 90)):
        tables = [one for one in (view.renderables if isinstance(view, Group) else [view]) if isinstance(one, Table)]
        screen = io.StringIO()
        Console(file=screen, width=width).print(*tables)
        lines = screen.getvalue().splitlines()
        assert max(map(len, lines)) <= width
        assert any(line.count("[") for line in lines)
        assert all(line.count("[") == line.count("]") for line in lines)
        assert "…" not in screen.getvalue()
    wide = text(sweep_view(sweep), width=200)
    assert "0.800 [0.700, 0.900]  0.300 [0.200, 0.400]" in wide


def test_a_long_path_is_folded_never_cut(make):
    folder = make("a" * 90)
    shown = text(sweeps_table([folder]), width=80)
    assert "…" not in shown
    assert "".join(line.split()[0] for line in shown.splitlines()[1:]).count("a") >= 90


def test_a_sweep_shows_state_front_failures_and_cost(make):
    folder = make(reason="the 2 hours are used up", status="stopped")
    shown = text(sweep_view(Sweep(folder.path)))
    assert shown.startswith("digits: stopped: the 2 hours are used up\n")
    lacks = " ".join(shown.split())
    assert f"Not scored on test rows yet: 1 point of the front. Go on with it: {program()} resume" in lacks
    assert "trials: 1 completed, 1 failed" in shown
    assert "front: 2 of 4 points, hypervolume 0." in shown
    assert "t0002: failed: ValueError: it broke" in shown
    assert "Price: epsilon 3." in shown
    assert "exploratory" not in shown


def test_a_sweep_shows_where_it_was_trained(make, trial):
    folder = make()
    assert "trained: " not in text(sweep_view(Sweep(folder.path)))
    for number, node in enumerate(("10.0.0.1", "10.0.0.1", "10.0.0.2")):
        folder.save_trial(replace(trial, id=f"t{number:04d}", placed={"node": node, "device": "cpu"}))
    shown = text(sweep_view(Sweep(folder.path)))
    assert "trained: 2 trials on 10.0.0.1 (cpu); 1 trial on 10.0.0.2 (cpu)" in shown


def test_test_numbers_stand_beside_the_points_that_have_them(make):
    lines = text(sweep_view(Sweep(make().path)), width=200).splitlines()
    rows = [line.split() for line in lines if line.strip().startswith("t0001 ")]
    assert rows == [
        ["t0001", "1", "1", "0.500", "0.000", "0.250", "-"],
        ["t0001", "3", "1.2", "0.502", "0.000", "-", "-"],
    ]


def test_the_two_epsilons_of_a_point_are_named(make):
    shown = text(sweep_view(Sweep(make().path)), width=200)
    assert "own epsilon" in shown.splitlines()[3]
    assert shown.count("Price: epsilon 3.") == 1


def test_a_long_front_is_shown_in_part(make):
    shown = text(sweep_view(Sweep(make(count=100).path)), width=200)
    assert "front: 50 of 100 points" in shown
    assert f"; {SHOWN_POINTS} of them shown, all are in front.csv" in shown
    assert sum(line.strip().startswith("t0001 ") for line in shown.splitlines()) == SHOWN_POINTS


def test_the_most_accurate_point_is_shown_wherever_it_lies_on_the_front(make, trial, make_point):
    points = [make_point("t0001", n + 1, 1.0 + n, 0.2 + n / 1000, 0.5 - n / 1000) for n in range(100)]
    points[50] = make_point("t0001", 51, 51.0, 0.99, 0.3)
    folder = make(front={"trials": [trial], "points": points})
    lines = text(sweep_view(Sweep(folder.path)), width=200).splitlines()
    assert any(line.split()[:2] == ["t0001", "51"] for line in lines)
    assert any(line.startswith("best accuracy, ") and "t0001, epoch 51:" in line for line in lines)
    assert sum(line.startswith("best epsilon, best certified@1/4") for line in lines) == 1
    assert sum("what pick takes" in line for line in lines) == 1


def test_an_exploratory_sweep_is_marked(make):
    assert "exploratory: no guarantee" in text(sweep_view(Sweep(make(exploratory=True).path)))


def test_a_sweep_without_trials_says_so(make):
    folder = make(front={"trials": [], "points": []})
    assert "trials: none yet" in text(sweep_view(Sweep(folder.path)))


HALTED = """{"record": "budget", "accounting": "slots", "epsilon": 3.0, "delta": 1e-05, "stages": [{"slot": {"kind": \
"poisson-gaussian", "noise_multiplier": 1.91, "sampling_rate": 0.0615, "steps": 340, "relation": "add-or-remove-one"}, \
"trials": 1, "spare": 17}], "sketch": {"kind": "poisson-gaussian", "noise_multiplier": 4.413, "sampling_rate": 1.0, \
"steps": 1, "relation": "add-or-remove-one"}}
{"record": "sketch", "event": {"kind": "poisson-gaussian", "noise_multiplier": 4.413, "sampling_rate": 1.0, "steps": 1, \
"relation": "add-or-remove-one"}, "nonce": "b73f29d3a1f30453"}
"""


@pytest.mark.parametrize(
    ("source", "ledger", "spent"),
    [
        ("public", "", "nothing is spent yet"),
        ("sketch", "", "nothing beside the sketch is spent yet"),
        ("sketch", HALTED, "the sketch is paid (epsilon 0.8322 at delta 1e-05), nothing else is spent yet"),
    ],
)
def test_a_sweep_that_was_stopped_while_it_rehearsed_says_how_far_it_came(make, source, ledger, spent):
    price = Price(epsilon=3.0, delta=1e-5, events=1, statement="Price: epsilon 3.")
    folder = make(
        status="stopped", reason="ada asked it to stop", front={"trials": [], "points": [], "ledger": {"all": price}}
    )
    course = Course(trials=1, stages=(1,), rehearsals=8, rehearsed_on=RehearsalSource(source))
    folder.write_manifest(replace(folder.read_manifest(), course=course))
    write_rehearsals(folder, make_rehearsals((0.8, 0.5), (0.9, 0.6), (0.1, 0.1))[:5])
    if ledger:
        folder.ledger.write_text(ledger, encoding="utf-8")
    shown = text(sweep_view(Sweep(folder.path)))
    assert shown.splitlines()[:5] == [
        "digits: stopped: ada asked it to stop",
        f"stopped after 2 of 8 rehearsals: nothing was trained, and {spent}.",
        f"Go on with it: {program()} resume {folder.path}",
        "trials: none yet",
        "front: no point yet",
    ]
    assert "stopped, 2 of 8 rehearsed" in text(sweeps_table([folder]), width=300)
    write_rehearsals(folder, make_rehearsals(*[(0.5, 0.5)] * 8)[4:])
    assert "rehears" not in text(sweep_view(Sweep(folder.path))) + text(sweeps_table([folder]), width=300)


def test_a_bound_above_its_claim_that_holds_is_explained():
    rows = [make_evidence(epsilon=3.085, attained=attained, contradicted=False) for attained in (3.088, 2.5)]
    shown = " ".join(text(audit_view(rows), width=400).split())
    assert "judge all rows together, by Holm's correction" in shown
    assert shown.endswith("1 row attained more than the claim by itself, which among 2 rows is no refutation.")
    assert "attained more" not in text(audit_view(rows[1:]), width=400)


def test_the_knee_is_named(make, make_point):
    points = [make_point("t0001", e, x, a) for e, x, a in ((1, 1.0, 0.5), (2, 2.0, 0.8), (3, 8.0, 0.9))]
    shown = text(sweep_view(Sweep(make(front={"points": points}).path)))
    assert "\nknee: where the front bends most; past it, each gain in one objective costs more of another\n" in shown
    assert "\ncertified@1/4: share of rows that are decided correctly, whatever changes within this radius\n" in shown
    assert "\nknee: t0001, epoch 2: own epsilon 2, accuracy 0.800, certified@1/4 0.000\n" in shown


def test_of_many_reasons_the_failures_come_first_and_the_rest_is_counted(make, trial):
    early = [replace(trial, id=f"t{i:04d}", status=TrialStatus.STOPPED, reason=f"rank {i} of 50") for i in range(50)]
    broken = replace(trial, id="t0099", status=TrialStatus.FAILED, reason="it broke")
    folder = make(front={"trials": [*early, broken], "points": []})
    lines = text(sweep_view(Sweep(folder.path))).splitlines()
    assert "t0099: failed: it broke" in lines
    assert sum(": rank " in line for line in lines) == SHOWN_REASONS - 1
    assert "and 31 more; all of them are in the report" in lines


def test_trials_that_share_a_reason_share_a_line(make, trial):
    stopped = [
        replace(trial, id=f"t{i:04d}", status=TrialStatus.STOPPED, reason="ada asked it to stop") for i in range(9)
    ]
    lines = text(sweep_view(Sweep(make(front={"trials": stopped, "points": []}).path))).splitlines()
    assert "9 trials from t0000 to t0008: stopped: ada asked it to stop" in lines
    lines = text(sweep_view(Sweep(make("b", front={"trials": stopped[:2], "points": []}).path))).splitlines()
    assert "t0000, t0001: stopped: ada asked it to stop" in lines


def test_a_comparison_shows_each_sweep_the_difference_and_its_price(make, claim):
    sound = [(n, Sweep(make(n).path).front()) for n in ("a", "b")]
    shown = text(comparison_view(compare([sound[0], ("b", replace(sound[1][1], sweep="other"))])), width=200)
    rows = [line.split() for line in shown.splitlines()[1:3]]
    assert rows[0][:3] + rows[0][-2:] == ["digits", "a", "2", f"{sound[0][1].hypervolume:.4f}", "3"]
    assert " on test rows " in shown or " on validation rows " in shown
    words = "hypervolume of digits (price: epsilon 3) minus other (price: epsilon 3): +0.0000 (one run of a spec: "
    assert words in shown
    assert "(sum of both)." in shown
    marked = replace(sound[1][1], claim=replace(claim, data="mnist", exploratory=True))
    shown = text(comparison_view(compare([sound[0], ("b", marked)], anyway=True)), width=300)
    assert "not comparable: Expected sweeps of the same data" in shown
    assert "exploratory: no guarantee" in shown


@pytest.mark.long
def test_list_and_show_import_nothing_that_trains(make, imported):
    folder = make().path
    said, modules = imported("list", "--out", folder.parent)
    assert f"{folder}  completed" in said
    assert TRAINS & modules == set()
    said, modules = imported("show", folder)
    assert "hypervolume" in said
    assert "Price: epsilon 3." in said
    assert TRAINS & modules == set()


def test_a_table_is_laid_out_for_the_width_of_a_terminal_and_a_text_stays_whole():
    table = Table("field", "because")
    table.add_row("training.sensitivity_fraction", "a reason of many words " * 10)
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    print_view(Group(Text("a path " * 20), table), console)
    first, *rows = console.file.getvalue().splitlines()
    assert len(first) > 80
    assert max(map(len, rows)) <= 80
